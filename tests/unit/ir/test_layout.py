"""Layouts against NumPy's strides: the same view, element by element."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.ir.layout import Layout, row_major_strides
from rlxweb.ir.shape_arithmetic import numel

Ints = npt.NDArray[np.int64]

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
NONEMPTY_SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


def read_elements(layout: Layout, size: int) -> Ints:
    """Return the elements that a layout reads from arange(size)."""
    positions = np.full(layout.shape, layout.offset)
    for axis, (dim, stride) in enumerate(
        zip(layout.shape, layout.strides, strict=True)
    ):
        broadcast_shape = [1] * len(layout.shape)
        broadcast_shape[axis] = dim
        positions = positions + (np.arange(dim) * stride).reshape(broadcast_shape)
    return np.arange(size)[positions]


@st.composite
def layout_views(draw: st.DrawFn) -> tuple[Layout, Ints, int]:
    """Draw a layout made by up to five views, the same view as a NumPy array, and the
    buffer's size.
    """
    shape = draw(NONEMPTY_SHAPES)
    size = numel(shape)
    layout, array = Layout.dense(shape), np.arange(size).reshape(shape)
    for _ in range(draw(st.integers(0, 5))):
        rank = array.ndim
        view = draw(st.sampled_from(["transpose", "narrow", "expand", "frame"]))
        if view == "transpose":
            perm = draw(st.permutations(range(rank)))
            layout, array = layout.transpose(perm), array.transpose(perm)
        elif view == "narrow" and rank:
            axis = draw(st.integers(0, rank - 1))
            start = draw(st.integers(0, array.shape[axis] - 1))
            length = draw(st.integers(1, array.shape[axis] - start))
            layout = layout.narrow(axis, start, length)
            array = np.take(array, range(start, start + length), axis)
        elif view == "expand" and rank < 5:
            expanded_dims = [
                d if d > 1 else draw(st.integers(1, 3)) for d in array.shape
            ]
            target = (*draw(st.lists(st.integers(1, 3), max_size=1)), *expanded_dims)
            layout, array = layout.expand(target), np.broadcast_to(array, target)
        elif view == "frame" and 1 <= rank < 5:
            length = draw(st.integers(1, array.shape[-1]))
            hop = draw(st.integers(1, 3))
            count = 1 + (array.shape[-1] - length) // hop
            layout = layout.frame(length, hop, count)
            array = np.stack(
                [array[..., hop * i : hop * i + length] for i in range(count)], -2
            )
    return layout, array, size


@st.composite
def reshape_targets(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw another shape with as many elements, from the prime factors of the given
    one.
    """
    factors = [p for dim in shape for p in _primes(dim)]
    factors = draw(st.permutations(factors))
    out: list[int] = []
    for factor in factors:
        if out and draw(st.booleans()):
            out[-1] *= factor
        else:
            out.append(factor)
        if draw(st.integers(0, 5)) == 0:
            out.append(1)
    return tuple(out)


def _primes(n: int) -> list[int]:
    return next(([p, *_primes(n // p)] for p in range(2, n + 1) if n % p == 0), [])


@given(layout_views())
def test_views_equal_numpy(case: tuple[Layout, Ints, int]) -> None:
    """Transpose, narrow, expand and frame in any order read NumPy's elements."""
    layout, array, size = case
    assert layout.shape == array.shape
    np.testing.assert_array_equal(read_elements(layout, size), array)


@given(layout_views(), st.data())
def test_reshape_of_a_view_equals_numpy(
    case: tuple[Layout, Ints, int], data: st.DataObject
) -> None:
    """A reshaped layout reads NumPy's order; None is returned only where NumPy
    copies.
    """
    layout, array, size = case
    target = data.draw(reshape_targets(layout.shape))
    reshaped = layout.reshape(target)
    if reshaped is not None:
        assert reshaped.shape == target
        np.testing.assert_array_equal(
            read_elements(reshaped, size), array.reshape(target)
        )
        return
    base = np.arange(size)
    strided = np.lib.stride_tricks.as_strided(
        base[layout.offset :], layout.shape, [s * base.itemsize for s in layout.strides]
    )
    # NumPy has reshape(copy=False), which would be refused here, since 2.1 only.
    assert not np.may_share_memory(strided.reshape(target), strided)


@given(NONEMPTY_SHAPES, st.data())
def test_a_dense_layout_can_take_any_shape(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    """A dense layout never needs a copy to be reshaped."""
    target = data.draw(reshape_targets(shape))
    reshaped = Layout.dense(shape).reshape(target)
    assert reshaped is not None
    assert reshaped.is_dense


@given(SHAPES)
def test_row_major_strides_equal_numpy(shape: tuple[int, ...]) -> None:
    """Strides of a dense tensor are those of a C-ordered array."""
    if 0 in shape:
        assert Layout.dense(shape).is_dense
        return
    array = np.empty(shape, np.int8)
    want = [s for s, d in zip(array.strides, shape, strict=True) if d != 1]
    have = [s for s, d in zip(row_major_strides(shape), shape, strict=True) if d != 1]
    assert have == want


@given(layout_views())
def test_is_dense_means_row_major_from_zero(case: tuple[Layout, Ints, int]) -> None:
    """A layout is called dense exactly when it reads 0, 1, 2, …"""
    layout, array, size = case
    flat = read_elements(layout, size).reshape(-1)
    assert layout.is_dense == np.array_equal(flat, np.arange(array.size))


@given(layout_views())
def test_coalescing_keeps_every_pair_of_elements(
    case: tuple[Layout, Ints, int],
) -> None:
    """Merged axes walk both layouts through the same elements in the same order."""
    layout, array, size = case
    dense = Layout.dense(layout.shape)
    coalesced_dense, coalesced_view = dense.coalesce(layout)
    assert len(coalesced_dense.shape) <= len(layout.shape)
    assert 1 not in coalesced_dense.shape
    np.testing.assert_array_equal(
        read_elements(coalesced_dense, array.size).reshape(-1), np.arange(array.size)
    )
    np.testing.assert_array_equal(
        read_elements(coalesced_view, size).reshape(-1), array.reshape(-1)
    )


def test_a_dense_layout_coalesces_to_one_axis() -> None:
    """The common case needs no index arithmetic."""
    (merged,) = Layout.dense((4, 1, 5, 6)).coalesce()
    assert merged == Layout((120,), (1,))


def test_empty_tensors_reshape_freely() -> None:
    """Zero elements have no order that a reshape could break."""
    reshaped = Layout.dense((0, 3)).transpose((1, 0)).reshape((5, 0, 2))
    assert reshaped is not None
    assert reshaped.shape == (5, 0, 2)


def test_an_expanded_axis_cannot_be_merged_with_a_real_one() -> None:
    """(1, 3) expanded to (2, 3) has no layout as (6,): it must be copied."""
    assert Layout.dense((1, 3)).expand((2, 3)).reshape((6,)) is None
