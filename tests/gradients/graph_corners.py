"""Corner points of a graph's ops: of every record, and of every method that joins some.

A record's twin is its own reference, which JAX differentiates; functions of elements
have JAX's own, whose corners are not written as ours are. Names are those of `rlx.nn`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import typed
from rlxweb.ir.lowering import parts_of
from rlxweb.ir.op import Op, TensorType
from rlxweb.ir.sample import Sample
from rlxweb.ops.gates import SELU_ALPHA, SELU_GAMMA
from tests.gradients.corners import Array, Case, Function, Points
from tests.gradients.numpy_corners import (
    EVERY,
    PAIRED,
    ROUND_OFF,
    crossed,
    root,
    special,
    together,
    without,
)

nn = rlx.nn


def is_differentiable(op: Op) -> bool:
    """Return whether it takes floats, and has a rule or is built of ops that have."""
    floats = any(one.dtype.is_float for sample in op.samples for one in sample.inputs)
    return floats and (op.vjp is not None or parts_of(op.lower) is not None)


# --- functions of elements ------------------------------------------------------------


def _selu(jax: Any, x: Any) -> Any:
    jnp = jax.numpy
    below = SELU_ALPHA * jnp.expm1(jnp.where(x > 0, 0.0, x))
    return SELU_GAMMA * jnp.where(x > 0, x, below)


ELEMENTS: dict[str, Function] = {
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
TWO = ("prelu", "psd", "round_divide")
MORE: dict[str, tuple[Any, ...]] = {"clip": (-1.0, 2.0)}
SAME = {
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
"""Functions of elements that NumPy has: their cases are those of NumPy's names."""


def of_elements(jax: Any, name: str) -> Case:
    """Return the case of a function of elements."""
    values = crossed(PAIRED, PAIRED) if name in TWO else (EVERY,)
    more = MORE.get(name, ())
    return Case(
        lambda *x: getattr(nn, name)(*x, *more),
        lambda *x: ELEMENTS[name](jax, *x),
        {"values": values},
        each=True,
        rounding=0.0 if name in TWO else ROUND_OFF,
    )


# --- methods that join ops ------------------------------------------------------------

ROWS = special(3, 4)
SOME = without(ROWS, "small", "large")
IMAGE = {k: (p[0].reshape(1, 3, 4),) for k, p in ROWS.items()}
FEATURES = {k: (p[0].reshape(1, 1, 3, 4),) for k, p in SOME.items()}
MASK = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], bool)


def _moments(jnp: Any, x: Any, axis: Any) -> tuple[Any, Any]:
    mean = jnp.mean(x, axis, keepdims=True)
    return mean, jnp.mean((x - mean) ** 2, axis, keepdims=True)


def _normed(jnp: Any, x: Any, axis: Any = -1) -> Any:
    mean, var = _moments(jnp, x, axis)
    return (x - mean) / jnp.sqrt(var + 1e-5)


def _rms(jnp: Any, x: Any) -> Any:
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def _attention(jax: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Return attention whose rows that see no key are zeros."""
    jnp = jax.numpy
    scores = q @ jnp.swapaxes(k, -1, -2) / 2.0
    if mask is None:
        return jax.nn.softmax(scores, -1) @ v
    sees = mask.any(-1, keepdims=True)
    scores = jnp.where(mask | ~sees, scores, -jnp.inf)
    return jnp.where(sees, jax.nn.softmax(scores, -1) @ v, 0.0)


def _response(jnp: Any, x: Any) -> Any:
    square = jnp.pad(x * x, ((0, 0), (1, 1), (0, 0)))
    sums = square[:, :-2] + square[:, 1:-1] + square[:, 2:]
    return x / (1.0 + 1e-4 / 3 * sums) ** 0.75


def _unit(jnp: Any, x: Any) -> Any:
    """Return lines over their norms; of zeros x / eps, as PyTorch has it."""
    squares = jnp.sum(x * x, 1, keepdims=True)
    some = squares > 0
    by = jnp.where(some, jnp.sqrt(jnp.where(some, squares, 1.0)), 1e-12)
    return x / by


def _pooled(jnp: Any, x: Any) -> Any:
    return root(jnp, x[..., :-1] ** 2 + x[..., 1:] ** 2)


JOINED: dict[str, tuple[Points, Function, Function]] = {
    "add_layer_norm": (
        together(ROWS, ROWS),
        lambda x, y: nn.add_layer_norm(x, y)[0],
        lambda jax, x, y: _normed(jax.numpy, x + y),
    ),
    "add_rms_norm": (
        together(ROWS, ROWS),
        lambda x, y: nn.add_rms_norm(x, y)[0],
        lambda jax, x, y: _rms(jax.numpy, x + y),
    ),
    "batch_norm": (
        together(IMAGE, special(3)),
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
        lambda jax, x: _normed(jax.numpy, x, (1, 2)),
    ),
    "instance_norm": (
        IMAGE,
        lambda x: nn.instance_norm(x),
        lambda jax, x: _normed(jax.numpy, x),
    ),
    "inv_std": (
        ROWS,
        lambda x: nn.inv_std(x),
        lambda jax, x: 1 / jax.numpy.sqrt(_moments(jax.numpy, x, -1)[1] + 1e-5),
    ),
    "local_response_norm": (
        without(IMAGE, "large"),
        lambda x: nn.local_response_norm(x, 3),
        lambda jax, x: _response(jax.numpy, x),
    ),
    "logsumexp": (
        ROWS,
        lambda x: nn.logsumexp(x, -1),
        lambda jax, x: jax.nn.logsumexp(x, -1),
    ),
    "norm": (
        SOME,
        lambda x: nn.norm(x, 2.0, -1),
        lambda jax, x: root(jax.numpy, jax.numpy.sum(x * x, -1)),
    ),
    "normalize": (SOME, lambda x: nn.normalize(x), lambda jax, x: _unit(jax.numpy, x)),
    "std": (
        SOME,
        lambda x: nn.std(x, -1),
        lambda jax, x: root(jax.numpy, jax.numpy.var(x, -1)),
    ),
    "var": (ROWS, lambda x: nn.var(x, -1), lambda jax, x: jax.numpy.var(x, -1)),
    "lp_pool": (
        without(IMAGE, "small", "large"),
        lambda x: nn.lp_pool(x, 2.0, 2, 1),
        lambda jax, x: _pooled(jax.numpy, x),
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
        together(FEATURES, FEATURES, FEATURES),
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v),
        _attention,
    ),
    "scaled_dot_product_attention, a row without keys": (
        together(FEATURES, FEATURES, FEATURES),
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
SCATTERED = np.array([0, 2, 2, 1])
SCATTERS: dict[str, Function] = {
    "none": lambda jnp, x, y: jnp.stack([y[0], y[3], y[2]]),
    "add": lambda jnp, x, y: jnp.stack([x[0] + y[0], x[1] + y[3], x[2] + y[1] + y[2]]),
    "mul": lambda jnp, x, y: jnp.stack([x[0] * y[0], x[1] * y[3], x[2] * y[1] * y[2]]),
    "max": lambda jnp, x, y: x.at[SCATTERED].max(y),
    "min": lambda jnp, x, y: x.at[SCATTERED].min(y),
}
for _how, _twin in SCATTERS.items():
    _points = together(special(3, small=1e-40), special(4, small=1e-40))
    JOINED[f"scatter_nd, {_how}"] = (
        _points,
        lambda x, y, h=_how: nn.scatter_nd(x, SCATTERED[:, None], y, reduction=h) ** 2,
        lambda jax, x, y, f=_twin: f(jax.numpy, x, y) ** 2,
    )
    JOINED[f"scatter_elements, {_how}"] = (
        _points,
        lambda x, y, h=_how: nn.scatter_elements(x, SCATTERED, y, reduction=h) ** 2,
        lambda jax, x, y, f=_twin: f(jax.numpy, x, y) ** 2,
    )


METHODS = frozenset(name.split(",")[0] for name in JOINED)
ROUNDINGS = {"group_norm": 1e-9}
"""The mean of equal numbers may be off by a rounding, in JAX's own second derivatives
times 1e-5 ** -1.5.
"""


def of_joined(jax: Any, name: str) -> Case:
    """Return the case of a method that joins ops."""
    points, ours, theirs = JOINED[name]
    rounding = ROUNDINGS.get(name, ROUND_OFF)
    return Case(ours, lambda *x: theirs(jax, *x), points, rounding=rounding)


# --- records --------------------------------------------------------------------------

BIG = 400
"""Elements of the operands of a sample, at most."""
LINEAR = frozenset(
    """again avg_pool cast concat cumsum dequantize_linear dilate expand fft frame
    identity irfft mean narrow pad remap repeat reshape resize rfft segment_in
    segment_out slice stft sum sum_pool tile transpose windows""".split()
)
"""Records whose derivatives are the same at every point."""
EXEMPT = {
    "cholesky": "np.linalg.cholesky has its case, of matrices that are positive",
    "roi_align": "its reference needs numbers, JAX has none like it, and it is linear",
    "stop_gradient": "JAX differentiates its reference; see test_derivatives",
}
"""Records without a case, and why."""


def samples(op: Op) -> list[Sample]:
    """Return the smallest samples of a record with more than one element, in f64."""
    found = []
    for sample in op.samples:
        sizes = [math.prod(one.shape) for one in sample.inputs]
        floats = [one for one in sample.inputs if one.dtype.is_float]
        if floats and 1 < min(sizes, default=0) and sum(sizes) <= BIG:
            wide = (
                replace(one, dtype=DType.F64, whole=False)
                if one.dtype.is_float
                else one
                for one in sample.inputs
            )
            found.append((sum(sizes), len(found), replace(sample, inputs=tuple(wide))))
    return [sample for _, _, sample in sorted(found)[:1]]


def of_record(jax: Any, op: Op, sample: Sample) -> Case:
    """Return the case of a record: its sample with zeros, with ties, and as it is."""
    arrays = sample.draw(0)
    floats = [n for n, one in enumerate(arrays) if one.dtype.kind == "f"]
    types = tuple(TensorType(one.shape, one.dtype) for one in sample.inputs)
    attrs, _ = typed(op, types, sample.attrs)

    def among(x: Any) -> list[Any]:
        every = list(arrays)
        for n, one in zip(floats, x, strict=True):
            every[n] = one
        return every

    def ours(*x: Any) -> Any:
        return nn.build(lambda g, *t: g.apply(op.name, *t, **sample.attrs), *among(x))

    def theirs(*x: Any) -> Any:
        every = [jax.numpy.asarray(one) for one in among(x)]
        return op.reference(jax.numpy, attrs, *every)

    def points(how: Any) -> tuple[Array, ...]:
        return tuple(how(arrays[n]) for n in floats)

    special = {
        "zeros": points(np.zeros_like),
        "constant": points(lambda x: np.full_like(x, x.flat[0])),
        "ties": points(np.round),
        "plain": points(np.copy),
    }
    return Case(ours, theirs, special, rounding=ROUND_OFF)


# --- methods without a case of their own ----------------------------------------------

NAMES = {
    **{f"{kind}{n}d": kind for kind in ("conv", "conv_transpose") for n in (1, 2, 3)},
    **{f"{kind}{n}d": kind for kind in ("max_pool", "avg_pool") for n in (1, 2, 3)},
    **{f"lp_pool{n}d": "lp_pool" for n in (1, 2, 3)},
    "deform_conv2d": "deform_conv",
    "causal_conv1d": "conv",
    "dequantize": "quantized_matmul",
    **dict.fromkeys(("dot", "inner", "vdot", "outer", "tensordot", "einsum"), "matmul"),
}
"""Methods that add the op of this name, or products and what moves their operands."""
MOVES: dict[str, Function] = {
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
"""Linear methods, of [3, 4]."""
WITHOUT = frozenset(
    """activation all any arange argmax argmin argsort bitwise_and bitwise_not
    bitwise_or bitwise_xor bucketize build conv_integer count_nonzero custom_op
    dynamic_quantize_linear eq eye fftfreq full full_like ge gt hardmax isfinite isinf
    isnan le linspace logical_and logical_not logical_or logical_xor lt matmul_integer
    max_pool_indices ne nms nonzero one_hot ones ones_like quantize_linear rfftfreq
    rope_table searchsorted shift_left shift_right topk unique zeros
    zeros_like""".split()
)
"""Methods that give bools, integers, steps or constants, or add an op that is named."""
