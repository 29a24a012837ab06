"""Placement benchmark: predict every cell, run every candidate, then compare.

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

from rlxweb.core.device import Device
from rlxweb.core.errors import RlxError
from rlxweb.cost.decision import Candidate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.select.calibration.stopwatch import Clock, Stopwatch
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.batch_size_crossover import welch_candidates
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_candidates import WelchJob, engine_for_candidate

RowArray = NDArray[np.float32]
CandidateRun = tuple[Candidate, Callable[[], object]]
"""One candidate for the job of a cell, with its price, and the function that runs it.
"""

# Ways slower than this get fewer rounds, and their count stands beside the figure.
SLOW_NS = 1e9
# What a way may die of without ending the sweep.
RUN_ERRORS = (RlxError, MemoryError)


class SweepCell(Protocol):
    """One job of a sweep of any kind; its fields go into the record."""

    @property
    def gib(self) -> float:
        """Memory it takes to run."""

    @property
    def effort(self) -> float:
        """The cell's share of a progress bar."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Texts of the table about the cell, left of the figures."""

    def candidate_runs(self, sweep: PlacementSweep) -> Iterable[CandidateRun]:
        """Yield every candidate that is not blocked, each with its price."""


@dataclass(frozen=True, slots=True)
class WelchCell:
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

    def candidate_runs(self, sweep: PlacementSweep) -> Iterator[CandidateRun]:
        job = self.make_job(sweep.min_segments)
        rng = np.random.default_rng(self.n_fft + self.batch)
        x = rng.standard_normal((self.batch, self.n_samples), np.float32)
        for candidate in welch_candidates(job, sweep.places):
            if not candidate.blocker and candidate.terms is not None:
                yield candidate, partial(sweep.runner, candidate, job, x)

    def make_job(self, min_segments: int | None) -> WelchJob:
        n, length = self.n_fft, self.n_samples
        spec = spec_from_preset("rlx", length, nperseg=n, dtype=np.float32)
        return WelchJob(spec, self.batch, length, self.k, "bins", min_segments)


def make_welch_cells(
    n_ffts: Iterable[int],
    batches: Iterable[int],
    ks: Iterable[int],
    segments: Iterable[int],
) -> list[WelchCell]:
    """Return every combination, quick ones first."""
    cells = [WelchCell(*sizes) for sizes in product(n_ffts, batches, ks, segments)]
    return sorted(cells, key=lambda c: (c.n_fft * c.batch * c.segments, c.n_fft, c.k))


Runner = Callable[[Candidate, WelchJob, RowArray], object]
"""Function that runs a candidate on rows; by default the engines of `signal`."""


def run_candidate(candidate: Candidate, job: WelchJob, x: RowArray) -> object:
    """Run a candidate on its real engine."""
    spec = job.job_for_candidate(candidate).spec
    return run_blocking(
        engine_for_candidate(candidate, job).strongest_bins(x, spec, job.k)
    )


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One candidate of one cell: its prediction and its measurement.

    measured_ns is 0 where error says why it could not run
    """

    candidate: Candidate
    measured_ns: float = 0.0
    spread: float = 0.0
    samples: int = 0
    first_ns: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class SweepCellResult:
    """A cell with its rows, fastest prediction first."""

    cell: SweepCell
    rows: tuple[SweepRow, ...]

    @property
    def successful_rows(self) -> list[SweepRow]:
        return [r for r in self.rows if not r.error]

    @property
    def pick(self) -> SweepRow:
        return self.successful_rows[0]

    @property
    def best(self) -> SweepRow:
        return min(self.successful_rows, key=lambda r: r.measured_ns)

    @property
    def overall_regret(self) -> float:
        """Time of the pick over time of the best: 1 is perfect, NaN if nothing ran."""
        times_ns = [r.measured_ns for r in self.successful_rows]
        return times_ns[0] / min(times_ns) if times_ns else math.nan

    @property
    def device_regret(self) -> float:
        """Regret with the CPU left out: how well the device models rank."""
        rows = (r for r in self.rows if r.candidate.device is not Device.CPU)
        return SweepCellResult(self.cell, tuple(rows)).overall_regret


@dataclass(slots=True)
class PlacementSweep:
    """Settings of a run over cells.

    rounds    samples per way, fewer where one takes over a second
    budget_s  a cell stops here, but never below `min_rounds` rounds
    """

    places: Sequence[DevicePlace]
    rounds: int = 7
    min_rounds: int = 3
    budget_s: float = 60.0
    min_segments: int | None = None
    max_gib: float = 1.5
    runner: Runner = run_candidate
    clock: Clock = time.perf_counter_ns
    skipped_cells: list[str] = field(default_factory=list)

    def run(self, cells: Sequence[SweepCell]) -> Iterator[SweepCellResult]:
        """Measure cell after cell; name those that do not fit into memory."""
        for cell in cells:
            if cell.gib > self.max_gib:
                self.skipped_cells.append(
                    f"{cell}: it takes {cell.gib:.2f} GiB, --max-gib allows "
                    f"{self.max_gib:g}"
                )
                continue
            try:
                result = self.measure(cell)
            except MemoryError:
                self.skipped_cells.append(f"{cell}: out of memory")
                continue
            yield result

    def measure(self, cell: SweepCell) -> SweepCellResult:
        """Predict, then run every candidate that is not blocked."""
        candidate_runs = [
            # Factors that earlier runs taught are left out: the model stands alone.
            (replace(candidate, correction=1.0), run)
            for candidate, run in cell.candidate_runs(self)
        ]
        candidate_runs.sort(key=lambda candidate_run: candidate_run[0].predicted_ns)
        stopwatch = Stopwatch(
            samples=self.rounds,
            min_samples=self.min_rounds,
            budget_ns=self.budget_s * 1e9,
            clock=self.clock,
            slow_ns=SLOW_NS,
        )
        guarded_runs = [_GuardedRun(run) for _, run in candidate_runs]
        timed = zip(
            candidate_runs,
            guarded_runs,
            stopwatch.time_interleaved(guarded_runs),
            strict=True,
        )
        rows = (
            SweepRow(candidate, error=guarded_run.error)
            if guarded_run.error
            else SweepRow(
                candidate, timing.ns, timing.spread, timing.samples, timing.first_ns
            )
            for (candidate, _), guarded_run, timing in timed
        )
        return SweepCellResult(cell, tuple(rows))


@dataclass(slots=True)
class _GuardedRun:
    """Run a function until it fails, and do nothing from then on."""

    run: Callable[[], object]
    error: str = ""

    def __call__(self) -> None:
        if not self.error:
            try:
                self.run()
            except RUN_ERRORS as error:
                self.error = str(error) or type(error).__name__


class RegretSummary(NamedTuple):
    """Regrets of many cells, ratios of which 1 is perfect; NaN where there are none."""

    median: float = math.nan
    p90: float = math.nan
    worst: float = math.nan

    def __str__(self) -> str:
        return f"median {self.median:.3f}, 90 % {self.p90:.3f}, worst {self.worst:.3f}"

    def as_json(self) -> dict[str, float | None]:
        return {name: finite_or_none(value) for name, value in self._asdict().items()}


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """Summary of a sweep.

    device_regret   the regret with the CPU left out
    """

    cells: int
    regret: RegretSummary
    device_regret: RegretSummary
    model_error: dict[str, float]
    losing_cells: tuple[SweepCellResult, ...]


LOSING_RATIO = 1.05
"""A cell whose pick is this much slower than its best is listed."""


def summarize_sweep(results: Sequence[SweepCellResult]) -> SweepSummary:
    """Return median, 90th percentile and worst regret, and each engine's typical
    error.
    """
    measured_results = [m for m in results if m.successful_rows]
    log_errors: dict[str, list[float]] = {}
    for row in (row for result in measured_results for row in result.successful_rows):
        engine = f"{row.candidate.engine} {row.candidate.how}".strip()
        ratio = row.candidate.predicted_ns / row.measured_ns
        log_errors.setdefault(engine, []).append(abs(math.log(ratio)))
    losing = [m for m in measured_results if m.overall_regret > LOSING_RATIO]
    return SweepSummary(
        len(measured_results),
        _summarize_regrets(
            sorted_without_nan(m.overall_regret for m in measured_results)
        ),
        _summarize_regrets(
            sorted_without_nan(m.device_regret for m in measured_results)
        ),
        {e: math.exp(float(np.median(v))) - 1.0 for e, v in log_errors.items()},
        tuple(sorted(losing, key=lambda m: -m.overall_regret)),
    )


def sorted_without_nan(values: Iterable[float]) -> list[float]:
    """Return the values without NaN, in rising order."""
    return sorted(value for value in values if not math.isnan(value))


def _summarize_regrets(values: Sequence[float]) -> RegretSummary:
    if not values:
        return RegretSummary()
    median, high = np.percentile(values, [50, 90])
    return RegretSummary(float(median), float(high), values[-1])


def as_json(
    results: Sequence[SweepCellResult], summary: SweepSummary
) -> dict[str, Any]:
    """Return cells and summary as plain data."""
    return {
        "cells": [
            {
                **asdict(m.cell),  # type: ignore[call-overload]  # cells are dataclasses
                "regret": finite_or_none(m.overall_regret),
                "device_regret": finite_or_none(m.device_regret),
                "rows": [_row_json(r) for r in m.rows],
            }
            for m in results
        ],
        "summary": {
            "cells": summary.cells,
            "regret": summary.regret.as_json(),
            "device_regret": summary.device_regret.as_json(),
            "model_error": summary.model_error,
            "losing": [str(m.cell) for m in summary.losing_cells],
        },
    }


def _row_json(row: SweepRow) -> dict[str, Any]:
    candidate = row.candidate
    return {
        "device": candidate.device.label,
        "engine": candidate.engine,
        "strategy": candidate.strategy,
        "how": candidate.how,
        "source": candidate.source,
        "predicted_ms": candidate.predicted_ns / 1e6,
        "measured_ms": None if row.error else row.measured_ns / 1e6,
        "spread": row.spread,
        "samples": row.samples,
        "first_ms": row.first_ns / 1e6,
        "error": row.error,
    }
