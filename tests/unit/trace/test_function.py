"""rlxweb.function: signatures, structures, captured state, threads."""

from __future__ import annotations

import inspect
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from tests.run_in_threads import run_concurrently

X = np.random.default_rng(3).normal(size=(6, 4)).astype("f4")
Point = namedtuple("Point", "left right")


@dataclass(frozen=True)
class Layer:
    """Weights of a layer; its kind is static."""

    weight: Any
    bias: Any
    kind: str = "relu"


def trace_on_cpu(function: Any, **options: Any) -> Any:
    return rlx.function(function, device="cpu", **options)


def test_a_decorated_function_keeps_its_metadata() -> None:
    """A decorated function keeps its name, docstring, signature and the plain
    function.
    """

    @rlx.function(device="cpu")
    def scaled(x: Any, by: float = 2.0) -> Any:
        """By a number."""
        return x * by

    assert (scaled.__name__, scaled.__doc__) == ("scaled", "By a number.")
    assert list(inspect.signature(scaled).parameters) == ["x", "by"]
    np.testing.assert_array_equal(scaled(X, by=3.0), scaled.__wrapped__(X, 3.0))
    np.testing.assert_array_equal(scaled(X), X * 2)
    assert "scaled(x" in repr(scaled)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        scaled()  # type: ignore[call-arg]


def test_signatures_are_cached_and_counted() -> None:
    """Dtypes, shapes and static numbers make different signatures; the oldest is
    evicted first.
    """
    f = trace_on_cpu(lambda x, by=1: x * by, maxsize=3)
    for x, by in ((X, 1), (X, 1), (X, 1.0), (X[:2], 1), (X.astype(float), 1)):
        assert f(x, by).dtype == (x * by).dtype
    assert f.cache_info() == (1, 4, 3, 3)
    f(X, 1)
    assert f.cache_info().misses == 5
    assert f(X, -0.0).tobytes() == (X * -0.0).tobytes()
    assert f(X, 0.0).tobytes() == (X * 0.0).tobytes()
    f.cache_clear()
    assert f.cache_info() == (0, 0, 3, 0)


def test_arguments_and_results_may_be_nested_structures() -> None:
    """Tuples, lists, dicts, named tuples and dataclasses are traversed; other values
    come back unchanged.
    """

    def apply_layer(tree: Any, layer: Layer) -> Any:
        h = tree["x"][0] @ layer.weight + layer.bias
        point = Point(h, [np.maximum(h, 0)])
        new_layer = Layer(h.sum(), layer.bias, layer.kind)
        return {"both": point, "kept": new_layer, "n": len(h), "none": None}

    layer = Layer(np.ones((4, 2), "f4"), np.zeros(2, "f4"))
    tree = {"x": (X, 3), "names": ["a", "b"]}
    got, want = trace_on_cpu(apply_layer)(tree, layer), apply_layer(tree, layer)
    assert type(got["both"]) is Point
    np.testing.assert_allclose(got["both"].left, want["both"].left, 1e-6)
    np.testing.assert_allclose(got["both"].right[0], want["both"].right[0], 1e-6)
    np.testing.assert_allclose(got["kept"].weight, want["kept"].weight, 1e-5)
    assert (got["kept"].kind, got["n"], got["none"]) == ("relu", 6, None)
    assert isinstance(got["kept"].weight, np.float32)


def test_other_libraries_arrays_and_numpy_numbers_are_inputs() -> None:
    """An object with `__array__` is an input, and a NumPy number too, so that it may
    vary.
    """

    class ArrayProvider:
        def __array__(self, dtype: object = None, copy: object = None) -> Any:
            return X

    f = trace_on_cpu(lambda x, by: x * by)
    for by in (1.5, 2.5):
        np.testing.assert_array_equal(
            f(ArrayProvider(), np.float32(by)), X * np.float32(by)
        )
    assert f.cache_info().currsize == 1
    big = X.astype(">f4")
    np.testing.assert_array_equal(f(big, np.float32(2)), X * 2)
    z = X + 1j * X
    np.testing.assert_allclose(f(z, np.complex64(2j)), z * np.complex64(2j), 1e-6)
    on_device = rlx.put(X, "cpu")
    np.testing.assert_array_equal(f(on_device, np.float32(2)), X * 2)


def test_results_stay_on_the_device() -> None:
    """A result kept with keep=True is a DeviceArray, which the next call takes."""
    f = trace_on_cpu(lambda x: x + 1, keep=True)
    twice = f(f(X))
    assert isinstance(twice, rlx.DeviceArray)
    np.testing.assert_array_equal(twice.numpy(), X + 2)


def test_static_arguments_are_compared_by_content() -> None:
    """Within the function, an array in a static argument is the array itself."""
    f = trace_on_cpu(lambda x, axes: x.transpose(axes), static_argnames="axes")
    assert f(X, np.array([1, 0])).shape == (4, 6)
    assert f(X, np.array([0, 1])).shape == (6, 4)
    assert f(X, [1, 0]).shape == (4, 6)
    assert f.cache_info().misses == 3
    with pytest.raises(
        rlx.RlxError, match="static_argnames contains the unknown argument 'axis'"
    ):
        trace_on_cpu(lambda x, axes: x, static_argnames=["axis"])


def test_changes_of_captured_state_are_seen() -> None:
    """Closures, attributes and arrays that change are seen at the next call."""
    weight, state = X.copy(), {"by": 1.0}

    class Model:
        def __init__(self) -> None:
            self.bias = np.ones(4, "f4")

        @rlx.function(device="cpu")
        def run(self, x: Any) -> Any:
            """Scaled."""
            return x * weight * state["by"] + self.bias

    model = Model()

    def check_current_result() -> None:
        want = X * weight * state["by"] + model.bias
        np.testing.assert_allclose(model.run(X), want, 1e-6)

    check_current_result()
    weight *= 3  # in its place: a param takes the new numbers
    check_current_result()
    assert Model.run.cache_info().misses == 1
    state["by"] = 2.0
    check_current_result()
    model.bias = np.zeros(4, "f4")
    check_current_result()
    model.bias[2] = 7
    check_current_result()
    assert Model.run.cache_info().misses == 3
    assert model.run.__doc__ == "Scaled."
    assert "w0" in model.run.explain(X)
    assert list(model.run.graph(X).named("param")) == ["w0", "w1"]


class SlottedSettings:
    """Settings that are read through the class and through an object with slots."""

    scale = 2.0
    __slots__ = ("shift",)

    def __init__(self) -> None:
        self.shift = 1.0

    def shift_samples(self, x: Any) -> Any:
        return x + self.shift * OFFSET[0]


OFFSET = [1.0]


def test_changes_of_settings_are_seen_wherever_they_are() -> None:
    """Changed settings are seen wherever a function finds them.

    That is in classes, slots, a method's globals, a partial or another traced
    function.
    """
    settings, exponents = SlottedSettings(), {"power": 2}
    inner = trace_on_cpu(lambda x: x * SlottedSettings.scale)

    def compute(x: Any, how: Any, given: Any) -> Any:
        return inner(how.shift_samples(x)) ** given["power"]

    bound = partial(compute, how=settings, given=exponents)
    f = trace_on_cpu(bound)

    def check_current_result() -> None:
        want = ((X + settings.shift * OFFSET[0]) * SlottedSettings.scale) ** exponents[
            "power"
        ]
        np.testing.assert_allclose(f(X), want, 1e-5)

    scale_before = SlottedSettings.scale
    try:
        check_current_result()
        SlottedSettings.scale = 3.0
        check_current_result()
        settings.shift = 5.0
        check_current_result()
        OFFSET[0] = 2.0
        check_current_result()
        exponents["power"] = 3
        check_current_result()
        misses = f.cache_info().misses
        check_current_result()
        assert f.cache_info().misses == misses
    finally:
        SlottedSettings.scale, OFFSET[0] = scale_before, 1.0


def test_changed_captured_constants_are_traced_again() -> None:
    """Indices and masks are built in, and their change is seen."""
    index = np.array([0, 2])
    f = trace_on_cpu(lambda x: (x[index], np.take(x, index, 1), x[:, index]))
    for value in (2, 1):
        index[0] = value
        for mine, theirs in zip(f(X), f.__wrapped__(X), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_function_with_side_effects_is_traced_at_each_call() -> None:
    """A function is traced again when the state it reads has changed."""
    lengths: list[int] = []

    def scale_by_count(x: Any) -> Any:
        lengths.append(len(x))
        return x * len(lengths)

    f = trace_on_cpu(scale_by_count)
    for count in (1, 2, 3):
        np.testing.assert_array_equal(f(X), X * count)


def test_in_place_changes_of_local_arrays() -> None:
    """`+=` works on a local result of the function; arguments and views are refused."""

    def centred(x: Any) -> Any:
        y = x * 2
        z = y
        y -= y.mean(axis=0)
        return y, z

    for mine, theirs in zip(trace_on_cpu(centred)(X), centred(X), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)

    def argument(x: Any) -> Any:
        x += 1
        return x

    def view(x: Any) -> Any:
        y = x * 2
        row = y[0]
        y += 1
        return row

    def part(x: Any) -> Any:
        y = x * 2
        y[0] = 1
        return y

    def narrower(x: Any) -> Any:
        y = x > 0
        y += x
        return y

    for function, message in (
        (argument, "x = x"),
        (view, "x = x"),
        (part, "np.where"),
        (narrower, "cannot be stored as bool"),
    ):
        with pytest.raises(rlx.RlxError, match=message) as caught:
            trace_on_cpu(function)(X)
        assert f"in {function.__name__}" in str(caught.value)


def test_traced_functions_call_each_other() -> None:
    """A traced function within another is part of its graph."""
    inner = trace_on_cpu(lambda x: np.exp(x))
    outer = trace_on_cpu(lambda x: inner(x).sum() + inner(x * 2).sum())
    want = np.exp(X).sum() + np.exp(X * 2).sum()
    np.testing.assert_allclose(outer(X), want, 1e-5)
    assert inner.cache_info().misses == 0


def test_an_array_that_outlives_its_call_is_refused() -> None:
    """A traced array that outlives its call has no value."""
    leaked: list[Any] = []

    def leak_argument(x: Any) -> Any:
        leaked.append(x)
        return x + (leaked[0] if len(leaked) > 1 else 0)

    f = trace_on_cpu(leak_argument)
    f(X)
    with pytest.raises(rlx.RlxError, match="has ended"):
        f(X[:3])
    with pytest.raises(rlx.RlxError, match="has ended"):
        leaked[0] + 1


def test_results_without_arrays_and_unchanged_arguments() -> None:
    """A function may return its arguments, nothing, numbers, and arrays of its own."""
    f = trace_on_cpu(lambda x, n: (x, n, None, np.arange(n), x.shape, "text"))
    got = f(X, 3)
    np.testing.assert_array_equal(got[0], X)
    np.testing.assert_array_equal(got[3], np.arange(3))
    assert (got[1], got[2], got[4], got[5]) == (3, None, (6, 4), "text")
    length = trace_on_cpu(lambda x: len(x))
    assert length(X) == 6
    assert "no result depends" in length.explain(X)
    with pytest.raises(rlx.RlxError, match="no result depends"):
        length.graph(X)


def test_unhashable_static_arguments_are_refused() -> None:
    """Mutable arguments that are no arrays are refused by name."""
    f = trace_on_cpu(lambda x, options: x)
    with pytest.raises(rlx.RlxError, match=r"options\['a'\]: \{1, 2\} is a set"):
        f(X, {"a": {1, 2}})
    deep: Any = X
    for _ in range(60):
        deep = [deep]
    with pytest.raises(rlx.RlxError, match="levels deep"):
        f(deep, 1)
    with pytest.raises(rlx.RlxError, match="precision"):
        rlx.function(lambda x: x, precision="f64")
    with pytest.raises(rlx.RlxError, match="maxsize"):
        rlx.function(lambda x: x, maxsize=0)
    with pytest.raises(rlx.RlxError, match="expected a function that accepts arrays"):
        rlx.function(3)  # type: ignore[call-overload]


def test_float32_precision_demotes_float64() -> None:
    """Precision "f32" demotes arguments, constants and results to float32."""
    window = np.hanning(4)
    f = trace_on_cpu(lambda x: (x * window).mean(1), precision="f32")
    assert f(X.astype(float)).dtype == np.float32
    assert {n.type.dtype.label for n in f.graph(X.astype(float)).nodes()} == {"f32"}
    np.testing.assert_allclose(f(X.astype(float)), (X * window).mean(1), 1e-5)


def test_threads_share_a_function() -> None:
    """Sixteen at once get their own results, and each signature is traced once."""
    f = trace_on_cpu(lambda x: x * 2 + len(x))
    wrong: list[int] = []

    def work(n: int) -> None:
        x = np.full((n % 3 + 1, 4), n, "f4")
        for _ in range(5):
            if not (f(x) == x * 2 + len(x)).all():
                wrong.append(n)

    run_concurrently([partial(work, n) for n in range(16)])
    assert not wrong
    assert f.cache_info().misses == 3


def test_a_call_can_be_awaited() -> None:
    """The call `run_async` gives what the plain call gives."""
    import asyncio

    f = trace_on_cpu(lambda x: x - x.mean())
    np.testing.assert_allclose(asyncio.run(f.run_async(X)), X - X.mean(), atol=1e-6)


SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)
DTYPES = st.sampled_from(["f2", "f4", "f8", "i4", "i8", "u4", "?", "c8"])


@settings(max_examples=40)
@given(SHAPES, SHAPES, DTYPES, DTYPES, st.integers(0, 99))
def test_operators_promote_and_broadcast_as_numpys(
    first_shape: Any, second_shape: Any, first_dtype: str, second_dtype: str, seed: int
) -> None:
    """Any two dtypes and shapes give NumPy's dtype and numbers, or its refusal."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 5, first_shape).astype(first_dtype)
    y = rng.integers(1, 5, second_shape).astype(second_dtype)

    def apply_operators(x: Any, y: Any) -> Any:
        return x + y, x * y, x * 2, y + 0.5, x == y, np.where(x, y, 1), x / y

    try:
        want = apply_operators(x, y)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            trace_on_cpu(apply_operators)(x, y)
        return
    for mine, theirs in zip(trace_on_cpu(apply_operators)(x, y), want, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, 2e-3 if mine.dtype == "f2" else 1e-6)
