"""Products by fours, the kernels of adapters on the CPU: tiles, layouts, refusals.

The products that a whole network makes are in `tests/onnx`; these hurt: tails on every
side, operands that lie column by column, batches, and what is no number.
"""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape
from rlxweb.limits import Limits
from rlxweb.recipes import matmul_fours as fours
from rlxweb.recipes.variants import Variant, always
from tests.agreement import Engine, engine, judge, on_adapter, one_op, oracle
from tests.ops.test_finish import turned
from tests.ops.test_gpu_shapes import LAVAPIPE, drawn, missed
from tests.unit.ops.alone import types_of

pytestmark = pytest.mark.requires_wgpu
ROW = "in fours, {0} by {0}"

PAIRS: list[tuple[Shape, Shape]] = [
    ((8, 4), (4, 8)),
    ((33, 16), (16, 36)),
    ((9, 100), (100, 12)),
    ((2, 1, 10, 40), (5, 40, 60)),
    ((3, 65, 72), (3, 72, 68)),
]


@pytest.fixture(params=[side for side, _ in fours.TILES])
def side(request: pytest.FixtureRequest) -> int:
    """The side of a tile."""
    return int(request.param)


def by_tiles(want: Want, side: int) -> Engine:
    """The adapter with one tile alone, for work of whatever size."""
    row = Variant(ROW.format(side), "matmul", always, fours.matmul_fours(side))
    return Engine(row.name, on_adapter(want, variants=[row]))


@pytest.mark.parametrize("dtype", ["f32", "i32", "f16"])
def test_products(side: int, dtype: str, adapter: Want) -> None:
    """Integers wrap, halves are summed in float32."""
    one, rng = by_tiles(adapter, side), np.random.default_rng(side)
    if DType(dtype) not in one.backend.target.dtypes:
        return
    top = 1e9 if dtype == "i32" else 2
    for pair in PAIRS:
        if min(pair[0][-2], pair[1][-1]) >= side:
            arrays = [Drawn(s, dtype, -top, top).draw(rng) for s in pair]
            assert missed(one, "matmul", arrays, ROW.format(side)) == "", pair


def differs(one: Engine, shapes: tuple[Shape, Shape], turns: tuple[bool, bool]) -> str:
    """What is wrong with a product of operands that lie row by row or turned."""
    g, feeds, tensors = Graph("turned"), {}, []
    for name, shape, is_turned in zip("xy", shapes, turns, strict=True):
        lies = (*shape[:-2], shape[-1], shape[-2]) if is_turned else shape
        feeds[name] = drawn(lies, len(feeds))
        given = g.input(name, lies)
        tensors.append(turned(g, given) if is_turned else given)
    g.set_outputs([tensors[0] @ tensors[1]])
    out = g.node(g.outputs[0]).type.dtype
    got, want = one.run(g, feeds)[0], oracle(g, feeds)[0]
    return judge(got, want, out, registry.get("matmul").tolerance)


@pytest.mark.parametrize("turns", [(True, False), (False, True), (True, True)])
def test_operands_that_lie_column_by_column(
    side: int, turns: tuple[bool, bool], adapter: Want
) -> None:
    """Tails of rows and columns, and a batch."""
    one = by_tiles(adapter, side)
    for shapes in (((44, 20), (20, 36)), ((3, 20, 12), (3, 12, 28))):
        assert differs(one, shapes, turns) == "", shapes


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    st.integers(8, 70),
    st.integers(1, 60),
    st.integers(2, 30),
    st.tuples(st.booleans(), st.booleans()),
)
def test_products_of_any_size(m: int, k: int, n: int, turns: tuple[bool, bool]) -> None:
    """On lavapipe; rows that lie side by side may be of any number, and fall back."""
    assert differs(engine(LAVAPIPE), ((m, 4 * k), (4 * k, 4 * n)), turns) == ""


def test_what_is_no_number_stays_in_its_row_and_column(adapter: Want) -> None:
    """Rows and columns beyond the edge are read again, and not stored."""
    one, row = engine(adapter), ROW.format(8)
    x, y = drawn((13, 40), 1), drawn((40, 12), 2)
    x[3, 39], x[12, 0], y[5, 11], y[7, 2] = np.nan, np.inf, np.nan, -np.inf
    assert missed(one, "matmul", [x, y], row) == ""


def test_a_product_worth_the_larger_tile() -> None:
    """By its work, with no setting turned."""
    one = engine(LAVAPIPE)
    x, y = drawn((1027, 516)), drawn((516, 508), 1)
    assert missed(one, "matmul", [x, y], ROW.format(16)) == ""


@pytest.mark.parametrize(
    "shapes",
    [((7, 16), (16, 16)), ((16, 18), (18, 16)), ((16, 16), (16, 18)), ((8, 0), (0, 8))],
)
def test_lines_that_are_not_of_whole_fours(shapes: tuple[Shape, Shape]) -> None:
    """Too few rows, a sum or columns of another number, nothing to sum."""
    inputs = types_of(*shapes)
    out = registry.get("matmul").output_type(inputs, {})
    assert fours.matmul_fours(8)(inputs, out, {}, Limits()) is None


@pytest.mark.parametrize(
    ("x", "w", "row"),
    [
        ((1, 30, 8, 8), (20, 30, 3, 3), "padded at once"),
        ((2, 150, 64), (9, 150, 5), "neighbours a lane"),
    ],
)
def test_sums_of_a_convolution_that_carry_on(
    x: Shape, w: Shape, row: str, adapter: Want
) -> None:
    """Of tiles whose rows are gone through in a loop, with a last one that is not full:
    the weights are over one binding, so pieces of the sum follow each other.
    """
    few = replace(
        adapter.limits,
        max_storage_buffer_binding_size=1 << 14,
        max_buffer_size=4 << 20,
        min_storage_buffer_offset_alignment=256,
    )
    one = engine(replace(adapter, limits=few))
    arrays = [drawn(x, 1), drawn(w, 2)]
    types = types_of(x, w)
    op = registry.get("conv")
    graph = one_op(op, Sample((), {}), arrays)
    node = graph.node(graph.outputs[0])
    chosen = one.backend.recipes.choose(op, types, node.type, node.attrs)
    assert chosen is not None
    assert len(chosen.launches) > 1
    assert missed(one, "conv", arrays, row) == ""
