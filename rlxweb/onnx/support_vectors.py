"""Support vector machines of ai.onnx.ml, as scikit-learn's SVR and SVC are converted.

A classifier has a score for every pair of classes. By its sign the pair votes for one
of them, and the class of the most votes is the label. Probabilities are a sigmoid of
each score, coupled: those that fit the pairs best (Wu, Lin and Weng 2004, their second
way), as LIBSVM and ONNX Runtime find them.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import numel
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
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

Array = npt.NDArray[np.float32]
_MOST_SWEEPS = 10
"""Over the classes, to couple probabilities: of thirty classes it takes seven."""
_NEAR = 0.005
"""Over the number of classes: how far from the best fit they are left."""
_LEAST = 1e-7
"""The least probability of one of a pair."""


class _Kernel(NamedTuple):
    """What is compared with what: the attributes that both machines have."""

    kind: str
    params: Floats
    vectors: Floats
    number: int

    def of(self, call: Call, x: Tensor) -> Tensor:
        """k(x, v) for rows [N, F] and the support vectors [V, F]: [N, V]."""
        if numel((self.number, x.shape[1])) != len(self.vectors):
            call.contradict(
                f"{self.number} support vectors of {len(self.vectors)} numbers",
                f"x is {x.shape}",
            )
        g, kind = call.g, self.kind
        gamma, first, degree = (*self.params, *(0.0, 0.0, 3.0)[len(self.params) :])
        vectors = np.array(self.vectors, np.float32).reshape(self.number, -1)
        if kind == "RBF":
            # By differences: of near ones the expanded square would lose all digits.
            apart = g.unsqueeze(x, 1) - vectors
            return g.exp(g.sum(apart * apart, -1) * -gamma)
        product: Tensor = x @ call.hold(np.ascontiguousarray(vectors.T))
        if kind == "LINEAR":
            return product
        if kind == "SIGMOID":
            return g.tanh(product * gamma + first)
        if kind == "POLY":
            return g.apply("pow", product * gamma + first, g.operand(degree, x.dtype))
        call.contradict(f"kernel_type is {kind!r}", "LINEAR, POLY, RBF or SIGMOID")


@converts("SVMRegressor", domain=DOMAIN)
def _svm_regressor(
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
    """Kernels with the support vectors, weighted; of `one_class` 1 or -1, by sign."""
    g, rows = call.g, call.g.cast(as_real(call, x), DType.F32)
    if n_supports:
        kernel = _Kernel(kernel_type, kernel_params, support_vectors, n_supports)
        rows = kernel.of(call, rows)
    made = linear(call, rows, coefficients, rho)
    if one_class:
        return g.sign(g.sign(made) - 0.5)  # of 0 as well -1
    return transformed(call, made, post_transform)


@converts("SVMClassifier", domain=DOMAIN)
def _svm_classifier(
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
    """Without support vectors each class has one line, and all the first of rho."""
    g, count = call.g, len(classlabels_ints or classlabels_strings)
    rows = g.cast(as_real(call, x), DType.F32)
    if count < 2:
        call.contradict(f"{count} classes", "two or more")
    if len(prob_a) != len(prob_b):
        call.contradict(f"{len(prob_a)} numbers in prob_a", f"prob_b has {len(prob_b)}")
    if vectors := sum(vectors_per_class):
        kernel = _Kernel(kernel_type, kernel_params, support_vectors, vectors)
        weights = _of_pairs(call, vectors_per_class, count, coefficients)
        offsets = _for_pairs(call, "rho", rho, count)
        pairs: Tensor = kernel.of(call, rows) @ call.hold(weights) + offsets
        which = g.argmax(_votes(call, pairs, count), 1)
        if prob_a:
            a = _for_pairs(call, "prob_a", prob_a, count)
            b = _for_pairs(call, "prob_b", prob_b, count)
            pairs = _coupled(call, g.sigmoid(-(pairs * a + b)), count)
        made = _scores(call, pairs, post_transform)
    else:
        lines = linear(call, rows, coefficients, ())
        if lines.shape[1] != count:
            call.contradict(f"{count} classes", f"there are {lines.shape[1]} lines")
        lines = lines + rho[0] if rho else lines
        is_plain = count == 2 and not prob_a
        which = _larger(call, lines, coefficients) if is_plain else g.argmax(lines, 1)
        made = transformed(call, lines, post_transform)
    return labelled(call, which, classlabels_ints, classlabels_strings), made


def _scores(call: Call, scores: Tensor, how: str) -> Tensor:
    """The scores after `post_transform`; that of one pair as both classes'. Of these
    ONNX Runtime has only LOGISTIC, and other transforms put them around 1/2.
    """
    if scores.shape[1] == 1:
        return of_two(call, scores, how, around_half=how != "NONE")
    return transformed(call, scores, how)


def _larger(call: Call, lines: Tensor, coefficients: Floats) -> Tensor:
    """Which of two classes, as ONNX Runtime says it: the second wherever either line
    is above 0, or above 1/2 where no coefficient is negative.
    """
    g, most = call.g, call.g.max(lines, 1)
    positive = min(coefficients) >= 0
    is_second = g.ge(most, 0.5) if positive else g.gt(most, 0.0)
    return g.where(is_second, 1, g.argmax(lines, 1))


# --- pairs of classes -----------------------------------------------------------------


def _for_pairs(call: Call, name: str, values: Floats, classes: int) -> Array:
    """The numbers of an attribute that has one for every pair."""
    count = classes * (classes - 1) // 2
    if len(values) < count:
        call.contradict(
            f"{name} has {len(values)} numbers", f"{count} pairs of classes"
        )
    return np.array(values[:count], np.float32)


def _of_pairs(call: Call, sizes: Ints, classes: int, coefficients: Floats) -> Array:
    """The weights [V, pairs] of the vectors. Those of a class have a line of
    coefficients for each other class, in order.
    """
    vectors = sum(sizes)
    if len(sizes) != classes or min(sizes) < 0:
        call.contradict(f"vectors_per_class is {sizes}", f"{classes} classes")
    if len(coefficients) != (classes - 1) * vectors:
        call.contradict(
            f"{len(coefficients)} coefficients",
            f"{vectors} support vectors of {classes} classes",
        )
    lines = np.array(coefficients, np.float32).reshape(classes - 1, vectors)
    owner = np.repeat(np.arange(classes), sizes)
    made = [
        np.where(owner == i, lines[j - 1], np.where(owner == j, lines[i], 0))
        for i, j in combinations(range(classes), 2)
    ]
    return np.ascontiguousarray(np.stack(made, 1), np.float32)


def _votes(call: Call, pairs: Tensor, classes: int) -> Tensor:
    """How many pairs are for each class [N, C]: above 0 for their first."""
    g = call.g
    first, second = _ends(classes)
    ahead = g.cast(g.gt(pairs, 0.0), DType.F32)
    made: Tensor = ahead @ call.hold(first - second) + second.sum(0)
    return made


def _ends(classes: int) -> tuple[Array, Array]:
    """Which class [pairs, C] is the first of each pair, and which the second."""
    eye = np.eye(classes, dtype=np.float32)
    first, second = zip(*combinations(range(classes), 2), strict=True)
    return eye[list(first)], eye[list(second)]


def _coupled(call: Call, chances: Tensor, classes: int) -> Tensor:
    """The probabilities [N, C] that fit those of the first of each pair best.

    The fit is a quadratic form Q [N, C, C], made smaller class by class until its
    slope is small: where one row is there, it stays as it is.
    """
    g = call.g
    Q = _form(call, chances, classes)
    p = g.constant(np.full((classes, 1), 1.0 / classes, np.float32))
    p = g.expand(p, (chances.shape[0], classes, 1))
    for _ in range(min(_MOST_SWEEPS, classes + 2)):
        slope, whole = _slope(call, Q, p)
        far = g.max(abs(slope - whole), 1, keep_dim=True)
        p = g.where(g.ge(far, _NEAR / classes), _swept(call, Q, p), p)
    return g.reshape(p, p.shape[:2])


def _form(call: Call, chances: Tensor, classes: int) -> Tensor:
    """Q: of classes i and j -r(i, j) r(j, i), of one the squares of the others' r."""
    g, (first, second) = call.g, _ends(classes)
    won = g.minimum(g.maximum(chances, _LEAST), np.float32(1) - np.float32(_LEAST))
    lost = 1.0 - won
    eye = np.eye(classes, dtype=np.float32)
    own = (lost * lost) @ call.hold(first) + (won * won) @ call.hold(second)
    both = first[:, :, None] * second[:, None, :]
    both = (both + both.transpose(0, 2, 1)).reshape(len(first), -1)
    between = (won * lost) @ call.hold(both)
    between = g.reshape(between, (chances.shape[0], classes, classes))
    return g.unsqueeze(own, -1) * eye - between


def _slope(call: Call, Q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Q p [N, C, 1] and p Q p [N, 1, 1]."""
    slope = call.g.matmul(Q, p)
    return slope, call.g.sum(p * slope, 1, keep_dim=True)


def _swept(call: Call, Q: Tensor, p: Tensor) -> Tensor:
    """Probabilities after each class was once made as the others would have it."""
    g, classes = call.g, Q.shape[1]
    for at, one in enumerate(np.eye(classes, dtype=np.float32)):
        slope, whole = _slope(call, Q, p)
        own = g.narrow(g.narrow(Q, 1, at, 1), 2, at, 1)
        step = (whole - g.narrow(slope, 1, at, 1)) / own
        p = (p + step * one[:, None]) / (1.0 + step)
    return p
