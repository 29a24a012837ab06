"""Numeric ops of ai.onnx.ml around trees: scaling, filling, encoding, linear models.

What scikit-learn's pipelines are converted to. Results are float32 whatever the rows
are, as ONNX says; text and dictionaries are refused.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.records import Weight
from rlxweb.onnx.scores import (
    DOMAIN,
    Floats,
    Ints,
    as_real,
    labelled,
    linear,
    of_two,
    transformed,
)


@converts("Scaler", domain=DOMAIN)
def _scaler(
    call: Call, x: Tensor, *, offset: Floats = (), scale: Floats = ()
) -> Tensor:
    """(x - offset) * scale, by one number or one for each feature."""
    made = call.g.cast(x, DType.F32)
    for word, values in (("offset", offset), ("scale", scale)):
        if len(values) not in (0, 1, x.shape[-1]):
            call.contradict(f"{word} has {len(values)} numbers", f"x is {x.shape}")
    made = made - np.array(offset, np.float32) if offset else made
    return made * np.array(scale, np.float32) if scale else made


@converts("Normalizer", domain=DOMAIN)
def _normalizer(call: Call, x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows over their largest element, sum of absolute values or length; over 1 where
    that is 0.
    """
    g, x = call.g, call.g.cast(x, DType.F32)
    if norm not in ("MAX", "L1", "L2"):
        call.contradict(f"norm is {norm!r}", "MAX, L1 or L2")
    if norm == "MAX":
        whole = g.max(x, -1, keep_dim=True)
    elif norm == "L1":
        whole = g.sum(abs(x), -1, keep_dim=True)
    else:
        whole = g.norm(x, 2.0, -1, keep_dim=True)
    return x / g.where(g.eq(whole, 0.0), 1.0, whole)


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
    """Another value where there is one that stands for a missing one, NaN say."""
    is_float = x.dtype.is_float
    values = imputed_value_floats if is_float else imputed_value_int64s
    replaced = replaced_value_float if is_float else replaced_value_int64
    if len(values) not in (1, x.shape[-1]):
        call.contradict(f"{len(values)} values for x {x.shape}", "one for each feature")
    g, filled = call.g, call.hold(np.array(values, x.dtype.numpy))
    is_odd = isinstance(replaced, float) and np.isnan(replaced)
    bad = g.isnan(x) if is_odd else g.eq(x, replaced)
    return g.where(bad, filled, x)


@converts("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(call: Call, *xs: Tensor, inputdimensions: Ints = ()) -> Tensor:
    """Features side by side, each cut or filled with 0 to its number."""
    g, made = call.g, []
    if len(inputdimensions) not in (0, len(xs)):
        call.contradict(
            f"inputdimensions has {len(inputdimensions)}", f"{len(xs)} inputs"
        )
    for at, x in enumerate(xs):
        rows = as_real(call, x)
        rows = g.cast(rows, DType.F32)
        own = int(rows.shape[1])
        wide = inputdimensions[at] if inputdimensions else own
        if wide < own:
            rows = g.narrow(rows, 1, 0, wide)
        elif wide > own:
            rows = g.pad(rows, ((0, 0), (0, wide - own)))
        made.append(rows)
    return g.concat(made, 1)


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
    """The value of each key, or the default where it is none."""
    if keys_strings or values_strings:
        call.refuse("it maps texts", "rlxweb has numbers")
    if keys_tensor is not None:
        keys = keys_tensor.array
    else:
        keys = np.array(keys_floats or keys_int64s)
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
    made: Tensor = g.where(g.gt(g.max(hit, -1), 0), found, default)
    return made


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


# --- models ---------------------------------------------------------------------------


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
    made = linear(call, rows, coefficients, intercepts)
    if made.shape[1] != targets:
        call.contradict(f"targets is {targets}", f"there are {made.shape[1]}")
    return transformed(call, made, post_transform)


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
    """One score may stand for two classes: the second one's, about 0."""
    g, count = call.g, len(classlabels_ints or classlabels_strings)
    rows = g.cast(as_real(call, x), DType.F32)
    scores = linear(call, rows, coefficients, intercepts)
    if count == 2 and scores.shape[1] == 1:
        which = g.cast(g.gt(scores, 0.0), DType.I32).reshape((-1,))
        made = of_two(call, scores, post_transform, around_half=True)
    elif scores.shape[1] != count:
        call.contradict(f"{count} classes", f"there are {scores.shape[1]} scores")
    else:
        which = g.argmax(scores, 1)
        made = transformed(call, scores, post_transform)
    return labelled(call, which, classlabels_ints, classlabels_strings), made
