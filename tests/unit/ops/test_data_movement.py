"""Reshape, transpose, narrow, expand, concat: values, shapes, layouts, refusals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import ConcatLowering, View
from rlxweb.ir.op import registry
from tests.unit.ops.single_op_runner import build_op, run

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def arange_array(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)


def read_through(layout: Layout, flat: Any) -> Any:
    """Return the elements a kernel reads from a buffer through a layout."""
    if 0 in layout.shape:
        return np.empty(layout.shape, flat.dtype)
    step = flat.itemsize
    return np.lib.stride_tricks.as_strided(
        flat[layout.offset :], layout.shape, [s * step for s in layout.strides]
    )


def apply_view(name: str, x: Any, **attrs: Any) -> Any:
    g = Graph(name)
    node = g.node(g.apply(name, g.input("x", x.shape, x.dtype), **attrs).id)
    lower = registry.get(name).lower
    assert isinstance(lower, View)
    layout = lower.layout(Layout.dense(x.shape), node.type.shape, node.attrs)
    assert layout is not None
    return read_through(layout, x.reshape(-1))


def check_reference_and_view(want: Any, name: str, x: Any, **attrs: Any) -> None:
    """Check the results of the reference and of the view."""
    for method in (run, apply_view):
        np.testing.assert_array_equal(method(name, x, **attrs), want)


@given(shape=SHAPES, data=st.data())
def test_transpose_and_its_view_match_numpy(shape: Any, data: Any) -> None:
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    x = arange_array(shape)
    check_reference_and_view(x.transpose(perm), "transpose", x, perm=perm)


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5),
    data=st.data(),
)
def test_narrow_is_a_slice_and_its_view_agrees(shape: Any, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis]))
    length = data.draw(st.integers(0, shape[axis] - start))
    x = arange_array(shape)
    want = np.take(x, range(start, start + length), axis)
    check_reference_and_view(want, "narrow", x, axis=axis, start=start, length=length)


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=1, max_dims=4), data=st.data()
)
def test_expand_is_broadcast_to_and_its_view_agrees(shapes: Any, data: Any) -> None:
    (shape,) = shapes.input_shapes
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    tail = [data.draw(st.integers(0, 3)) if d == 1 else d for d in shape]
    target = (*lead, *tail)
    x = arange_array(shape)
    check_reference_and_view(np.broadcast_to(x, target), "expand", x, shape=target)


@given(shape=SHAPES)
def test_reshape_keeps_row_major_order(shape: Any) -> None:
    x = arange_array(shape)
    check_reference_and_view(x.reshape(-1), "reshape", x, shape=(x.size,))
    check_reference_and_view(x.reshape(1, x.size), "reshape", x, shape=(1, x.size))


def test_reshape_solves_one_dimension() -> None:
    assert run("reshape", arange_array((4, 6)), shape=(3, -1)).shape == (3, 8)


@given(
    rest=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    data=st.data(),
)
def test_concat_matches_numpy_and_its_parts_tile_the_output(
    rest: Any, sizes: list[int], data: Any
) -> None:
    axis = data.draw(st.integers(0, len(rest)))
    xs = [arange_array((*rest[:axis], n, *rest[axis:])) + 100 * n for n in sizes]
    want = np.concatenate(xs, axis)
    np.testing.assert_array_equal(run("concat", *xs, axis=axis), want)
    lowering = registry.get("concat").lower
    assert isinstance(lowering, ConcatLowering)
    flat = np.full(want.size, -1, want.dtype)
    out = Layout.dense(want.shape)
    parts = lowering.part_layouts(out, [x.shape for x in xs], {"axis": axis})
    for part, x in zip(parts, xs, strict=True):
        if x.size:
            read_through(part, flat)[...] = x
    np.testing.assert_array_equal(flat.reshape(want.shape), want)


SLICE = ("axis", "start", "length")
ROW = (2, 3)
INVALID_CALLS: list[tuple[str, list[tuple[int, ...]], dict[str, Any], str]] = [
    *(
        ("narrow", [(4, 7)], dict(zip(SLICE, cut, strict=True)), said)
        for cut, said in [
            ((1, 5, 3), "start + length <= 7"),
            ((0, -1, 1), "start -1, length 1"),
            ((0, 0, -1), "length >= 0"),
            ((2, 0, 1), "axis 2 is out of range for rank 2"),
        ]
    ),
    ("narrow", [()], {"axis": 0, "start": 0, "length": 1}, "rank 0"),
    *(
        ("transpose", [ROW], {"perm": perm}, said)
        for perm, said in [
            ((0,), "perm (0,) lists 1 axes; the operand has 2 axes"),
            (
                (0, 0),
                "perm (0, 0) lists an axis twice; perm must list each axis from 0 to 1 "
                "exactly once",
            ),
            ((0, -2), "lists an axis twice"),
            ((0, 2), "axis 2 is out of range for rank 2"),
        ]
    ),
    *(
        ("expand", [(4, 3)], {"shape": target}, said)
        for target in [(2,), (5, 3), (4, 4), (2, 4, 2)]
        for said in (
            "cannot expand [4, 3] to",
            "dimensions must be equal or one of them must be 1",
        )
    ),
    *(
        ("reshape", [ROW], {"shape": target}, "reshape of [2, 3] f32:")
        for target in [(5,), (-1, -1), (4, -1), (-2, 3), (0, -1)]
    ),
    ("concat", [ROW, (2, 4)], {"axis": 0}, "operand 1 is [2, 4], operand 0 is [2, 3]"),
    (
        "concat",
        [ROW, (2,)],
        {"axis": 1},
        "the shapes must agree on all axes except axis 1",
    ),
    ("concat", [ROW, ROW], {"axis": 2}, "axis 2 is out of range for rank 2"),
    (
        "concat",
        [(), ()],
        {"axis": 0},
        "a scalar (rank 0) has no axis to concatenate along",
    ),
]


@pytest.mark.parametrize(("op", "shapes", "attrs", "message"), INVALID_CALLS)
def test_invalid_attributes_are_refused(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    """Invalid slices, permutations, target shapes, element counts and dimensions are
    refused.
    """
    with pytest.raises((ShapeError, AttributeRefused), match=re.escape(message)):
        build_op(op, *shapes, **attrs)


def test_concat_takes_one_dtype() -> None:
    with pytest.raises(DTypeError, match="operands are f32 and i32"):
        build_op("concat", (2,), ((2,), "i32"))
