"""Support vector machines of ai.onnx.ml, as exported from scikit-learn's SVR and SVC.

A classifier has one score for every pair of classes. The sign of the score is a vote
for one of the two, and the class with the most votes is the label. Probabilities are
a sigmoid of each score, coupled over the pairs by the second method of Wu, Lin and Weng
2004 (https://www.jmlr.org/papers/v5/wu04a.html), as in LIBSVM and ONNX Runtime.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import numel
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.classical import (
    DOMAIN,
    Array,
    Floats,
    Ints,
    as_real,
    labelled,
    linear,
    of_two,
    transformed,
)
from rlxweb.onnx.converters import Call, converts

_MOST_SWEEPS = 10
"""Limit of sweeps over the classes: thirty classes take seven."""
_TOLERANCE = 0.005
"""Slope at which the coupling ends, times the number of classes."""
_LEAST = 1e-7
"""Least probability within a pair."""


def _kernel(
    call: Call, x: Tensor, kind: str, params: Floats, vectors: Floats, count: int
) -> Tensor:
    """Evaluate k(x, v) for rows [N, F] and support vectors [V, F]: [N, V]."""
    if numel((count, x.shape[1])) != len(vectors):
        call.contradict(
            f"{count} support vectors of {len(vectors)} numbers", f"x is {x.shape}"
        )
    g = call.g
    gamma, coef0, degree = (*params, *(0.0, 0.0, 3.0)[len(params) :])
    rows = np.array(vectors, np.float32).reshape(count, -1)
    if kind == "RBF":
        # By differences: the expanded square of near vectors would lose all digits.
        apart = g.unsqueeze(x, 1) - rows
        return g.exp(g.sum(apart * apart, -1) * -gamma)
    product: Tensor = x @ call.hold(np.ascontiguousarray(rows.T))
    if kind == "LINEAR":
        return product
    if kind == "SIGMOID":
        return g.tanh(product * gamma + coef0)
    if kind == "POLY":
        return g.apply("pow", product * gamma + coef0, g.operand(degree, x.dtype))
    call.contradict(f"kernel_type is {kind!r}", "LINEAR, POLY, RBF or SIGMOID")


@converts("SVMRegressor", domain=DOMAIN)
def _regressor(
    call: Call,
    x: Tensor,
    *,
    coefficients: Floats = (),
    kernel_params: Floats = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats = (),
    support_vectors: Floats = (),
) -> Tensor:
    """Regress by kernels; without support vectors by coefficients of features."""
    g, y = call.g, call.g.cast(as_real(call, x), DType.F32)
    if n_supports:
        y = _kernel(call, y, kernel_type, kernel_params, support_vectors, n_supports)
    y = linear(call, y, coefficients, rho)
    if one_class:
        return g.sign(g.sign(y) - 0.5)  # 0 gives -1
    return transformed(call, y, post_transform)


@converts("SVMClassifier", domain=DOMAIN)
def _classifier(
    call: Call,
    x: Tensor,
    *,
    classlabels_ints: Ints = (),
    classlabels_strings: tuple[str, ...] = (),
    coefficients: Floats = (),
    kernel_params: Floats = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Floats = (),
    prob_b: Floats = (),
    rho: Floats = (),
    support_vectors: Floats = (),
    vectors_per_class: Ints = (),
) -> tuple[Tensor, Tensor]:
    g, classes = call.g, len(classlabels_ints or classlabels_strings)
    sizes, vectors = vectors_per_class, sum(vectors_per_class)
    pairs = list(combinations(range(classes), 2))
    if classes < 2:
        call.contradict(f"{classes} classes", "two or more")
    if not vectors:
        call.refuse(
            "a support vector machine without support vectors",
            "vectors_per_class is their number in each class",
            "convert the model as a linear one (LinearClassifier)",
        )
    if len(sizes) != classes or min(sizes) < 0:
        call.contradict(f"vectors_per_class is {sizes}", f"{classes} classes")
    if len(coefficients) != (classes - 1) * vectors:
        call.contradict(
            f"{len(coefficients)} coefficients",
            f"{vectors} support vectors of {classes} classes",
        )
    if len(prob_a) != len(prob_b):
        call.contradict(f"{len(prob_a)} numbers in prob_a", f"prob_b has {len(prob_b)}")
    for name, values in (("rho", rho), ("prob_a", prob_a)):
        if len(values) < len(pairs) and (values or name == "rho"):
            have = f"{name} has {len(values)} numbers"
            call.contradict(have, f"{len(pairs)} pairs of classes")
    offsets, a, b = (
        np.array(one[: len(pairs)], np.float32) for one in (rho, prob_a, prob_b)
    )
    # A vector of class i has a coefficient for each other class, in order.
    lines = np.array(coefficients, np.float32).reshape(classes - 1, vectors)
    owner = np.repeat(np.arange(classes), sizes)
    weights = np.stack(
        [
            np.where(owner == i, lines[j - 1], np.where(owner == j, lines[i], 0))
            for i, j in pairs
        ],
        axis=1,
    ).astype(np.float32)
    rows = g.cast(as_real(call, x), DType.F32)
    rows = _kernel(call, rows, kernel_type, kernel_params, support_vectors, vectors)
    scores: Tensor = rows @ call.hold(weights) + offsets
    first, second = np.eye(classes, dtype=np.float32)[np.array(pairs).T]
    ahead = g.cast(g.gt(scores, 0.0), DType.F32)
    which = g.argmax(ahead @ call.hold(first - second) + second.sum(0), 1)
    if prob_a:
        scores = _coupled(call, g.sigmoid(-(scores * a + b)), first, second)
    if scores.shape[1] == 1:
        # ONNX Runtime has only LOGISTIC, and other transforms put scores around 1/2.
        around_half = post_transform != "NONE"
        scores = of_two(call, scores, post_transform, around_half)
    else:
        scores = transformed(call, scores, post_transform)
    return labelled(call, which, classlabels_ints, classlabels_strings), scores


def _coupled(call: Call, chances: Tensor, first: Array, second: Array) -> Tensor:
    """Return the probabilities [N, C] that fit those of the first of each pair best.

    The fit minimises p Q p, class by class, until its slope is small; Q [N, C, C] has
    -r(i, j) r(j, i) for classes i and j, and sums of squares on its diagonal.

    first, second  the classes of each pair, one-hot [pairs, C]
    """
    g, rows, classes = call.g, chances.shape[0], first.shape[1]
    won = g.minimum(g.maximum(chances, _LEAST), np.float32(1) - np.float32(_LEAST))
    lost = 1.0 - won
    eye = np.eye(classes, dtype=np.float32)
    own = (lost * lost) @ call.hold(first) + (won * won) @ call.hold(second)
    both = first[:, :, None] * second[:, None, :]
    both = (both + both.transpose(0, 2, 1)).reshape(len(first), -1)
    between = g.reshape((won * lost) @ call.hold(both), (rows, classes, classes))
    Q = g.unsqueeze(own, -1) * eye - between

    def slope_of(p: Tensor) -> tuple[Tensor, Tensor]:
        slope = g.matmul(Q, p)
        return slope, g.sum(p * slope, 1, keep_dim=True)

    start = np.full((classes, 1), 1.0 / classes, np.float32)
    p = g.expand(g.constant(start), (rows, classes, 1))
    for _ in range(min(_MOST_SWEEPS, classes + 2)):
        slope, total = slope_of(p)
        far = g.max(abs(slope - total), 1, keep_dim=True)
        better = p
        for at, column in enumerate(eye):
            slope, total = slope_of(better)
            diagonal = g.narrow(g.narrow(Q, 1, at, 1), 2, at, 1)
            step = (total - g.narrow(slope, 1, at, 1)) / diagonal
            better = (better + step * column[:, None]) / (1.0 + step)
        p = g.where(g.ge(far, _TOLERANCE / classes), better, p)
    return g.reshape(p, (rows, classes))
