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

from rlxweb.errors import DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Call, Recipe, Ref
from rlxweb.recipes.reduce_calls import Reduced, grouped, lanes_for, reduction
from tests.unit.ops.alone import added, run

REDUCTIONS = ("sum", "mean", "max", "min", "prod")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4)


def drawn_axes(data: Any, rank: int) -> tuple[int, ...]:
    return tuple(data.draw(st.sets(st.integers(0, rank - 1)))) if rank else ()


@given(shape=SHAPES, keep=st.booleans(), data=st.data())
@pytest.mark.parametrize("name", REDUCTIONS)
def test_any_axes_reduce_as_in_numpy(
    name: str, shape: Any, keep: bool, data: Any
) -> None:
    axes = drawn_axes(data, len(shape))
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


def test_nothing_sums_to_zero_and_multiplies_to_one() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    assert run("sum", x, axes=1).tolist() == [[0, 0, 0]] * 2
    assert run("prod", x, axes=1).tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("name", ["max", "min", "mean"])
def test_nothing_has_no_extreme_and_no_mean(name: str) -> None:
    with pytest.raises(ShapeError) as raised:
        added(name, (2, 0), axes=1)
    assert str(raised.value) == (
        f"{name} of [2, 0] f32: nothing to reduce: axes (1,) of [2, 0]; the reduced "
        "axes hold 0 elements; at least 1 is needed; leave the empty case out, or use "
        "sum or prod"
    )


@pytest.mark.parametrize(
    ("axes", "said"),
    [((2,), "axis 2 is outside rank 2"), ((0, -2), "name the same axis twice")],
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_bad_axes_are_refused(name: str, axes: tuple[int, ...], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        added(name, (2, 3), axes=axes)


def test_bools_and_integer_means_are_refused() -> None:
    with pytest.raises(DTypeError, match="operand 0 is bool"):
        added("sum", ((2,), "bool"), axes=0)
    with pytest.raises(DTypeError, match="takes floats only"):
        added("mean", ((2,), "i32"), axes=0)


def places(access: Access, index: tuple[int, ...]) -> int:
    return access.offset + sum(
        i * s for i, s in zip(index, access.strides, strict=True)
    )


def summed_by(recipe: Recipe, x: Any, count: int) -> Any:
    """The recipe's calls done in Python, with memory that starts as garbage."""
    buffers = {("in", 0): x.reshape(-1), ("out", 0): np.full(count, -1 << 40)}
    for n, one in enumerate(recipe.scratch):
        buffers["scratch", n] = np.full(one.numel, -1 << 40)
    for call in recipe.calls:
        add_up(call, buffers)
    return buffers["out", 0]


def key(ref: Ref) -> tuple[str, int]:
    return ref.kind, ref.index


def add_up(call: Call, buffers: dict[Any, Any]) -> None:
    source, target = call.accesses
    read, write = buffers[key(source.ref)], buffers[key(target.ref)]
    kept = [range(a.size) for a in call.axes if a.kind == "parallel"]
    gone = [range(a.size) for a in call.axes if a.kind == "serial"]
    for index in itertools.product(*kept):
        at = places(target, (*index, *(0 for _ in gone)))
        total = write[at] if call.values["carry"] else 0
        for inner in itertools.product(*gone):
            total += read[places(source, (*index, *inner))]
        write[at] = total


@given(shape=SHAPES, data=st.data())
def test_passes_reach_every_element_once(shape: Any, data: Any) -> None:
    axes = drawn_axes(data, len(shape))
    x = np.random.default_rng(4).integers(0, 99, shape)
    want = x.sum(axis=axes)
    got = summed_by(reduction("sum", DType.I32, shape, axes), x, want.size)
    np.testing.assert_array_equal(got, want.reshape(-1))


@settings(max_examples=20)
@given(
    n=st.integers(250, 3000),
    outer=st.integers(1, 3),
    inner=st.integers(1, 2),
)
def test_lanes_and_leftovers_reach_every_element_once(
    n: int, outer: int, inner: int
) -> None:
    x = np.random.default_rng(5).integers(0, 99, (outer, n, inner))
    recipe = reduction("sum", DType.I32, x.shape, (1,))
    assert len(recipe.calls) >= 1 + (n >= 256)
    np.testing.assert_array_equal(
        summed_by(recipe, x, outer * inner), x.sum(1).reshape(-1)
    )


def test_neighbouring_axes_are_walked_as_one() -> None:
    kept, reduced = grouped((2, 3, 4, 1, 5), (1, 2))
    assert [k.size for k in kept] == [2, 5]
    assert reduced == (Reduced(12, 5),)


def test_no_invocation_of_a_long_sum_takes_more_than_a_few_hundred_elements() -> None:
    recipe = reduction("sum", DType.F32, (1 << 24,), (0,))
    for call in recipe.calls:
        assert math.prod(a.size for a in call.axes if a.kind == "serial") <= 512


def test_many_outputs_need_no_lanes() -> None:
    assert lanes_for(1 << 17, [Reduced(1000, 1)]) == 1
    assert lanes_for(1, [Reduced(1 << 20, 1)]) == 1 << 13
