"""Shape arithmetic against NumPy's, and the messages of its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import ShapeError
from rlxweb.ir.shape_arithmetic import (
    as_shape,
    broadcast,
    format_shape,
    normalize_axis,
    normalize_sorted_axes,
    numel,
    solve_reshape,
)

DIMS = st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=4).map(tuple)


@given(st.lists(DIMS, min_size=1, max_size=3))
def test_broadcast_equals_numpy(shapes: list[tuple[int, ...]]) -> None:
    """Broadcasting gives NumPy's result or refuses where NumPy refuses."""
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError, match="cannot broadcast"):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == want


@given(DIMS, st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6]), max_size=4))
def test_solve_reshape_equals_numpy(shape: tuple[int, ...], target: list[int]) -> None:
    """A -1 is solved as NumPy does, or refused where NumPy refuses."""
    try:
        want = np.empty(shape, np.int8).reshape(target).shape
    except ValueError:
        with pytest.raises(ShapeError):
            solve_reshape(shape, target)
    else:
        assert solve_reshape(shape, target) == want


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((2, -1), "must be >= 0, got -1"),
        ((2.0,), "must be an integer, got 2.0"),
        ((True,), "must be an integer, got True"),
        (("3",), "must be an integer, got '3'"),
        ((1,) * 9, "the rank is 9; it must be at most 8"),
        (-4, "must be >= 0"),
    ],
)
def test_invalid_shapes_are_refused(value: object, message: str) -> None:
    """Negative, fractional, boolean and too many dimensions each have their own
    message.
    """
    with pytest.raises(ShapeError, match=message):
        as_shape(value)  # type: ignore[arg-type]


def test_shapes_have_many_spellings() -> None:
    """An int is a vector; NumPy integers and lists count as dimensions."""
    assert as_shape(5) == (5,)
    assert as_shape([np.int64(2), 3]) == (2, 3)
    assert all(type(d) is int for d in as_shape([np.int64(2)]))


def test_axes_count_from_either_end() -> None:
    """-1 is the last axis; sets of axes come out sorted."""
    assert normalize_axis(-1, 3) == 2
    assert normalize_sorted_axes([-1, 0], 3) == (0, 2)


@pytest.mark.parametrize(("axis", "rank"), [(2, 2), (-3, 2), (0, 0)])
def test_an_axis_outside_the_rank_is_refused(axis: int, rank: int) -> None:
    """The message holds the axis, the rank and what is allowed."""
    with pytest.raises(
        ShapeError, match=f"axis {axis} is out of range for rank {rank}"
    ):
        normalize_axis(axis, rank)


def test_an_axis_named_twice_is_refused() -> None:
    """An axis and its negative form are the same axis."""
    with pytest.raises(ShapeError, match="same axis twice"):
        normalize_sorted_axes([1, -1], 2)


def test_reshape_errors_hold_both_counts() -> None:
    """The error gives the requested reshape and the two element counts."""
    with pytest.raises(ShapeError, match=r"12 and 10 elements") as caught:
        solve_reshape((3, 4), (5, 2))
    assert "cannot reshape [3, 4] to [5, 2]" in str(caught.value)


def test_format_shape_and_numel() -> None:
    """Shapes print as RLX prints them; rank 0 holds one element."""
    assert format_shape((4, 15)) == "[4, 15]"
    assert (numel(()), numel((3, 0))) == (1, 0)
