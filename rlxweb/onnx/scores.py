"""What models of ai.onnx.ml with scores have in common: sums, transforms and labels."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call

DOMAIN = "ai.onnx.ml"
Floats = tuple[float, ...]
Ints = tuple[int, ...]
POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_NOTHING = 1e-7
"""What SOFTMAX_ZERO takes for 0."""


def transformed(call: Call, scores: Tensor, how: str) -> Tensor:
    """Scores [N, C] by `post_transform`. Errors  Unsupported for PROBIT."""
    g = call.g
    if how not in POST:
        call.contradict(f"post_transform is {how!r}", "one of " + ", ".join(POST))
    if how == "PROBIT":
        call.refuse("post_transform is PROBIT", "known: " + ", ".join(POST[:-1]))
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return g.sigmoid(scores)
    if how == "SOFTMAX":
        return g.softmax(scores)
    most = g.max(scores, 1, keep_dim=True)
    some = g.gt(abs(scores), _NOTHING)
    raised = g.where(some, g.exp(scores - most), 0.0)
    total = g.sum(raised, 1, keep_dim=True)
    return g.where(some, raised, scores * g.exp(-most)) / total


def of_two(call: Call, score: Tensor, how: str, around_half: bool) -> Tensor:
    """[N, 2] from one score [N, 1] for the second of two classes.

    around_half  the score lies about 1/2, otherwise about 0
    """
    g = call.g
    if how == "LOGISTIC":
        return g.sigmoid(g.concat([-score, score], 1))
    transformed(call, score, how)  # a word that is known
    other = 1.0 - score if around_half else -score
    return g.concat([other, score], 1)


def labelled(
    call: Call, which: Tensor, numbers: tuple[int, ...], texts: tuple[str, ...]
) -> Tensor:
    """The labels (i64) of classes by their places (i32). Errors  Unsupported, texts."""
    if texts:
        call.refuse(
            "the labels of its classes are texts",
            "rlxweb has numbers",
            "convert the model with labels that are numbers",
        )
    return call.g.gather(call.hold(np.array(numbers, np.int64)), which)


def as_real(call: Call, x: Tensor) -> Tensor:
    """Rows [N, F] of floating-point numbers; one row without N is as well."""
    if x.rank == 1:
        x = call.g.reshape(x, (1, *x.shape))
    if x.rank != 2:
        call.contradict(f"x has rank {x.rank}", "rows of features: [N, F]")
    return x if x.dtype.is_float else call.g.cast(x, DType.F32)


def linear(call: Call, x: Tensor, coefficients: Floats, intercepts: Floats) -> Tensor:
    """Rows [N, F] by [C, F] coefficients: [N, C]."""
    features = int(x.shape[1])
    if not features or len(coefficients) % features:
        call.contradict(f"{len(coefficients)} coefficients", f"x is {x.shape}")
    weights = np.array(coefficients, np.float32).reshape(-1, features)
    if len(intercepts) not in (0, len(weights)):
        call.contradict(f"{len(intercepts)} intercepts", f"{len(weights)} scores")
    made: Tensor = x @ call.hold(np.ascontiguousarray(weights.T))
    return made + np.array(intercepts, np.float32) if intercepts else made
