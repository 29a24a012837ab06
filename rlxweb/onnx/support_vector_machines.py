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
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.onnx.scalers_encoders_linear_models import (
    ML_DOMAIN,
    Array,
    Floats,
    Ints,
    apply_post_transform,
    as_float_rows,
    class_labels,
    linear_scores,
    two_class_scores,
)

_MAX_SWEEPS = 10
"""Maximum number of sweeps over the classes: thirty classes take seven."""
_COUPLING_TOLERANCE = 0.005
"""Slope at which the coupling stops, times the number of classes."""
_MIN_PAIR_PROBABILITY = 1e-7
"""Minimum probability within a pair."""


def _evaluate_kernel(
    ctx: ConversionContext,
    x: Tensor,
    kind: str,
    params: Floats,
    vectors: Floats,
    count: int,
) -> Tensor:
    """Evaluate the kernel k(x, v) for rows [N, F] and support vectors [V, F], giving
    [N, V].
    """
    if numel((count, x.shape[1])) != len(vectors):
        ctx.raise_invalid_model(
            f"got {count} support vectors with {len(vectors)} numbers in total",
            f"each must have {x.shape[1]} numbers, one per feature of x",
        )
    g = ctx.graph
    gamma, coef0, degree = (*params, *(0.0, 0.0, 3.0)[len(params) :])
    rows = np.array(vectors, np.float32).reshape(count, -1)
    if kind == "RBF":
        # By differences: the expanded square of near vectors would lose all digits.
        differences = g.unsqueeze(x, 1) - rows
        return g.exp(g.sum(differences * differences, -1) * -gamma)
    product: Tensor = x @ ctx.constant_value(np.ascontiguousarray(rows.T))
    if kind == "LINEAR":
        return product
    if kind == "SIGMOID":
        return g.tanh(product * gamma + coef0)
    if kind == "POLY":
        return g.apply("pow", product * gamma + coef0, g.operand(degree, x.dtype))
    ctx.raise_invalid_model(
        f"kernel_type is {kind!r}", "must be LINEAR, POLY, RBF or SIGMOID"
    )


@converts("SVMRegressor", domain=ML_DOMAIN)
def _regressor(
    ctx: ConversionContext,
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
    """Convert SVMRegressor: a kernel sum, or a linear function of the features without
    support vectors.
    """
    g, y = ctx.graph, ctx.graph.cast(as_float_rows(ctx, x), DType.F32)
    if n_supports:
        y = _evaluate_kernel(
            ctx, y, kernel_type, kernel_params, support_vectors, n_supports
        )
    y = linear_scores(ctx, y, coefficients, rho)
    if one_class:
        return g.sign(g.sign(y) - 0.5)  # 0 gives -1
    return apply_post_transform(ctx, y, post_transform)


@converts("SVMClassifier", domain=ML_DOMAIN)
def _classifier(
    ctx: ConversionContext,
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
    g, classes = ctx.graph, len(classlabels_ints or classlabels_strings)
    sizes, vectors = vectors_per_class, sum(vectors_per_class)
    pairs = list(combinations(range(classes), 2))
    if classes < 2:
        ctx.raise_invalid_model(f"got {classes} classes", "expected at least 2")
    if not vectors:
        ctx.raise_unsupported(
            "the model has no support vectors",
            "an SVMClassifier is supported only with support vectors, counted in "
            "vectors_per_class",
            "export the model as a LinearClassifier",
        )
    if len(sizes) != classes or min(sizes) < 0:
        ctx.raise_invalid_model(
            f"vectors_per_class is {sizes}",
            f"expected one number >= 0 for each of {classes} classes",
        )
    if len(coefficients) != (classes - 1) * vectors:
        ctx.raise_invalid_model(
            f"got {len(coefficients)} coefficients",
            f"expected {(classes - 1) * vectors} for {vectors} support "
            f"vectors of {classes} classes",
        )
    if len(prob_a) != len(prob_b):
        ctx.raise_invalid_model(
            f"prob_a has {len(prob_a)} elements and prob_b has {len(prob_b)}",
            "the lengths must be equal",
        )
    for name, values in (("rho", rho), ("prob_a", prob_a)):
        if len(values) < len(pairs) and (values or name == "rho"):
            ctx.raise_invalid_model(
                f"{name} has {len(values)} elements",
                f"expected at least one for each of {len(pairs)} pairs of classes",
            )
    offsets, a, b = (
        np.array(numbers[: len(pairs)], np.float32) for numbers in (rho, prob_a, prob_b)
    )
    # A vector of class i has a coefficient for each other class, in order.
    coefficient_rows = np.array(coefficients, np.float32).reshape(classes - 1, vectors)
    class_of_vector = np.repeat(np.arange(classes), sizes)
    weights = np.stack(
        [
            np.where(
                class_of_vector == i,
                coefficient_rows[j - 1],
                np.where(class_of_vector == j, coefficient_rows[i], 0),
            )
            for i, j in pairs
        ],
        axis=1,
    ).astype(np.float32)
    rows = g.cast(as_float_rows(ctx, x), DType.F32)
    rows = _evaluate_kernel(
        ctx, rows, kernel_type, kernel_params, support_vectors, vectors
    )
    scores: Tensor = rows @ ctx.constant_value(weights) + offsets
    first, second = np.eye(classes, dtype=np.float32)[np.array(pairs).T]
    votes = g.cast(g.gt(scores, 0.0), DType.F32)
    class_index = g.argmax(
        votes @ ctx.constant_value(first - second) + second.sum(0), 1
    )
    if prob_a:
        scores = _couple_probabilities(ctx, g.sigmoid(-(scores * a + b)), first, second)
    if scores.shape[1] == 1:
        # ONNX Runtime has only LOGISTIC, and other transforms put scores around 1/2.
        is_around_half = post_transform != "NONE"
        scores = two_class_scores(ctx, scores, post_transform, is_around_half)
    else:
        scores = apply_post_transform(ctx, scores, post_transform)
    return class_labels(ctx, class_index, classlabels_ints, classlabels_strings), scores


def _couple_probabilities(
    ctx: ConversionContext, pair_probabilities: Tensor, first: Array, second: Array
) -> Tensor:
    """Return the class probabilities [N, C] that best fit the pairwise ones.

    The fit minimises p Q p, class by class, until its slope is small; Q [N, C, C] has
    -r(i, j) r(j, i) for classes i and j, and sums of squares on its diagonal.

    first, second  the classes of each pair, one-hot [pairs, C]
    """
    g, rows, classes = ctx.graph, pair_probabilities.shape[0], first.shape[1]
    p_first = g.minimum(
        g.maximum(pair_probabilities, _MIN_PAIR_PROBABILITY),
        np.float32(1) - np.float32(_MIN_PAIR_PROBABILITY),
    )
    p_second = 1.0 - p_first
    eye = np.eye(classes, dtype=np.float32)
    squared_sums = (p_second * p_second) @ ctx.constant_value(first) + (
        p_first * p_first
    ) @ ctx.constant_value(second)
    pair_masks = first[:, :, None] * second[:, None, :]
    pair_masks = (pair_masks + pair_masks.transpose(0, 2, 1)).reshape(len(first), -1)
    cross_terms = g.reshape(
        (p_first * p_second) @ ctx.constant_value(pair_masks), (rows, classes, classes)
    )
    Q = g.unsqueeze(squared_sums, -1) * eye - cross_terms

    def compute_slope(p: Tensor) -> tuple[Tensor, Tensor]:
        slope = g.matmul(Q, p)
        return slope, g.sum(p * slope, 1, keep_dim=True)

    start = np.full((classes, 1), 1.0 / classes, np.float32)
    p = g.expand(g.constant(start), (rows, classes, 1))
    for _ in range(min(_MAX_SWEEPS, classes + 2)):
        slope, total = compute_slope(p)
        slope_error = g.max(abs(slope - total), 1, keep_dim=True)
        updated = p
        for index, column in enumerate(eye):
            slope, total = compute_slope(updated)
            diagonal = g.narrow(g.narrow(Q, 1, index, 1), 2, index, 1)
            step = (total - g.narrow(slope, 1, index, 1)) / diagonal
            updated = (updated + step * column[:, None]) / (1.0 + step)
        p = g.where(g.ge(slope_error, _COUPLING_TOLERANCE / classes), updated, p)
    return g.reshape(p, (rows, classes))
