"""Constant, Shape, Size, Range and their like: values that are known without inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.draft import checked_size, ours
from rlxweb.onnx.elementwise import cast_to
from rlxweb.onnx.records import Weight

_GIVEN = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


@converts("Constant")
def _constant(call: Call, **attrs: Any) -> Value:
    if len(attrs) != 1:
        call.contradict(f"{len(attrs)} attributes", "a constant has one value")
    ((name, value),) = attrs.items()
    if name in ("value", "sparse_value"):
        return call.hold(value.array)
    if name not in _GIVEN:
        call.refuse(f"attribute {name}", "known: value, " + ", ".join(_GIVEN))
    return call.hold(np.array(value, _GIVEN[name]))


@converts("Identity")
def _identity(call: Call, x: Value) -> Value:
    return x


@converts("Shape")
def _shape(call: Call, x: Value, *, start: int = 0, end: int | None = None) -> Tensor:
    return call.g.hold(np.array(x.shape[slice(start, end)], np.int64))


@converts("Size")
def _size(call: Call, x: Value) -> Tensor:
    return call.g.hold(np.array(np.prod(x.shape, dtype=np.int64)))


@converts("ConstantOfShape")
def _constant_of_shape(
    call: Call, shape: Tensor, *, value: Weight | None = None
) -> Value:
    dims = call.ints(shape, "the shape")
    one = np.zeros(1, np.float32) if value is None else value.array
    if one.size != 1:
        call.contradict(f"its value has {one.size} elements", "one is wanted")
    first = call.hold(one.reshape(()))
    if not isinstance(first, Tensor):
        return np.full(dims, one.reshape(()), one.dtype)
    return call.g.expand(first, dims)


@converts("Range")
def _range(
    call: Call, start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1
) -> Tensor:
    """In float64 whatever `stash_type` says, which is no less exact."""
    first = call.known(start, "the start")
    bounds = (start, limit, delta)
    begin, end, step = (call.number(v, "a bound of the range") for v in bounds)
    if step == 0:
        call.contradict("its step is 0", "it would never end")
    count = max(int(np.ceil((end - begin) / step)), 0)
    checked_size((count,), start.dtype, f"a range of {count:,} numbers")
    steps = np.arange(count, dtype=np.float64 if first.dtype.kind in "fV" else np.int64)
    return call.g.hold((begin + steps * step).astype(first.dtype))


@converts("Dropout", until=11)
def _old_dropout(
    call: Call,
    x: Tensor,
    *,
    ratio: float = 0.5,
    is_test: int = 1,
    consumed_inputs: tuple[int, ...] = (),
) -> tuple[Tensor, ...]:
    """Nothing is dropped where nobody trains."""
    kept = np.broadcast_to(np.ones((), np.bool_), x.shape)
    if not call.wants(1):
        return (x,)
    return x, call.g.hold(
        kept if call.version >= 10 else kept.astype(library.numpy_of(x.dtype))
    )


@converts("Dropout", since=12)
def _dropout(
    call: Call,
    x: Tensor,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,
) -> tuple[Tensor, ...]:
    trains = training is not None and call.number(training, "whether it trains")
    share = 0.5 if ratio is None else call.number(ratio, "the ratio")
    if trains and share:
        call.refuse("it drops at random, as in training", "training_mode is False")
    if not call.wants(1):
        return (x,)
    return x, call.g.hold(np.broadcast_to(np.ones((), np.bool_), x.shape))


@converts("BitCast")
def _bit_cast(call: Call, x: Value, *, to: int) -> Value:
    """On the device where both types are there, else of known values alone."""
    dtype = library.dtype_of(to)
    if isinstance(x, Tensor) and (kind := ours(dtype)) is not None:
        if call.g.known(x) is None and kind.nbytes == x.dtype.nbytes in (4, 8):
            return call.g.apply("bitcast", x, to=kind)
    known = call.known(x, "what is read as another type")
    if dtype.itemsize != known.dtype.itemsize:
        call.contradict(f"{known.dtype} read as {dtype}", "both have the same size")
    return call.hold(known.view(dtype))


@converts("Trilu")
def _trilu(call: Call, x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    off = 0 if k is None else k
    return call.g.triu(x, off) if upper else call.g.tril(x, off)


@converts("EyeLike")
def _eye_like(call: Call, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    if len(x.shape) != 2:
        call.contradict(f"an operand of shape {x.shape}", "a matrix has two axes")
    kind = x.dtype if dtype is None else library.dtype_of(dtype)
    return cast_to(
        call, call.g.eye(x.shape[0], x.shape[1], k), getattr(kind, "numpy", kind)
    )


@converts("OneHot")
def _one_hot(
    call: Call, indices: Tensor, depth: Tensor, values: Value, *, axis: int = -1
) -> Value:
    """The values are off and on; a depth or an index that is a float is whole."""
    if indices.dtype.is_float:
        indices = indices.cast("i32")
    size = int(call.number(depth, "the depth"))
    if tuple(values.shape) != (2,):
        call.contradict(f"values of shape {values.shape}", "two: off and on")
    if isinstance(values, Tensor):
        return call.g.one_hot(indices, size, values[1], values[0], axis)
    hot = call.g.one_hot(indices, size, True, False, axis, "bool")
    return call.hold(np.where(call.known(hot, "what is hot"), values[1], values[0]))


@converts("Binarizer", domain="ai.onnx.ml")
def _binarizer(call: Call, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)


@converts("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _features(call: Call, x: Tensor, places: Tensor) -> Tensor:
    return call.g.gather(x, places.reshape((-1,)), -1)
