"""Operators of ai.onnx.ml for scikit-learn's scalers, encoders and linear models.

Results are float32 whatever the type of the rows, as in ONNX; texts and dictionaries
are refused. The scores and labels of trees and support vector machines come from here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.records import Weight

DOMAIN = "ai.onnx.ml"
Array = npt.NDArray[Any]
Floats = tuple[float, ...]
Ints = tuple[int, ...]
POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transformed(call: Call, scores: Tensor, how: str) -> Tensor:
    """Apply `post_transform` to scores [N, C]."""
    g = call.g
    if how not in POST:
        call.contradict(f"post_transform is {how!r}", "one of " + ", ".join(POST))
    if how == "PROBIT":
        call.refuse("post_transform is PROBIT", "known: " + ", ".join(POST[:-1]))
    if how == "NONE":
        return scores
    if how != "SOFTMAX_ZERO":
        return g.sigmoid(scores) if how == "LOGISTIC" else g.softmax(scores)
    most = g.max(scores, 1, keep_dim=True)
    some = g.gt(abs(scores), 1e-7)  # what ONNX Runtime takes for zero
    powers = g.where(some, g.exp(scores - most), 0.0)
    total = g.sum(powers, 1, keep_dim=True)
    return g.where(some, powers, scores * g.exp(-most)) / total


def of_two(call: Call, score: Tensor, how: str, around_half: bool) -> Tensor:
    """Return the scores [N, 2] of two classes from that of the second, [N, 1].

    around_half  the score lies about 1/2, otherwise about 0
    """
    g = call.g
    if how == "LOGISTIC":
        return g.sigmoid(g.concat([-score, score], 1))
    transformed(call, score, how)  # refuses unknown words
    return g.concat([1.0 - score if around_half else -score, score], 1)


def labelled(
    call: Call, which: Tensor, numbers: Ints, texts: tuple[str, ...]
) -> Tensor:
    """Return the labels (i64) of classes by their places (i32)."""
    if texts:
        call.refuse(
            "the labels of its classes are texts",
            "rlxweb has numbers",
            "convert the model with labels that are numbers",
        )
    return call.g.gather(call.hold(np.array(numbers, np.int64)), which)


def as_real(call: Call, x: Tensor) -> Tensor:
    """Return rows [N, F] of floating-point numbers; a vector is one row."""
    x = call.g.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    if x.rank != 2:
        call.contradict(f"x has rank {x.rank}", "rows of features: [N, F]")
    return x if x.dtype.is_float else call.g.cast(x, DType.F32)


def linear(call: Call, x: Tensor, coefficients: Floats, intercepts: Floats) -> Tensor:
    """Multiply rows [N, F] by coefficients [C, F], and add intercepts: [N, C]."""
    features = int(x.shape[1])
    if not features or len(coefficients) % features:
        call.contradict(f"{len(coefficients)} coefficients", f"x is {x.shape}")
    weights = np.array(coefficients, np.float32).reshape(-1, features)
    if len(intercepts) not in (0, len(weights)):
        call.contradict(f"{len(intercepts)} intercepts", f"{len(weights)} scores")
    product: Tensor = x @ call.hold(np.ascontiguousarray(weights.T))
    return product + np.array(intercepts, np.float32) if intercepts else product


# --- features ------------------------------------------------------------------------


@converts("Scaler", domain=DOMAIN)
def _scaler(
    call: Call, x: Tensor, *, offset: Floats = (), scale: Floats = ()
) -> Tensor:
    """Scale by one number or one for each feature."""
    for word, values in (("offset", offset), ("scale", scale)):
        if len(values) not in (0, 1, x.shape[-1]):
            call.contradict(f"{word} has {len(values)} numbers", f"x is {x.shape}")
    y = call.g.cast(x, DType.F32)
    y = y - np.array(offset, np.float32) if offset else y
    return y * np.array(scale, np.float32) if scale else y


@converts("Normalizer", domain=DOMAIN)
def _normalizer(call: Call, x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Divide rows by a norm; those whose norm is 0 stay."""
    g, x = call.g, call.g.cast(x, DType.F32)
    if norm == "MAX":
        by = g.max(x, -1, keep_dim=True)  # with its sign, as ONNX defines it
    elif norm in ("L1", "L2"):
        by = g.norm(x, float(norm[1]), -1, keep_dim=True)
    else:
        call.contradict(f"norm is {norm!r}", "MAX, L1 or L2")
    return x / g.where(g.eq(by, 0.0), 1.0, by)


@converts("Imputer", domain=DOMAIN)
def _imputer(
    call: Call,
    x: Tensor,
    *,
    imputed_value_floats: Floats = (),
    imputed_value_int64s: Ints = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    """Fill in for the value that marks missing ones, often NaN."""
    g, is_float = call.g, x.dtype.is_float
    values = imputed_value_floats if is_float else imputed_value_int64s
    mark = replaced_value_float if is_float else replaced_value_int64
    if len(values) not in (1, x.shape[-1]):
        call.contradict(f"{len(values)} values for x {x.shape}", "one for each feature")
    missing = g.isnan(x) if np.isnan(mark) else g.eq(x, mark)
    return g.where(missing, call.hold(np.array(values, x.dtype.numpy)), x)


@converts("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(call: Call, *xs: Tensor, inputdimensions: Ints = ()) -> Tensor:
    """Concatenate features, each cut or padded with 0 to its number of columns."""
    g, count = call.g, len(inputdimensions)
    rows = [g.cast(as_real(call, x), DType.F32) for x in xs]
    if count not in (0, len(rows)):
        call.contradict(f"inputdimensions has {count}", f"{len(rows)} inputs")
    for at, columns in enumerate(inputdimensions):
        more = max(0, columns - int(rows[at].shape[1]))
        rows[at] = g.narrow(g.pad(rows[at], ((0, 0), (0, more))), 1, 0, columns)
    return g.concat(rows, 1)


@converts("OneHotEncoder", domain=DOMAIN)
def _one_hot(
    call: Call,
    x: Tensor,
    *,
    cats_int64s: Ints = (),
    cats_strings: tuple[str, ...] = (),
    zeros: int = 1,
) -> Tensor:
    if cats_strings:
        call.refuse("its categories are texts", "rlxweb has numbers")
    if not zeros:
        call.refuse("zeros is 0", "what is no category gives zeros here, no error")
    g = call.g
    whole = x if x.dtype.is_integer else g.cast(x, DType.I64)
    hot = g.eq(g.unsqueeze(whole, -1), np.array(cats_int64s, whole.dtype.numpy))
    return g.cast(hot, DType.F32)


@converts("LabelEncoder", since=2, domain=DOMAIN)
def _label_encoder(
    call: Call,
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
    """Return the value of each key, and the default for what is no key."""
    if keys_strings or values_strings:
        call.refuse("it maps texts", "rlxweb has numbers")
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
        call.contradict(f"{len(keys)} keys and {len(values)} values", "as many of both")
    g, keys = call.g, keys.astype(x.dtype.numpy)
    one = g.unsqueeze(x, -1)
    same = g.eq(one, keys)
    if call.version >= 4 and x.dtype.is_float and np.isnan(keys).any():
        same = same | (g.isnan(one) & np.isnan(keys))
    hit = g.cast(same, DType.I32)
    found = g.gather(call.hold(values), g.argmax(hit, -1))
    return g.where(g.gt(g.max(hit, -1), 0), found, default)


@converts("ZipMap", domain=DOMAIN)
def _zip_map(
    call: Call,
    x: Tensor,
    *,
    classlabels_int64s: Ints = (),
    classlabels_strings: tuple[str, ...] = (),
) -> NoReturn:
    call.refuse(
        "it makes a dictionary of every row",
        "values of a graph are tensors and lists of them",
        "convert the model with zipmap=False: skl2onnx, options={'zipmap': False}",
    )


# --- models --------------------------------------------------------------------------


@converts("LinearRegressor", domain=DOMAIN)
def _linear_regressor(
    call: Call,
    x: Tensor,
    *,
    coefficients: Floats = (),
    intercepts: Floats = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    rows = call.g.cast(as_real(call, x), DType.F32)
    y = linear(call, rows, coefficients, intercepts)
    if y.shape[1] != targets:
        call.contradict(f"targets is {targets}", f"there are {y.shape[1]}")
    return transformed(call, y, post_transform)


@converts("LinearClassifier", domain=DOMAIN)
def _linear_classifier(
    call: Call,
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
    g, count = call.g, len(classlabels_ints or classlabels_strings)
    rows = g.cast(as_real(call, x), DType.F32)
    scores = linear(call, rows, coefficients, intercepts)
    if count == 2 and scores.shape[1] == 1:
        which = g.cast(g.gt(scores, 0.0), DType.I32).reshape((-1,))
        scores = of_two(call, scores, post_transform, around_half=True)
    elif scores.shape[1] != count:
        call.contradict(f"{count} classes", f"there are {scores.shape[1]} scores")
    else:
        which = g.argmax(scores, 1)
        scores = transformed(call, scores, post_transform)
    return labelled(call, which, classlabels_ints, classlabels_strings), scores
