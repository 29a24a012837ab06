"""Gather, topk and cumsum: references, shape rules, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import AttributeRefused, DTypeError, IndexRefused, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ops.gather.wgsl.plan import plan_cumulative
from rlxweb.ops.sort.wgsl.serial_topk import plan_topk
from tests.numpy_welch_peaks_reference import rank_bins
from tests.unit.ops.single_op_runner import build_op, run


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4),
    taken=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4),
    dtype=st.sampled_from([np.int32, np.uint32, np.int64]),
    data=st.data(),
)
def test_gather_matches_numpy_take(
    shape: Any, taken: Any, dtype: Any, data: Any
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    table = np.random.default_rng(1).random(shape, np.float32)
    indices = data.draw(
        hnp.arrays(dtype, taken, elements=st.integers(0, shape[axis] - 1))
    )
    if dtype is not np.uint32:  # the last ones, counted from the end, too
        indices = np.where(indices % 2, indices - shape[axis], indices).astype(dtype)
    got = run("gather", table, indices, axis=axis)
    np.testing.assert_array_equal(got, np.take(table, indices.astype(np.intp), axis))


def test_gather_keeps_the_axes_before_its_own() -> None:
    tensor = build_op("gather", (2, 5, 3), ((7, 4), "i32"), axis=1)
    assert tensor.shape == (2, 7, 4, 3)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0, 1], [5, 2]], "index 5 at position [1, 0]"),
        ([[0, -6], [9, 2]], "index -6 at position [0, 1]"),
    ],
)
def test_gather_outside_its_table_names_the_first_position(
    indices: list[list[int]], message: str
) -> None:
    table = np.zeros((5, 2), np.float32)
    with pytest.raises(IndexRefused) as raised:
        run("gather", table, np.array(indices, np.int32))
    assert str(raised.value) == (
        f"gather: {message}; expected -5 <= index < 5 on axis 0 of [5, 2]; check "
        "the index array"
    )


def test_gather_from_an_empty_axis_is_refused_while_building() -> None:
    with pytest.raises(
        ShapeError, match="got 3 indices, but an empty axis has no valid index"
    ):
        build_op("gather", (0, 2), ((3,), "i32"))
    assert build_op("gather", (0, 2), ((0,), "i32")).shape == (0, 2)


@pytest.mark.parametrize(
    ("op", "types", "attrs", "error", "message"),
    [
        ("gather", [(3,), (2,)], {}, DTypeError, "are f32; indices must be integers"),
        ("gather", [(), ((2,), "i32")], {}, ShapeError, "the table has rank 0"),
        (
            "gather",
            [(3,), ((2,), "i32")],
            {"axis": 1},
            ShapeError,
            "axis 1 is out of range",
        ),
        ("topk", [((5,), "bool")], {"k": 1}, DTypeError, "operand 0 is bool"),
        ("topk", [()], {"k": 1}, ShapeError, "a scalar \\(rank 0\\) has no last axis"),
        ("cumsum", [((5,), "bool")], {}, DTypeError, "operand 0 is bool"),
        ("cumsum", [()], {}, ShapeError, "a scalar \\(rank 0\\) has no axis"),
        (
            "cumsum",
            [(5,)],
            {"axis": 3},
            ShapeError,
            "axis 3 is out of range for rank 1",
        ),
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


@given(
    x=hnp.arrays(
        st.sampled_from([np.float32, np.int32, np.int64, np.float16]),
        st.tuples(st.integers(0, 3), st.integers(1, 12)),
        elements=st.integers(-3, 3),
    ),
    data=st.data(),
)
def test_topk_ranks_by_value_then_by_index(x: Any, data: Any) -> None:
    k = data.draw(st.integers(1, x.shape[1]))
    np.testing.assert_array_equal(run("topk", x, k=k), rank_bins(x, k))


def test_topk_ranks_the_extremes_of_integers() -> None:
    x = np.array([0, -(1 << 31), (1 << 31) - 1], np.int32)
    assert run("topk", x, k=3).tolist() == [2, 0, 1]
    assert run("topk", np.uint32([0, (1 << 32) - 1]), k=2).tolist() == [1, 0]


@pytest.mark.parametrize("k", [0, -1, 6])
def test_topk_takes_at_most_the_axis(k: int) -> None:
    with pytest.raises(AttributeRefused) as raised:
        build_op("topk", (3, 5), k=k)
    assert str(raised.value) == (
        f"topk of [3, 5] f32: k={k}; expected 1 <= k <= 5, the length of the "
        "last axis of [3, 5]"
    )


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5),
    exclusive=st.booleans(),
    data=st.data(),
)
def test_cumsum_matches_numpy_and_exclusive_shifts_it(
    shape: Any, exclusive: bool, data: Any
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(6).integers(-9, 9, shape).astype(np.float32)
    want = np.cumsum(x, axis) - (x if exclusive else 0)
    got = run("cumsum", x, axis=axis, exclusive=exclusive)
    np.testing.assert_array_equal(got, want)


def test_cumsum_of_integers_wraps() -> None:
    x = np.array([2_000_000_000, 2_000_000_000], np.int32)
    assert run("cumsum", x).tolist() == [2_000_000_000, -294_967_296]


def test_a_long_cumsum_keeps_float32_accuracy() -> None:
    x = np.full(1 << 20, 0.1, np.float32)
    want = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(run("cumsum", x), want, rtol=1e-7)


def longest_serial_axis(plan: KernelPlan) -> int:
    return max(
        a.size
        for dispatch in plan.dispatches
        for a in dispatch.axes
        if a.kind == "serial"
    )


@pytest.mark.parametrize("n", [1 << 20, (1 << 20) + 7, 999_983])
def test_no_invocation_scans_a_long_row_alone(n: int) -> None:
    assert longest_serial_axis(plan_cumulative((1, n, 1), DType.F32, False)) <= 2048
    assert longest_serial_axis(plan_topk(1, n, 16, DType.F32)) <= 16 * 1024


def test_short_or_many_rows_take_one_pass() -> None:
    assert len(plan_cumulative((4, 100, 3), DType.F32, True).dispatches) == 1
    assert len(plan_cumulative((5000, 2000, 1), DType.F32, True).dispatches) == 1
    assert len(plan_topk(4, 100, 3, DType.F32).dispatches) == 1
    assert len(plan_topk(5000, 2000, 3, DType.F32).dispatches) == 1


@pytest.mark.parametrize("op", ["gather", "gather_elements"])
def test_unsigned_indices_of_64_bits_never_count_from_the_end(op: str) -> None:
    """The index 2**64 - 1 has the bits of -1 in int64, and is outside all the same."""
    x = np.arange(4, dtype=np.float32)
    assert run(op, x, np.array([3], np.uint64)) == [3]
    with pytest.raises(IndexRefused, match="<= index < 4"):
        run(op, x, np.array([(1 << 64) - 1], np.uint64))


@pytest.mark.parametrize("k", [1, 7, 300, 4000])
def test_every_chunk_of_a_topk_can_fill_its_list(k: int) -> None:
    plan = plan_topk(2, 5003, k, DType.F32)
    first_dispatch = plan.dispatches[0]
    assert next(a.size for a in first_dispatch.axes if a.name == "n") >= k
