"""Compiled matrix products, alone and with an epilogue, give NumPy's numbers."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.codegen import jit_cache
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.codegen.native_calls import ParallelNativeFunction
from rlxweb.codegen.native_elementwise import region_kernels
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ops.matmul.cpu import native as cpu_native_matmul
from rlxweb.ops.matmul.cpu.epilogue import MatmulCall, has_epilogue
from rlxweb.ops.matmul.cpu.llvm import matmul_llvm_ir, matmul_tiles
from rlxweb.ops.matmul.cpu.native import (
    MatmulKernelKey,
    MatmulSizes,
    choose_tiling,
    matmul_into,
    matmul_kernels,
    run_matmul,
)
from rlxweb.ops.matmul.cpu.packed_weights import PANEL_CACHE
from tests.engines_under_test import Array

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def random_floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def check_close(got: Array, want: Array, terms: int) -> None:
    assert float(np.abs(got - want).max()) < 1e-5 * max(1, terms) ** 0.5


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_matmul_compiles_for_every_vector_width(
    nbytes: int, rng: np.random.Generator
) -> None:
    """The kernel compiles for each vector width and runs at those of this processor."""
    for tile in matmul_tiles(nbytes):
        code = LoadedCode(compile_object(matmul_llvm_ir(tile, nbytes)))
        if nbytes > host_cpu().vector_nbytes:
            continue
        x = random_floats(rng, tile.rows + 3, 9)
        y = random_floats(rng, 9, tile.vectors * nbytes // 4 + 1)
        out = np.full((x.shape[0], y.shape[1]), np.nan, np.float32)
        sizes = MatmulSizes(1, *x.shape, y.shape[1], True)
        tiling = cpu_native_matmul.MatmulTiling(tile, 2, 1, x.shape[0])
        with pytest.MonkeyPatch.context() as patch:
            fake_cpu = SimpleNamespace(vector_nbytes=nbytes)
            patch.setattr(
                cpu_native_matmul.llvm_compiler,
                "host_cpu",
                lambda fake_cpu=fake_cpu: fake_cpu,
            )
            run_matmul(
                ParallelNativeFunction.from_code(code, "product"),
                sizes,
                tiling,
                (x, y),
                out,
            )
        check_close(out, x.astype(float) @ y, 9)


@given(
    rows=st.integers(4, 70),
    terms=st.sampled_from([1, 2, 63, 511, 512, 513, 1024, 1300]),
    columns=st.integers(16, 150),
    threads=st.integers(1, 8),
    spare=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=120, deadline=None)
def test_products_of_any_sizes(
    rows: int, terms: int, columns: int, threads: int, spare: int, seed: int
) -> None:
    """Products of any sizes are right with any tiling and thread count."""
    lanes = host_cpu().vector_nbytes // 4
    sizes = MatmulSizes(1, rows, terms, columns, True)
    tiling = choose_tiling(sizes, lanes, threads)
    if tiling is None:
        assert columns < lanes or rows < 8
        return
    rng = np.random.default_rng(seed)
    x = random_floats(rng, rows, terms)
    y = random_floats(rng, terms, columns + spare)[:, :columns]
    out = np.full((rows, columns), np.nan, np.float32)
    kernel = matmul_kernels.get_kernel(MatmulKernelKey(tiling.tile))
    assert kernel is not None
    run_matmul(kernel, sizes, tiling, (x, y), out)
    check_close(out, x.astype(float) @ y, terms)


@pytest.mark.parametrize("case", ["rows", "columns", "float64", "turned", "small"])
def test_products_left_to_blas(case: str, rng: np.random.Generator) -> None:
    """Products that are left to BLAS are right too."""
    rows, columns = (2 if case == "rows" else 200), (8 if case == "columns" else 300)
    terms = 3 if case == "small" else 900
    x, y = random_floats(rng, rows, terms), random_floats(rng, terms, columns)
    if case == "float64":
        x, y = x.astype(np.float64), y.astype(np.float64)
    if case == "turned":
        y = np.asfortranarray(y)
    out = np.empty((rows, columns), x.dtype)
    matmul_into(x, y, out)
    check_close(out, x.astype(float) @ y, terms)


class PreparedCpuGraph:
    """Graph prepared on the CPU backend."""

    def __init__(self, graph: Graph) -> None:
        self.backend, self.graph = CpuEngine(), graph
        plan = compile_graph(graph, self.backend.target)
        self.program = run_blocking(self.backend.prepare(plan))

    @property
    def fused_calls(self) -> list[MatmulCall]:
        calls = [call.function for call in self.program.calls]
        return [
            function
            for function in calls
            if isinstance(function, MatmulCall) and has_epilogue(function)
        ]

    def check_outputs(self, **feeds: Array) -> None:
        expected = evaluate(self.graph, feeds, promote=True)
        outputs = run_blocking(self.backend.run(self.program, feeds))
        timed_outputs = run_blocking(
            self.backend.run_timed(self.program, feeds)
        ).outputs
        for result in (outputs, timed_outputs):
            for got, want in zip(result, expected, strict=True):
                top = max(1.0, float(np.abs(want).max()))
                np.testing.assert_allclose(got, want, 2e-5, 5e-6 * top)


EPILOGUE_SHAPES = {
    "bias": ((90,),),
    "bias and residual": ((90,), (3, 40, 90)),
    "one for each row": ((3, 40, 1),),
    "one for all": ((1,),),
    "residual": ((3, 40, 90),),
    "nothing": (),
}


@pytest.mark.parametrize("epilogue", EPILOGUE_SHAPES)
@pytest.mark.parametrize("is_batched", [False, True], ids=["one matrix", "a batch"])
def test_matmul_epilogue(
    epilogue: str, is_batched: bool, rng: np.random.Generator
) -> None:
    """An op fused after a product may read rows, columns, both, or one number."""
    graph = Graph(epilogue)
    x = graph.input("x", (3, 40, 70))
    y = graph.input("y", (3, 70, 90) if is_batched else (70, 90))
    value = x @ y
    feeds = {"x": random_floats(rng, 3, 40, 70), "y": random_floats(rng, *y.shape)}
    for index, shape in enumerate(EPILOGUE_SHAPES[epilogue]):
        value = value * 0.5 + graph.input(f"z{index}", shape)
        feeds[f"z{index}"] = random_floats(rng, *shape)
    graph.set_outputs([graph.gelu(value)])
    run = PreparedCpuGraph(graph)
    assert len(run.fused_calls) == 1
    run.check_outputs(**feeds)


def test_epilogue_with_where(rng: np.random.Generator) -> None:
    graph = Graph("choice")
    x, y = graph.input("x", (80, 70)), graph.input("y", (70, 120))
    truth = graph.input("truth", (80, 120), "bool")
    graph.set_outputs([graph.where(truth, x @ y, -1.0)])
    run = PreparedCpuGraph(graph)
    assert len(run.fused_calls) == 1
    run.check_outputs(
        x=random_floats(rng, 80, 70),
        y=random_floats(rng, 70, 120),
        truth=random_floats(rng, 80, 120) > 0,
    )


@pytest.mark.parametrize(
    "case", ["is an output", "is read twice", "meets another", "a power", "a product"]
)
def test_product_with_other_readers_is_materialized(
    case: str, rng: np.random.Generator
) -> None:
    graph = Graph(case)
    x, y = graph.input("x", (40, 70)), graph.input("y", (70, 90))
    product = x @ y
    activated = graph.tanh(product) * 2.0
    outputs = [activated]
    if case == "is an output":
        outputs.append(product)
    elif case == "is read twice":
        outputs.append(graph.sum(product, (0,)))
    elif case == "meets another":
        outputs = [graph.tanh(graph.reshape(product, (40, 1, 90))) * graph.exp(x @ y)]
    elif case == "a power":
        outputs = [graph.pow(graph.abs(product) + 1.0, 1.5)]
    else:
        outputs = [activated @ graph.transpose(activated, (1, 0))]
    graph.set_outputs(outputs)
    PreparedCpuGraph(graph).check_outputs(
        x=0.1 * random_floats(rng, 40, 70), y=random_floats(rng, 70, 90)
    )


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
    run = PreparedCpuGraph(graph)
    feeds = {
        "x": random_floats(rng, 64, 70),
        "y": random_floats(rng, 70, 90),
        "b": random_floats(rng, 90),
    }
    run.check_outputs(**feeds)
    for cache in (matmul_kernels, region_kernels):
        cache.wait_until_idle(60)
    assert matmul_kernels._kernels
    run.check_outputs(**feeds)


def test_nan_and_infinity_are_preserved(rng: np.random.Generator) -> None:
    x, y = random_floats(rng, 50, 600), random_floats(rng, 600, 100)
    x[3, 4], x[9, 599], y[7, 8] = np.nan, np.inf, -np.inf
    out = np.empty((50, 100), np.float32)
    matmul_into(x, y, out)
    with np.errstate(invalid="ignore"):
        want = x @ y
    np.testing.assert_allclose(out, want, 1e-4, 1e-4)


def test_weights_for_few_rows_are_packed(rng: np.random.Generator) -> None:
    """Weights are packed from the second run on; new ones replace them, released ones
    are dropped.
    """
    graph = Graph("weights")
    x, y = graph.input("x", (32, 200)), graph.param("y", (200, 250))
    graph.set_outputs([x @ y])
    run, feeds = PreparedCpuGraph(graph), {"x": random_floats(rng, 32, 200)}
    (call,) = (call.function for call in run.program.calls)
    assert isinstance(call, MatmulCall)
    assert call.is_weight
    packed = PANEL_CACHE._packed
    before = len(packed)
    for _ in range(3):
        value = random_floats(rng, 200, 250)
        run_blocking(run.program.set_param("y", value))
        for count in (before, before + 1, before + 1):
            (got,) = run_blocking(run.backend.run(run.program, feeds))
            check_close(got, feeds["x"].astype(float) @ value, 200)
            assert len(packed) <= count + 1
    run_blocking(run.program.close())
    gc.collect()
    assert len(packed) == before


@pytest.mark.parametrize("case", ["turned by the graph", "turned before"])
def test_transposed_weights_are_packed_once(
    case: str, rng: np.random.Generator
) -> None:
    """Transposed weights, as PyTorch stores them ([columns, terms]), are packed
    once.
    """
    graph = Graph("turned")
    x = graph.input("x", (200, 150))
    value = random_floats(rng, 250, 150)
    if case == "turned by the graph":
        y = graph.transpose(graph.param("y", (250, 150)), (1, 0))
    else:
        y, value = graph.param("y", (150, 250)), value.T
    graph.set_outputs([x @ y])
    run, feeds = PreparedCpuGraph(graph), {"x": random_floats(rng, 200, 150)}
    run_blocking(run.program.set_param("y", value))
    before = len(PANEL_CACHE._packed)
    want = evaluate(graph, {"y": value, **feeds}, promote=True)[0]
    for _ in range(3):
        (got,) = run_blocking(run.backend.run(run.program, feeds))
        check_close(got, want, 150)
    assert len(PANEL_CACHE._packed) == before + 1


def test_transposed_input_is_left_to_blas(
    rng: np.random.Generator,
) -> None:
    graph = Graph("turned")
    x, y = graph.input("x", (200, 150)), graph.input("y", (250, 150))
    graph.set_outputs([graph.tanh(x @ graph.transpose(y, (1, 0)) * 0.1)])
    run = PreparedCpuGraph(graph)
    run.check_outputs(x=random_floats(rng, 200, 150), y=random_floats(rng, 250, 150))
    run.check_outputs(x=random_floats(rng, 200, 150), y=random_floats(rng, 250, 150))
