"""`rlxweb profile FILE` and `rlxweb profile --graph NAME`: report where the time
goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any

import click
import numpy as np

from rlxweb.batch.channel_group_power import samples_per_block
from rlxweb.batch.recording_analysis import analyse_file, check_device
from rlxweb.batch.results import GroupResult
from rlxweb.batch.settings import Settings, requested_device
from rlxweb.batch.stage_timing import StageTimer
from rlxweb.cli import options
from rlxweb.cli.console import make_console, make_progress, print_lines
from rlxweb.cli.json_documents import json_document
from rlxweb.cli.output_files import (
    ResultWriter,
    check_output_paths,
    uses_stdout,
    write_results,
)
from rlxweb.cli.python_graph_import import load_compiled_graph, load_npz_arrays
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.roofline_plot import write_roofline_picture
from rlxweb.cli.welch_plot import check_plot, picture_format
from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.core.function_options import options_of
from rlxweb.cost.chrome_trace import TraceSpan, build_chrome_trace, sequential_spans
from rlxweb.cost.decision import format_ns
from rlxweb.cost.roofline import ProfileEntry, Roofline
from rlxweb.io import open_recording, write_json
from rlxweb.ir.graph import Node
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.profile import (
    TABLE_HEADERS,
    Profile,
    find_roofline,
    format_table,
    profile_row,
    roofline_text,
)
from rlxweb.runtime.session import Session
from rlxweb.select.device_and_adapter import CPU_PLACE
from rlxweb.signal.welch_peaks import welch_peaks

SCHEMA = "rlxweb.profile/1"
_WELCH_NAMES = [
    name for name in options_of(welch_peaks) if name not in ("device", "adapter")
]
_READ_NAMES = tuple(options_of(open_recording))
_GRAPH_OPTIONS = ("weights", "inputs")


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """Contents of a profile report, of a recording or of a graph."""

    title: str
    lines: list[str]
    entries: list[ProfileEntry]
    roofline: Roofline | None
    spans: list[TraceSpan]
    facts: dict[str, Any]


@click.command(name="profile")
@click.argument("file", required=False)
@click.option(
    "--graph", metavar="NAME", help="Graph to profile: MODULE:GRAPH or FILE.py:GRAPH."
)
@options.declared_options(welch_peaks, *_WELCH_NAMES, prefix="FILE: ")
@options.declared_options(open_recording, *_READ_NAMES, prefix="FILE: ")
@STORAGE_OPTION
@options.value_option("--weights", str, "Graph: NPZ file with one array per param.")
@options.value_option("--inputs", str, "Graph: NPZ file with one array per input.")
@options.AUTO_DEVICE
@options.ADAPTER
@options.value_option(
    "--repeats", click.IntRange(1, 1000), "Number of runs; medians are shown.", 7
)
@options.output_file_option("json", "Write all measurements; - is stdout.")
@options.output_file_option(
    "trace", "Write a timeline for https://ui.perfetto.dev (.json)."
)
@options.output_file_option("plot", "Draw the roofline (.png, .svg, .pdf).")
def command(
    file: str | None,
    graph: str | None,
    json_path: str | None,
    trace_path: str | None,
    plot_path: str | None,
    **option_values: Any,
) -> None:
    """Profile the analysis of FILE, or a graph from your code.

    FILE is analysed as by `rlxweb welch`, and each stage is timed; on a device, the
    steps of one block are timed too. A graph runs --repeats times; its steps are timed
    with the device clock if there is one. Bytes and operations are the minimum that a
    step needs; "of the roof" is the shortest possible time for them, according to the
    calibration, divided by the measured time.

    Example  rlxweb profile --graph model.py:graph --device gpu --plot roof.png
    """
    _check_arguments(file, graph, option_values)
    if plot_path is not None:
        check_plot(plot_path)
    output_paths = ("--json", json_path), ("--trace", trace_path), ("--plot", plot_path)
    check_output_paths([file] if file else [], output_paths)
    report = (
        _profile_file(str(file), option_values)
        if graph is None
        else _profile_graph(graph, option_values)
    )
    writers: list[tuple[str, ResultWriter]] = []
    if json_path is not None:
        writers.append(
            (json_path, partial(write_json, obj=json_document(SCHEMA, **report.facts)))
        )
    if trace_path is not None:
        trace = build_chrome_trace(report.title, report.spans, report.roofline)
        writers.append((trace_path, partial(write_json, obj=trace)))
    if plot_path is not None:
        file_format, plotted_report = picture_format(plot_path), report

        def write_plot(out: IO[bytes]) -> None:
            write_roofline_picture(
                out,
                plotted_report.title,
                plotted_report.entries,
                plotted_report.roofline,
                file_format,
            )

        writers.append((plot_path, write_plot))
    write_results(writers)
    uses_stderr = uses_stdout(path for _, path in output_paths)
    print_lines(make_console(stderr=uses_stderr), *report.lines)


def _check_arguments(
    file: str | None, graph: str | None, option_values: Mapping[str, Any]
) -> None:
    """Raise UsageError for a file and a graph, for neither, or for options of the other
    kind.
    """
    if (file is None) == (graph is None):
        raise UsageError(
            "profile",
            "got neither a FILE nor a graph"
            if file is None
            else "got both a FILE and a graph",
            "expected exactly one of them",
            "pass either a FILE or --graph NAME",
        )
    unused_options = _GRAPH_OPTIONS if graph is None else (*_WELCH_NAMES, *_READ_NAMES)
    for name in unused_options:
        if option_values[name] not in (None, ()):
            kind = "graphs" if graph is None else "a FILE"
            raise UsageError(f"--{name}", f"it applies only to {kind}", hint="omit it")


# --- a recording ----------------------------------------------------------------------


def _profile_file(path: str, option_values: Mapping[str, Any]) -> ProfileReport:
    setting_values = {
        name: option_values[name]
        for name in (*_WELCH_NAMES, *_READ_NAMES)
        if option_values[name] not in (None, ())
    }
    setting_values |= {
        name: option_values[name] for name in ("device", "adapter", "storage")
    }
    settings = Settings(**setting_values)
    check_device(settings)
    with make_progress(make_console(stderr=True)) as progress:
        task = progress.add_task(path, total=None)

        def advance_bar(total: int, advance: int) -> None:
            progress.update(task, total=total, advance=advance)

        stages = StageTimer()
        result = analyse_file(path, settings, advance_bar, stages)
    roofline, why = find_roofline(CPU_PLACE)
    entries = stages.merged_stages()
    groups = result.groups
    rate = ", ".join(f"{len(g.names)} × {g.n_samples:,} at {g.fs:g} Hz" for g in groups)
    lines = [
        f"{path}: {rate}, on {', '.join(dict.fromkeys(g.engine for g in groups))}",
        f"{format_ns(stages.total_ns)} in total, one run",
    ]
    lines.append(roofline_text(roofline, why))
    total_ns = sum(part.ns for part in entries)
    rows = [
        (str(entry.run_count), *profile_row(entry, total_ns, roofline))
        for entry in entries
    ]
    cells = [(name, times, *other_cells) for times, name, *other_cells in rows]
    lines += format_table(("stage", "times", *TABLE_HEADERS[1:]), cells)
    spans, profiles = list(stages.spans), []
    for group in groups:
        if group.device != Device.CPU.label:
            profiles.append(_profile_device_block(group, option_values))
    for entry in profiles:
        lines += ["", "one block on the device:", *str(entry).split("\n")]
        spans += sequential_spans("one block on the device", entry.steps)
    facts = {
        "file": path,
        "engines": [group.engine for group in groups],
        **stages.as_json(),
        "roofline": None if roofline is None else roofline.as_json(),
        "blocks": [entry.as_json() for entry in profiles],
    }
    return ProfileReport(f"Welch of {path}", lines, entries, roofline, spans, facts)


def _profile_device_block(
    group: GroupResult, option_values: Mapping[str, Any]
) -> Profile:
    """Profile one block of noise on the device of the group."""
    spec = group.spec
    device_spec = (
        replace(spec, dtype="float32", n_segments=0) if spec.is_digital else spec
    )
    rows = len(group.names)
    shape = rows, samples_per_block(spec, rows, group.n_samples)
    session = Session(group.device, adapter=option_values["adapter"])
    compiled = session.compile(welch_graph(shape, device_spec))
    noise = np.random.default_rng(0).standard_normal(shape, np.float32)
    return compiled.profile({"x": noise}, option_values["repeats"])


# --- a graph --------------------------------------------------------------------------


def _profile_graph(target: str, option_values: Mapping[str, Any]) -> ProfileReport:
    compiled = _compile_for_device(
        load_compiled_graph(target, option_values["weights"], "profile"), option_values
    )
    nodes = compiled.graph.named("input")
    context = f"profile {target}"
    if option_values["inputs"] is None:
        feeds = _random_feeds(nodes)
    else:
        context = f"{context}, inputs from '{option_values['inputs']}'"
        feeds = dict(load_npz_arrays(context, option_values["inputs"], "input"))
    profile = compiled.profile(feeds, option_values["repeats"])
    lines = str(profile).split("\n")
    if option_values["inputs"] is None and nodes:
        lines.append(
            "inputs: random noise, zeros for integer inputs; "
            "to set them, use --inputs F.npz"
        )
    entries = [profile.upload, *profile.steps, profile.readback]
    facts = {"target": target, **profile.as_json()}
    return ProfileReport(
        profile.title, lines, entries, profile.roofline, profile.spans, facts
    )


def _compile_for_device(
    compiled: CompiledGraph, option_values: Mapping[str, Any]
) -> CompiledGraph:
    """Compile the graph for the requested device and copy its params."""
    adapter = option_values["adapter"]
    device = requested_device(option_values["device"], adapter)
    session = Session(device, adapter=adapter)
    on_device = session.compile(compiled.graph)
    for name, value in compiled.params().items():
        on_device.set_param(name, value)
    return on_device


def _random_feeds(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Return noise for each float input and zeros for integer inputs, which may be
    indices.
    """
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for name, node in nodes.items():
        tensor_type = node.type
        zeros = np.zeros(tensor_type.shape, tensor_type.dtype.numpy)
        noise = rng.standard_normal(tensor_type.shape)
        feeds[name] = noise.astype(zeros.dtype) if tensor_type.dtype.is_float else zeros
    return feeds
