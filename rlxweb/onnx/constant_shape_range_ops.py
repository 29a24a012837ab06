"""Converters of Constant, Shape, Size, Range, OneHot, Dropout and other ops that are
mostly resolved during conversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import check_constant_size, rlx_dtype_or_none
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.elementwise import cast_value
from rlxweb.onnx.model_records import Weight

_VALUE_ATTR_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


@converts("Constant")
def _constant(ctx: ConversionContext, **attrs: Any) -> Value:
    if len(attrs) != 1:
        ctx.raise_invalid_model(f"got {len(attrs)} attributes", "expected exactly one")
    ((name, value),) = attrs.items()
    if name in ("value", "sparse_value"):
        return ctx.constant_value(value.array)
    if name not in _VALUE_ATTR_DTYPES:
        ctx.raise_unsupported(
            f"attribute {name} is not supported",
            "supported: value, sparse_value, " + ", ".join(_VALUE_ATTR_DTYPES),
        )
    return ctx.constant_value(np.array(value, _VALUE_ATTR_DTYPES[name]))


@converts("Identity")
def _identity(ctx: ConversionContext, x: Value) -> Value:
    return x


@converts("Shape")
def _shape(
    ctx: ConversionContext, x: Value, *, start: int = 0, end: int | None = None
) -> Tensor:
    return ctx.graph.add_constant(np.array(x.shape[slice(start, end)], np.int64))


@converts("Size")
def _size(ctx: ConversionContext, x: Value) -> Tensor:
    return ctx.graph.add_constant(np.array(np.prod(x.shape, dtype=np.int64)))


@converts("ConstantOfShape")
def _constant_of_shape(
    ctx: ConversionContext, shape: Tensor, *, value: Weight | None = None
) -> Value:
    dims = ctx.require_ints(shape, "the shape")
    fill_array = np.zeros(1, np.float32) if value is None else value.array
    if fill_array.size != 1:
        ctx.raise_invalid_model(
            f"attribute 'value' has {fill_array.size} elements", "expected 1"
        )
    fill_value = ctx.constant_value(fill_array.reshape(()))
    if not isinstance(fill_value, Tensor):
        return np.full(dims, fill_array.reshape(()), fill_array.dtype)
    return ctx.graph.expand(fill_value, dims)


@converts("Range")
def _range(
    ctx: ConversionContext,
    start: Tensor,
    limit: Tensor,
    delta: Tensor,
    *,
    stash_type: int = 1,
) -> Tensor:
    """Compute a range in float64 whatever `stash_type` says; that is no less exact."""
    start_array = ctx.require_array(start, "the start")
    bounds = {"the start": start, "the limit": limit, "the delta": delta}
    begin, end, step = (ctx.require_number(v, name) for name, v in bounds.items())
    if step == 0:
        ctx.raise_invalid_model("delta is 0", "must not be 0")
    count = max(int(np.ceil((end - begin) / step)), 0)
    check_constant_size((count,), start.dtype, f"a range of {count:,} numbers")
    indices = np.arange(
        count, dtype=np.float64 if start_array.dtype.kind in "fV" else np.int64
    )
    return ctx.graph.add_constant((begin + indices * step).astype(start_array.dtype))


@converts("Dropout", until=11)
def _old_dropout(
    ctx: ConversionContext,
    x: Tensor,
    *,
    ratio: float = 0.5,
    is_test: int = 1,
    consumed_inputs: tuple[int, ...] = (),
) -> tuple[Tensor, ...]:
    """Return the input unchanged: nothing is dropped during inference."""
    mask = np.broadcast_to(np.ones((), np.bool_), x.shape)
    if not ctx.needs_output(1):
        return (x,)
    return x, ctx.graph.add_constant(
        mask
        if ctx.version >= 10
        else mask.astype(onnx_library_access.numpy_dtype(x.dtype))
    )


@converts("Dropout", since=12)
def _dropout(
    ctx: ConversionContext,
    x: Tensor,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,
) -> tuple[Tensor, ...]:
    is_training = training is not None and ctx.require_number(training, "training_mode")
    drop_ratio = 0.5 if ratio is None else ctx.require_number(ratio, "the ratio")
    if is_training and drop_ratio:
        ctx.raise_unsupported("training_mode is True", "only inference is supported")
    if not ctx.needs_output(1):
        return (x,)
    return x, ctx.graph.add_constant(np.broadcast_to(np.ones((), np.bool_), x.shape))


@converts("BitCast")
def _bit_cast(ctx: ConversionContext, x: Value, *, to: int) -> Value:
    """Reinterpret the bits as another type: on the device where it supports both types,
    else only for a known value.
    """
    dtype = onnx_library_access.dtype_from_onnx(to)
    if isinstance(x, Tensor) and (target_dtype := rlx_dtype_or_none(dtype)) is not None:
        if ctx.graph.known_array(
            x
        ) is None and target_dtype.nbytes == x.dtype.nbytes in (4, 8):
            return ctx.graph.apply("bitcast", x, to=target_dtype)
    array = ctx.require_array(x, "the input")
    if dtype.itemsize != array.dtype.itemsize:
        ctx.raise_invalid_model(
            f"cannot bit-cast {array.dtype} to {dtype}",
            "both dtypes must have the same number of bytes",
        )
    return ctx.constant_value(array.view(dtype))


@converts("Trilu")
def _trilu(
    ctx: ConversionContext, x: Tensor, k: Tensor | None = None, *, upper: int = 1
) -> Tensor:
    diagonal = 0 if k is None else k
    return ctx.graph.triu(x, diagonal) if upper else ctx.graph.tril(x, diagonal)


@converts("EyeLike")
def _eye_like(
    ctx: ConversionContext, x: Value, *, dtype: int | None = None, k: int = 0
) -> Value:
    if len(x.shape) != 2:
        ctx.raise_invalid_model(
            f"the input has shape {x.shape}", "must be a matrix (rank 2)"
        )
    element_type = (
        x.dtype if dtype is None else onnx_library_access.dtype_from_onnx(dtype)
    )
    return cast_value(
        ctx,
        ctx.graph.eye(x.shape[0], x.shape[1], k),
        getattr(element_type, "numpy", element_type),
    )


@converts("OneHot")
def _one_hot(
    ctx: ConversionContext,
    indices: Tensor,
    depth: Tensor,
    values: Value,
    *,
    axis: int = -1,
) -> Value:
    """One-hot encode indices; `values` holds off and on, and a floating-point depth or
    index is truncated.
    """
    if indices.dtype.is_float:
        indices = indices.cast("i32")
    size = int(ctx.require_number(depth, "the depth"))
    if tuple(values.shape) != (2,):
        ctx.raise_invalid_model(
            f"input 'values' has shape {values.shape}",
            "must have shape (2,): the off value and the on value",
        )
    if isinstance(values, Tensor):
        return ctx.graph.one_hot(indices, size, values[1], values[0], axis)
    is_hot = ctx.graph.one_hot(indices, size, True, False, axis, "bool")
    return ctx.constant_value(
        np.where(ctx.require_array(is_hot, "the one-hot mask"), values[1], values[0])
    )


@converts("Binarizer", domain="ai.onnx.ml")
def _binarizer(ctx: ConversionContext, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)


@converts("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _array_feature_extractor(
    ctx: ConversionContext, x: Tensor, indices: Tensor
) -> Tensor:
    return ctx.graph.gather(x, indices.reshape((-1,)), -1)
