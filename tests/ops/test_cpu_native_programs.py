"""Run every op's samples, however small, by the CPU's native (LLVM) programs.

In one process, so that what is compiled for one sample is there for the next: kernels
are shared by what they say they are made for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlxweb.codegen import native_elementwise as cpu_native_elementwise
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines import cpu_native_program
from rlxweb.engines.cpu import CpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.matmul.cpu import native as cpu_native_matmul
from rlxweb.smoke.case import SmokeCase, checked_ops, sample_cases
from rlxweb.smoke.op_chain_cases import chain_cases
from tests.suite_tiers import Sampler

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.fixture
def program_run_count(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Open every size threshold and count how often a native program is run."""
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_native_program, "MIN_STEPS", 0)
    monkeypatch.setattr(cpu_native_matmul, "MIN_WORK", 1)
    monkeypatch.setattr(cpu_native_elementwise, "MIN_WORK", 1)
    cpu_native_matmul._cached_tiling.cache_clear()
    run_count, run = [0], cpu_native_program.NativeProgram.run

    def count_and_run(
        program: cpu_native_program.NativeProgram, values: cpu_native_program.NodeArrays
    ) -> None:
        run_count[0] += 1
        run(program, values)

    monkeypatch.setattr(cpu_native_program.NativeProgram, "run", count_and_run)
    yield run_count
    cpu_native_matmul._cached_tiling.cache_clear()


def native_mismatch(case: SmokeCase, backend: CpuEngine) -> str:
    """Describe why a case is wrong in one of two runs; the second has packed
    constants.
    """
    prepared = case.prepare()
    program = run_blocking(
        backend.prepare(compile_graph(prepared.graph, backend.target))
    )
    try:
        for _ in range(2):
            mismatch = prepared.judge(
                run_blocking(backend.run(program, prepared.feeds))
            ).reason
            if mismatch:
                return f"{case.name}: {mismatch}"
    finally:
        run_blocking(program.close())
    return ""


def test_samples_and_chains(program_run_count: list[int], sampled: Sampler) -> None:
    backend = CpuEngine()
    cases = [case for op in checked_ops() for case in sample_cases(op)]
    tested_cases = [*sampled(cases, len(cases) // 12, quick=100), *chain_cases()]
    failures = [native_mismatch(case, backend) for case in tested_cases]
    assert [failure for failure in failures if failure] == []
    assert program_run_count[0] > len(tested_cases) // 3
