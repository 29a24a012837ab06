"""Which elementwise ops are fused into compiled products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rlxweb.codegen import jit_cache
from rlxweb.codegen.native_elementwise import region_kernels
from rlxweb.ir.graph import Graph
from rlxweb.ops.matmul.cpu import native
from rlxweb.ops.matmul.cpu.epilogue import EpilogueCall, has_epilogue
from rlxweb.ops.matmul.cpu.native import matmul_kernels
from tests.cpu_kernel_settings import size_thresholds
from tests.float32_products import random_floats
from tests.ops.kernel_cases import conv, matmul
from tests.ops.kernel_cases.case import KernelCase
from tests.prepared_cpu_graph import PreparedCpuGraph

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def compile_every_size(wait_for_compilation: None) -> Iterator[None]:
    """Compile products and convolutions of any size, before the test goes on."""
    with size_thresholds((native, "MIN_WORK", 1)):
        yield


def fused_calls(prepared: PreparedCpuGraph) -> list[EpilogueCall]:
    """Return the calls of a program that run more than one op."""
    calls = [call.function for call in prepared.program.calls]
    return [
        function
        for function in calls
        if isinstance(function, EpilogueCall) and has_epilogue(function)
    ]


@pytest.mark.parametrize(
    "case",
    [*matmul.EPILOGUE_CASES, *conv.EPILOGUE_CASES],
    ids=lambda case: f"{case.op}, {case.why}",
)
def test_ops_after_a_product_are_fused(case: KernelCase) -> None:
    """Products and convolutions run the elementwise ops after them in the same call; a
    convolution leaves out those that add an operand of its result's shape.
    """
    trial = case.trial()
    prepared = PreparedCpuGraph(trial.graph)
    assert len(fused_calls(prepared)) == (case.build is not conv.residual_after)
    prepared.check_outputs(trial.feeds, 5e-6)


def test_blas_runs_until_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(jit_cache, "COMPILE_AFTER_S", 0.0)
    for cache in (matmul_kernels, region_kernels):
        cache._kernels.clear()
    graph = Graph("later")
    x, y = graph.input("x", (64, 70)), graph.input("y", (70, 90))
    graph.set_outputs([graph.gelu(x @ y + graph.input("b", (90,)))])
    prepared = PreparedCpuGraph(graph)
    feeds = {
        "x": random_floats(rng, 64, 70),
        "y": random_floats(rng, 70, 90),
        "b": random_floats(rng, 90),
    }
    prepared.check_outputs(feeds)
    for cache in (matmul_kernels, region_kernels):
        cache.wait_until_idle(60)
    assert matmul_kernels._kernels
    prepared.check_outputs(feeds)
