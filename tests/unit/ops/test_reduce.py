"""Sum, mean, max, min, prod: references, shape rules, and the passes a GPU makes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import BufferRef, KernelDispatch, KernelPlan, OperandAccess
from rlxweb.ops.reduce.wgsl.plan import (
    ReducedAxes,
    group_axes,
    invocations_per_output,
    plan_reduction,
)
from tests.unit.ops.single_op_runner import build_op, run

REDUCTIONS = ("sum", "mean", "max", "min", "prod")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4)


def draw_axes(data: Any, rank: int) -> tuple[int, ...]:
    return tuple(data.draw(st.sets(st.integers(0, rank - 1)))) if rank else ()


@given(shape=SHAPES, keep=st.booleans(), data=st.data())
@pytest.mark.parametrize("name", REDUCTIONS)
def test_any_axes_reduce_as_in_numpy(
    name: str, shape: Any, keep: bool, data: Any
) -> None:
    axes = draw_axes(data, len(shape))
    x = np.random.default_rng(2).uniform(0.5, 1.5, shape)
    want = getattr(np, name)(x, axis=axes, keepdims=keep)
    np.testing.assert_allclose(run(name, x, axes=axes, keep_dim=keep), want, rtol=1e-13)


def test_negative_axes_count_from_the_end() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(run("sum", x, axes=(-1, 0)), x.sum((0, 2)))
    np.testing.assert_array_equal(run("max", x, axes=-1), x.max(-1))


def test_sixteen_million_ones_sum_exactly() -> None:
    ones = np.ones(1 << 24, np.float32)
    assert run("sum", ones, axes=0) == 1 << 24
    assert run("mean", ones, axes=0) == 1.0


def test_a_long_sum_along_the_first_axis_keeps_float32_accuracy() -> None:
    x = np.random.default_rng(3).random((100_000, 3), np.float32)
    want = x.astype(np.float64).sum(0)
    np.testing.assert_allclose(run("sum", x, axes=0), want, rtol=1e-7)


def test_a_half_sum_is_accumulated_in_single() -> None:
    x = np.full((1, 4000), 0.1, np.float16)
    want = np.float16(x.astype(np.float64).sum())
    assert run("sum", x, axes=1).tolist() == [want]


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integer_sums_and_products_wrap(dtype: Any) -> None:
    x = np.array([[2_000_000_000, 2_000_000_000, 3]], dtype)
    bits = [int(v) for v in x[0]]
    assert int(run("sum", x, axes=1).astype(np.uint32)[0]) == sum(bits) % (1 << 32)
    assert int(run("prod", x, axes=1).astype(np.uint32)[0]) == math.prod(bits) % (
        1 << 32
    )


def test_an_empty_axis_sums_to_zero_and_multiplies_to_one() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    assert run("sum", x, axes=1).tolist() == [[0, 0, 0]] * 2
    assert run("prod", x, axes=1).tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("name", ["max", "min", "mean"])
def test_an_empty_axis_has_no_extreme_and_no_mean(name: str) -> None:
    with pytest.raises(ShapeError) as raised:
        build_op(name, (2, 0), axes=1)
    assert str(raised.value) == (
        f"{name} of [2, 0] f32: axes (1,) of [2, 0] have 0 elements to reduce; at "
        "least 1 element is required; skip the reduction of empty arrays, or use sum "
        "or prod, which accept 0 elements"
    )


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((2,), "axis 2 is out of range for rank 2"),
        ((0, -2), "name the same axis twice"),
    ],
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_bad_axes_are_refused(name: str, axes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build_op(name, (2, 3), axes=axes)


def test_bools_and_integer_means_are_refused() -> None:
    with pytest.raises(DTypeError, match="operand 0 is bool"):
        build_op("sum", ((2,), "bool"), axes=0)
    with pytest.raises(DTypeError, match="accepts only floats"):
        build_op("mean", ((2,), "i32"), axes=0)


def element_position(access: OperandAccess, index: tuple[int, ...]) -> int:
    return access.offset + sum(
        i * s for i, s in zip(index, access.strides, strict=True)
    )


def run_plan(plan: KernelPlan, x: Any, count: int) -> Any:
    """Run the plan's dispatches in Python, on memory that starts as garbage."""
    buffers = {("in", 0): x.reshape(-1), ("out", 0): np.full(count, -1 << 40)}
    for n, buffer in enumerate(plan.scratch):
        buffers["scratch", n] = np.full(buffer.numel, -1 << 40)
    for dispatch in plan.dispatches:
        run_dispatch(dispatch, buffers)
    return buffers["out", 0]


def buffer_key(ref: BufferRef) -> tuple[str, int]:
    return ref.kind, ref.index


def run_dispatch(dispatch: KernelDispatch, buffers: dict[Any, Any]) -> None:
    source, target = dispatch.accesses
    read, write = buffers[buffer_key(source.ref)], buffers[buffer_key(target.ref)]
    kept_ranges = [range(a.size) for a in dispatch.axes if a.kind == "parallel"]
    reduced_ranges = [range(a.size) for a in dispatch.axes if a.kind == "serial"]
    for index in itertools.product(*kept_ranges):
        position = element_position(target, (*index, *(0 for _ in reduced_ranges)))
        total = write[position] if dispatch.uniforms["carry"] else 0
        for reduced_index in itertools.product(*reduced_ranges):
            total += read[element_position(source, (*index, *reduced_index))]
        write[position] = total


@given(shape=SHAPES, data=st.data())
def test_passes_reach_every_element_once(shape: Any, data: Any) -> None:
    axes = draw_axes(data, len(shape))
    x = np.random.default_rng(4).integers(0, 99, shape)
    want = x.sum(axis=axes)
    got = run_plan(plan_reduction("sum", DType.I32, shape, axes), x, want.size)
    np.testing.assert_array_equal(got, want.reshape(-1))


@settings(max_examples=20)
@given(
    n=st.integers(250, 3000),
    outer=st.integers(1, 3),
    inner=st.integers(1, 2),
)
def test_parallel_passes_and_remainders_reach_every_element_once(
    n: int, outer: int, inner: int
) -> None:
    x = np.random.default_rng(5).integers(0, 99, (outer, n, inner))
    plan = plan_reduction("sum", DType.I32, x.shape, (1,))
    assert len(plan.dispatches) >= 1 + (n >= 256)
    np.testing.assert_array_equal(
        run_plan(plan, x, outer * inner), x.sum(1).reshape(-1)
    )


def test_adjacent_axes_are_merged() -> None:
    kept_axes, reduced_axes = group_axes((2, 3, 4, 1, 5), (1, 2))
    assert [k.size for k in kept_axes] == [2, 5]
    assert reduced_axes == (ReducedAxes(12, 5),)


def test_no_invocation_of_a_long_sum_takes_more_than_a_few_hundred_elements() -> None:
    plan = plan_reduction("sum", DType.F32, (1 << 24,), (0,))
    for dispatch in plan.dispatches:
        assert math.prod(a.size for a in dispatch.axes if a.kind == "serial") <= 512


def test_many_outputs_need_one_invocation_each() -> None:
    assert invocations_per_output(1 << 17, [ReducedAxes(1000, 1)]) == 1
    assert invocations_per_output(1, [ReducedAxes(1 << 20, 1)]) == 1 << 13
