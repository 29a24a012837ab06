"""`rlxweb export WHAT DIR`: a graph, or a Welch estimate, for pages without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.named_graph import compiled_object
from rlxweb.cli.record import document
from rlxweb.cli.screen import counted, progress_on, say, screen, show_table
from rlxweb.errors import UsageError, did_you_mean
from rlxweb.export.package import Package
from rlxweb.export.recorded import FEATURES
from rlxweb.export.written import Exported, Tell, To
from rlxweb.gpu.browser_words import their_limit
from rlxweb.io import write_json
from rlxweb.limits import Limits
from rlxweb.signal.exported import export_welch
from rlxweb.signal.page_estimate import Output

SCHEMA = "rlxweb.export/1"
_WELCH = "welch"
# Options of one of the two, for the other to refuse.
_OF_WELCH = {
    "rows": None,
    "samples": None,
    "fs": None,
    "nperseg": None,
    "noverlap": None,
    "nsegments": None,
    "nfft": None,
    "k": None,
    "output": None,
    "preset": None,
    "mode": None,
    "window": None,
    "detrend": None,
    "scaling": None,
}
_OF_GRAPHS = ("weights", "outputs", "features")


@click.command(name="export")
@click.argument("what", metavar="welch|MODULE:GRAPH")
@click.argument("folder", metavar="DIR")
@options.one_of("--to", get_args(To), "A folder for a server, or a package.", "web")
@options.valued("--name", str, "Of the module, NAME.js; default: the graph's.")
@options.valued("--rows", int, "welch: rows that a page gives at once.")
@options.valued("--samples", int, "welch: samples of a row.")
@options.valued("--fs", float, "welch: rate in Hz.")
@options.valued("--nperseg", int, "welch: samples per segment [256].")
@options.valued("--noverlap", int, "welch: samples two segments share.")
@options.valued("--nsegments", int, "welch: average only the first so many.")
@options.valued("--nfft", int, "welch: length of the transform [nperseg].")
@options.valued("--k", int, f"welch: {options.K_HELP}")
@options.one_of("--output", get_args(Output), "welch: what a page gets [peaks].")
@options.one_of("--preset", ["rlx", "scipy", "mne"], "welch: as of `rlxweb welch`.")
@options.one_of("--mode", ["bins", "peaks"], "welch: strongest bins [bins].")
@options.WINDOW
@options.one_of(
    "--detrend",
    ["none", "constant", "linear"],
    "welch: removed from each segment; default: the preset's.",
)
@options.one_of(
    "--scaling",
    ["density", "spectrum", "none"],
    "welch: of the power; default: the preset's.",
)
@options.valued("--weights", str, "Graphs: NPZ file with an array for each param.")
@click.option("--outputs", help="Graphs: names of the outputs, after commas.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    type=click.Choice(FEATURES),
    help="Graphs: what a GPU must have; repeatable.",
)
@options.valued("--vectors", click.IntRange(0, 16), "Test vectors [1; 0: none].")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="A limit of WebGPU the plan may use (maxBufferSize=1073741824); repeatable.",
)
@options.valued("--package", str, "npm: name of the package; default: the module's.")
@options.valued("--package-version", str, "npm: its version.", "1.0.0")
@click.option("--force", is_flag=True, help="Replace an earlier export in DIR.")
@click.option("--json", "as_json", is_flag=True, help="What was written, as JSON.")
def command(what: str, folder: str, as_json: bool, **given: Any) -> None:
    """Write a page's part of a job: WGSL, weights and a module, without Python.

    DIR is made, whole or not at all: a module (NAME.js, with types), the plan and its
    shaders, weights, test vectors and a page that shows it. MODULE:GRAPH is a Graph, a
    CompiledGraph or a GraphDevices of your code, or a function that returns one.

    Example  rlxweb export welch out --rows 32 --samples 1024 --fs 256
    """
    is_welch = what == _WELCH
    _check(given, is_welch)
    given["limits"] = limits_of(given["limits"])
    with progress_on(screen(stderr=True)) as bar:
        task = bar.add_task("compiling", total=None)

        def tell(doing: str, done: int, of: int) -> None:
            bar.update(task, description=doing, completed=done, total=of)

        write = _welch if is_welch else _graph
        made = write(what, folder, given, tell)
    if as_json:
        write_json("-", document(SCHEMA, **made.as_json()))
        return
    is_scoped = (given["package"] or "").startswith("@")
    _print(screen(), made, " --access public" if is_scoped else "")


def _check(given: Mapping[str, Any], is_welch: bool) -> None:
    """Errors  UsageError for an option that says nothing here."""
    others = _OF_GRAPHS if is_welch else tuple(_OF_WELCH)
    for name in others:
        if given[name] not in (None, ()):
            flag = "--feature" if name == "features" else f"--{name}"
            kind = "a graph's" if is_welch else "of `export welch`"
            raise UsageError(flag, f"it is {kind}", hint="leave it out")
    for name in ("rows", "samples", "fs"):
        if is_welch and given[name] is None:
            raise UsageError(
                "export welch",
                f"--{name} is missing",
                "a page's plan is of one size",
                f"say --{name}, as --rows 32 --samples 1024 --fs 256",
            )
    if given["package"] is not None and given["to"] != "npm":
        raise UsageError("--package", "it is of --to npm", hint="add --to npm")


def limits_of(given: Sequence[str]) -> Limits | None:
    """WebGPU's defaults with these in their place. Errors  UsageError."""
    known = {their_limit(name): name for name in Limits.__dataclass_fields__}
    own: dict[str, int] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in known:
            hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
            raise UsageError(f"--limit {one}", f"there is no limit {name!r}", hint=hint)
        if not value.isdecimal() or not int(value):
            raise UsageError(f"--limit {one}", "a whole number above 0 is wanted")
        options.check_new("--limit", name, {n for n in known if known[n] in own})
        own[known[name]] = int(value)
    return Limits(**own) if own else None


def _common(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("to", "limits", "force")} | {
        "name": given["name"] or "",
        "package": Package(given["package"] or "", given["package_version"]),
    }


def _welch(what: str, folder: str, given: Mapping[str, Any], tell: Tell) -> Exported:
    own = {name: given[name] for name in _OF_WELCH if given[name] is not None}
    if own.get("detrend") == "none":
        own["detrend"] = None
    common = _common(given) | {"name": given["name"] or _WELCH}
    vectors = given["vectors"] is None or given["vectors"] > 0
    return export_welch(folder, vectors=vectors, tell=tell, **own, **common)


def _graph(what: str, folder: str, given: Mapping[str, Any], tell: Tell) -> Exported:
    made = compiled_object(what, given["weights"])
    names = given["outputs"]
    return made.export_web(
        Path(folder),
        outputs=None if names is None else [n.strip() for n in names.split(",")],
        vectors=1 if given["vectors"] is None else given["vectors"],
        features=given["features"],
        tell=tell,
        **_common(given),
    )


def _print(console: Console, made: Exported, publicly: str) -> None:
    """`publicly`: what npm wants to hear before it shows a scoped package to all."""
    rows = [(f.path, f"{f.nbytes:,}", f"{f.gzipped:,}") for f in made.files]
    total = f"{made.nbytes:,}", f"{sum(f.gzipped for f in made.files):,}"
    right = ("bytes", "as sent (gzip)")
    show_table(console, ("file", *right), [*rows, ("", *total)], right=right)
    say(console, f"{counted(len(made.files), 'file')} in {made.folder}")
    for note in made.notes:
        say(console, f"note: {note}")
    if made.to == "npm":
        # Without a slash npm takes it for the name of a package.
        here = "" if made.folder.is_absolute() else "./"
        say(console, f"publish it: npm publish {here}{made.folder}{publicly}")
        return
    say(console, f"see it: python -m http.server -d {made.folder} 8000")
    say(console, "        and open http://localhost:8000")
