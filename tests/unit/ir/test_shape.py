"""Shape arithmetic against NumPy's, and the words of its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.errors import ShapeError
from rlxweb.ir.shape import (
    as_shape,
    broadcast,
    normal_axes,
    normal_axis,
    numel,
    show,
    solve_reshape,
)

DIMS = st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=4).map(tuple)


@given(st.lists(DIMS, min_size=1, max_size=3))
def test_broadcast_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    """Broadcasting gives NumPy's result or refuses where NumPy refuses."""
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError, match="cannot broadcast"):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == want


@given(DIMS, st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6]), max_size=4))
def test_solve_reshape_is_numpys(shape: tuple[int, ...], target: list[int]) -> None:
    """A -1 is solved as NumPy does, or refused where NumPy refuses."""
    try:
        want = np.empty(shape, np.int8).reshape(target).shape
    except ValueError:
        with pytest.raises(ShapeError):
            solve_reshape(shape, target)
    else:
        assert solve_reshape(shape, target) == want


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((2, -1), "must be >= 0, got -1"),
        ((2.0,), "must be an integer, got 2.0"),
        ((True,), "must be an integer, got True"),
        (("3",), "must be an integer, got '3'"),
        ((1,) * 9, "rank 9; rank is at most 8"),
        (-4, "must be >= 0"),
    ],
)
def test_bad_shapes_are_refused(value: object, words: str) -> None:
    """Negative, fractional, boolean and too many dimensions each have their line."""
    with pytest.raises(ShapeError, match=words):
        as_shape(value)  # type: ignore[arg-type]


def test_shapes_come_in_many_spellings() -> None:
    """An int is a vector; NumPy integers and lists count as dimensions."""
    assert as_shape(5) == (5,)
    assert as_shape([np.int64(2), 3]) == (2, 3)
    assert all(type(d) is int for d in as_shape([np.int64(2)]))


def test_axes_count_from_either_end() -> None:
    """-1 is the last axis; sets of axes come out sorted."""
    assert normal_axis(-1, 3) == 2
    assert normal_axes([-1, 0], 3) == (0, 2)


@pytest.mark.parametrize(("axis", "rank"), [(2, 2), (-3, 2), (0, 0)])
def test_an_axis_outside_the_rank_is_refused(axis: int, rank: int) -> None:
    """The message holds the axis, the rank and what is allowed."""
    with pytest.raises(ShapeError, match=f"axis {axis} is outside rank {rank}"):
        normal_axis(axis, rank)


def test_an_axis_named_twice_is_refused() -> None:
    """An axis is the same when it is counted from the end."""
    with pytest.raises(ShapeError, match="same axis twice"):
        normal_axes([1, -1], 2)


def test_reshape_errors_hold_both_counts() -> None:
    """What was asked, and the two element counts."""
    with pytest.raises(ShapeError, match=r"12 elements against 10") as caught:
        solve_reshape((3, 4), (5, 2))
    assert "cannot reshape [3, 4] to [5, 2]" in str(caught.value)


def test_show_and_numel() -> None:
    """Shapes print as RLX prints them; rank 0 holds one element."""
    assert show((4, 15)) == "[4, 15]"
    assert (numel(()), numel((3, 0))) == (1, 0)
