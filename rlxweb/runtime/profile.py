"""Profile: where the time of a run went, step by step, against what could be.

Times are the engine's (`Backend.timed`), work is the plan's (`plan_work`), the roof is
the calibration's. Here they meet, as a table, as data, and as a trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.backends.timed import Timed, Way
from rlxweb.calibration.known import priced
from rlxweb.compile.plan_work import work_by_step, work_of
from rlxweb.cost.roofline import Roofline, Spent
from rlxweb.cost.trace import Span, one_after_another, trace_of
from rlxweb.decision.terms import human_ns
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.printable import abridged
from rlxweb.whole_file import WholeFiles

HOW: Mapping[Way, str] = {
    "device clock": "time stamps of the device around each step, in one submission",
    "one step at a time": "each step alone, with the wait for it",
    "whole run": "this engine compiles the graph whole: its steps are not told apart",
}
_MOST_LABEL = 44
# Kinds that the memory of the engine says nothing of.
_MOVES = ("upload", "readback", "open", "choose", "read", "check")


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """Where the time of a run went. Printed, it is a table.

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
    how: Way
    steps: tuple[Spent, ...]
    upload: Spent
    readback: Spent
    work_ns: float
    roofline: Roofline | None
    no_roofline: str
    repeats: int

    @property
    def total_ns(self) -> float:
        """Upload, work and read-back."""
        return self.upload.ns + self.work_ns + self.readback.ns

    def as_json(self) -> dict[str, Any]:
        """Everything but the outputs, as plain data; times in nanoseconds."""
        roof = self.roofline
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
            "roofline": None if roof is None else roof.as_json(),
            "no_roofline": self.no_roofline,
            "steps": [one.as_json(roof) for one in self.steps],
        }

    @property
    def title(self) -> str:
        """What ran where."""
        return f"{self.graph} on {self.engine}"

    @property
    def spans(self) -> list[Span]:
        """The run on a time line.

        The line "run" has its parts as the caller waits for them, the line "steps" the
        steps one behind the other, from where the upload ends.
        """
        work = Spent("work", "work", self.work_ns, launches=len(self.steps))
        spans = one_after_another("run", (self.upload, work, self.readback))
        return spans + one_after_another("steps", self.steps, self.upload.ns)

    def trace(self) -> Any:
        """The time line for Perfetto: plain data for a JSON file."""
        return trace_of(self.title, self.spans, self.roofline)

    def save_trace(self, path: str | Path) -> None:
        """The trace as a file for https://ui.perfetto.dev. Errors  RecordingError."""
        with WholeFiles() as files:
            files.open(path).write(json.dumps(self.trace()).encode())

    def __repr__(self) -> str:
        took = human_ns(self.total_ns)
        return f"Profile('{self.graph}' on {self.engine}: {took})"

    def __str__(self) -> str:
        return "\n".join(lines_of(self))


def lines_of(profile: Profile) -> list[str]:
    """The table, and the sentences around it."""
    roof = profile.roofline
    runs = "one run" if profile.repeats == 1 else f"medians of {profile.repeats} runs"
    lines = [
        f"{profile.title}: {human_ns(profile.total_ns)}, {runs}",
        f"timed by {HOW[profile.how]}",
    ]
    lines.append(roof_line(roof, profile.no_roofline))
    whole = profile.upload.ns + profile.readback.ns
    whole += sum(step.ns for step in profile.steps)
    rows = [
        row_of(one, whole, roof)
        for one in (profile.upload, *profile.steps, profile.readback)
    ]
    lines += table_of(HEADS, rows)
    apart = sum(step.ns for step in profile.steps)
    lines.append(f"all steps together, as a run has them: {human_ns(profile.work_ns)}")
    if profile.how == "one step at a time" and apart > 1.5 * profile.work_ns > 0:
        lines.append(
            "the sum of the steps is larger: the wait for each of them is in it"
        )
    return lines


def roof_line(roof: Roofline | None, why: str) -> str:
    """What the roof is, or why there is none."""
    if roof is None:
        return f"no roofline: {why}"
    line = f"roof: {roof.gflops:,.4g} GFLOP/s, {roof.gbs:,.4g} GB/s ({roof.source})"
    measured = roof.source == "calibrated"
    return line if measured else f"{line}; `rlxweb calibrate` measures it"


HEADS = ("step", "time", "share", "bytes", "GB/s", "GFLOP/s", "of the roof")


def row_of(one: Spent, whole_ns: float, roof: Roofline | None) -> tuple[str, ...]:
    """The cells of one part."""
    of_roof = one.share_of(roof)
    moves = one.kind in _MOVES
    return (
        abridged(one.label, _MOST_LABEL),
        human_ns(one.ns),
        f"{one.ns / whole_ns:.0%}" if whole_ns else "",
        f"{one.nbytes:,}" if one.nbytes else "",
        f"{one.gbs:.3g}" if one.nbytes and one.ns else "",
        f"{one.gflops:.3g}" if one.flops and one.ns else "",
        "" if of_roof is None or moves else f"{of_roof:.0%}",
    )


def table_of(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under heads: the first to the left, numbers to the right."""
    wide = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in (heads, *rows)
    ]


async def profiled(
    engine: Backend,
    program: Program,
    feeds: Mapping[str, Array],
    place: Place,
    repeats: int,
) -> Profile:
    """So many profiled runs, and their medians. Errors  those of a run."""
    runs = [await engine.timed(program, feeds) for _ in range(repeats)]
    plan, target = program.plan, engine.target
    work, last = work_of(plan, target), runs[-1]
    roof, why = roof_of(place)
    return Profile(
        graph=plan.graph.name,
        device=place.device,
        engine=engine.name,
        outputs=last.outputs,
        how=last.how,
        steps=_steps(program, engine, runs),
        upload=Spent(
            "inputs to the device",
            "upload",
            median(run.upload_ns for run in runs),
            nbytes=work.upload_bytes,
        ),
        readback=Spent(
            "outputs to the host",
            "readback",
            median(run.readback_ns for run in runs),
            nbytes=work.readback_bytes,
        ),
        work_ns=median(run.work_ns for run in runs),
        roofline=roof,
        no_roofline=why,
        repeats=repeats,
    )


def _steps(
    program: Program, engine: Backend, runs: Sequence[Timed]
) -> tuple[Spent, ...]:
    items = work_by_step(program.plan, engine.target)
    parts = [
        Spent(item.label, item.kind, 0.0, item.flops, item.nbytes, item.launches)
        for item in items
        if item is not None
    ]
    if runs[-1].how == "whole run":
        flops = sum(one.flops for one in parts)
        nbytes = sum(one.nbytes for one in parts)
        ns = median(run.work_ns for run in runs)
        label = f"whole run of {len(parts)} steps"
        return (Spent(label, "whole run", ns, flops, nbytes, len(parts)),)
    steps = [at for at, item in enumerate(items) if item is not None]
    return tuple(
        replace(part, ns=median(run.step_ns[at] for run in runs))
        for part, at in zip(parts, steps, strict=True)
    )


def roof_of(place: Place) -> tuple[Roofline | None, str]:
    """The roof of an engine, or None and why; nothing is measured for it."""
    known = priced(place, ())
    if isinstance(known, str):
        return None, known
    found = Roofline.of(known.record, known.source)
    return found, "" if found else "its calibration has no product and no copy"
