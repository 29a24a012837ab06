"""Timing of the cases of `./dev bench kernels`, all contenders of a case interleaved.

Everything lies on the device; a sample is so many runs in one go that the clock and the
wait for the end do not matter. Who takes part is decided in `kernel_contenders.py`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rlxweb.select.calibration.stopwatch import Clock, Stopwatch
from rlxweb.select.device_and_adapter import DevicePlace
from tests.benchmarks.kernel_cases import KernelCase
from tests.benchmarks.kernel_contenders import (
    CaseData,
    Contender,
    ContenderRow,
    RunMany,
    list_contenders,
)

SAMPLE_S = 0.02
MAX_RUNS_PER_SAMPLE = 2000


def ignore_progress(case: KernelCase, row: ContenderRow | None) -> None:
    """Show no progress."""


@dataclass(slots=True)
class _PreparedContender:
    """Contender that can be repeated, and how many runs make a sample."""

    row: ContenderRow
    run_many: RunMany
    runs_per_sample: int = 1

    def run(self) -> None:
        if not self.row.failure:
            try:
                self.run_many(self.runs_per_sample)
            except Exception as error:  # each library fails in ways of its own
                self.row.record_failure(error)


@dataclass(slots=True)
class KernelBenchmark:
    """The engines and the settings of their timing.

    budget_s   of all cases together; what no time is left for is `skipped_cases`
    on_begin   told before a contender is tried, and (None) before all are timed
    is_spoiled  a contender failed so that the process may be of no more use
    """

    places: Sequence[DevicePlace]
    budget_s: float
    rounds: int = 7
    with_peers: bool = True
    clock: Clock = time.perf_counter_ns
    on_begin: Callable[[KernelCase, ContenderRow | None], None] = ignore_progress
    skipped_cases: list[str] = field(default_factory=list)
    is_spoiled: bool = False

    def run(self, cases: Sequence[KernelCase]) -> Iterator[list[ContenderRow]]:
        """Yield the rows of case after case, until one spoils the process."""
        deadline_ns = self.clock() + self.budget_s * 1e9
        for index, case in enumerate(cases):
            left_ns = deadline_ns - self.clock()
            if left_ns <= 0:
                self.skipped_cases.append(f"{case.label}: no time is left")
                continue
            # What a case does not need is the others', the first ones' most.
            budget_ns = min(left_ns, 3 * left_ns / (len(cases) - index))
            yield self.measure(case, budget_ns)
            gc.collect()
            if self.is_spoiled:
                return

    def measure(self, case: KernelCase, budget_ns: float) -> list[ContenderRow]:
        """Time every contender of one case: interleaved, and then those alone that
        found no memory beside the others.
        """
        deadline_ns = self.clock() + budget_ns
        with ExitStack() as arrays:
            case_data = CaseData(case, arrays)
            available = list_contenders(case_data, self.places, self.with_peers)
            case_contenders = list(available)
            self._time_interleaved(case, case_contenders, deadline_ns)
            without_memory = [
                contender for contender in case_contenders if contender.row.lacks_memory
            ]
            for contender in without_memory if len(case_contenders) > 1 else ():
                if self.is_spoiled or self.clock() > deadline_ns:
                    break
                contender.row.failure, contender.row.lacks_memory = "", False
                gc.collect()
                self._time_interleaved(case, [contender], deadline_ns)
        return [contender.row for contender in case_contenders]

    def _time_interleaved(
        self, case: KernelCase, case_contenders: Sequence[Contender], deadline_ns: float
    ) -> None:
        start_ns = self.clock()
        with ExitStack() as programs:
            prepared_contenders: list[_PreparedContender] = []
            for contender in case_contenders:
                if (
                    prepared_contenders
                    and self.clock() - start_ns > (deadline_ns - start_ns) / 2
                ):
                    contender.row.failure = (
                        contender.row.failure or "no time is left for it"
                    )
                    continue
                prepared = self._prepare(contender, programs)
                self.is_spoiled = contender.row.spoils_process
                if self.is_spoiled:
                    return
                prepared_contenders += [] if prepared is None else [prepared]
            self.on_begin(case, None)
            self._time_samples(prepared_contenders, deadline_ns)
            self.is_spoiled = any(
                prepared.row.spoils_process for prepared in prepared_contenders
            )

    def _prepare(
        self, contender: Contender, programs: ExitStack
    ) -> _PreparedContender | None:
        """Return the contender prepared and warmed up; None where it is wrong or
        failed, which its row says.
        """
        row = contender.row
        self.on_begin(row.case, row)
        start_ns = self.clock()
        try:
            prepared = _PreparedContender(row, contender.make(programs))
        except Exception as error:  # each library fails in ways of its own
            row.record_failure(error)
            return None
        prepared.run()
        row.first_ns = float(self.clock() - start_ns)
        for _ in range(2):
            start_ns = self.clock()
            prepared.run()
            run_ns = (self.clock() - start_ns) / prepared.runs_per_sample
            prepared.runs_per_sample = max(
                1, min(MAX_RUNS_PER_SAMPLE, int(SAMPLE_S * 1e9 / max(run_ns, 1)))
            )
        return None if row.failure else prepared

    def _time_samples(
        self, prepared_contenders: Sequence[_PreparedContender], deadline_ns: float
    ) -> None:
        stopwatch = Stopwatch(
            sample_ns=0,
            samples=self.rounds,
            min_samples=3,
            budget_ns=max(0.0, deadline_ns - self.clock()),
            clock=self.clock,
        )
        timings = stopwatch.time_interleaved(
            [prepared.run for prepared in prepared_contenders], warm_each=False
        )
        for prepared, timing in zip(prepared_contenders, timings, strict=True):
            if not prepared.row.failure:  # else it failed on the way
                prepared.row.ns, prepared.row.spread = (
                    timing.ns / prepared.runs_per_sample,
                    timing.spread,
                )
                prepared.row.samples = timing.samples
