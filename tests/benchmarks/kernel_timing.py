"""Times cases of `./dev bench kernels`, all contenders of a case in turns.

Everything lies on the device; a sample is so many runs in one go that the clock and the
wait for the end do not matter. Who takes part is decided in `kernel_contenders.py`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rlxweb.calibration.stopwatch import Clock, Stopwatch
from rlxweb.devices.place import Place
from tests.benchmarks.kernel_cases import Case
from tests.benchmarks.kernel_contenders import Contender, Given, Go, Row, contenders

SAMPLE_S = 0.02
MOST_TIMES = 2000


def quiet(case: Case, row: Row | None) -> None:
    """Whoever shows no progress."""


@dataclass(slots=True)
class _Ready:
    """A contender that can be repeated, and how many runs make a sample."""

    row: Row
    go: Go
    times: int = 1

    def run(self) -> None:
        if not self.row.why:
            try:
                self.go(self.times)
            except Exception as error:  # each library fails in ways of its own
                self.row.failed(error)


@dataclass(slots=True)
class Bench:
    """The engines and how carefully they are timed.

    budget_s   of all cases together; what no time is left for is `left_out`
    begun      told before a contender is tried, and (None) before all are timed
    spoiled    a contender failed so that the process may be of no more use
    """

    places: Sequence[Place]
    budget_s: float
    rounds: int = 7
    with_peers: bool = True
    clock: Clock = time.perf_counter_ns
    begun: Callable[[Case, Row | None], None] = quiet
    left_out: list[str] = field(default_factory=list)
    spoiled: bool = False

    def run(self, cases: Sequence[Case]) -> Iterator[list[Row]]:
        """The rows of case after case, until one spoils the process."""
        end = self.clock() + self.budget_s * 1e9
        for at, case in enumerate(cases):
            left = end - self.clock()
            if left <= 0:
                self.left_out.append(f"{case.label}: no time is left")
                continue
            # What a case does not need is the others', the first ones' most.
            share = min(left, 3 * left / (len(cases) - at))
            yield self.measure(case, share)
            gc.collect()
            if self.spoiled:
                return

    def measure(self, case: Case, budget_ns: float) -> list[Row]:
        """Every contender of one case: in turns, and then those alone that found no
        memory beside the others.
        """
        until = self.clock() + budget_ns
        with ExitStack() as arrays:
            given = Given(case, arrays)
            every = contenders(given, self.places, self.with_peers)
            mine = list(every)
            self._in_turns(case, mine, until)
            short = [one for one in mine if one.row.is_short]
            for one in short if len(mine) > 1 else ():
                if self.spoiled or self.clock() > until:
                    break
                one.row.why, one.row.is_short = "", False
                gc.collect()
                self._in_turns(case, [one], until)
        return [one.row for one in mine]

    def _in_turns(self, case: Case, every: Sequence[Contender], until: float) -> None:
        begun = self.clock()
        with ExitStack() as programs:
            ready: list[_Ready] = []
            for contender in every:
                if ready and self.clock() - begun > (until - begun) / 2:
                    contender.row.why = contender.row.why or "no time is left for it"
                    continue
                one = self._made(contender, programs)
                self.spoiled = contender.row.spoils
                if self.spoiled:
                    return
                ready += [] if one is None else [one]
            self.begun(case, None)
            self._time(ready, until)
            self.spoiled = any(one.row.spoils for one in ready)

    def _made(self, contender: Contender, programs: ExitStack) -> _Ready | None:
        """Ready and warm; None where it is wrong or cannot be, which its row says."""
        row = contender.row
        self.begun(row.case, row)
        begun = self.clock()
        try:
            made = _Ready(row, contender.make(programs))
        except Exception as error:  # each library fails in ways of its own
            row.failed(error)
            return None
        made.run()
        row.first_ns = float(self.clock() - begun)
        for _ in range(2):
            begun = self.clock()
            made.run()
            took = (self.clock() - begun) / made.times
            made.times = max(1, min(MOST_TIMES, int(SAMPLE_S * 1e9 / max(took, 1))))
        return None if row.why else made

    def _time(self, ready: Sequence[_Ready], until: float) -> None:
        watch = Stopwatch(
            sample_ns=0,
            samples=self.rounds,
            least=3,
            budget_ns=max(0.0, until - self.clock()),
            clock=self.clock,
        )
        timings = watch.interleaved([one.run for one in ready], settle=False)
        for one, took in zip(ready, timings, strict=True):
            if not one.row.why:  # else it failed on the way
                one.row.ns, one.row.spread = took.ns / one.times, took.spread
                one.row.samples = took.samples
