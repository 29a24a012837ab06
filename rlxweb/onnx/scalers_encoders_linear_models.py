"""Converters of ai.onnx.ml operators for scikit-learn's scalers, encoders and linear
models.

Results are float32 whatever the type of the rows, as in ONNX; texts and dictionaries
are refused. The scores and labels of trees and support vector machines come from here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.onnx.model_records import Weight

ML_DOMAIN = "ai.onnx.ml"
Array = npt.NDArray[Any]
Floats = tuple[float, ...]
Ints = tuple[int, ...]
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def apply_post_transform(ctx: ConversionContext, scores: Tensor, method: str) -> Tensor:
    """Apply `post_transform` to scores [N, C]."""
    g = ctx.graph
    if method not in POST_TRANSFORMS:
        ctx.raise_invalid_model(
            f"post_transform is {method!r}",
            "must be one of " + ", ".join(POST_TRANSFORMS),
        )
    if method == "PROBIT":
        ctx.raise_unsupported(
            "post_transform is PROBIT", "supported: " + ", ".join(POST_TRANSFORMS[:-1])
        )
    if method == "NONE":
        return scores
    if method != "SOFTMAX_ZERO":
        return g.sigmoid(scores) if method == "LOGISTIC" else g.softmax(scores)
    row_max = g.max(scores, 1, keep_dim=True)
    is_nonzero = g.gt(abs(scores), 1e-7)  # what ONNX Runtime takes for zero
    exponentials = g.where(is_nonzero, g.exp(scores - row_max), 0.0)
    total = g.sum(exponentials, 1, keep_dim=True)
    return g.where(is_nonzero, exponentials, scores * g.exp(-row_max)) / total


def two_class_scores(
    ctx: ConversionContext, score: Tensor, method: str, around_half: bool
) -> Tensor:
    """Return the scores [N, 2] of two classes from the score [N, 1] of the second.

    around_half  the score lies about 1/2, otherwise about 0
    """
    g = ctx.graph
    if method == "LOGISTIC":
        return g.sigmoid(g.concat([-score, score], 1))
    apply_post_transform(ctx, score, method)  # refuses unknown words
    return g.concat([1.0 - score if around_half else -score, score], 1)


def class_labels(
    ctx: ConversionContext,
    class_indices: Tensor,
    int_labels: Ints,
    string_labels: tuple[str, ...],
) -> Tensor:
    """Return the labels (i64) of classes given by index (i32)."""
    if string_labels:
        ctx.raise_unsupported(
            "the class labels are strings",
            "only numbers are supported",
            "export the model again with numeric class labels",
        )
    return ctx.graph.gather(
        ctx.constant_value(np.array(int_labels, np.int64)), class_indices
    )


def as_float_rows(ctx: ConversionContext, x: Tensor) -> Tensor:
    """Return the rows [N, F] as floating-point numbers; a vector is one row."""
    x = ctx.graph.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    if x.rank != 2:
        ctx.raise_invalid_model(
            f"x has rank {x.rank}", "expected rows of features [N, F]"
        )
    return x if x.dtype.is_float else ctx.graph.cast(x, DType.F32)


def linear_scores(
    ctx: ConversionContext, x: Tensor, coefficients: Floats, intercepts: Floats
) -> Tensor:
    """Multiply rows [N, F] by coefficients [C, F], and add intercepts: [N, C]."""
    features = int(x.shape[1])
    if not features or len(coefficients) % features:
        ctx.raise_invalid_model(
            f"got {len(coefficients)} coefficients",
            f"the count must be a multiple of {features}, the number of features of x",
        )
    weights = np.array(coefficients, np.float32).reshape(-1, features)
    if len(intercepts) not in (0, len(weights)):
        ctx.raise_invalid_model(
            f"got {len(intercepts)} intercepts",
            f"expected 0 or {len(weights)} (one per score)",
        )
    product: Tensor = x @ ctx.constant_value(np.ascontiguousarray(weights.T))
    return product + np.array(intercepts, np.float32) if intercepts else product


# --- features ------------------------------------------------------------------------


@converts("Scaler", domain=ML_DOMAIN)
def _scaler(
    ctx: ConversionContext, x: Tensor, *, offset: Floats = (), scale: Floats = ()
) -> Tensor:
    """Shift and scale by one number, or by one for each feature."""
    for name, values in (("offset", offset), ("scale", scale)):
        if len(values) not in (0, 1, x.shape[-1]):
            ctx.raise_invalid_model(
                f"{name} has {len(values)} elements",
                f"expected 0, 1 or {x.shape[-1]} (one per feature of x)",
            )
    y = ctx.graph.cast(x, DType.F32)
    y = y - np.array(offset, np.float32) if offset else y
    return y * np.array(scale, np.float32) if scale else y


@converts("Normalizer", domain=ML_DOMAIN)
def _normalizer(ctx: ConversionContext, x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Divide each row by its norm; a row whose norm is 0 stays unchanged."""
    g, x = ctx.graph, ctx.graph.cast(x, DType.F32)
    if norm == "MAX":
        divisor = g.max(x, -1, keep_dim=True)  # with its sign, as ONNX defines it
    elif norm in ("L1", "L2"):
        divisor = g.norm(x, float(norm[1]), -1, keep_dim=True)
    else:
        ctx.raise_invalid_model(f"norm is {norm!r}", "must be MAX, L1 or L2")
    return x / g.where(g.eq(divisor, 0.0), 1.0, divisor)


@converts("Imputer", domain=ML_DOMAIN)
def _imputer(
    ctx: ConversionContext,
    x: Tensor,
    *,
    imputed_value_floats: Floats = (),
    imputed_value_int64s: Ints = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    """Replace missing values, which are marked by one value, often NaN."""
    g, is_float = ctx.graph, x.dtype.is_float
    values = imputed_value_floats if is_float else imputed_value_int64s
    missing_value = replaced_value_float if is_float else replaced_value_int64
    if len(values) not in (1, x.shape[-1]):
        ctx.raise_invalid_model(
            f"got {len(values)} imputed values",
            f"expected 1 or {x.shape[-1]} (one per feature of x)",
        )
    missing = g.isnan(x) if np.isnan(missing_value) else g.eq(x, missing_value)
    return g.where(missing, ctx.constant_value(np.array(values, x.dtype.numpy)), x)


@converts("FeatureVectorizer", domain=ML_DOMAIN)
def _feature_vectorizer(
    ctx: ConversionContext, *xs: Tensor, inputdimensions: Ints = ()
) -> Tensor:
    """Concatenate features, each truncated or zero-padded to its number of columns."""
    g, declared_count = ctx.graph, len(inputdimensions)
    rows = [g.cast(as_float_rows(ctx, x), DType.F32) for x in xs]
    if declared_count not in (0, len(rows)):
        ctx.raise_invalid_model(
            f"inputdimensions has {declared_count} elements",
            f"expected one for each of {len(rows)} inputs",
        )
    for index, columns in enumerate(inputdimensions):
        padding = max(0, columns - int(rows[index].shape[1]))
        rows[index] = g.narrow(
            g.pad(rows[index], ((0, 0), (0, padding))), 1, 0, columns
        )
    return g.concat(rows, 1)


@converts("OneHotEncoder", domain=ML_DOMAIN)
def _one_hot_encoder(
    ctx: ConversionContext,
    x: Tensor,
    *,
    cats_int64s: Ints = (),
    cats_strings: tuple[str, ...] = (),
    zeros: int = 1,
) -> Tensor:
    if cats_strings:
        ctx.raise_unsupported(
            "the categories are strings", "only numbers are supported"
        )
    if not zeros:
        ctx.raise_unsupported(
            "attribute 'zeros' is 0",
            "must be 1: an unknown category is encoded as zeros, not refused",
        )
    g = ctx.graph
    integers = x if x.dtype.is_integer else g.cast(x, DType.I64)
    is_hot = g.eq(
        g.unsqueeze(integers, -1), np.array(cats_int64s, integers.dtype.numpy)
    )
    return g.cast(is_hot, DType.F32)


@converts("LabelEncoder", since=2, domain=ML_DOMAIN)
def _label_encoder(
    ctx: ConversionContext,
    x: Tensor,
    *,
    keys_floats: Floats = (),
    keys_int64s: Ints = (),
    keys_tensor: Weight | None = None,
    values_floats: Floats = (),
    values_int64s: Ints = (),
    values_tensor: Weight | None = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_tensor: Weight | None = None,
    keys_strings: tuple[str, ...] = (),
    values_strings: tuple[str, ...] = (),
    default_string: str = "",
) -> Tensor:
    """Map keys to values; anything that is no key maps to the default."""
    if keys_strings or values_strings:
        ctx.raise_unsupported("the encoder maps strings", "only numbers are supported")
    keys: Array = np.array(keys_floats or keys_int64s)
    keys = keys if keys_tensor is None else keys_tensor.array
    if values_tensor is not None:
        values = values_tensor.array
        default = 0 if default_tensor is None else default_tensor.array.reshape(-1)[0]
    elif values_floats:
        values, default = np.array(values_floats, np.float32), default_float
    else:
        values, default = np.array(values_int64s, np.int64), default_int64
    if len(keys) != len(values) or not len(keys):
        ctx.raise_invalid_model(
            f"got {len(keys)} keys and {len(values)} values",
            "the counts must be equal and at least 1",
        )
    g, keys = ctx.graph, keys.astype(x.dtype.numpy)
    expanded = g.unsqueeze(x, -1)
    matches = g.eq(expanded, keys)
    if ctx.version >= 4 and x.dtype.is_float and np.isnan(keys).any():
        matches = matches | (g.isnan(expanded) & np.isnan(keys))
    match_flags = g.cast(matches, DType.I32)
    mapped = g.gather(ctx.constant_value(values), g.argmax(match_flags, -1))
    return g.where(g.gt(g.max(match_flags, -1), 0), mapped, default)


@converts("ZipMap", domain=ML_DOMAIN)
def _zip_map(
    ctx: ConversionContext,
    x: Tensor,
    *,
    classlabels_int64s: Ints = (),
    classlabels_strings: tuple[str, ...] = (),
) -> NoReturn:
    ctx.raise_unsupported(
        "ZipMap turns every row into a dictionary",
        "graph values must be tensors or lists of tensors",
        "export the model again with skl2onnx and options={'zipmap': False}",
    )


# --- models --------------------------------------------------------------------------


@converts("LinearRegressor", domain=ML_DOMAIN)
def _linear_regressor(
    ctx: ConversionContext,
    x: Tensor,
    *,
    coefficients: Floats = (),
    intercepts: Floats = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    rows = ctx.graph.cast(as_float_rows(ctx, x), DType.F32)
    y = linear_scores(ctx, rows, coefficients, intercepts)
    if y.shape[1] != targets:
        ctx.raise_invalid_model(
            f"attribute 'targets' is {targets}",
            f"the coefficients compute {y.shape[1]} targets",
        )
    return apply_post_transform(ctx, y, post_transform)


@converts("LinearClassifier", domain=ML_DOMAIN)
def _linear_classifier(
    ctx: ConversionContext,
    x: Tensor,
    *,
    coefficients: Floats,
    classlabels_ints: Ints = (),
    classlabels_strings: tuple[str, ...] = (),
    intercepts: Floats = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:
    """Classify by the largest score, or by the sign of one score of two classes."""
    g, class_count = ctx.graph, len(classlabels_ints or classlabels_strings)
    rows = g.cast(as_float_rows(ctx, x), DType.F32)
    scores = linear_scores(ctx, rows, coefficients, intercepts)
    if class_count == 2 and scores.shape[1] == 1:
        class_indices = g.cast(g.gt(scores, 0.0), DType.I32).reshape((-1,))
        scores = two_class_scores(ctx, scores, post_transform, around_half=True)
    elif scores.shape[1] != class_count:
        ctx.raise_invalid_model(
            f"got {class_count} class labels",
            f"expected one for each of {scores.shape[1]} scores",
        )
    else:
        class_indices = g.argmax(scores, 1)
        scores = apply_post_transform(ctx, scores, post_transform)
    return class_labels(
        ctx, class_indices, classlabels_ints, classlabels_strings
    ), scores
