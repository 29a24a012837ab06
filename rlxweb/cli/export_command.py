"""`rlxweb export WHAT DIR`: export a graph or a Welch estimate for web pages without
Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.console import (
    format_count,
    make_console,
    make_progress,
    print_lines,
    print_table,
)
from rlxweb.cli.json_documents import json_document
from rlxweb.cli.python_graph_import import load_compiled_graph
from rlxweb.core.errors import UsageError, did_you_mean
from rlxweb.core.function_options import call_arguments, options_of
from rlxweb.core.limits import Limits
from rlxweb.export.browser_graph_compilation import FEATURES
from rlxweb.export.npm_package import NpmPackage
from rlxweb.export.web_export import ExportProgress, ExportSummary, ExportTarget
from rlxweb.gpu.js_bridge_conversion import webgpu_limit
from rlxweb.io import write_json
from rlxweb.signal.welch_export import export_welch

SCHEMA = "rlxweb.export/1"
_WELCH_NAME = "welch"
# Options of one of the two, for the other to refuse.
_WELCH_OPTIONS = tuple(options_of(export_welch))
_GRAPH_OPTIONS = ("weights", "outputs", "features")


@click.command(name="export")
@click.argument("what", metavar="welch|MODULE:GRAPH")
@click.argument("folder", metavar="DIR")
@options.choice_option(
    "--to",
    get_args(ExportTarget),
    "Write a folder for a web server, or an npm package.",
    "web",
)
@options.value_option(
    "--name", str, "Name of the module (NAME.js); default: name of the graph."
)
@options.declared_options(export_welch, prefix="welch: ")
@options.value_option("--weights", str, "Graphs: NPZ file with one array per param.")
@click.option("--outputs", help="Graphs: comma-separated output names.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    type=click.Choice(FEATURES),
    help="Graphs: GPU feature that the graph requires; repeatable.",
)
@options.value_option(
    "--vectors", click.IntRange(0, 16), "Number of test vectors; 0 for none [1]."
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="Value that the plan may assume for a WebGPU limit "
    "(maxBufferSize=1073741824); repeatable.",
)
@options.value_option("--package", str, "npm: package name; default: the module name.")
@options.value_option("--package-version", str, "npm: package version.", "1.0.0")
@click.option("--force", is_flag=True, help="Replace an earlier export in DIR.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a summary of the export as JSON."
)
def command(what: str, folder: str, as_json: bool, **option_values: Any) -> None:
    """Export a graph or a Welch estimate for web pages without Python.

    DIR is written completely or not at all: a module (NAME.js, with types), the plan,
    its WGSL shaders, weights, test vectors and an example page. MODULE:GRAPH names a
    Graph, a CompiledGraph or a GraphDevices in your code, or a function that returns
    one.

    Example  rlxweb export welch out --rows 32 --samples 1024 --fs 256
    """
    is_welch = what == _WELCH_NAME
    _check_options(option_values, is_welch)
    option_values["limits"] = parse_limits(option_values["limits"])
    with make_progress(make_console(stderr=True)) as bar:
        task = bar.add_task("compiling", total=None)

        def show_progress(step: str, n_done: int, n_total: int) -> None:
            bar.update(task, description=step, completed=n_done, total=n_total)

        export = _export_welch if is_welch else _export_graph
        exported = export(what, folder, option_values, show_progress)
    if as_json:
        write_json("-", json_document(SCHEMA, **exported.as_json()))
        return
    is_scoped = (option_values["package"] or "").startswith("@")
    _print_summary(make_console(), exported, " --access public" if is_scoped else "")


def _check_options(option_values: Mapping[str, Any], is_welch: bool) -> None:
    """Raise UsageError for an option that does not apply, or for one that is
    missing.
    """
    foreign_options = _GRAPH_OPTIONS if is_welch else _WELCH_OPTIONS
    for name in foreign_options:
        if option_values[name] not in (None, ()):
            flag = "--feature" if name == "features" else f"--{name}"
            kind = "graphs" if is_welch else "`export welch`"
            raise UsageError(flag, f"it applies only to {kind}", hint="omit it")
    for name in ("rows", "samples", "fs"):
        if is_welch and option_values[name] is None:
            raise UsageError(
                "export welch",
                f"--{name} is missing",
                "an exported plan has fixed sizes and a fixed sampling rate",
                f"add --{name}, as in --rows 32 --samples 1024 --fs 256",
            )
    if option_values["package"] is not None and option_values["to"] != "npm":
        raise UsageError("--package", "it requires --to npm", hint="add --to npm")


def parse_limits(texts: Sequence[str]) -> Limits | None:
    """Return WebGPU's default limits with the given ones in their place. Raises
    UsageError.
    """
    known = {webgpu_limit(name): name for name in Limits.__dataclass_fields__}
    limits: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            hint = did_you_mean(name, known) or f"known limits: {', '.join(known)}"
            raise UsageError(
                f"--limit {text}", f"WebGPU has no limit {name!r}", hint=hint
            )
        if not value.isdecimal() or not int(value):
            raise UsageError(f"--limit {text}", "the value must be an integer above 0")
        options.check_not_repeated(
            "--limit", name, {n for n in known if known[n] in limits}
        )
        limits[known[name]] = int(value)
    return Limits(**limits) if limits else None


def _common_arguments(option_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that both kinds of export take."""
    return {name: option_values[name] for name in ("to", "limits", "force")} | {
        "name": option_values["name"] or "",
        "package": NpmPackage(
            option_values["package"] or "", option_values["package_version"]
        ),
    }


def _export_welch(
    what: str,
    folder: str,
    option_values: Mapping[str, Any],
    show_progress: ExportProgress,
) -> ExportSummary:
    """Export a Welch estimate."""
    welch_options = call_arguments({n: option_values[n] for n in _WELCH_OPTIONS})
    common = _common_arguments(option_values) | {
        "name": option_values["name"] or _WELCH_NAME
    }
    vectors = option_values["vectors"] is None or option_values["vectors"] > 0
    return export_welch(
        folder, vectors=vectors, tell=show_progress, **welch_options, **common
    )


def _export_graph(
    what: str,
    folder: str,
    option_values: Mapping[str, Any],
    show_progress: ExportProgress,
) -> ExportSummary:
    """Export a graph or compiled graph."""
    compiled = load_compiled_graph(what, option_values["weights"])
    names = option_values["outputs"]
    return compiled.export_web(
        Path(folder),
        outputs=None if names is None else [n.strip() for n in names.split(",")],
        vectors=1 if option_values["vectors"] is None else option_values["vectors"],
        features=option_values["features"],
        tell=show_progress,
        **_common_arguments(option_values),
    )


def _print_summary(console: Console, exported: ExportSummary, access_flag: str) -> None:
    """Print the files, notes and next steps; `access_flag` makes npm publish a scoped
    package publicly.
    """
    rows = [(f.path, f"{f.nbytes:,}", f"{f.gzipped:,}") for f in exported.files]
    total = f"{exported.nbytes:,}", f"{sum(f.gzipped for f in exported.files):,}"
    number_heads = ("bytes", "gzip bytes")
    print_table(
        console,
        ("file", *number_heads),
        [*rows, ("", *total)],
        right_aligned=number_heads,
    )
    print_lines(
        console, f"{format_count(len(exported.files), 'file')} in {exported.folder}"
    )
    for note in exported.notes:
        print_lines(console, f"note: {note}")
    if exported.to == "npm":
        # Without a slash npm takes it for the name of a package.
        here = "" if exported.folder.is_absolute() else "./"
        print_lines(
            console, f"to publish: npm publish {here}{exported.folder}{access_flag}"
        )
        return
    print_lines(console, f"to view: python -m http.server -d {exported.folder} 8000")
    print_lines(console, "         and open http://localhost:8000")
