"""Profile of a run: the time of each step, compared with the roofline.

Times are the engine's (`run_timed`), work is the plan's (`plan_workload`), the
roof is the calibration's. Here they meet, as a table, as data, and as a trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rlxweb.compiler.plan import format_variants
from rlxweb.compiler.plan_workload import plan_workload, step_items
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.device import Device
from rlxweb.core.message_text import abbreviate
from rlxweb.cost.chrome_trace import TraceSpan, build_chrome_trace, sequential_spans
from rlxweb.cost.decision import format_ns
from rlxweb.cost.roofline import ProfileEntry, Roofline
from rlxweb.engines.capabilities import run_timed
from rlxweb.engines.protocol import Array, Engine, Program
from rlxweb.engines.timed_run_result import TimedRun, TimingMethod
from rlxweb.select.calibration.engine_calibration_lookup import engine_calibration
from rlxweb.select.device_and_adapter import DevicePlace

TIMING_METHODS: Mapping[TimingMethod, str] = {
    "device clock": "device timestamps around each step, in one submission",
    "one step at a time": "running each step separately, including the wait for it",
    "whole run": "whole runs: this engine compiles the graph as a whole, not in steps",
}
_MAX_LABEL_LENGTH = 44
# Kinds that the memory of the engine says nothing of.
_TRANSFER_KINDS = ("upload", "readback", "open", "choose", "read", "check")


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """Times of a run, step by step. Printed, it is a table.

    graph     its name
    device, engine   where it ran
    outputs   what the run computed, as `run` returns it
    how       how steps were timed: "device clock", "one step at a time", "whole run"
    steps     the plan's, without views; of a whole run one
    upload, readback   inputs to the device, outputs back to the host
    work_ns   all steps as a run has them: without waits in between, submission and
              start of the kernels included
    roofline  the engine's, or None
    no_roofline  why there is none
    repeats   runs of which the medians are told
    """

    graph: str
    device: Device
    engine: str
    outputs: list[Array]
    how: TimingMethod
    steps: tuple[ProfileEntry, ...]
    upload: ProfileEntry
    readback: ProfileEntry
    work_ns: float
    roofline: Roofline | None
    no_roofline: str
    repeats: int

    @property
    def total_ns(self) -> float:
        """Time of upload, work and read-back together."""
        return self.upload.ns + self.work_ns + self.readback.ns

    def as_json(self) -> dict[str, Any]:
        """Return everything but the outputs as plain data; times in nanoseconds."""
        roofline = self.roofline
        return {
            "graph": self.graph,
            "device": self.device.label,
            "engine": self.engine,
            "how": self.how,
            "repeats": self.repeats,
            "total_ns": self.total_ns,
            "work_ns": self.work_ns,
            "upload": self.upload.as_json(),
            "readback": self.readback.as_json(),
            "roofline": None if roofline is None else roofline.as_json(),
            "no_roofline": self.no_roofline,
            "steps": [step.as_json(roofline) for step in self.steps],
        }

    @property
    def title(self) -> str:
        """Names of the graph and the engine it ran on."""
        return f"{self.graph} on {self.engine}"

    @property
    def spans(self) -> list[TraceSpan]:
        """Spans of the run on a time line.

        The line "run" has its parts as the caller waits for them, the line "steps" the
        steps one behind the other, from where the upload ends.
        """
        work = ProfileEntry("work", "work", self.work_ns, launches=len(self.steps))
        spans = sequential_spans("run", (self.upload, work, self.readback))
        return spans + sequential_spans("steps", self.steps, self.upload.ns)

    def trace(self) -> Any:
        """Return the time line for Perfetto: plain data for a JSON file."""
        return build_chrome_trace(self.title, self.spans, self.roofline)

    def save_trace(self, path: str | Path) -> None:
        """Write the trace to a file for https://ui.perfetto.dev; raises
        RecordingError.
        """
        with AtomicFiles() as files:
            files.open(path).write(json.dumps(self.trace()).encode())

    def __repr__(self) -> str:
        duration = format_ns(self.total_ns)
        return f"Profile('{self.graph}' on {self.engine}: {duration})"

    def __str__(self) -> str:
        return "\n".join(profile_lines(self))


def profile_lines(profile: Profile) -> list[str]:
    """Return the lines of the table and the sentences around it."""
    roofline = profile.roofline
    runs_text = (
        "one run" if profile.repeats == 1 else f"medians of {profile.repeats} runs"
    )
    lines = [
        f"{profile.title}: {format_ns(profile.total_ns)}, {runs_text}",
        f"timed by {TIMING_METHODS[profile.how]}",
    ]
    lines.append(roofline_text(roofline, profile.no_roofline))
    total_ns = profile.upload.ns + profile.readback.ns
    total_ns += sum(step.ns for step in profile.steps)
    rows = [
        profile_row(part, total_ns, roofline)
        for part in (profile.upload, *profile.steps, profile.readback)
    ]
    lines += format_table(TABLE_HEADERS, rows)
    steps_ns = sum(step.ns for step in profile.steps)
    lines.append(
        f"all steps together, as in a normal run: {format_ns(profile.work_ns)}"
    )
    if profile.how == "one step at a time" and steps_ns > 1.5 * profile.work_ns > 0:
        lines.append(
            "the sum of the step times is larger because it includes the wait for each "
            "step"
        )
    return lines


def roofline_text(roofline: Roofline | None, reason: str) -> str:
    """Describe the roofline in a line, or why there is none."""
    if roofline is None:
        return f"no roofline: {reason}"
    line = (
        f"roof: {roofline.gflops:,.4g} GFLOP/s, {roofline.gbs:,.4g} GB/s "
        f"({roofline.source})"
    )
    is_measured = roofline.source == "calibrated"
    return line if is_measured else f"{line}; run `rlxweb calibrate` to measure it"


TABLE_HEADERS = ("step", "time", "share", "bytes", "GB/s", "GFLOP/s", "of the roof")


def profile_row(
    part: ProfileEntry, total_ns: float, roofline: Roofline | None
) -> tuple[str, ...]:
    """Return the table cells of one part of the run."""
    roof_share = part.roofline_fraction(roofline)
    is_transfer = part.kind in _TRANSFER_KINDS
    return (
        abbreviate(part.label, _MAX_LABEL_LENGTH) + format_variants(part.variants),
        format_ns(part.ns),
        f"{part.ns / total_ns:.0%}" if total_ns else "",
        f"{part.nbytes:,}" if part.nbytes else "",
        f"{part.gbs:.3g}" if part.nbytes and part.ns else "",
        f"{part.gflops:.3g}" if part.flops and part.ns else "",
        "" if roof_share is None or is_transfer else f"{roof_share:.0%}",
    )


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as columns under headers: the first column left-aligned, the others
    right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (headers, *rows)
    ]


async def profile_program(
    engine: Engine,
    program: Program,
    feeds: Mapping[str, Array],
    place: DevicePlace,
    repeats: int,
) -> Profile:
    """Run a program `repeats` times with profiling and return the medians; raises the
    errors of a run.
    """
    runs = [await run_timed(engine, program, feeds) for _ in range(repeats)]
    plan, target = program.plan, engine.target
    plan_totals, last_run = plan_workload(plan, target), runs[-1]
    roofline, reason = find_roofline(place)
    return Profile(
        graph=plan.graph.name,
        device=place.device,
        engine=engine.name,
        outputs=last_run.outputs,
        how=last_run.method,
        steps=_median_steps(program, engine, runs),
        upload=ProfileEntry(
            "inputs to the device",
            "upload",
            median(run.upload_ns for run in runs),
            nbytes=plan_totals.upload_bytes,
        ),
        readback=ProfileEntry(
            "outputs to the host",
            "readback",
            median(run.readback_ns for run in runs),
            nbytes=plan_totals.readback_bytes,
        ),
        work_ns=median(run.work_ns for run in runs),
        roofline=roofline,
        no_roofline=reason,
        repeats=repeats,
    )


def _median_steps(
    program: Program, engine: Engine, runs: Sequence[TimedRun]
) -> tuple[ProfileEntry, ...]:
    """Return the plan's steps with their median times; one entry if the engine times
    only whole runs.
    """
    items = step_items(program.plan, engine.target)
    entries = [
        ProfileEntry(item.label, item.kind, 0.0, item.flops, item.nbytes, item.launches)
        for item in items
        if item is not None
    ]
    if runs[-1].method == "whole run":
        flops = sum(step_part.flops for step_part in entries)
        nbytes = sum(step_part.nbytes for step_part in entries)
        ns = median(run.work_ns for run in runs)
        label = f"whole run of {len(entries)} steps"
        return (ProfileEntry(label, "whole run", ns, flops, nbytes, len(entries)),)
    steps = [step for step, item in enumerate(items) if item is not None]
    kernel_variants = runs[-1].kernel_variants
    return tuple(
        replace(
            entry,
            ns=median(run.step_ns[step] for run in runs),
            variants=program.plan.steps[step].variants(kernel_variants),
        )
        for entry, step in zip(entries, steps, strict=True)
    )


def find_roofline(place: DevicePlace) -> tuple[Roofline | None, str]:
    """Return the roofline of an engine, or None and the reason; nothing is measured."""
    price = engine_calibration(place, ())
    if isinstance(price, str):
        return None, price
    roofline = Roofline.from_record(price.record, price.source)
    return (
        roofline,
        ""
        if roofline
        else "the calibration of this engine lacks the time of a matrix product or of "
        "a copy",
    )
