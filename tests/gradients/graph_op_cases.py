"""Derivative cases for a graph's ops: one for every op record and every composite
method.

A record's twin is its own reference, which JAX differentiates; functions of elements
may have JAX's own, whose corners are not written as ours are. Names are those of
`rlxweb.nn`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import infer_type
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.sample import Sample
from rlxweb.ops.elementwise.parametric_activation import SELU_ALPHA, SELU_GAMMA
from tests.gradients.derivative_comparison import (
    Array,
    DerivativeCase,
    Function,
    Points,
)
from tests.gradients.numpy_function_cases import (
    ALL_VALUES,
    CANCELLATION_ATOL,
    PAIR_VALUES,
    cartesian_product,
    combine_operands,
    exclude_labels,
    safe_sqrt,
    special_points,
)

nn = rlx.nn


def is_differentiable(op: Op) -> bool:
    """Return whether an op takes floats, and has a derivative rule or a
    decomposition.
    """
    floats = any(
        operand.dtype.is_float for sample in op.samples for operand in sample.inputs
    )
    return floats and (op.vjp is not None or op.decomposition is not None)


# --- functions of elements ------------------------------------------------------------


def _selu(jax: Any, x: Any) -> Any:
    jnp = jax.numpy
    below = SELU_ALPHA * jnp.expm1(jnp.where(x > 0, 0.0, x))
    return SELU_GAMMA * jnp.where(x > 0, x, below)


ELEMENTWISE: dict[str, Function] = {
    "celu": lambda jax, x: jax.nn.celu(x),
    "elu": lambda jax, x: jax.nn.elu(x),
    "erf": lambda jax, x: jax.lax.erf(x),
    "gelu": lambda jax, x: jax.nn.gelu(x, approximate=False),
    "gelu_approx": lambda jax, x: jax.nn.gelu(x, approximate=True),
    "hard_sigmoid": lambda jax, x: jax.numpy.clip(0.2 * x + 0.5, 0.0, 1.0),
    "hard_swish": lambda jax, x: jax.nn.hard_swish(x),
    "leaky_relu": lambda jax, x: jax.nn.leaky_relu(x),
    "log_sigmoid": lambda jax, x: jax.nn.log_sigmoid(x),
    "mish": lambda jax, x: jax.nn.mish(x),
    "relu": lambda jax, x: jax.nn.relu(x),
    "relu6": lambda jax, x: jax.nn.relu6(x),
    "rsqrt": lambda jax, x: jax.lax.rsqrt(x),
    "selu": _selu,
    "shrink": lambda jax, x: jax.numpy.where(jax.numpy.abs(x) > 0.5, x, 0.0),
    "sigmoid": lambda jax, x: jax.nn.sigmoid(x),
    "silu": lambda jax, x: jax.nn.silu(x),
    "softplus": lambda jax, x: jax.nn.softplus(x),
    "softsign": lambda jax, x: jax.nn.soft_sign(x),
    "swish": lambda jax, x: x * jax.nn.sigmoid(x),
    "thresholded_relu": lambda jax, x: jax.numpy.where(x > 1, x, 0.0),
    "clip": lambda jax, x: jax.numpy.clip(x, -1.0, 2.0),
    "prelu": lambda jax, x, y: jax.numpy.where(x < 0, y * x, x),
    "psd": lambda jax, x, y: (x * x + y * y) / x.shape[-1],
    "round_divide": lambda jax, x, y: jax.numpy.round(x / y),
}
BINARY_NAMES = ("prelu", "psd", "round_divide")
METHOD_ARGUMENTS: dict[str, dict[str, Any]] = {"clip": {"min": -1.0, "max": 2.0}}
"""What a method that is no op is called with; an op, with its sample's attributes."""
NUMPY_NAMES = {
    "abs": "absolute",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "clamp": "clip",
    "div": "divide",
    "mod": "remainder",
    "mul": "multiply",
    "neg": "negative",
    "pow": "power",
    "round": "rint",
    "sub": "subtract",
} | {
    name: name
    for name in """add ceil cos cosh exp exp2 expm1 floor floor_divide fmod log log10
    log1p log2 maximum minimum reciprocal sign sin sinh sqrt square tan tanh trunc
    where""".split()
}
"""Elementwise functions that NumPy has too: their cases are those under NumPy's names.
"""
ELEMENTWISE_NAMES = frozenset(ELEMENTWISE) | frozenset(NUMPY_NAMES)
"""Elementwise functions whose cases are at every special value.

A further op is compared with its own reference on a sample.
"""


def elementwise_case(jax: Any, name: str) -> DerivativeCase:
    """Return the case of an elementwise function."""
    values = (
        cartesian_product(PAIR_VALUES, PAIR_VALUES)
        if name in BINARY_NAMES
        else (ALL_VALUES,)
    )
    is_op = name in registry
    arguments = (
        registry.get(name).example_attrs() if is_op else METHOD_ARGUMENTS.get(name, {})
    )
    return DerivativeCase(
        lambda *x: getattr(nn, name)(*x, **arguments),
        lambda *x: ELEMENTWISE[name](jax, *x),
        {"values": values},
        is_elementwise=True,
        atol=0.0 if name in BINARY_NAMES else CANCELLATION_ATOL,
    )


# --- methods that join ops ------------------------------------------------------------

ROWS = special_points(3, 4)
MODERATE_ROWS = exclude_labels(ROWS, "small", "large")
IMAGE = {k: (p[0].reshape(1, 3, 4),) for k, p in ROWS.items()}
FEATURES = {k: (p[0].reshape(1, 1, 3, 4),) for k, p in MODERATE_ROWS.items()}
MASK = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], bool)


def _moments(jnp: Any, x: Any, axis: Any) -> tuple[Any, Any]:
    mean = jnp.mean(x, axis, keepdims=True)
    return mean, jnp.mean((x - mean) ** 2, axis, keepdims=True)


def _layer_norm(jnp: Any, x: Any, axis: Any = -1) -> Any:
    mean, var = _moments(jnp, x, axis)
    return (x - mean) / jnp.sqrt(var + 1e-5)


def _rms_norm(jnp: Any, x: Any) -> Any:
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def _attention(jax: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Return attention in which fully masked rows are zeros."""
    jnp = jax.numpy
    scores = q @ jnp.swapaxes(k, -1, -2) / 2.0
    if mask is None:
        return jax.nn.softmax(scores, -1) @ v
    has_key = mask.any(-1, keepdims=True)
    scores = jnp.where(mask | ~has_key, scores, -jnp.inf)
    return jnp.where(has_key, jax.nn.softmax(scores, -1) @ v, 0.0)


def _local_response_norm(jnp: Any, x: Any) -> Any:
    square = jnp.pad(x * x, ((0, 0), (1, 1), (0, 0)))
    sums = square[:, :-2] + square[:, 1:-1] + square[:, 2:]
    return x / (1.0 + 1e-4 / 3 * sums) ** 0.75


def _l2_normalize(jnp: Any, x: Any) -> Any:
    """Return rows divided by their norms; rows of zeros by eps, as PyTorch does."""
    squares = jnp.sum(x * x, 1, keepdims=True)
    is_nonzero = squares > 0
    norms = jnp.where(is_nonzero, jnp.sqrt(jnp.where(is_nonzero, squares, 1.0)), 1e-12)
    return x / norms


def _lp_pool(jnp: Any, x: Any) -> Any:
    return safe_sqrt(jnp, x[..., :-1] ** 2 + x[..., 1:] ** 2)


COMPOSITES: dict[str, tuple[Points, Function, Function]] = {
    "add_layer_norm": (
        combine_operands(ROWS, ROWS),
        lambda x, y: nn.add_layer_norm(x, y)[0],
        lambda jax, x, y: _layer_norm(jax.numpy, x + y),
    ),
    "add_rms_norm": (
        combine_operands(ROWS, ROWS),
        lambda x, y: nn.add_rms_norm(x, y)[0],
        lambda jax, x, y: _rms_norm(jax.numpy, x + y),
    ),
    "batch_norm": (
        combine_operands(IMAGE, special_points(3)),
        lambda x, m: nn.batch_norm(x, m, m * m),
        lambda jax, x, m: (x - m[:, None]) / jax.numpy.sqrt((m * m)[:, None] + 1e-5),
    ),
    "batch_statistics": (
        IMAGE,
        lambda x: nn.batch_statistics(x),
        lambda jax, x: tuple(m.ravel() for m in _moments(jax.numpy, x, (0, 2))),
    ),
    "group_norm": (
        IMAGE,
        lambda x: nn.group_norm(x, 1),
        lambda jax, x: _layer_norm(jax.numpy, x, (1, 2)),
    ),
    "instance_norm": (
        IMAGE,
        lambda x: nn.instance_norm(x),
        lambda jax, x: _layer_norm(jax.numpy, x),
    ),
    "inv_std": (
        ROWS,
        lambda x: nn.inv_std(x),
        lambda jax, x: 1 / jax.numpy.sqrt(_moments(jax.numpy, x, -1)[1] + 1e-5),
    ),
    "local_response_norm": (
        exclude_labels(IMAGE, "large"),
        lambda x: nn.local_response_norm(x, 3),
        lambda jax, x: _local_response_norm(jax.numpy, x),
    ),
    "logsumexp": (
        ROWS,
        lambda x: nn.logsumexp(x, -1),
        lambda jax, x: jax.nn.logsumexp(x, -1),
    ),
    "norm": (
        MODERATE_ROWS,
        lambda x: nn.norm(x, 2.0, -1),
        lambda jax, x: safe_sqrt(jax.numpy, jax.numpy.sum(x * x, -1)),
    ),
    "normalize": (
        MODERATE_ROWS,
        lambda x: nn.normalize(x),
        lambda jax, x: _l2_normalize(jax.numpy, x),
    ),
    "std": (
        MODERATE_ROWS,
        lambda x: nn.std(x, -1),
        lambda jax, x: safe_sqrt(jax.numpy, jax.numpy.var(x, -1)),
    ),
    "var": (ROWS, lambda x: nn.var(x, -1), lambda jax, x: jax.numpy.var(x, -1)),
    "lp_pool": (
        exclude_labels(IMAGE, "small", "large"),
        lambda x: nn.lp_pool(x, 2.0, 2, 1),
        lambda jax, x: _lp_pool(jax.numpy, x),
    ),
    "max_pool": (
        IMAGE,
        lambda x: nn.max_pool(x, 2, 1) ** 2,
        lambda jax, x: (
            jax.lax.reduce_window(
                x, -np.inf, jax.lax.max, (1, 1, 2), (1, 1, 1), "VALID"
            )
            ** 2
        ),
    ),
    "scaled_dot_product_attention": (
        combine_operands(FEATURES, FEATURES, FEATURES),
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v),
        _attention,
    ),
    "scaled_dot_product_attention, a row without keys": (
        combine_operands(FEATURES, FEATURES, FEATURES),
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, MASK),
        lambda jax, q, k, v: _attention(jax, q, k, v, MASK),
    ),
    "swiglu": (
        ROWS,
        lambda x: nn.swiglu(x),
        lambda jax, x: x[:, :2] * jax.nn.silu(x[:, 2:]),
    ),
    "sort": (
        ROWS,
        lambda x: nn.sort(x) ** 2,
        lambda jax, x: jax.numpy.sort(x, -1) ** 2,
    ),
    "topk_values": (
        ROWS,
        lambda x: nn.topk_values(x, 2) ** 2,
        lambda jax, x: jax.lax.top_k(x, 2)[0] ** 2,
    ),
    "inv": (
        {"identity": (np.eye(3),), "ties": (np.eye(3) + 1,)},
        lambda x: nn.inv(x),
        lambda jax, x: jax.numpy.linalg.inv(x),
    ),
    "take_along_axis": (
        ROWS,
        lambda x: nn.take_along_axis(x, np.argsort(x)),
        lambda jax, x: jax.numpy.sort(x, -1),
    ),
    "gather_elements": (
        ROWS,
        lambda x: (
            nn.gather_elements(x, np.array([[0, 0], [1, 3], [2, 2]]), axis=1) ** 2
        ),
        lambda jax, x: (
            x[np.arange(3)[:, None], np.array([[0, 0], [1, 3], [2, 2]])] ** 2
        ),
    ),
    "gather": (
        ROWS,
        lambda x: nn.gather(x, np.array([0, 2, 2])) ** 2,
        lambda jax, x: x[np.array([0, 2, 2])] ** 2,
    ),
    "gather_nd": (
        ROWS,
        lambda x: nn.gather_nd(x, np.array([[0, 1], [2, 2], [2, 2]])) ** 2,
        lambda jax, x: x[np.array([0, 2, 2]), np.array([1, 2, 2])] ** 2,
    ),
}
SCATTER_INDICES = np.array([0, 2, 2, 1])
SCATTER_REFERENCES: dict[str, Function] = {
    "none": lambda jnp, x, y: jnp.stack([y[0], y[3], y[2]]),
    "add": lambda jnp, x, y: jnp.stack([x[0] + y[0], x[1] + y[3], x[2] + y[1] + y[2]]),
    "mul": lambda jnp, x, y: jnp.stack([x[0] * y[0], x[1] * y[3], x[2] * y[1] * y[2]]),
    "max": lambda jnp, x, y: x.at[SCATTER_INDICES].max(y),
    "min": lambda jnp, x, y: x.at[SCATTER_INDICES].min(y),
}
for _reduction, _reference in SCATTER_REFERENCES.items():
    _points = combine_operands(
        special_points(3, small=1e-40), special_points(4, small=1e-40)
    )
    COMPOSITES[f"scatter_nd, {_reduction}"] = (
        _points,
        lambda x, y, h=_reduction: (
            nn.scatter_nd(x, SCATTER_INDICES[:, None], y, reduction=h) ** 2
        ),
        lambda jax, x, y, f=_reference: f(jax.numpy, x, y) ** 2,
    )
    COMPOSITES[f"scatter_elements, {_reduction}"] = (
        _points,
        lambda x, y, h=_reduction: (
            nn.scatter_elements(x, SCATTER_INDICES, y, reduction=h) ** 2
        ),
        lambda jax, x, y, f=_reference: f(jax.numpy, x, y) ** 2,
    )


COMPOSITE_METHODS = frozenset(name.split(",")[0] for name in COMPOSITES)
COMPOSITE_ATOLS = {"group_norm": 1e-9}
"""The mean of equal numbers may be off by a rounding, in JAX's own second derivatives
times 1e-5 ** -1.5.
"""


def composite_case(jax: Any, name: str) -> DerivativeCase:
    """Return the case of a composite method."""
    points, ours, theirs = COMPOSITES[name]
    atol = COMPOSITE_ATOLS.get(name, CANCELLATION_ATOL)
    return DerivativeCase(ours, lambda *x: theirs(jax, *x), points, atol=atol)


# --- records --------------------------------------------------------------------------

MAX_SAMPLE_ELEMENTS = 400
"""Largest number of elements in a sample's operands."""
LINEAR_OPS = frozenset(
    """again avg_pool cast concat cumsum dequantize_linear dilate expand fft frame
    identity irfft mean narrow pad remap repeat reshape resize rfft segment_in
    segment_out slice stft sum sum_pool tile transpose windows""".split()
)
"""Ops whose derivatives are the same at every point."""
EXEMPT_OPS = {
    "cholesky": "np.linalg.cholesky has its case, of matrices that are positive",
    "roi_align": "its reference needs numbers, JAX has none like it, and it is linear",
    "stop_gradient": "JAX differentiates its reference; see test_derivatives",
}
"""Ops without a case, with the reason."""


def smallest_samples(op: Op) -> list[Sample]:
    """Return the smallest sample of an op with more than one element, in f64, as a
    list.
    """
    candidates = []
    for sample in op.samples:
        sizes = [math.prod(operand.shape) for operand in sample.inputs]
        floats = [operand for operand in sample.inputs if operand.dtype.is_float]
        if floats and 1 < min(sizes, default=0) and sum(sizes) <= MAX_SAMPLE_ELEMENTS:
            f64_inputs = (
                replace(operand, dtype=DType.F64, whole=False)
                if operand.dtype.is_float
                else operand
                for operand in sample.inputs
            )
            candidates.append(
                (sum(sizes), len(candidates), replace(sample, inputs=tuple(f64_inputs)))
            )
    return [sample for _, _, sample in sorted(candidates)[:1]]


def op_case(jax: Any, op: Op, sample: Sample) -> DerivativeCase:
    """Return the case of an op: its sample as it is, and unless it is elementwise, with
    zeros and with ties.
    """
    arrays = sample.draw(0)
    floats = [n for n, operand in enumerate(arrays) if operand.dtype.kind == "f"]
    types = tuple(TensorType(operand.shape, operand.dtype) for operand in sample.inputs)
    attrs, _ = infer_type(op, types, sample.attrs)

    def with_float_operands(x: Any) -> list[Any]:
        operands = list(arrays)
        for n, operand in zip(floats, x, strict=True):
            operands[n] = operand
        return operands

    def ours(*x: Any) -> Any:
        return nn.build(
            lambda g, *t: g.apply(op.name, *t, **sample.attrs), *with_float_operands(x)
        )

    def theirs(*x: Any) -> Any:
        operands = [jax.numpy.asarray(operand) for operand in with_float_operands(x)]
        return op.reference(jax.numpy, attrs, *operands)

    def transform_floats(transform: Any) -> tuple[Array, ...]:
        return tuple(transform(arrays[n]) for n in floats)

    labeled_points = {
        "zeros": transform_floats(np.zeros_like),
        "constant": transform_floats(lambda x: np.full_like(x, x.flat[0])),
        "ties": transform_floats(np.round),
        "plain": transform_floats(np.copy),
    }
    if op.has_trait("elementwise"):  # its domain may have neither zeros nor ties
        labeled_points = {"plain": labeled_points["plain"]}
    return DerivativeCase(ours, theirs, labeled_points, atol=CANCELLATION_ATOL)


# --- methods without a case of their own ----------------------------------------------

METHOD_OPS = {
    **{f"{kind}{n}d": kind for kind in ("conv", "conv_transpose") for n in (1, 2, 3)},
    **{f"{kind}{n}d": kind for kind in ("max_pool", "avg_pool") for n in (1, 2, 3)},
    **{f"lp_pool{n}d": "lp_pool" for n in (1, 2, 3)},
    "deform_conv2d": "deform_conv",
    "causal_conv1d": "conv",
    "dequantize": "quantized_matmul",
    **dict.fromkeys(("dot", "inner", "vdot", "outer", "tensordot", "einsum"), "matmul"),
}
"""Methods that add the op of this name, or products and data movement of their
operands.
"""
LINEAR_METHODS: dict[str, Function] = {
    "affine_grid": lambda x: nn.affine_grid(x[:2, :3].reshape(1, 2, 3), (1, 1, 2, 2)),
    "broadcast_to": lambda x: nn.broadcast_to(x, (2, 3, 4)),
    "center_crop_pad": lambda x: nn.center_crop_pad(x, (2, 6)),
    "compress": lambda x: nn.compress(np.array([True, False, True]), x, 0),
    "depth_to_space": lambda x: nn.depth_to_space(x.reshape(1, 4, 1, 3), 2),
    "diagonal": lambda x: nn.diagonal(x),
    "expand_dims": lambda x: nn.expand_dims(x, 0),
    "flatten": lambda x: nn.flatten(x),
    "flip": lambda x: nn.flip(x),
    "fold": lambda x: nn.fold(x[:2].reshape(1, 2, 4), (1, 5), (1, 2)),
    "getitem": lambda x: nn.getitem(x, (slice(1), slice(None, None, -1))),
    "ifft": lambda x: nn.ifft(x),
    "interpolate": lambda x: nn.interpolate(x[None], 7, mode="linear"),
    "max_unpool": lambda x: nn.max_unpool(
        x[None], np.arange(12).reshape(1, 3, 4) % 4, 1
    ),
    "moveaxis": lambda x: nn.moveaxis(x, 0, 1),
    "resize_nearest_2x": lambda x: nn.resize_nearest_2x(x[None, None]),
    "reverse_sequence": lambda x: nn.reverse_sequence(x, np.array([1, 2, 3, 1])),
    "rfft_block": lambda x: nn.rfft_block(x),
    "roll": lambda x: nn.roll(x, 1, 1),
    "space_to_depth": lambda x: nn.space_to_depth(x.reshape(1, 1, 2, 6), 2),
    "split": lambda x: nn.split(x, (1, 2))[1],
    "split_block": lambda x: nn.split_block(x)[1],
    "squeeze": lambda x: nn.squeeze(x[None]),
    "stack": lambda x: nn.stack([x, x]),
    "swapaxes": lambda x: nn.swapaxes(x, 0, 1),
    "take": lambda x: nn.take(x, np.array([1, 1, 3]), 1),
    "trace": lambda x: nn.trace(x),
    "tril": lambda x: nn.tril(x),
    "triu": lambda x: nn.triu(x, 1),
    "unsqueeze": lambda x: nn.unsqueeze(x, 0),
}
"""Linear methods of a [3, 4] array."""
NON_DIFFERENTIABLE_METHODS = frozenset(
    """activation all any arange argmax argmin argsort bitwise_and bitwise_not
    bitcast bitwise_or bitwise_xor bucketize build conv_integer count_nonzero custom_op
    dynamic_quantize_linear eq eye fftfreq full full_like ge gt hardmax isfinite isinf
    isnan le linspace logical_and logical_not logical_or logical_xor lt matmul_integer
    max_pool_indices ne nms nonzero one_hot ones ones_like quantize_linear rfftfreq
    rope_table searchsorted shift_left shift_right topk unique zeros
    zeros_like""".split()
)
"""Methods that give bools, integers, steps or constants, or add an op by name."""
