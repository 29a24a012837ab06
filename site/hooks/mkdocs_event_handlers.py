"""mkdocs event handlers that add generated pages and parts of pages.

A page asks for a part by a line of its own, `<!-- make: NAME ARGUMENTS -->`. An unknown
name stops the build. The parts themselves are made in the files beside this one.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Literal

import benchmark_page
import command_page
import edge_case_answers_table
import error_and_method_tables
import front_page_spectrum
import inline_script_extraction
import light_and_dark_pictures
import op_pages
import package_map
import playground_links
import program_listing
import smoke_outcome_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

SITE = Path(__file__).resolve().parents[1]
_PART_MARKER = re.compile(r"^<!-- make: (\S+) ?(.*?) -->$", re.MULTILINE)
# The entry of the nav that the op pages hang under.
_OPS_INDEX = "reference/ops/index.md"


def _picture(arguments: str) -> str:
    """Embed a file of pictures/ with its caption, so that it takes the page's
    colours.
    """
    name, caption = arguments.split(" ", 1)
    svg = (SITE / "pictures" / name).read_text(encoding="utf-8")
    return (
        '<figure class="rlx-figure">\n<div class="rlx-scroll" tabindex="0">\n'
        f"{svg.strip()}\n</div>\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def _changelog(arguments: str) -> str:
    return (SITE.parent / "CHANGELOG.md").read_text(encoding="utf-8")


_scripts = inline_script_extraction.InlineScripts()

PARTS: dict[str, Callable[[str], str]] = {
    "benchmarks": lambda arguments: benchmark_page.benchmarks(),
    "changelog": _changelog,
    "commands": lambda arguments: command_page.commands(),
    "edges": lambda arguments: edge_case_answers_table.table(),
    "errors": lambda arguments: error_and_method_tables.error_classes(),
    "error-tree": lambda arguments: error_and_method_tables.error_tree(),
    "example": program_listing.listing,
    "house": lambda arguments: package_map.package_map(),
    "methods": lambda arguments: error_and_method_tables.methods(),
    "numpy-functions": lambda arguments: error_and_method_tables.numpy_functions(),
    "picture": _picture,
    "poster": lambda arguments: front_page_spectrum.poster(),
    "shown": light_and_dark_pictures.picture,
    "smoke-words": smoke_outcome_tables.words,
}


# --- events of mkdocs ---------------------------------------------------------------


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Disable garbage collection for a build: it saves an eighth of the time and costs
    100 MB of memory.
    """
    if command == "build":  # which ends with its process
        gc.disable()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Hang the op pages under their index in the nav, by family."""
    op_entries: list[dict[str, object]] = [
        {op_pages.family_title(family): [f"reference/ops/{op.name}.md" for op in ops]}
        for family, ops in op_pages.ops_by_family().items()
    ]
    config.nav = _nav_with_op_pages(config.nav, op_entries)
    return config


def _nav_with_op_pages(nav: object, op_entries: list[dict[str, object]]) -> object:
    if isinstance(nav, list):
        return [_nav_with_op_pages(entry, op_entries) for entry in nav]
    if isinstance(nav, dict):
        return {
            name: _nav_with_op_pages(entry, op_entries) for name, entry in nav.items()
        }
    return [nav, *op_entries] if nav == _OPS_INDEX else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the op pages, and the pictures that the programs of pages drew."""
    for path, text in (*op_pages.pages(), *light_and_dark_pictures.files()):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Replace the part markers of a page with the parts they name."""

    def render_part(marker: re.Match[str]) -> str:
        name, arguments = marker.groups()
        if name not in PARTS:
            known = ", ".join(sorted(PARTS))
            page_path = page.file.src_uri
            raise PluginError(f"{page_path} uses unknown part {name!r}; known: {known}")
        return PARTS[name](arguments)

    return playground_links.add_links(_PART_MARKER.sub(render_part, markdown), page.url)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move the theme's inline scripts out of the page."""
    return _scripts.externalize(output, page.url)


def on_post_template(
    output_content: str, template_name: str, config: MkDocsConfig
) -> str:
    """Move the inline scripts out of the 404 page, which is shown at any depth."""
    if not template_name.endswith(".html"):
        return output_content
    return _scripts.externalize(output_content, None)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the scripts that were moved."""
    _scripts.write(Path(config.site_dir))
