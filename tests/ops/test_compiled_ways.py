"""Every op's samples by the CPU's compiled ways, however small, one after another.

In one process, so that what is compiled for one sample is there for the next: kernels
are shared by what they say they are made for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlxweb.backends import cpu_products, cpu_regions, cpu_tape
from rlxweb.backends.cpu import CpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.smoke.case import Case, checked_ops, plain
from rlxweb.smoke.chains import chain_cases
from tests.tiers import Sampler

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every gate of size is opened; gives how often a tape was run."""
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_tape, "LEAST_STEPS", 0)
    monkeypatch.setattr(cpu_products, "LEAST", 1)
    monkeypatch.setattr(cpu_regions, "LEAST_WORK", 1)
    cpu_products._shares.cache_clear()
    counted, run = [0], cpu_tape.Tape.run

    def counting(tape: cpu_tape.Tape, values: cpu_tape.Arrays) -> None:
        counted[0] += 1
        run(tape, values)

    monkeypatch.setattr(cpu_tape.Tape, "run", counting)
    yield counted
    cpu_products._shares.cache_clear()


def wrong(case: Case, backend: CpuBackend) -> str:
    """Why a case is wrong, of two runs; the second has its constants laid out."""
    trial = case.make()
    program = drive(backend.prepare(compile_graph(trial.graph, backend.target)))
    try:
        for _ in range(2):
            why = trial.judge(drive(backend.run(program, trial.feeds))).why
            if why:
                return f"{case.name}: {why}"
    finally:
        drive(backend.release(program))
    return ""


def test_samples_and_chains(taped: list[int], sampled: Sampler) -> None:
    backend = CpuBackend()
    cases = [case for op in checked_ops() for case in plain(op)]
    every = [*sampled(cases, len(cases) // 12, quick=100), *chain_cases()]
    said = [wrong(case, backend) for case in every]
    assert [one for one in said if one] == []
    assert taped[0] > len(every) // 3
