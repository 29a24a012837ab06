"""Kernels made for GPUs, over shapes that hurt and values outside the promise.

The samples of an op are for every kernel; these are for the seams of the ones in
`rlxweb.recipes.variants`: tails of tiles, lists that are not full, parts of long lines,
ties, and NaN where an order is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape
from rlxweb.recipes.variants import COPIES, VARIANTS
from rlxweb.smoke.suite import variants
from rlxweb.smoke.verdict import check_case
from tests.agreement import Array, Engine, engine, feeds_of, judge, one_op, oracle
from tests.ops.test_gpu_variants import by_rows
from tests.tiers import Sampler

pytestmark = pytest.mark.requires_wgpu
LAVAPIPE = Want(backends=("vulkan",), name="llvmpipe")
HALVES = pytest.mark.feature("f16")
INF, NAN = np.inf, np.nan
REDUCTIONS = ("sum", "prod", "max", "min")


def of_row(want: Want, row: str) -> Engine:
    """The adapter with one row of the table alone."""
    return by_rows(want, [v for v in VARIANTS if v.name == row])


def taken(one: Engine, graph: Graph) -> str:
    """The variant of the last node."""
    node = graph.node(graph.outputs[0])
    inputs = tuple(graph.node(i).type for i in node.inputs)
    op = registry.get(node.op)
    chosen = one.backend.recipes.choose(op, inputs, node.type, node.attrs)
    return chosen.variant if chosen else ""


def missed(one: Engine, name: str, arrays: list[Array], row: str, **attrs: Any) -> str:
    """What is wrong with the op on these arrays, by a variant of that name."""
    op = registry.get(name)
    graph = one_op(op, Sample((), attrs), arrays)
    assert row in taken(one, graph), taken(one, graph)
    feeds = feeds_of(arrays)
    got, want = one.run(graph, feeds)[0], oracle(graph, feeds)[0]
    out = graph.node(graph.outputs[0]).type.dtype
    return judge(got, want, out, op.tolerance)


def drawn(shape: Shape, seed: int = 0, high: float = 2.0, whole: bool = False) -> Array:
    return Drawn(shape, low=-high, high=high, whole=whole).draw(
        np.random.default_rng(seed)
    )


# rows, length, k: a full and a short chunk, one list of lists, more lists than fit one.
RANKED = [(3, 32, 1), (2, 33, 33), (5, 129, 128), (2, 4097, 16), (1, 70_001, 100)]
RANKED += [(70_000, 33, 2), (1, 1_100_000, 16)]


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
def test_topk_by_workgroups(ties: bool, adapter: Want, sampled: Sampler) -> None:
    """Short rows, chunks with a tail, lists of lists; equal values by their place."""
    one = by_rows(adapter)
    for rows, n, k in sampled(RANKED, 5 if ties else 4, quick=3):
        x = drawn((rows, n), n, 3 if ties else 1e6, whole=ties)
        assert missed(one, "topk", [x], "workgroup a row", k=k) == "", (rows, n, k)


def test_topk_ranks_what_is_no_number(adapter: Want) -> None:
    """NaN stands behind -infinity, in the order of places; the zeros are equal."""
    one = by_rows(adapter)
    few = np.array([NAN, -INF, 0.0, -0.0, INF, NAN, 1e-45, -1e-45, 3.4e38], np.float32)
    for n in (40, 5000):
        x = np.resize(few, (2, n))
        for k in (9, 40):
            assert missed(one, "topk", [x], "workgroup a row", k=k) == "", (n, k)
    x = np.full((1, 5000), NAN, np.float32)
    x[0, [17, 4999]] = -INF, 2.0
    assert missed(one, "topk", [x], "workgroup a row", k=20) == ""


@hypothesis.settings(max_examples=10)
@hypothesis.given(st.integers(1, 4), st.integers(32, 9000), st.integers(1, 128))
def test_topk_of_any_length(rows: int, n: int, k: int) -> None:
    """Rows of any length are ranked right.

    On lavapipe alone: what is drawn differs in arithmetic, not in what it asks.
    """
    one = by_rows(LAVAPIPE)
    x = drawn((rows, n), n, 50, whole=True)
    assert missed(one, "topk", [x], "workgroup a row", k=min(k, n)) == ""


# lines and length: one load and four, odd lengths, a line in parts with a short last
# one, parts of parts, more lines than a grid's side.
LINES = [(1, 32), (3, 37), (7, 128), (65_537, 33), (5, 1009), (2, 16_388), (1, 40_001)]
LINES += [(512, 16_388), (1, 3_000_000)]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_by_lines(name: str, adapter: Want, sampled: Sampler) -> None:
    """Row sums and sums of all, with and without loads by fours."""
    one = by_rows(adapter)
    shapes = LINES if name == "sum" else sampled(LINES[:7], 4, quick=3)
    for shape in shapes:
        x = drawn(shape, 1) + 0.5 if name != "prod" else drawn(shape, 1, 0.05) + 1
        assert missed(one, name, [x], "many lanes", axes=(1,), keep_dim=False) == ""
        whole = drawn((*shape[:1], 2, 36), 2) + 0.5 if shape[0] < 9 else x
        axes = tuple(range(whole.ndim))
        if name != "prod":
            got = missed(one, name, [whole], "many lanes", axes=axes, keep_dim=True)
            assert got == ""


@pytest.mark.parametrize("dtype", ["i32", "u32", pytest.param("f16", marks=HALVES)])
def test_reductions_of_other_types(dtype: str, adapter: Want, sampled: Sampler) -> None:
    """Integers wrap, halves are added up in float32."""
    one = by_rows(adapter)
    pairs = list(product((36, 77, 17_000), ("sum", "max", "min")))
    for n, name in sampled(pairs, 5, quick=5):
        top = 4 if dtype == "f16" else 1e9
        drawing = Drawn((3, n), dtype, -top, top, whole=True)
        x = drawing.draw(np.random.default_rng(n))
        got = missed(one, name, [x], "many lanes", axes=(1,), keep_dim=False)
        assert got == "", (name, n)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_nan_anywhere_reaches_the_result(name: str, adapter: Want) -> None:
    """First, last, in a tail, in another part; infinities add up as NumPy's do."""
    one = by_rows(adapter)
    for n in (40, 41, 40_000):
        x = np.ones((6, n), np.float32)
        x[0, 0] = x[1, n - 1] = x[2, n // 2 + 1] = NAN
        x[3, 5], x[4, 7], x[4, n - 2] = INF, INF, -INF
        got = missed(one, name, [x], "many lanes", axes=(1,), keep_dim=False)
        assert got == "", n


# lines and length: one lane group and a tail of it, a lane's groups not all there, a
# workgroup a line, as long as a workgroup holds, more lines than a grid's side.
HELD = [(1, 64), (3, 68), (33, 132), (5, 1024), (2, 1020), (2, 8192), (66_000, 64)]
HELD += [(1, 8188)]
WAYS = ["in registers, by subgroups", "in registers"]
EACH_OP = pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
EACH_WAY = pytest.mark.parametrize(
    "way", [pytest.param(WAYS[0], marks=pytest.mark.feature("subgroup")), WAYS[1]]
)


@EACH_WAY
@EACH_OP
def test_lines_in_registers(op: str, way: str, adapter: Want, sampled: Sampler) -> None:
    """Whole lines and tails."""
    one = of_row(adapter, f"{op}, {way}")
    for shape in sampled(HELD if op == "softmax" else HELD[:6], 3, quick=2):
        high = 80 if op == "softmax" else 2
        arrays = _line_arrays(op, shape, high)
        assert missed(one, op, arrays, way, axis=-1) == "", shape


@HALVES
@EACH_WAY
@EACH_OP
def test_lines_of_halves_in_registers(op: str, way: str, adapter: Want) -> None:
    one = of_row(adapter, f"{op}, {way}")
    arrays = [a.astype(np.float16) for a in _line_arrays(op, (3, 132), 2)]
    assert missed(one, op, arrays, way, axis=-1) == ""


def _line_arrays(op: str, shape: Shape, high: float) -> list[Array]:
    few = 1 if op == "softmax" else 3
    return [drawn(s, at, high) for at, s in enumerate([shape, *[shape[-1:]] * 2][:few])]


@EACH_WAY
@EACH_OP
def test_a_bad_element_spoils_its_line_alone(op: str, way: str, adapter: Want) -> None:
    """NaN, infinity, -infinity beside numbers and alone."""
    one = of_row(adapter, f"{op}, {way}")
    arrays = _line_arrays(op, (9, 132), 2)
    x = arrays[0]
    x[1, 131], x[3, 0], x[5, 7] = NAN, INF, -INF
    if op == "softmax":
        x[7] = -INF
    assert missed(one, op, arrays, way, axis=-1) == ""


@pytest.mark.parametrize("index", [(3,), (2, 5)])
def test_gather_by_fours(index: Shape, adapter: Want) -> None:
    """Rows of 4, 12 and 128; along an inner axis too."""
    one, rng = by_rows(adapter), np.random.default_rng(3)
    for shape, axis in (((7, 4), 0), ((9, 12), 0), ((4, 5, 8), 1), ((1000, 128), 0)):
        table = drawn(shape, 4)
        at = rng.integers(0, shape[axis], index).astype(np.int32)
        assert missed(one, "gather", [table, at], "by fours", axis=axis) == ""


@HALVES
def test_gather_of_halves_by_fours(adapter: Want) -> None:
    halves, at = drawn((6, 8), 5).astype(np.float16), np.array([5, 0, 3], np.uint32)
    assert missed(by_rows(adapter), "gather", [halves, at], "by fours", axis=0) == ""


# shape and permutation: exact tiles, tails on both sides, batches before and between.
TURNED = [((64, 64), (1, 0)), ((33, 65), (1, 0)), ((1, 33, 40), (0, 2, 1))]
TURNED += [((3, 50, 47), (2, 0, 1)), ((3, 4, 37, 35), (0, 3, 1, 2))]
TURNED += [
    ((2, 3, 40, 32), (1, 0, 3, 2)),
    ((70_000, 33), (1, 0)),
    ((40, 5, 33), (2, 1, 0)),
]


@pytest.mark.parametrize(
    "dtype", ["f32", "i32", "u32", "bool", pytest.param("f16", marks=HALVES)]
)
def test_transposed_copies(dtype: str, adapter: Want) -> None:
    """Whole arrays, and a part of one; a copy moves bits, so it is exact."""
    one = by_rows(adapter)
    for shape, perm in TURNED:
        x = Drawn(shape, dtype, 0, 9, whole=True).draw(np.random.default_rng(1))
        lies = Layout.dense(shape).transpose(perm)
        made = one.backend.recipes.copy(lies, Layout.dense(lies.shape), DType(dtype))
        is_by_row = made.shader in ("transpose_tiles", "transpose_fours")
        assert is_by_row is (dtype != "bool")
        graph = Graph("turned")
        graph.set_outputs([graph.transpose(graph.input("x", shape, dtype), perm)])
        got = one.run(graph, {"x": x})[0]
        np.testing.assert_array_equal(got, x.transpose(perm))
    x = Drawn((70, 90), dtype, 0, 9, whole=True).draw(np.random.default_rng(2))
    graph = Graph("a part, turned")
    part = graph.narrow(graph.input("x", x.shape, dtype), 1, 3, 50)
    graph.set_outputs([graph.transpose(part, (1, 0))])
    np.testing.assert_array_equal(one.run(graph, {"x": x})[0], x[:, 3:53].T)


@pytest.mark.full("opengl", "swiftshader")
def test_a_copy_is_forced_as_an_op_is(adapter: Want) -> None:
    """The suite lists it where it fits; four by four goes before tiles."""
    backend = engine(adapter).backend
    forced = [c for c in variants(backend, "standard") if c.op == "transpose"]
    assert len(forced) >= 3
    assert {case.variant for case in forced} <= {copy.name for copy in COPIES}
    for case in forced:
        assert drive(check_case(case, backend)).word == "right"
    shaders = []
    for shape in ((40, 36), (40, 33)):
        lies = Layout.dense(shape).transpose((1, 0))
        ways = (lies, Layout.dense(lies.shape), DType.F32)
        assert backend.forced(COPIES[1].name).recipes.copy(*ways).shader == (
            "transpose_tiles"
        )
        shaders.append(backend.recipes.copy(*ways).shader)
    assert shaders == ["transpose_fours", "transpose_tiles"]


# Each is several pieces where a binding holds 64 KiB and a grid's side is 13.
CUT: list[tuple[str, list[Shape], str, dict[str, Any]]] = [
    ("topk", [(700, 128)], "workgroup a row", {"k": 5}),
    ("topk", [(2, 50_001)], "workgroup a row", {"k": 5}),
    ("sum", [(999, 132)], "many lanes", {"axes": (1,), "keep_dim": False}),
    ("max", [(1, 123_457)], "many lanes", {"axes": (1,), "keep_dim": False}),
    ("softmax", [(999, 132)], WAYS[0], {"axis": -1}),
    ("layer_norm", [(40, 4096), (4096,), (4096,)], WAYS[0], {"axis": -1}),
    ("matmul", [(150, 250), (250, 204)], "blocks of 64", {}),
    (
        "attention",
        [(9, 2, 140, 16), *[(9, 1, 100, 16)] * 2],
        "one kernel",
        {"num_heads": 2, "head_dim": 16, "mask_kind": "causal"},
    ),
]


def test_pieces_of_a_box_that_a_device_cannot_take_whole() -> None:
    """Origins move, uniforms tell, and what lies beside a piece is left alone."""
    few = replace(
        Want().limits,
        max_storage_buffer_binding_size=1 << 16,
        max_buffer_size=4 << 20,
        max_compute_workgroups_per_dimension=13,
        min_storage_buffer_offset_alignment=256,
    )
    one = by_rows(replace(LAVAPIPE, limits=few))
    for op, shapes, row, attrs in CUT:
        arrays = [drawn(shape, at) + 0.5 for at, shape in enumerate(shapes)]
        assert missed(one, op, arrays, row, **attrs) == "", op
    rng = np.random.default_rng(4)
    table, at = drawn((2000, 12)), rng.integers(0, 2000, 5000).astype(np.int32)
    assert missed(one, "gather", [table, at], "by fours", axis=0) == ""
    x = drawn((5, 130, 140))
    graph = Graph("turned")
    graph.set_outputs([graph.transpose(graph.input("x", x.shape), (0, 2, 1))])
    np.testing.assert_array_equal(one.run(graph, {"x": x})[0], x.transpose(0, 2, 1))
