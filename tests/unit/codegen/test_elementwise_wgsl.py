"""Generated WGSL of elementwise regions: exact constants, operands in place, none of
the user's text.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.codegen.elementwise_wgsl import (
    copy_dispatch,
    float_literal,
    region_dispatch,
)
from rlxweb.core.errors import GraphError
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.protocol import Array
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Expr, encode_uniform
from rlxweb.ir.op import Attr, registry
from tests.engines_under_test import engine
from tests.op_factory import make_op

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
HOSTILE = (
    "x); } @compute fn evil() { while (true) {} } //",
    "/* \n*/ fn main() {}",
    "\0a0[0] = 1.0;",
    "${u.items}",
)


@given(FLOATS)
def test_float_literals_read_back_to_the_same_bits(value: float) -> None:
    """A decimal text of a float32 reads back to its bits."""
    text = float_literal(value)
    assert re.fullmatch(r"-?\d+(\.\d+)?(e[-+]?\d+)?", text)
    assert re.search(r"[.e]", text)
    assert np.float32(text).tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize(
    ("value", "dtype", "uniform", "text"),
    [
        (0.5, DType.F32, 0.5, "u.c0"),
        (3, DType.F16, 3.0, "u.c0"),
        (-3, DType.I32, 2**32 - 3, "bitcast<i32>(u.c0)"),
        (-(2**31), DType.I32, 2**31, "bitcast<i32>(u.c0)"),
        (2**32 - 1, DType.U32, 2**32 - 1, "u.c0"),
        (np.bool_(True), DType.BOOL, 1, "u.c0 != 0u"),
    ],
)
def test_constants_of_every_dtype_become_uniforms(
    value: object, dtype: DType, uniform: float, text: str
) -> None:
    """Constants become uniforms: floats, or the bits of integers, also at the limits of
    the dtype.
    """
    result = encode_uniform(value, dtype, "c0")
    assert result == (uniform, text)
    assert isinstance(result[0], float) == dtype.is_float


def test_boolean_constants_become_text() -> None:
    """Boolean constants are written into the source: a uniform holds no vec4 of
    bool.
    """
    graph = Graph()
    x = graph.input("x", (8,), "bool")
    out = graph.logical_and(x, graph.constant(True))
    dispatch = region_dispatch(graph, [out.id], [(0, Layout.dense((8,)))])
    assert "B(true)" in (dispatch.source or "")
    assert "c0" not in dispatch.uniforms


@pytest.mark.requires_wgpu
def test_constants_arrive_on_the_adapter_unchanged(adapter: AdapterRequest) -> None:
    """Constants come back to the bit (subnormals may flush)."""
    for dtype, values in (
        (DType.F32, [0.1, -1 / 3, 3.4028235e38, 1.1754944e-38, 16777217.0, 1e-5]),
        (DType.I32, [-(2**31), 2**31 - 1, -1]),
        (DType.U32, [2**32 - 1, 2**31]),
        (DType.BOOL, [True, False]),
    ):
        graph = Graph("literals")
        where = graph.input("where", (4,), "bool")
        graph.set_outputs(
            [
                graph.where(where, graph.constant(v, dtype), graph.constant(v, dtype))
                for v in values
            ]
        )
        outs = engine(adapter).run(graph, {"where": np.array([1, 0, 0, 1], bool)})
        for value, out in zip(values, outs, strict=True):
            np.testing.assert_array_equal(out, np.full(4, value, dtype.numpy))


INTEGER_OPS = """
add sub mul div mod fmod floor_divide bitwise_and bitwise_xor shift_left
shift_right lt eq minimum maximum""".split()


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("width", [12, 13], ids=["by-fours", "one-by-one"])
def test_integer_constants_match_numpy(adapter: AdapterRequest, width: int) -> None:
    """Constants on either side of an op give NumPy's results, also at the limits of the
    dtype.
    """
    feeds: dict[str, Array] = {}
    graph, outs = Graph("whole"), []
    for dtype, ends in ((np.int32, [-(2**31), -1, 0, 7]), (np.uint32, [0, 33, 2**31])):
        min_value, max_value = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = [
            min_value,
            min_value + 1,
            0,
            1,
            2,
            5,
            31,
            32,
            33,
            100,
            max_value - 1,
            max_value,
            3,
        ]
        name = np.dtype(dtype).name
        feeds[name] = np.array(values[:width], dtype)
        x = graph.input(name, (width,), dtype)
        constants = [graph.constant(dtype(end)) for end in ends]
        for op in INTEGER_OPS:
            outs += [graph.apply(op, x, c) for c in constants]
            outs += [graph.apply(op, c, x) for c in constants]
    graph.set_outputs(outs)
    got = engine(adapter).run(graph, feeds)
    for out, result, want in zip(outs, got, evaluate(graph, feeds), strict=True):
        np.testing.assert_array_equal(result, want, err_msg=str(graph.node(out.id)))


@pytest.mark.requires_wgpu
def test_a_subnormal_literal_compiles(adapter: AdapterRequest) -> None:
    """A subnormal literal may come back as zero, but refuses no shader."""
    graph = Graph("subnormal")
    graph.set_outputs([graph.input("x", (3,)) + 1e-45])
    (out,) = engine(adapter).run(graph, {"x": np.array([0, 1, -1], np.float32)})
    np.testing.assert_allclose(out, [0, 1, -1], atol=2e-45)


def region_source(graph: Graph, last_id: int, *input_ids: int) -> str:
    """Source of the region of all elementwise nodes up to `last_id`."""
    ids = [
        n.id
        for n in graph.nodes()
        if isinstance(registry.get(n.op).lower, Expr) and n.id <= last_id
    ]
    shape = graph.node(last_id).type.shape
    pairs = [
        (i, Layout.dense(graph.node(i).type.shape).expand(shape)) for i in input_ids
    ]
    return region_dispatch(graph, ids, pairs).source or ""


def test_operand_letters_are_replaced_by_position() -> None:
    """x, y and z by position; an operand used twice is loaded once."""
    graph = Graph()
    x, y = graph.input("x", (3, 5)), graph.input("y", (3, 5))
    out = x - (y + x)
    source = region_source(graph, out.id, 0, 1)
    assert "let v0 = opaque(r1 + r0);" in source
    assert "let v1 = opaque(r0 - opaque(v0));" in source
    assert source.count("ld0(") == 1


@pytest.mark.parametrize(
    ("dtype", "number", "text"),
    [("f32", 0.25, "F(u.c0)"), ("i32", 7, "I(bitcast<i32>(u.c0))")],
)
def test_scalars_are_uniforms_without_buffers(
    dtype: str, number: float, text: str
) -> None:
    """A one-element constant needs no buffer, and no driver folds it."""
    graph = Graph()
    out = graph.input("x", (8,), dtype) * number
    dispatch = region_dispatch(graph, [out.id], [(0, Layout.dense((8,)))])
    assert len(dispatch.accesses) == 2
    assert text in (dispatch.source or "")
    assert dispatch.uniforms["c0"] == number


def test_dense_regions_use_vec4_and_strided_ones_do_not() -> None:
    """A dense length divisible by four is processed as vec4."""
    graph = Graph()
    out = graph.exp(graph.input("x", (4, 8)))
    dense = region_dispatch(graph, [out.id], [(0, Layout.dense((4, 8)))])
    assert all(access.is_vec4 for access in dense.accesses)
    assert dense.grid == (("d0", 4),)
    transposed = Layout.dense((8, 4)).transpose((1, 0))
    strided = region_dispatch(graph, [out.id], [(0, transposed)])
    assert not any(access.is_vec4 for access in strided.accesses)
    odd = copy_dispatch(Layout.dense((7,)), Layout.dense((7,)), DType.F32)
    assert not any(access.is_vec4 for access in odd.accesses)


def test_source_does_not_depend_on_shapes_or_strides() -> None:
    """Two sizes of one structure are one shader."""

    def source(rows: int, columns: int) -> str:
        layout = Layout.dense((columns, rows)).transpose((1, 0))
        dispatch = copy_dispatch(layout, Layout.dense((rows, columns)), DType.F32)
        return dispatch.source or ""

    assert source(3, 5) == source(30, 50)


def single_op_source(
    text: str, *attrs: Attr, name: str = "", **attr_values: object
) -> str:
    """Source of an op of one operand whose expression is `text`.

    name   of the graph, the input and the node
    """
    op = make_op(lower=Expr(text), attrs=attrs)
    registry.register(op, replace=op.name in registry)
    graph = Graph(name)
    y = graph.apply(op.name, graph.input(name or "x", (6,)), name=name, **attr_values)
    return region_source(graph, y.id, 0)


SCALED = "x * F({by})", Attr("by", "float"), Attr("tag", "str", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_names_never_reach_the_shader(text: str) -> None:
    """Graph, input and node names full of WGSL leave the source as it was."""
    named, plain = (
        single_op_source(*SCALED, by=2.0, tag=name, name=name) for name in (text, "")
    )
    assert named == plain


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -float("inf")])
def test_a_non_finite_attribute_is_refused(value: float) -> None:
    """Infinity and NaN have no WGSL literal; the op and attribute are named."""
    with pytest.raises(
        GraphError, match=r"by=(nan|-?inf); a constant in a shader .* finite"
    ):
        single_op_source(*SCALED, by=value)


def test_a_text_attribute_is_refused() -> None:
    """An expression that asks for text is refused, whatever the text is."""
    with pytest.raises(
        GraphError, match="must be a bool, an integer or a finite float32"
    ):
        single_op_source("x + {tag}", Attr("tag", "str"), tag=HOSTILE[0])


def test_a_missing_operand_is_refused() -> None:
    """Text that names y is refused for an op with one operand."""
    with pytest.raises(GraphError, match=r"uses operand 'y'; the op has 1 operand$"):
        single_op_source("x + y")
