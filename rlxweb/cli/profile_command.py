"""`rlxweb profile FILE`, `rlxweb profile --graph NAME`: where the time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any

import click
import numpy as np

from rlxweb.cli import options
from rlxweb.cli.named_graph import arrays_of, compiled_object
from rlxweb.cli.plot import check_plot, picture_format
from rlxweb.cli.profile_plot import put_roofline
from rlxweb.cli.record import document
from rlxweb.cli.screen import progress_on, say, screen
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.cost.roofline import Roofline, Spent
from rlxweb.cost.trace import Span, one_after_another, trace_of
from rlxweb.decision.terms import human_ns
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import UsageError
from rlxweb.host.welch_graph import welch_graph
from rlxweb.io import write_json
from rlxweb.ir.graph import Node
from rlxweb.jobs.analysis import analyse_file, check_device
from rlxweb.jobs.averaging import block_samples
from rlxweb.jobs.results import GroupResult
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.stages import Stages
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.profile import HEADS, Profile, roof_line, roof_of, row_of, table_of
from rlxweb.runtime.session import Session

SCHEMA = "rlxweb.profile/1"
_OF_FILES = {
    "fs": None,
    "nperseg": None,
    "noverlap": None,
    "nsegments": None,
    "preset": None,
    "window": None,
    "detrend": None,
    "channels": (),
    "array": None,
    "layout": None,
    "precision": None,
}
_OF_GRAPHS = ("weights", "inputs")


@dataclass(frozen=True, slots=True)
class Told:
    """What a profile says, whatever it is of."""

    title: str
    lines: list[str]
    parts: list[Spent]
    roof: Roofline | None
    spans: list[Span]
    facts: dict[str, Any]


@click.command(name="profile")
@click.argument("file", required=False)
@click.option("--graph", metavar="NAME", help="A graph: MODULE:GRAPH or FILE.py:GRAPH.")
@options.FS
@options.valued("--nperseg", int, "FILE: samples per segment [256].")
@options.valued("--noverlap", int, "FILE: samples two segments share.")
@options.valued("--nsegments", int, "FILE: average only the first so many.")
@options.one_of("--preset", ["rlx", "scipy", "mne"], "FILE: as of `rlxweb welch`.")
@options.WINDOW
@options.one_of("--detrend", ["none", "constant", "linear"], "FILE: of each segment.")
@options.CHANNELS
@options.ARRAY
@options.LAYOUT
@STORAGE
@options.one_of("--precision", ["auto", "f32", "f64"], "FILE: as of `rlxweb welch`.")
@options.valued("--weights", str, "Graph: NPZ file with an array for each param.")
@options.valued("--inputs", str, "Graph: NPZ file with an array for each input.")
@options.AUTO_DEVICE
@click.option("--adapter", default="", help="Part of an adapter's name; implies a GPU.")
@options.valued("--repeats", click.IntRange(1, 1000), "Runs; medians are told.", 7)
@options.file_path("json", "All figures; - is stdout.")
@options.file_path("trace", "A time line for https://ui.perfetto.dev (.json).")
@options.file_path("plot", "The roofline as a picture (.png, .svg, .pdf).")
def command(
    file: str | None,
    graph: str | None,
    json_path: str | None,
    trace_path: str | None,
    plot_path: str | None,
    **asked: Any,
) -> None:
    """Say where the time goes, of the analysis of FILE or of a graph of your code.

    FILE is analysed as `rlxweb welch` would, stage by stage; on a device the steps of
    one block follow. A graph runs --repeats times, each step by the device's own clock
    where it has one. Bytes and operations are the least that a step needs; "of the
    roof" is the shortest time that the calibration allows for them over the time taken.

    Example  rlxweb profile --graph model.py:graph --device gpu --plot roof.png
    """
    _check(file, graph, asked)
    if plot_path is not None:
        check_plot(plot_path)
    targets = ("--json", json_path), ("--trace", trace_path), ("--plot", plot_path)
    check_targets([file] if file else [], targets)
    told = _of_file(str(file), asked) if graph is None else _of_graph(graph, asked)
    puts: list[tuple[str, Put]] = []
    if json_path is not None:
        puts.append(
            (json_path, partial(write_json, obj=document(SCHEMA, **told.facts)))
        )
    if trace_path is not None:
        trace = trace_of(told.title, told.spans, told.roof)
        puts.append((trace_path, partial(write_json, obj=trace)))
    if plot_path is not None:
        how, own = picture_format(plot_path), told

        def put_plot(out: IO[bytes]) -> None:
            put_roofline(out, own.title, own.parts, own.roof, how)

        puts.append((plot_path, put_plot))
    write_all(puts)
    to_stderr = goes_to_stdout(path for _, path in targets)
    say(screen(stderr=to_stderr), *told.lines)


def _check(file: str | None, graph: str | None, asked: Mapping[str, Any]) -> None:
    """Errors  UsageError for both, for neither, for options of the other one."""
    if (file is None) == (graph is None):
        raise UsageError(
            "profile",
            "nothing is named" if file is None else "a FILE and a graph are named",
            "one of both is profiled",
            "give a FILE, or --graph NAME",
        )
    others = _OF_GRAPHS if graph is None else tuple(_OF_FILES)
    for name in others:
        if asked[name] not in (None, ()):
            kind = "a graph's" if graph is None else "a FILE's"
            raise UsageError(f"--{name}", f"it is {kind}", hint="leave it out")


# --- a recording ----------------------------------------------------------------------


def _of_file(path: str, asked: Mapping[str, Any]) -> Told:
    given = {name: asked[name] for name in _OF_FILES if asked[name] not in (None, ())}
    given |= {name: asked[name] for name in ("device", "adapter", "storage")}
    settings = Settings(**given)
    check_device(settings)
    with progress_on(screen(stderr=True)) as bar:
        task = bar.add_task(path, total=None)

        def tell(work: int, done: int) -> None:
            bar.update(task, total=work, advance=done)

        stages = Stages()
        result = analyse_file(path, settings, tell, stages)
    roof, why = roof_of(CPU)
    parts = stages.parts()
    groups = result.groups
    rate = ", ".join(f"{len(g.names)} × {g.n_samples:,} at {g.fs:g} Hz" for g in groups)
    lines = [
        f"{path}: {rate}, on {', '.join(dict.fromkeys(g.engine for g in groups))}",
        f"{human_ns(stages.total_ns)} in all, one run",
    ]
    lines.append(roof_line(roof, why))
    whole = sum(part.ns for part in parts)
    rows = [(str(one.times), *row_of(one, whole, roof)) for one in parts]
    cells = [(name, times, *rest) for times, name, *rest in rows]
    lines += table_of(("stage", "times", *HEADS[1:]), cells)
    spans, told = list(stages.spans), []
    for group in groups:
        if group.device != Device.CPU.label:
            told.append(_device_steps(group, asked))
    for one in told:
        lines += ["", "one block on the device:", *str(one).split("\n")]
        spans += one_after_another("one block on the device", one.steps)
    facts = {
        "file": path,
        "engines": [group.engine for group in groups],
        **stages.as_json(),
        "roofline": None if roof is None else roof.as_json(),
        "blocks": [one.as_json() for one in told],
    }
    return Told(f"Welch of {path}", lines, parts, roof, spans, facts)


def _device_steps(group: GroupResult, asked: Mapping[str, Any]) -> Profile:
    """A block as the device has them, of noise."""
    spec = group.spec
    own = replace(spec, dtype="float32", n_segments=0) if spec.is_digital else spec
    rows = len(group.names)
    shape = rows, block_samples(spec, rows, group.n_samples)
    session = Session(group.device, adapter=asked["adapter"])
    made = session.compile(welch_graph(shape, own))
    noise = np.random.default_rng(0).standard_normal(shape, np.float32)
    return made.profile({"x": noise}, asked["repeats"])


# --- a graph --------------------------------------------------------------------------


def _of_graph(target: str, asked: Mapping[str, Any]) -> Told:
    made = _placed(compiled_object(target, asked["weights"], "profile"), asked)
    nodes = made.graph.named("input")
    doing = f"profile {target}"
    if asked["inputs"] is None:
        feeds = _drawn(nodes)
    else:
        doing = f"{doing}, inputs from '{asked['inputs']}'"
        feeds = dict(arrays_of(doing, asked["inputs"], "input"))
    found = made.profile(feeds, asked["repeats"])
    lines = str(found).split("\n")
    if asked["inputs"] is None and nodes:
        lines.append("inputs: noise, and zeros for whole numbers (--inputs F.npz)")
    parts = [found.upload, *found.steps, found.readback]
    facts = {"target": target, **found.as_json()}
    return Told(found.title, lines, parts, found.roofline, found.spans, facts)


def _placed(made: CompiledGraph, asked: Mapping[str, Any]) -> CompiledGraph:
    """The graph where it is asked for, with its params."""
    device = Settings(device=asked["device"], adapter=asked["adapter"]).asked_device
    session = Session(device, adapter=asked["adapter"])
    there = session.compile(made.graph)
    for name, value in made.params().items():
        there.set_param(name, value)
    return there


def _drawn(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Noise; zeros for whole numbers, which may be indices."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, node in nodes.items():
        kind = node.type
        zeros = np.zeros(kind.shape, kind.dtype.numpy)
        noise = rng.standard_normal(kind.shape)
        made[name] = noise.astype(zeros.dtype) if kind.dtype.is_float else zeros
    return made
