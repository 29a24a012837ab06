"""Sorts, searches and places of what is not zero: references, rules, kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.compile.intervals import Intervals
from rlxweb.errors import AttributeRefused, DTypeError, ShapeError, Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.recipes.sort_calls import Lines, sort_recipe
from rlxweb.recipes.sort_variants import BLOCK, Merging
from tests.agreement import oracle
from tests.unit.ops.alone import added, composed, run

NAN = np.nan


@settings(max_examples=60)
@given(
    x=hnp.arrays(
        st.sampled_from([np.float32, np.int32, np.uint32, np.int64]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
        elements=st.integers(0, 5),
    ),
    descending=st.booleans(),
    data=st.data(),
)
def test_equal_values_stay_in_order_both_ways(
    x: Any, descending: bool, data: Any
) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    key = -x.astype(np.int64) if descending else x
    want = np.argsort(key, axis, stable=True)
    how = {"axis": axis, "descending": descending}
    np.testing.assert_array_equal(run("argsort", x, **how), want)
    sorted_ = np.take_along_axis(x, want, axis)
    np.testing.assert_array_equal(run("sort", x, **how), sorted_)
    np.testing.assert_array_equal(composed("sort", x, **how), sorted_)


@pytest.mark.parametrize("descending", [False, True])
def test_what_is_no_number_comes_last_and_the_zeros_are_equal(descending: bool) -> None:
    x = np.array([NAN, 0.0, -np.inf, -0.0, NAN, np.inf], np.float32)
    want = [5, 1, 3, 2, 0, 4] if descending else [2, 1, 3, 5, 0, 4]
    assert run("argsort", x, descending=descending).tolist() == want


@settings(max_examples=60)
@given(
    rows=hnp.arrays(np.float32, (2, 7), elements=st.sampled_from([0, 1, 2, NAN])),
    values=hnp.arrays(np.float32, (2, 4), elements=st.sampled_from([0, 1, 1.5, NAN])),
    side=st.sampled_from(["left", "right"]),
)
def test_a_search_is_numpys(rows: Any, values: Any, side: Any) -> None:
    rows = np.sort(rows)
    pairs = zip(rows, values, strict=True)
    want = [np.searchsorted(row, v, side) for row, v in pairs]
    np.testing.assert_array_equal(run("searchsorted", rows, values, side=side), want)
    one = run("searchsorted", rows[0], values[0], side=side)
    np.testing.assert_array_equal(one, want[0])


@given(
    x=hnp.arrays(
        st.sampled_from([np.bool_, np.float32, np.int32]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
        elements=st.integers(0, 1),
    ),
    size=st.integers(0, 9),
)
@settings(max_examples=60)
def test_places_are_those_of_numpy_up_to_the_bound(x: Any, size: int) -> None:
    want = np.full((x.ndim, size), -7)
    found = np.array(np.nonzero(x))[:, :size]
    want[:, : found.shape[1]] = found
    for how in (run, composed):
        got = how("nonzero", x, size=size, fill=-7)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "types", "attrs", "error", "said"),
    [
        ("argsort", [((5,), "bool")], {}, DTypeError, "operand 0 is bool"),
        ("sort", [()], {}, ShapeError, "rank 0 has no axis to sort along"),
        ("argsort", [(5,)], {"axis": 1}, ShapeError, "axis 1 is outside rank 1"),
        ("searchsorted", [(2, 5), (3, 4)], {}, ShapeError, "looked for in"),
        ("searchsorted", [(5,), ()], {}, ShapeError, "looked for in"),
        ("searchsorted", [(5,), ((4,), "i32")], {}, DTypeError, "f32"),
        ("nonzero", [()], {"size": 1}, ShapeError, "rank 0 has no places"),
        ("nonzero", [(3,)], {"size": -1}, AttributeRefused, "0 <= size"),
        ("cumprod", [((5,), "bool")], {}, DTypeError, "operand 0 is bool"),
    ],
)
def test_types_and_axes_that_do_not_fit_are_refused(
    op: str, types: list[Any], attrs: dict[str, int], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        added(op, *types, **attrs)


def test_a_network_has_its_columns_and_merging_its_turns() -> None:
    """Log n (log n + 1) / 2 columns, and a turn for each doubling of a run."""
    lines = Lines(1, 1000, 1, DType.F32, False)
    names = [call.shader for call in sort_recipe(lines).calls]
    assert names.count("column of a sorting network") == 10 * 11 // 2
    for n in (1, BLOCK, BLOCK + 1, 1000, 1024, 1025):
        calls = Merging(Lines(1, n, 1, DType.F32, False), n).recipe().calls
        assert len(calls) == 1 + int(np.ceil(np.log2(max(n / BLOCK, 1)))), n


MADE: dict[str, tuple[Any, Any]] = {
    "sort": (lambda g, x: g.sort(x, 0), lambda x: np.sort(x, 0)),
    "argsort": (lambda g, x: x.argsort(), lambda x: np.argsort(x, stable=True)),
    "of a mask": (lambda g, x: g.sort(x > 1.0), lambda x: np.sort(x > 1)),
    "search": (
        lambda g, x: g.searchsorted(g.constant([0.0, 1.0, 2.0], "f32"), x, "right"),
        lambda x: np.searchsorted([0.0, 1.0, 2.0], x, "right"),
    ),
    "buckets": (
        lambda g, x: g.bucketize(x, g.constant([0.0, 1.0, 2.0], "f32")),
        lambda x: np.digitize(x, [0.0, 1.0, 2.0], right=True),
    ),
    "cumprod": (lambda g, x: x.cumprod(0), lambda x: np.cumprod(x, 0)),
    "cumprod, reversed": (
        lambda g, x: g.cumprod(x, 1, exclusive=True, reverse=True),
        lambda x: np.cumprod(np.c_[x[:, 1:], [1, 1, 1]][:, ::-1], 1)[:, ::-1],
    ),
    "nonzero": (
        lambda g, x: g.nonzero(x > 1.0, 2, fill_value=9)[0],
        lambda x: np.array(np.nonzero(x > 1))[:, :2],
    ),
    "count": (lambda g, x: g.nonzero(x, 2)[1], np.count_nonzero),
    "compress": (
        lambda g, x: g.compress([False, True, True], x, 1),
        lambda x: np.compress([False, True, True], x, 1),
    ),
    "compress, flat": (
        lambda g, x: g.compress(np.array([True, False]), x),
        lambda x: np.compress([True, False], x),
    ),
    "unique": (
        lambda g, x: g.unique(x, 9, fill_value=-1)[0],
        lambda x: np.r_[np.unique(x), [-1] * (9 - len(np.unique(x)))],
    ),
    "how many": (lambda g, x: g.unique(x, 1)[1], lambda x: len(np.unique(x))),
    "reversed": (
        lambda g, x: g.reverse_sequence(x, g.constant(np.int32([1, 3, 0])), 1, 0),
        lambda x: np.stack([x[0], x[1, ::-1], x[2]]),
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_methods_do_what_numpy_does(name: str) -> None:
    build, wanted = MADE[name]
    x = np.array([[2, 0, 3, 2], [1, 2, 2, 0], [0, 1, 1, 3]], np.float32)
    g = Graph(name)
    if name == "reversed":
        x = x[:, :3]
    if name.startswith("compress"):
        x = x[:, :3]
    g.set_outputs([build(g, g.input("x", x.shape))])
    np.testing.assert_array_equal(oracle(g, {"x": x})[0], wanted(x))


def test_all_that_are_no_numbers_are_one_value() -> None:
    g = Graph("unique")
    values, count = g.unique(g.input("x", (5,)))
    g.set_outputs([values, count])
    x = np.array([NAN, 1, NAN, 0, 1], np.float32)
    found, many = oracle(g, {"x": x})
    assert many == 3
    np.testing.assert_array_equal(found, [0, 1, NAN, 0, 0])


def test_a_condition_that_is_computed_is_refused() -> None:
    g = Graph("compress")
    x = g.input("x", (3,))
    with pytest.raises(Unsupported) as raised:
        g.compress(x > 0.0, x)
    assert "the condition is computed" in str(raised.value)
    assert "g.nonzero(condition, size=…)" in str(raised.value)


def test_places_are_known_to_be_within_what_they_are_of() -> None:
    """Places have known bounds, so 32-bit devices may count on with them as int64."""
    g = Graph("places")
    x = g.input("x", (4, 9))
    flat = g.reshape(x, (36,))
    made = {
        "argsort": (g.argsort(x), 8),
        "nonzero": (g.nonzero(x, 3)[0], 9),
        "argmax": (g.argmax(x, 1), 8),
        "search": (g.searchsorted(flat, flat), 36),
        "nms": (g.nms(g.reshape(x, (9, 4)), g.reshape(x[0], (9,)))[0], 8),
    }
    g.set_outputs([one for one, _ in made.values()])
    found = Intervals(g, {}, {}).of
    for name, (one, most) in made.items():
        low, high = found[one.id]
        assert -1 <= low <= 0, name
        assert high == most, name
