"""Reshape, transpose, narrow, expand, concat: values, shapes, layouts, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Join, View
from rlxweb.ir.op import registry
from tests.unit.ops.alone import added, run

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def counted(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)


def refused(name: str, *shapes: tuple[int, ...], **attrs: Any) -> str:
    with pytest.raises((ShapeError, AttributeRefused)) as raised:
        added(name, *shapes, **attrs)
    return str(raised.value)


def read_through(layout: Layout, flat: Any) -> Any:
    """The elements a kernel sees when it reads a buffer through a layout."""
    if flat.size == 0:
        return flat.reshape(layout.shape)
    step = flat.itemsize
    return np.lib.stride_tricks.as_strided(
        flat[layout.offset :], layout.shape, [s * step for s in layout.strides]
    )


def viewed(name: str, x: Any, **attrs: Any) -> Any:
    g = Graph(name)
    node = g.node(g.apply(name, g.input("x", x.shape, x.dtype), **attrs).id)
    lower = registry.get(name).lower
    assert isinstance(lower, View)
    layout = lower.layout(Layout.dense(x.shape), node.type.shape, node.attrs)
    assert layout is not None
    return read_through(layout, x.reshape(-1))


@given(shape=SHAPES, data=st.data())
def test_transpose_is_numpys_and_its_view_agrees(shape: Any, data: Any) -> None:
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    x = counted(shape)
    np.testing.assert_array_equal(run("transpose", x, perm=perm), x.transpose(perm))
    np.testing.assert_array_equal(viewed("transpose", x, perm=perm), x.transpose(perm))


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5),
    data=st.data(),
)
def test_narrow_is_a_slice_and_its_view_agrees(shape: Any, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis]))
    length = data.draw(st.integers(0, shape[axis] - start))
    x = counted(shape)
    want = np.take(x, range(start, start + length), axis)
    attrs = {"axis": axis, "start": start, "length": length}
    np.testing.assert_array_equal(run("narrow", x, **attrs), want)
    if want.size:
        np.testing.assert_array_equal(viewed("narrow", x, **attrs), want)


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=1, max_dims=4), data=st.data()
)
def test_expand_is_broadcast_to_and_its_view_agrees(shapes: Any, data: Any) -> None:
    (shape,) = shapes.input_shapes
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    tail = [data.draw(st.integers(0, 3)) if d == 1 else d for d in shape]
    target = (*lead, *tail)
    x = counted(shape)
    want = np.broadcast_to(x, target)
    np.testing.assert_array_equal(run("expand", x, shape=target), want)
    if want.size:
        np.testing.assert_array_equal(viewed("expand", x, shape=target), want)


@given(shape=SHAPES)
def test_reshape_keeps_row_major_order(shape: Any) -> None:
    x = counted(shape)
    np.testing.assert_array_equal(run("reshape", x, shape=(x.size,)), x.reshape(-1))
    np.testing.assert_array_equal(viewed("reshape", x, shape=(1, x.size))[0], x.ravel())


def test_reshape_solves_one_dimension() -> None:
    assert run("reshape", counted((4, 6)), shape=(3, -1)).shape == (3, 8)


@given(
    rest=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    data=st.data(),
)
def test_concat_is_numpys_and_its_parts_tile_the_output(
    rest: Any, sizes: list[int], data: Any
) -> None:
    axis = data.draw(st.integers(0, len(rest)))
    xs = [counted((*rest[:axis], n, *rest[axis:])) + 100 * n for n in sizes]
    want = np.concatenate(xs, axis)
    np.testing.assert_array_equal(run("concat", *xs, axis=axis), want)
    join = registry.get("concat").lower
    assert isinstance(join, Join)
    flat = np.full(want.size, -1, want.dtype)
    out = Layout.dense(want.shape)
    parts = join.place(out, [x.shape for x in xs], {"axis": axis})
    for part, x in zip(parts, xs, strict=True):
        if x.size:
            read_through(part, flat)[...] = x
    np.testing.assert_array_equal(flat.reshape(want.shape), want)


@pytest.mark.parametrize(
    ("shape", "attrs", "said"),
    [
        ((4, 7), {"axis": 1, "start": 5, "length": 3}, "start + length <= 7"),
        ((4, 7), {"axis": 0, "start": -1, "length": 1}, "start -1, length 1"),
        ((4, 7), {"axis": 0, "start": 0, "length": -1}, "length >= 0"),
        ((4, 7), {"axis": 2, "start": 0, "length": 1}, "axis 2 is outside rank 2"),
        ((), {"axis": 0, "start": 0, "length": 1}, "rank 0"),
    ],
)
def test_narrow_outside_its_axis_is_refused(
    shape: tuple[int, ...], attrs: dict[str, int], said: str
) -> None:
    assert said in refused("narrow", shape, **attrs)


@pytest.mark.parametrize(
    ("perm", "said"),
    [
        ((0,), "perm (0,) names 1 axes; the operand has 2"),
        ((0, 0), "perm (0, 0) names an axis twice; it must hold each of 0 … 1 once"),
        ((0, -2), "names an axis twice"),
        ((0, 2), "axis 2 is outside rank 2"),
    ],
)
def test_transpose_wants_a_permutation(perm: tuple[int, ...], said: str) -> None:
    assert said in refused("transpose", (2, 3), perm=perm)


@pytest.mark.parametrize("target", [(3,), (5, 3), (4, 4), (2, 4, 2)])
def test_expand_stretches_only_ones(target: tuple[int, ...]) -> None:
    said = refused("expand", (4, 3), shape=target)
    assert "cannot expand [4, 3] to" in said
    assert "each dimension must be 1 or the target's" in said


@pytest.mark.parametrize("target", [(5,), (-1, -1), (4, -1), (-2, 3), (0, -1)])
def test_reshape_checks_the_element_count(target: tuple[int, ...]) -> None:
    assert refused("reshape", (2, 3), shape=target).startswith("reshape of [2, 3] f32:")


@pytest.mark.parametrize(
    ("shapes", "axis", "said"),
    [
        (((2, 3), (2, 4)), 0, "operand 1 is [2, 4], operand 0 is [2, 3]"),
        (((2, 3), (2,)), 1, "all dimensions but axis 1 must agree"),
        (((2, 3), (2, 3)), 2, "axis 2 is outside rank 2"),
        (((), ()), 0, "rank 0 has no axis to join on"),
    ],
)
def test_concat_checks_every_other_dimension(
    shapes: tuple[tuple[int, ...], ...], axis: int, said: str
) -> None:
    assert said in refused("concat", *shapes, axis=axis)


def test_concat_takes_one_dtype() -> None:
    with pytest.raises(DTypeError, match="operands are f32 and i32"):
        added("concat", (2,), ((2,), "i32"))
