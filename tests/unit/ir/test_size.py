"""Sizes: arithmetic of polynomials over dims, and what may be asked of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Dim
from rlxweb.errors import GraphError, RlxError, ShapeError, UsageError
from rlxweb.ir.size import Extent, Size, told

N, M = Dim("n"), Dim("m", min=4, multiple_of=4)


class Known:
    """Dims that are bound."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes

    def of_dim(self, dim: Dim) -> int:
        return self.sizes[dim.name]

    def of_extent(self, extent: Extent) -> int:
        raise AssertionError(extent)


SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
}
LEAVES = st.sampled_from(["n", "m"]) | st.integers(-5, 9)
TREES = st.recursive(
    LEAVES,
    lambda part: st.tuples(st.sampled_from(sorted(SIGNS)), part, part),
    max_leaves=8,
)


def computed(tree: Any, leaves: dict[str, Any]) -> Any:
    if isinstance(tree, tuple):
        sign, x, y = tree
        return SIGNS[sign](computed(x, leaves), computed(y, leaves))
    return leaves.get(tree, tree) if isinstance(tree, str) else tree


@given(TREES, st.integers(1, 12), st.integers(1, 5))
def test_what_is_bound_late_is_what_python_computes(tree: Any, n: int, m: int) -> None:
    """An expression bound late is what Python computes, within its bounds."""
    sizes = {"n": n, "m": 4 * m}
    try:
        made = computed(tree, {"n": N, "m": M})
        want = computed(tree, sizes)
        got = told(made, Known(**sizes))
    except (ZeroDivisionError, ShapeError):
        return
    assert got == want
    if isinstance(made, Size):
        low, high = made.bounds
        assert low <= want <= high


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (2 * N + N, "3*n"),
        (N * M + 3 * M, "m*n + 3*m"),
        (N - 1 - N * 2, "-1*n - 1"),
        ((N * M) // N, "m"),
        ((2 * N + 4) // 2, "n + 2"),
        ((N + 1) // 2, "(n + 1)//2"),
        ((N + 1) % 3 * M, "((n + 1)%3)*m"),
        (N // 2 * M, "m*(n//2)"),
        (np.int64(2) * N, "2*n"),
    ],
)
def test_sizes_are_said_in_one_form(made: object, text: str) -> None:
    assert str(made) == text


def test_what_comes_out_even_is_a_number() -> None:
    assert (N - N, N * 0, M % 4, (N * M) % M, M * N - N * M) == (0, 0, 0, 0, 0)
    assert all(type(one) is int for one in (N - N, N * 0, M % 4))


def test_what_holds_for_every_size_is_answered() -> None:
    """A comparison is answered by the polynomial and by what the dims may be."""
    assert N * M == M * N
    assert N >= 1
    assert M > 3
    assert M + 1 != 0
    assert not N < 1
    assert Dim("k", max=8) <= 8
    assert (N, 4) == (N, 4)
    assert N != "n"
    assert bool(N)


@pytest.mark.parametrize(
    "asked",
    [
        lambda: N == 4,
        lambda: N > 3,
        lambda: N < M,
        lambda: bool(N - 1),
        lambda: range(N),  # type: ignore[call-overload]
        lambda: int(N),
        lambda: float(N),
        lambda: np.zeros((N, 2)),  # type: ignore[arg-type]
        lambda: np.asarray(N),
        lambda: N / 2,
        lambda: 1.5 / N,
    ],
)
def test_what_a_run_decides_is_refused(asked: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=r"size n|is n"):
        asked()


@pytest.mark.parametrize(
    "asked",
    [
        lambda: Dim(""),
        lambda: Dim(3),  # type: ignore[arg-type]
        lambda: Dim("a", min=-1),
        lambda: Dim("a", min=5, max=4),
        lambda: Dim("a", min=5, max=7, multiple_of=4),
        lambda: Dim("a", multiple_of=0),
        lambda: Dim("a", min=1.5),  # type: ignore[arg-type]
        lambda: N // 0,
    ],
)
def test_dims_that_are_none_are_refused(asked: Callable[[], object]) -> None:
    with pytest.raises((GraphError, RlxError)):
        asked()


@given(
    st.text("ab", min_size=1), st.integers(0, 50), st.integers(0, 90), st.integers(1, 9)
)
def test_a_dim_is_tried_with_sizes_it_may_have(
    name: str, low: int, more: int, of: int
) -> None:
    dim = Dim(name, min=low, max=low + more + of, multiple_of=of)
    for size in dim.samples:
        assert dim.check(size, "here") == size


@pytest.mark.parametrize("size", [0, 3, 10, -4])
def test_sizes_a_dim_may_not_be_are_refused(size: int) -> None:
    with pytest.raises(ShapeError, match=f"'k' is {size}; it is"):
        Dim("k", min=4, max=8, multiple_of=2).check(size, "here")


def test_a_dim_crosses_processes() -> None:
    again = pickle.loads(pickle.dumps(M))
    assert repr(again) == repr(M) == "Dim('m', min=4, multiple_of=4)"
    assert again == M
