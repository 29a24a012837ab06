"""Test GPU kernels over difficult shapes and values outside the guarantees.

The samples of an op are for every kernel; these are for the seams of the ones in
`rlxweb.ops`: tails of tiles, lists that are not full, parts of long
lines, ties, and NaN where an order is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.smoke.suite import list_variant_cases
from rlxweb.smoke.verdict import check_case
from tests.engines_under_test import (
    Array,
    Engine,
    describe_mismatch,
    engine,
    named_feeds,
    reference_outputs,
    single_op_graph,
)
from tests.kernel_tables import COPY_VARIANTS, WGSL_VARIANTS
from tests.ops.test_gpu_kernel_variants import engine_with_variants
from tests.suite_tiers import Sampler

pytestmark = pytest.mark.requires_wgpu
LAVAPIPE = AdapterRequest(backends=("vulkan",), name="llvmpipe")
HALVES = pytest.mark.feature("f16")
INF, NAN = np.inf, np.nan
REDUCTIONS = ("sum", "prod", "max", "min")


def engine_with_variant(request: AdapterRequest, variant: str) -> Engine:
    """Return the adapter's engine with one kernel variant alone."""
    return engine_with_variants(
        request, [v for v in WGSL_VARIANTS if v.name == variant]
    )


def selected_variant(runner: Engine, graph: Graph) -> str:
    """Return the kernel variant of the last node."""
    node = graph.node(graph.outputs[0])
    inputs = tuple(graph.node(i).type for i in node.inputs)
    op = registry.get(node.op)
    kernel = runner.backend.kernel_selector.select_kernel(
        op, inputs, node.type, node.attrs
    )
    return kernel.variant if kernel else ""


def kernel_mismatch(
    runner: Engine, name: str, arrays: list[Array], variant: str, **attrs: Any
) -> str:
    """Describe what is wrong with the op on these arrays, run by a variant of that
    name.
    """
    op = registry.get(name)
    graph = single_op_graph(op, Sample((), attrs), arrays)
    assert variant in selected_variant(runner, graph), selected_variant(runner, graph)
    feeds = named_feeds(arrays)
    got, want = runner.run(graph, feeds)[0], reference_outputs(graph, feeds)[0]
    out = graph.node(graph.outputs[0]).type.dtype
    return describe_mismatch(got, want, out, op.tolerance)


def random_array(
    shape: Shape, seed: int = 0, high: float = 2.0, whole: bool = False
) -> Array:
    return Drawn(shape, low=-high, high=high, whole=whole).draw(
        np.random.default_rng(seed)
    )


# rows, length, k: a full and a short chunk, one list of lists, more lists than fit one.
TOPK_SIZES = [(3, 32, 1), (2, 33, 33), (5, 129, 128), (2, 4097, 16), (1, 70_001, 100)]
TOPK_SIZES += [(70_000, 33, 2), (1, 1_100_000, 16)]


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
def test_topk_by_workgroups(
    ties: bool, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """Short rows, chunks with a tail, lists of lists; ties in index order."""
    runner = engine_with_variants(adapter)
    for rows, n, k in sampled(TOPK_SIZES, 5 if ties else 4, quick=3):
        x = random_array((rows, n), n, 3 if ties else 1e6, whole=ties)
        assert kernel_mismatch(runner, "topk", [x], "workgroup a row", k=k) == "", (
            rows,
            n,
            k,
        )


def test_topk_ranks_nan_last(adapter: AdapterRequest) -> None:
    """NaN ranks after -infinity, in index order; the two zeros are equal."""
    runner = engine_with_variants(adapter)
    special_values = np.array(
        [NAN, -INF, 0.0, -0.0, INF, NAN, 1e-45, -1e-45, 3.4e38], np.float32
    )
    for n in (40, 5000):
        x = np.resize(special_values, (2, n))
        for k in (9, 40):
            assert kernel_mismatch(runner, "topk", [x], "workgroup a row", k=k) == "", (
                n,
                k,
            )
    x = np.full((1, 5000), NAN, np.float32)
    x[0, [17, 4999]] = -INF, 2.0
    assert kernel_mismatch(runner, "topk", [x], "workgroup a row", k=20) == ""


@hypothesis.settings(max_examples=10)
@hypothesis.given(st.integers(1, 4), st.integers(32, 9000), st.integers(1, 128))
def test_topk_of_any_length(rows: int, n: int, k: int) -> None:
    """Rows of any length are ranked right.

    On lavapipe alone: what is drawn differs in arithmetic, not in what it asks.
    """
    runner = engine_with_variants(LAVAPIPE)
    x = random_array((rows, n), n, 50, whole=True)
    assert kernel_mismatch(runner, "topk", [x], "workgroup a row", k=min(k, n)) == ""


# lines and length: one load and four, odd lengths, a line in parts with a short last
# one, parts of parts, more lines than a grid's side.
ROW_SHAPES = [
    (1, 32),
    (3, 37),
    (7, 128),
    (65_537, 33),
    (5, 1009),
    (2, 16_388),
    (1, 40_001),
]
ROW_SHAPES += [(512, 16_388), (1, 3_000_000)]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_row_reductions(name: str, adapter: AdapterRequest, sampled: Sampler) -> None:
    """Row sums and sums of all elements, with and without vec4 loads."""
    runner = engine_with_variants(adapter)
    shapes = ROW_SHAPES if name == "sum" else sampled(ROW_SHAPES[:7], 4, quick=3)
    for shape in shapes:
        x = (
            random_array(shape, 1) + 0.5
            if name != "prod"
            else random_array(shape, 1, 0.05) + 1
        )
        assert (
            kernel_mismatch(runner, name, [x], "many lanes", axes=(1,), keep_dim=False)
            == ""
        )
        full_array = random_array((*shape[:1], 2, 36), 2) + 0.5 if shape[0] < 9 else x
        axes = tuple(range(full_array.ndim))
        if name != "prod":
            got = kernel_mismatch(
                runner, name, [full_array], "many lanes", axes=axes, keep_dim=True
            )
            assert got == ""


@pytest.mark.parametrize("dtype", ["i32", "u32", pytest.param("f16", marks=HALVES)])
def test_reductions_of_other_types(
    dtype: str, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """Integers wrap, halves are added up in float32."""
    runner = engine_with_variants(adapter)
    pairs = list(product((36, 77, 17_000), ("sum", "max", "min")))
    for n, name in sampled(pairs, 5, quick=5):
        max_value = 4 if dtype == "f16" else 1e9
        array_spec = Drawn((3, n), dtype, -max_value, max_value, whole=True)
        x = array_spec.draw(np.random.default_rng(n))
        got = kernel_mismatch(
            runner, name, [x], "many lanes", axes=(1,), keep_dim=False
        )
        assert got == "", (name, n)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_propagate_nan(name: str, adapter: AdapterRequest) -> None:
    """NaN first, last, in a tail, in another part; infinities add up as NumPy's do."""
    runner = engine_with_variants(adapter)
    for n in (40, 41, 40_000):
        x = np.ones((6, n), np.float32)
        x[0, 0] = x[1, n - 1] = x[2, n // 2 + 1] = NAN
        x[3, 5], x[4, 7], x[4, n - 2] = INF, INF, -INF
        got = kernel_mismatch(
            runner, name, [x], "many lanes", axes=(1,), keep_dim=False
        )
        assert got == "", n


# lines and length: one lane group and a tail of it, a lane's groups not all there, a
# workgroup a line, as long as a workgroup holds, more lines than a grid's side.
REGISTER_ROW_SHAPES = [
    (1, 64),
    (3, 68),
    (33, 132),
    (5, 1024),
    (2, 1020),
    (2, 8192),
    (66_000, 64),
]
REGISTER_ROW_SHAPES += [(1, 8188)]
REGISTER_VARIANTS = ["in registers, by subgroups", "in registers"]
EACH_OP = pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
EACH_REGISTER_VARIANT = pytest.mark.parametrize(
    "way",
    [
        pytest.param(REGISTER_VARIANTS[0], marks=pytest.mark.feature("subgroup")),
        REGISTER_VARIANTS[1],
    ],
)


@EACH_REGISTER_VARIANT
@EACH_OP
def test_softmax_norms_in_registers(
    op: str, way: str, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """Whole rows and tails."""
    runner = engine_with_variant(adapter, f"{op}, {way}")
    for shape in sampled(
        REGISTER_ROW_SHAPES if op == "softmax" else REGISTER_ROW_SHAPES[:6], 3, quick=2
    ):
        high = 80 if op == "softmax" else 2
        arrays = _norm_operands(op, shape, high)
        assert kernel_mismatch(runner, op, arrays, way, axis=-1) == "", shape


@HALVES
@EACH_REGISTER_VARIANT
@EACH_OP
def test_float16_softmax_norms_in_registers(
    op: str, way: str, adapter: AdapterRequest
) -> None:
    runner = engine_with_variant(adapter, f"{op}, {way}")
    arrays = [a.astype(np.float16) for a in _norm_operands(op, (3, 132), 2)]
    assert kernel_mismatch(runner, op, arrays, way, axis=-1) == ""


def _norm_operands(op: str, shape: Shape, high: float) -> list[Array]:
    operand_count = 1 if op == "softmax" else 3
    return [
        random_array(s, index, high)
        for index, s in enumerate([shape, *[shape[-1:]] * 2][:operand_count])
    ]


@EACH_REGISTER_VARIANT
@EACH_OP
def test_nonfinite_element_affects_only_its_row(
    op: str, way: str, adapter: AdapterRequest
) -> None:
    """NaN, infinity, -infinity among numbers and alone."""
    runner = engine_with_variant(adapter, f"{op}, {way}")
    arrays = _norm_operands(op, (9, 132), 2)
    x = arrays[0]
    x[1, 131], x[3, 0], x[5, 7] = NAN, INF, -INF
    if op == "softmax":
        x[7] = -INF
    assert kernel_mismatch(runner, op, arrays, way, axis=-1) == ""


@pytest.mark.parametrize("index", [(3,), (2, 5)])
def test_vec4_gather(index: Shape, adapter: AdapterRequest) -> None:
    """Rows of 4, 12 and 128; along an inner axis too."""
    runner, rng = engine_with_variants(adapter), np.random.default_rng(3)
    for shape, axis in (((7, 4), 0), ((9, 12), 0), ((4, 5, 8), 1), ((1000, 128), 0)):
        table = random_array(shape, 4)
        indices = rng.integers(0, shape[axis], index).astype(np.int32)
        assert (
            kernel_mismatch(runner, "gather", [table, indices], "by fours", axis=axis)
            == ""
        )


@HALVES
def test_vec4_gather_of_float16(adapter: AdapterRequest) -> None:
    halves = random_array((6, 8), 5).astype(np.float16)
    indices = np.array([5, 0, 3], np.uint32)
    assert (
        kernel_mismatch(
            engine_with_variants(adapter),
            "gather",
            [halves, indices],
            "by fours",
            axis=0,
        )
        == ""
    )


# shape and permutation: exact tiles, tails on both sides, batches before and between.
TRANSPOSED_SHAPES = [((64, 64), (1, 0)), ((33, 65), (1, 0)), ((1, 33, 40), (0, 2, 1))]
TRANSPOSED_SHAPES += [((3, 50, 47), (2, 0, 1)), ((3, 4, 37, 35), (0, 3, 1, 2))]
TRANSPOSED_SHAPES += [
    ((2, 3, 40, 32), (1, 0, 3, 2)),
    ((70_000, 33), (1, 0)),
    ((40, 5, 33), (2, 1, 0)),
]


@pytest.mark.parametrize(
    "dtype", ["f32", "i32", "u32", "bool", pytest.param("f16", marks=HALVES)]
)
def test_transposed_copies(dtype: str, adapter: AdapterRequest) -> None:
    """Whole arrays, and a part of one; a copy moves bits, so it is exact."""
    runner = engine_with_variants(adapter)
    for shape, perm in TRANSPOSED_SHAPES:
        x = Drawn(shape, dtype, 0, 9, whole=True).draw(np.random.default_rng(1))
        layout = Layout.dense(shape).transpose(perm)
        dispatch = runner.backend.kernel_selector.copy_dispatch(
            layout, Layout.dense(layout.shape), DType(dtype)
        )
        is_by_row = dispatch.shader in ("transpose_tiles", "transpose_fours")
        assert is_by_row is (dtype != "bool")
        graph = Graph("turned")
        graph.set_outputs([graph.transpose(graph.input("x", shape, dtype), perm)])
        got = runner.run(graph, {"x": x})[0]
        np.testing.assert_array_equal(got, x.transpose(perm))
    x = Drawn((70, 90), dtype, 0, 9, whole=True).draw(np.random.default_rng(2))
    graph = Graph("a part, turned")
    part = graph.narrow(graph.input("x", x.shape, dtype), 1, 3, 50)
    graph.set_outputs([graph.transpose(part, (1, 0))])
    np.testing.assert_array_equal(runner.run(graph, {"x": x})[0], x[:, 3:53].T)


@pytest.mark.full("opengl", "swiftshader")
def test_copy_variants_can_be_forced(adapter: AdapterRequest) -> None:
    """The suite lists copy variants where they fit; vec4 copies take precedence over
    tiles.
    """
    backend = engine(adapter).backend
    forced = [c for c in list_variant_cases(backend, "standard") if c.op == "transpose"]
    assert len(forced) >= 3
    assert {case.variant for case in forced} <= {copy.name for copy in COPY_VARIANTS}
    for case in forced:
        assert run_blocking(check_case(case, backend)).word == "right"
    shaders = []
    for shape in ((40, 36), (40, 33)):
        layout = Layout.dense(shape).transpose((1, 0))
        copy_arguments = (layout, Layout.dense(layout.shape), DType.F32)
        assert backend.with_variant(
            COPY_VARIANTS[1].name
        ).kernel_selector.copy_dispatch(*copy_arguments).shader == ("transpose_tiles")
        shaders.append(backend.kernel_selector.copy_dispatch(*copy_arguments).shader)
    assert shaders == ["transpose_fours", "transpose_tiles"]


# Each is several pieces where a binding holds 64 KiB and a grid's side is 13.
SPLIT_CASES: list[tuple[str, list[Shape], str, dict[str, Any]]] = [
    ("topk", [(700, 128)], "workgroup a row", {"k": 5}),
    ("topk", [(2, 50_001)], "workgroup a row", {"k": 5}),
    ("sum", [(999, 132)], "many lanes", {"axes": (1,), "keep_dim": False}),
    ("max", [(1, 123_457)], "many lanes", {"axes": (1,), "keep_dim": False}),
    ("softmax", [(999, 132)], REGISTER_VARIANTS[0], {"axis": -1}),
    ("layer_norm", [(40, 4096), (4096,), (4096,)], REGISTER_VARIANTS[0], {"axis": -1}),
    ("matmul", [(150, 250), (250, 204)], "blocks of 64", {}),
    (
        "attention",
        [(9, 2, 140, 16), *[(9, 1, 100, 16)] * 2],
        "one kernel",
        {"num_heads": 2, "head_dim": 16, "mask_kind": "causal"},
    ),
]


def test_dispatches_split_by_device_limits() -> None:
    """Tile origins come as uniforms, and memory next to a tile is left unchanged."""
    limits = replace(
        AdapterRequest().limits,
        max_storage_buffer_binding_size=1 << 16,
        max_buffer_size=4 << 20,
        max_compute_workgroups_per_dimension=13,
        min_storage_buffer_offset_alignment=256,
    )
    runner = engine_with_variants(replace(LAVAPIPE, limits=limits))
    for op, shapes, variant, attrs in SPLIT_CASES:
        arrays = [random_array(shape, at) + 0.5 for at, shape in enumerate(shapes)]
        assert kernel_mismatch(runner, op, arrays, variant, **attrs) == "", op
    rng = np.random.default_rng(4)
    table, at = random_array((2000, 12)), rng.integers(0, 2000, 5000).astype(np.int32)
    assert kernel_mismatch(runner, "gather", [table, at], "by fours", axis=0) == ""
    x = random_array((5, 130, 140))
    graph = Graph("turned")
    graph.set_outputs([graph.transpose(graph.input("x", x.shape), (0, 2, 1))])
    np.testing.assert_array_equal(runner.run(graph, {"x": x})[0], x.transpose(0, 2, 1))
