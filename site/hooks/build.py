"""What mkdocs runs while it builds: generated pages, and parts of pages.

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
import edges_table
import example
import house
import inline_scripts
import op_pages
import playground
import poster
import reference_parts
import shown
import smoke_words
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

SITE = Path(__file__).resolve().parents[1]
_ASKED = re.compile(r"^<!-- make: (\S+) ?(.*?) -->$", re.MULTILINE)
# The entry of the nav that the op pages hang under.
_OPS = "reference/ops/index.md"


def _picture(arguments: str) -> str:
    """A file of pictures/ with its caption, inside the page so that it has its ink."""
    name, caption = arguments.split(" ", 1)
    svg = (SITE / "pictures" / name).read_text(encoding="utf-8")
    return (
        '<figure class="rlx-figure">\n<div class="rlx-scroll" tabindex="0">\n'
        f"{svg.strip()}\n</div>\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def _changelog(arguments: str) -> str:
    return (SITE.parent / "CHANGELOG.md").read_text(encoding="utf-8")


_scripts = inline_scripts.Scripts()

PARTS: dict[str, Callable[[str], str]] = {
    "benchmarks": lambda arguments: benchmark_page.benchmarks(),
    "changelog": _changelog,
    "commands": lambda arguments: command_page.commands(),
    "edges": lambda arguments: edges_table.table(),
    "errors": lambda arguments: reference_parts.error_classes(),
    "error-tree": lambda arguments: reference_parts.error_tree(),
    "example": example.listing,
    "house": lambda arguments: house.house(),
    "methods": lambda arguments: reference_parts.methods(),
    "numpy-functions": lambda arguments: reference_parts.numpy_functions(),
    "picture": _picture,
    "poster": lambda arguments: poster.poster(),
    "shown": shown.picture,
    "smoke-words": smoke_words.words,
}


# --- events of mkdocs ---------------------------------------------------------------


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Build without looking for garbage, an eighth of the time for 100 MB of memory."""
    if command == "build":  # which ends with its process
        gc.disable()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Hang the op pages under their index in the nav, by family."""
    below: list[dict[str, object]] = [
        {op_pages.title(family): [f"reference/ops/{op.name}.md" for op in ops]}
        for family, ops in op_pages.groups().items()
    ]
    config.nav = _grown(config.nav, below)
    return config


def _grown(nav: object, below: list[dict[str, object]]) -> object:
    if isinstance(nav, list):
        return [_grown(entry, below) for entry in nav]
    if isinstance(nav, dict):
        return {name: _grown(entry, below) for name, entry in nav.items()}
    return [nav, *below] if nav == _OPS else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the op pages, and the pictures that pages drew."""
    for path, text in (*op_pages.pages(), *shown.files()):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Put the parts in that the page asks for."""

    def made(found: re.Match[str]) -> str:
        name, arguments = found.groups()
        if name not in PARTS:
            known = ", ".join(sorted(PARTS))
            where = page.file.src_uri
            raise PluginError(f"{where} asks for {name!r}; there is {known}")
        return PARTS[name](arguments)

    return playground.with_links(_ASKED.sub(made, markdown), page.url)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move the theme's scripts out of the page."""
    return _scripts.moved(output, page.url)


def on_post_template(
    output_content: str, template_name: str, config: MkDocsConfig
) -> str:
    """The same for the page of wrong addresses, which is shown at any depth."""
    if not template_name.endswith(".html"):
        return output_content
    return _scripts.moved(output_content, None)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the scripts that were moved."""
    _scripts.write(Path(config.site_dir))
