"""The picker's benchmark: predict every cell, then run every way, then compare.

Predictions are made before a cell is run, and nothing is learned from the sweep while
it lasts. The ways of a cell run in turns; first calls, which compile, are not counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rlxweb.calibration.stopwatch import Clock, Stopwatch
from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import RlxError
from rlxweb.gpu.drive import drive
from rlxweb.io.writers import finite
from rlxweb.signal.crossover import welch_candidates
from rlxweb.signal.offers import WelchJob, engine_for
from rlxweb.signal.presets import from_preset

Rows = NDArray[np.float32]
Way = tuple[Candidate, Callable[[], object]]
"""One way to do the job of a cell, with its price, and what runs it."""

# Ways slower than this get fewer rounds, and their count stands beside the figure.
SLOW_NS = 1e9
# What a way may die of without ending the sweep.
FAILURES = (RlxError, MemoryError)


class AnyCell(Protocol):
    """One job of a sweep, of whatever kind; its fields go into the record."""

    @property
    def gib(self) -> float:
        """Memory it takes to run."""

    @property
    def effort(self) -> float:
        """The cell's share of a progress bar."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The words of the table about the cell, left of the figures."""

    def ways(self, sweep: Sweep) -> Iterable[Way]:
        """Every way that is not blocked, each with its price."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One Welch job of the sweep."""

    n_fft: int
    batch: int
    k: int
    segments: int

    @property
    def n_samples(self) -> int:
        return self.n_fft + (self.segments - 1) * max(1, self.n_fft // 2)

    @property
    def gib(self) -> float:
        """Memory of its rows."""
        return 4 * self.batch * self.n_samples / 2**30

    def __str__(self) -> str:
        return f"n {self.n_fft} batch {self.batch} k {self.k} segments {self.segments}"

    @property
    def effort(self) -> float:
        return 1.0 + self.n_fft * self.batch * self.segments / 1e5

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{size:,}" for size in astuple(self))

    def ways(self, sweep: Sweep) -> Iterator[Way]:
        job = self.job(sweep.min_segments)
        draw = np.random.default_rng(self.n_fft + self.batch)
        x = draw.standard_normal((self.batch, self.n_samples), np.float32)
        for one in welch_candidates(job, sweep.places):
            if not one.blocker and one.terms is not None:
                yield one, partial(sweep.runner, one, job, x)

    def job(self, min_segments: int | None) -> WelchJob:
        n, length = self.n_fft, self.n_samples
        spec = from_preset("rlx", length, nperseg=n, dtype=np.float32)
        return WelchJob(spec, self.batch, length, self.k, "bins", min_segments)


def cells_of(
    n_ffts: Iterable[int],
    batches: Iterable[int],
    ks: Iterable[int],
    segments: Iterable[int],
) -> list[Cell]:
    """Every combination, quick ones first."""
    found = [Cell(*sizes) for sizes in product(n_ffts, batches, ks, segments)]
    return sorted(found, key=lambda c: (c.n_fft * c.batch * c.segments, c.n_fft, c.k))


Runner = Callable[[Candidate, WelchJob, Rows], object]
"""What runs a candidate on rows; the engines of `signal`, or a test's."""


def run_candidate(candidate: Candidate, job: WelchJob, x: Rows) -> object:
    """The real thing."""
    spec = job.by(candidate).spec
    return drive(engine_for(candidate, job).strongest(x, spec, job.k))


@dataclass(frozen=True, slots=True)
class Row:
    """One way of one cell: what was predicted and what came of it.

    measured_ns is 0 where error says why it could not run
    """

    candidate: Candidate
    measured_ns: float = 0.0
    spread: float = 0.0
    samples: int = 0
    first_ns: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell with its rows, fastest prediction first."""

    cell: AnyCell
    rows: tuple[Row, ...]

    @property
    def ran(self) -> list[Row]:
        return [r for r in self.rows if not r.error]

    @property
    def pick(self) -> Row:
        return self.ran[0]

    @property
    def best(self) -> Row:
        return min(self.ran, key=lambda r: r.measured_ns)

    @property
    def overall_regret(self) -> float:
        """Time of the pick over time of the best: 1 is perfect, NaN if nothing ran."""
        ran = [r.measured_ns for r in self.ran]
        return ran[0] / min(ran) if ran else math.nan

    @property
    def device_regret(self) -> float:
        """The same with the CPU left out: how well the device models rank."""
        rows = (r for r in self.rows if r.candidate.device is not Device.CPU)
        return Measured(self.cell, tuple(rows)).overall_regret


@dataclass(slots=True)
class Sweep:
    """How the cells are run.

    rounds    samples per way, fewer where one takes over a second
    budget_s  a cell stops here, but never below `least` rounds
    """

    places: Sequence[Place]
    rounds: int = 7
    least: int = 3
    budget_s: float = 60.0
    min_segments: int | None = None
    max_gib: float = 1.5
    runner: Runner = run_candidate
    clock: Clock = time.perf_counter_ns
    left_out: list[str] = field(default_factory=list)

    def run(self, cells: Sequence[AnyCell]) -> Iterator[Measured]:
        """Cell after cell; what does not fit into memory is left out by name."""
        for cell in cells:
            if cell.gib > self.max_gib:
                self.left_out.append(
                    f"{cell}: it takes {cell.gib:.2f} GiB, --max-gib allows "
                    f"{self.max_gib:g}"
                )
                continue
            try:
                one = self.measure(cell)
            except MemoryError:
                self.left_out.append(f"{cell}: out of memory")
                continue
            yield one

    def measure(self, cell: AnyCell) -> Measured:
        """Predict, then run every way that is not blocked."""
        found = [
            # Factors that earlier runs taught are left out: the model stands alone.
            (replace(one, correction=1.0), run)
            for one, run in cell.ways(self)
        ]
        found.sort(key=lambda way: way[0].predicted_ns)
        watch = Stopwatch(
            samples=self.rounds,
            least=self.least,
            budget_ns=self.budget_s * 1e9,
            clock=self.clock,
            slow_ns=SLOW_NS,
        )
        tries = [_Try(run) for _, run in found]
        timed = zip(found, tries, watch.interleaved(tries), strict=True)
        rows = (
            Row(one, error=tried.error)
            if tried.error
            else Row(one, took.ns, took.spread, took.samples, took.first_ns)
            for (one, _), tried, took in timed
        )
        return Measured(cell, tuple(rows))


@dataclass(slots=True)
class _Try:
    """Runs until it fails, and does nothing from then on."""

    run: Callable[[], object]
    error: str = ""

    def __call__(self) -> None:
        if not self.error:
            try:
                self.run()
            except FAILURES as error:
                self.error = str(error) or type(error).__name__


class Spots(NamedTuple):
    """Regrets of many cells, ratios of which 1 is perfect; NaN where there are none."""

    median: float = math.nan
    p90: float = math.nan
    worst: float = math.nan

    def __str__(self) -> str:
        return f"median {self.median:.3f}, 90 % {self.p90:.3f}, worst {self.worst:.3f}"

    def as_json(self) -> dict[str, float | None]:
        return {name: finite(value) for name, value in self._asdict().items()}


@dataclass(frozen=True, slots=True)
class Summary:
    """What the sweep says in a few numbers.

    device_regret   the regret with the CPU left out
    """

    cells: int
    regret: Spots
    device_regret: Spots
    model_error: dict[str, float]
    losing: tuple[Measured, ...]


LOSING = 1.05
"""A cell whose pick is this much slower than its best is listed."""


def summary_of(found: Sequence[Measured]) -> Summary:
    """Median, 90th percentile and worst regret, and each engine's typical miss."""
    good = [m for m in found if m.ran]
    misses: dict[str, list[float]] = {}
    for row in (row for one in good for row in one.ran):
        engine = f"{row.candidate.engine} {row.candidate.how}".strip()
        ratio = row.candidate.predicted_ns / row.measured_ns
        misses.setdefault(engine, []).append(abs(math.log(ratio)))
    losing = [m for m in good if m.overall_regret > LOSING]
    return Summary(
        len(good),
        _spots(not_nan(m.overall_regret for m in good)),
        _spots(not_nan(m.device_regret for m in good)),
        {e: math.exp(float(np.median(v))) - 1.0 for e, v in misses.items()},
        tuple(sorted(losing, key=lambda m: -m.overall_regret)),
    )


def not_nan(values: Iterable[float]) -> list[float]:
    """The values without NaN, in rising order."""
    return sorted(value for value in values if not math.isnan(value))


def _spots(values: Sequence[float]) -> Spots:
    if not values:
        return Spots()
    middle, high = np.percentile(values, [50, 90])
    return Spots(float(middle), float(high), values[-1])


def as_json(found: Sequence[Measured], summary: Summary) -> dict[str, Any]:
    """Cells and summary as plain data."""
    return {
        "cells": [
            {
                **asdict(m.cell),  # type: ignore[call-overload]  # cells are dataclasses
                "regret": finite(m.overall_regret),
                "device_regret": finite(m.device_regret),
                "rows": [_row_json(r) for r in m.rows],
            }
            for m in found
        ],
        "summary": {
            "cells": summary.cells,
            "regret": summary.regret.as_json(),
            "device_regret": summary.device_regret.as_json(),
            "model_error": summary.model_error,
            "losing": [str(m.cell) for m in summary.losing],
        },
    }


def _row_json(row: Row) -> dict[str, Any]:
    one = row.candidate
    return {
        "device": one.device.label,
        "engine": one.engine,
        "strategy": one.strategy,
        "how": one.how,
        "source": one.source,
        "predicted_ms": one.predicted_ns / 1e6,
        "measured_ms": None if row.error else row.measured_ns / 1e6,
        "spread": row.spread,
        "samples": row.samples,
        "first_ms": row.first_ns / 1e6,
        "error": row.error,
    }
