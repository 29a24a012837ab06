"""Sorting, searching and nonzero: references, shape rules and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.compiler.range_analysis import RangeAnalysis
from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError, Unsupported
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, node_signature
from rlxweb.ir.op import registry
from rlxweb.ops.sort.cpu import KERNELS as CPU_KERNELS
from rlxweb.ops.sort.wgsl.merge_sort import BLOCK_SIZE, MergeSortPlanner
from rlxweb.ops.sort.wgsl.plan import SortLines, plan_sort
from tests.engines_under_test import reference_outputs
from tests.unit.ops.single_op_runner import build_op, run, run_decomposition

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
    attrs = {"axis": axis, "descending": descending}
    np.testing.assert_array_equal(run("argsort", x, **attrs), want)
    sorted_ = np.take_along_axis(x, want, axis)
    np.testing.assert_array_equal(run("sort", x, **attrs), sorted_)
    np.testing.assert_array_equal(run_decomposition("sort", x, **attrs), sorted_)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_sorts_last_and_zeros_are_equal(descending: bool) -> None:
    x = np.array([NAN, 0.0, -np.inf, -0.0, NAN, np.inf], np.float32)
    want = [5, 1, 3, 2, 0, 4] if descending else [2, 1, 3, 5, 0, 4]
    assert run("argsort", x, descending=descending).tolist() == want


@settings(max_examples=60)
@given(
    rows=hnp.arrays(np.float32, (2, 7), elements=st.sampled_from([0, 1, 2, NAN])),
    values=hnp.arrays(np.float32, (2, 4), elements=st.sampled_from([0, 1, 1.5, NAN])),
    side=st.sampled_from(["left", "right"]),
)
def test_searchsorted_matches_numpy(rows: Any, values: Any, side: Any) -> None:
    rows = np.sort(rows)
    pairs = zip(rows, values, strict=True)
    want = [np.searchsorted(row, v, side) for row, v in pairs]
    np.testing.assert_array_equal(run("searchsorted", rows, values, side=side), want)
    single_row = run("searchsorted", rows[0], values[0], side=side)
    np.testing.assert_array_equal(single_row, want[0])


@given(
    x=hnp.arrays(
        st.sampled_from([np.bool_, np.float32, np.int32]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
        elements=st.integers(0, 1),
    ),
    size=st.integers(0, 9),
)
@settings(max_examples=60)
def test_nonzero_matches_numpy_up_to_the_size(x: Any, size: int) -> None:
    want = np.full((x.ndim, size), -7)
    positions = np.array(np.nonzero(x))[:, :size]
    want[:, : positions.shape[1]] = positions
    for method in (run, run_decomposition):
        got = method("nonzero", x, size=size, fill=-7)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "types", "attrs", "error", "message"),
    [
        ("argsort", [((5,), "bool")], {}, DTypeError, "operand 0 is bool"),
        (
            "sort",
            [()],
            {},
            ShapeError,
            "a scalar \\(rank 0\\) has no axis to sort along",
        ),
        (
            "argsort",
            [(5,)],
            {"axis": 1},
            ShapeError,
            "axis 1 is out of range for rank 1",
        ),
        ("searchsorted", [(2, 5), (3, 4)], {}, ShapeError, "for sorted rows"),
        ("searchsorted", [(5,), ()], {}, ShapeError, "for sorted rows"),
        ("searchsorted", [(5,), ((4,), "i32")], {}, DTypeError, "f32"),
        (
            "nonzero",
            [()],
            {"size": 1},
            ShapeError,
            "a scalar \\(rank 0\\) has no indices",
        ),
        ("nonzero", [(3,)], {"size": -1}, AttributeRefused, "size=-1"),
        ("cumprod", [((5,), "bool")], {}, DTypeError, "operand 0 is bool"),
    ],
)
def test_types_and_axes_that_do_not_fit_are_refused(
    op: str,
    types: list[Any],
    attrs: dict[str, int],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        build_op(op, *types, **attrs)


def test_dispatch_counts_of_network_and_merge_sort() -> None:
    """A network has log n (log n + 1) / 2 columns; merging takes a pass for each
    doubling of a run.
    """
    sort_lines = SortLines(1, 1000, 1, DType.F32, False)
    names = [dispatch.shader for dispatch in plan_sort(sort_lines).dispatches]
    assert names.count("column of a sorting network") == 10 * 11 // 2
    for n in (1, BLOCK_SIZE, BLOCK_SIZE + 1, 1000, 1024, 1025):
        dispatches = (
            MergeSortPlanner(SortLines(1, n, 1, DType.F32, False), n).plan().dispatches
        )
        assert len(dispatches) == 1 + int(np.ceil(np.log2(max(n / BLOCK_SIZE, 1)))), n


BUILDER_CASES: dict[str, tuple[Any, Any]] = {
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


@pytest.mark.parametrize("name", BUILDER_CASES)
def test_methods_match_numpy(name: str) -> None:
    build, expected = BUILDER_CASES[name]
    x = np.array([[2, 0, 3, 2], [1, 2, 2, 0], [0, 1, 1, 3]], np.float32)
    g = Graph(name)
    if name == "reversed":
        x = x[:, :3]
    if name.startswith("compress"):
        x = x[:, :3]
    g.set_outputs([build(g, g.input("x", x.shape))])
    np.testing.assert_array_equal(reference_outputs(g, {"x": x})[0], expected(x))


def test_unique_counts_all_nans_as_one_value() -> None:
    g = Graph("unique")
    values, count = g.unique(g.input("x", (5,)))
    g.set_outputs([values, count])
    x = np.array([NAN, 1, NAN, 0, 1], np.float32)
    unique_values, unique_count = reference_outputs(g, {"x": x})
    assert unique_count == 3
    np.testing.assert_array_equal(unique_values, [0, 1, NAN, 0, 0])


def test_compress_refuses_a_computed_condition() -> None:
    g = Graph("compress")
    x = g.input("x", (3,))
    with pytest.raises(Unsupported) as raised:
        g.compress(x > 0.0, x)
    assert "the condition is computed" in str(raised.value)
    assert "g.nonzero(condition, size=…)" in str(raised.value)


def test_index_ops_have_known_ranges() -> None:
    """Results of index ops have known ranges, so 32-bit devices can demote them from
    int64.
    """
    g = Graph("places")
    x = g.input("x", (4, 9))
    flat = g.reshape(x, (36,))
    outputs = {
        "argsort": (g.argsort(x), 8),
        "nonzero": (g.nonzero(x, 3)[0], 9),
        "argmax": (g.argmax(x, 1), 8),
        "search": (g.searchsorted(flat, flat), 36),
        "nms": (g.nms(g.reshape(x, (9, 4)), g.reshape(x[0], (9,)))[0], 8),
    }
    g.set_outputs([tensor for tensor, _ in outputs.values()])
    ranges = RangeAnalysis(g, {}, {}).node_ranges
    for name, (tensor, max_value) in outputs.items():
        low, high = ranges[tensor.id]
        assert -1 <= low <= 0, name
        assert high == max_value, name


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u4", "i1", "u1", "f8"])
def test_argsort_as_integers_equals_the_reference(
    dtype: str, descending: bool, rng: np.random.Generator
) -> None:
    """Ties keep their order, both zeros are equal, and NaN is last in both orders."""
    x = rng.integers(0 if dtype[0] == "u" else -9, 9, (7, 60)).astype(dtype)
    if dtype[0] == "f":
        odd = np.array([np.nan, -0.0, np.inf, -np.inf, 1e-45], dtype)
        x[:, ::3] = rng.choice(odd, x[:, ::3].shape)
    else:
        x[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    (argsort,) = (k for k in CPU_KERNELS if k.op == "argsort")
    for axis in (0, 1):
        attrs = {"axis": axis, "descending": descending}
        want = registry.get("argsort").reference(np, attrs, x)
        graph = Graph()
        order = graph.argsort(graph.input("x", x.shape, as_dtype(x.dtype)), **attrs)
        signature = node_signature(graph, graph.node(order.id))
        got = argsort.build(*signature[1:])(attrs, x)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.int32
