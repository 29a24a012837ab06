"""Derivative cases for NumPy's functions: one for each that a traced function may call.

A function is written once for NumPy and JAX, `xp` is either. Linear functions and those
without floats have tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gradients.derivative_comparison import (
    Array,
    DerivativeCase,
    Function,
    Points,
)

EDGE_VALUES = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 2.5, 3.0, -3.0, 6.0]
)
SMALL_AND_LARGE = np.array([1e-8, -1e-8, 1e8, -1e8, 1e-300, -1e-300, 1e300, -1e300])
ALL_VALUES = np.concatenate([EDGE_VALUES, SMALL_AND_LARGE])
PAIR_VALUES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-300, 1e300, -1e300])
FEW_VALUES = np.array([0.0, -0.0, 1.0, -2.0])
CANCELLATION_ATOL = 1e-12
"""Rounding error that a cancelling sum may leave."""


def cartesian_product(*arrays: Array) -> tuple[Array, ...]:
    """Return every combination of the arrays' values, as one flat array per operand."""
    return tuple(m.ravel() for m in np.meshgrid(*arrays, indexing="ij"))


def special_points(*shape: int, small: float = 1e-150) -> Points:
    """Return arrays with zeros, ties, constant rows and extreme values; rows lie along
    the last axis.
    """
    normal = np.random.default_rng(0).normal(size=shape)
    single_nonzero = np.zeros(shape)
    single_nonzero.flat[single_nonzero.size // 2] = 2.0
    zero_row = normal.copy()
    zero_row[0] = 0.0
    ties = np.round(normal)
    ties[..., :2] = 1.0
    return {
        "zeros": (np.zeros(shape),),
        "negative zeros": (-np.zeros(shape),),
        "constant": (np.full(shape, 1.5),),
        "one that is not zero": (single_nonzero,),
        "a row of zeros": (zero_row,),
        "ties": (ties,),
        "plain": (normal,),
        "small": (normal * small,),
        "large": (normal / small,),
    }


def combine_operands(*operands: Points) -> Points:
    """Return points of several operands, those with the same label combined."""
    return {k: tuple(p[k][0] for p in operands) for k in operands[0]}


def exclude_labels(points: Points, *labels: str) -> Points:
    """Return the points whose labels are not among these."""
    return {k: p for k, p in points.items() if k not in labels}


CASES: dict[str, Callable[[Any], DerivativeCase]] = {}
"""By the function's name, with more words behind it where it has several cases: the
case, for a module `jax`.
"""


def add_case(
    name: str,
    points: Points,
    f: Function | None = None,
    theirs: Function | None = None,
    is_elementwise: bool = False,
    atol: float = CANCELLATION_ATOL,
) -> None:
    """Register a case of the named function, or of a function given, with its JAX
    counterpart.
    """
    path = name.split()[0].strip(",").split(".")[1:]

    def call_by_name(xp: Any, *x: Any) -> Any:
        for part in path:
            xp = getattr(xp, part)
        return xp(*x)

    ours = f or call_by_name
    reference = theirs or ours
    assert name not in CASES, name
    CASES[name] = lambda jax: DerivativeCase(
        lambda *x: ours(np, *x),
        lambda *x: reference(jax.numpy, *x),
        points,
        is_elementwise,
        atol=atol,
    )


def add_elementwise_case(
    name: str,
    operands: tuple[Array, ...],
    f: Function | None = None,
    theirs: Function | None = None,
    atol: float = 0.0,
) -> None:
    """Register a case of an elementwise function, at all values at once."""
    add_case(name, {"values": operands}, f, theirs, True, atol)


# --- functions of elements ------------------------------------------------------------

UNARY = """
absolute fabs negative positive conjugate square sqrt reciprocal exp exp2 expm1
log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh
sign degrees rad2deg radians deg2rad rint floor ceil trunc nan_to_num real
round around angle"""
BINARY = """add subtract multiply divide remainder hypot maximum
minimum fmax fmin copysign heaviside logaddexp logaddexp2 fmod floor_divide"""
for _name in UNARY.split():
    add_elementwise_case(f"np.{_name}", (ALL_VALUES,))
for _name in BINARY.split():
    add_elementwise_case(f"np.{_name}", cartesian_product(PAIR_VALUES, PAIR_VALUES))
# Second derivatives at smaller points are beyond what floats hold.
add_elementwise_case(
    "np.cbrt", (np.where(np.abs(ALL_VALUES) == 1e-300, 1e-150, ALL_VALUES),)
)
add_elementwise_case("np.arctanh", (ALL_VALUES,), atol=1e-15)
ANGLE_VALUES = np.where(PAIR_VALUES == 1e-300, 1e-150, PAIR_VALUES)
add_elementwise_case("np.arctan2", cartesian_product(ANGLE_VALUES, ANGLE_VALUES))
for _name in ("power", "float_power"):
    add_elementwise_case(
        f"np.{_name}",
        cartesian_product(PAIR_VALUES, PAIR_VALUES[np.abs(PAIR_VALUES) < 1e100]),
    )


def interpolate(xp: Any, x: Any) -> Any:
    return xp.interp(x, np.array([-1.0, 0.0, 2.0]), np.array([1.0, 3.0, -1.0]))


add_elementwise_case(
    "np.divmod",
    cartesian_product(PAIR_VALUES, PAIR_VALUES),
    lambda xp, x, y: xp.divmod(x, y)[1],
)
add_elementwise_case("np.modf", (ALL_VALUES,))
add_elementwise_case("np.ldexp", (ALL_VALUES,), lambda xp, x: xp.ldexp(x, np.int32(3)))
add_elementwise_case("np.fix", (ALL_VALUES,), theirs=lambda xp, x: xp.trunc(x))
add_elementwise_case("np.sinc", (ALL_VALUES,), atol=CANCELLATION_ATOL)
for _power in (0, 1, 2, 3.0, 0.5, -1, 1.5):
    add_elementwise_case(
        f"np.power {_power}", (ALL_VALUES,), lambda xp, x, p=_power: x**p
    )
add_elementwise_case("np.clip", (ALL_VALUES,), lambda xp, x: xp.clip(x, -1.0, 2.0))
add_elementwise_case(
    "np.clip crossed", (ALL_VALUES,), lambda xp, x: xp.clip(x, 2.0, -1.0)
)
add_elementwise_case(
    "np.clip by arrays", cartesian_product(FEW_VALUES, FEW_VALUES, FEW_VALUES)
)
add_elementwise_case(
    "np.where",
    cartesian_product(PAIR_VALUES, PAIR_VALUES),
    lambda xp, x, y: xp.where(x > y, x * y, x - y),
)
add_elementwise_case(
    "np.select",
    (ALL_VALUES,),
    lambda xp, x: xp.select([x < 0, x < 1], [-x, x**2], 2 * x),
)
add_elementwise_case("np.real_if_close", (ALL_VALUES,), theirs=lambda xp, x: x)
add_elementwise_case("np.interp", (ALL_VALUES,), interpolate)
add_elementwise_case(
    "np.polyval",
    (ALL_VALUES[np.abs(ALL_VALUES) < 1e100],),
    lambda xp, x: xp.polyval(np.array([1.0, -2.0, 0.5]), x),
)

# --- reductions, orders, statistics ---------------------------------------------------

VECTORS = special_points(6)
MATRICES = special_points(3, 4)
SQUARE_MATRICES = special_points(3, 3)
MODERATE_MATRICES = special_points(3, 4, small=1e-40)
"""Points whose products of a few elements neither overflow nor vanish."""


def add_row_reduction(
    name: str, points: Points, theirs: Function | None = None
) -> None:
    """Register the case of a reduction along the last axis."""
    add_case(
        f"np.{name}",
        points,
        lambda xp, x: getattr(xp, name)(x, axis=-1),
        theirs,
    )


def safe_sqrt(xp: Any, squares: Any) -> Any:
    """Return the square root with slope 0 at 0, as PyTorch's norm and std have it."""
    is_positive = squares > 0
    return xp.where(is_positive, xp.sqrt(xp.where(is_positive, squares, 1.0)), 0.0)


def abs_flat_at_zero(xp: Any, x: Any) -> Any:
    """Return |x| with slope 0 at 0; JAX's own has slope 1."""
    return x * xp.sign(x)


def p_norm(xp: Any, x: Any, p: float) -> Any:
    """Return the norms of rows, with slope 0 by elements that are 0."""
    is_nonzero = x != 0
    sums = xp.sum(
        xp.where(
            is_nonzero, abs_flat_at_zero(xp, xp.where(is_nonzero, x, 1.0)) ** p, 0.0
        ),
        -1,
    )
    row_is_nonzero = sums > 0
    return xp.where(row_is_nonzero, xp.where(row_is_nonzero, sums, 1.0) ** (1 / p), 0.0)


for _name in "prod cumprod".split():
    add_row_reduction(_name, MODERATE_MATRICES)
for _name in "var max min amax amin ptp median".split():
    add_row_reduction(_name, MATRICES)
add_row_reduction("std", MATRICES, lambda xp, x: safe_sqrt(xp, xp.var(x, -1)))
add_case("np.max of all", MATRICES, lambda xp, x: xp.max(x))
add_case("np.median of all", MATRICES, lambda xp, x: xp.median(x))
add_case("np.prod of all", special_points(3, 4, small=1e-20), lambda xp, x: xp.prod(x))
MATRICES_WITH_NAN = {
    k: (np.where(np.arange(4) == 1, np.nan, p[0]),)
    for k, p in MODERATE_MATRICES.items()
}
for _name in "nansum nanprod nanmean nanvar nanmax nanmin nanmedian".split():
    add_row_reduction(_name, MATRICES_WITH_NAN)
add_row_reduction(
    "nanstd", MATRICES_WITH_NAN, lambda xp, x: safe_sqrt(xp, xp.nanvar(x, axis=-1))
)
add_case(
    "np.var of complex numbers",
    combine_operands(VECTORS, VECTORS),
    lambda xp, x, y: xp.var(x + 1j * y),
)
add_case(
    "np.quantile",
    MATRICES,
    lambda xp, x: xp.quantile(x, np.array([0.0, 0.3, 0.5, 1.0]), axis=-1),
)
add_case("np.percentile", MATRICES, lambda xp, x: xp.percentile(x, 40, axis=-1))
add_case(
    "np.nanquantile", MATRICES_WITH_NAN, lambda xp, x: xp.nanquantile(x, 0.3, axis=-1)
)
add_case(
    "np.nanpercentile",
    MATRICES_WITH_NAN,
    lambda xp, x: xp.nanpercentile(x, 40, axis=-1),
)
add_case("np.sort", MATRICES)
add_case(
    "np.take_along_axis",
    MATRICES,
    lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=-1)[:, :2], axis=-1),
)
add_case("np.unwrap", VECTORS)
add_case("np.unwrap of half turns", {"half turns": (np.pi * np.arange(6.0),)})
add_case(
    "np.trapezoid with places",
    combine_operands(VECTORS, VECTORS),
    lambda xp, y, x: xp.trapezoid(y, x),
)
add_case("np.cov", MATRICES)
add_case("np.corrcoef", {k: MATRICES[k] for k in ("plain", "ties")})
add_case(
    "np.interp by its table",
    VECTORS,
    lambda xp, y: xp.interp(np.array([-2.0, 0, 0.5, 5, 9]), np.arange(6.0), y),
)
add_case(
    "np.polyval by its factors",
    VECTORS,
    lambda xp, p: xp.polyval(p, np.array([0.0, 1, -1, 0.5])),
)

# --- products, norms and systems ------------------------------------------------------

INVERTIBLE: Points = {
    "identity": (np.eye(3),),
    "diagonal": (np.diag([1.0, -2.0, 3.0]),),
    "zeros on the diagonal": (np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 2.0]]),),
    "ties": (np.array([[2.0, 1, 1], [1, 2, 1], [1, 1, 2]]),),
    "small": (np.eye(3) * 1e-50,),
    "large": (np.eye(3) * 1e50,),
}
"""Invertible matrices."""

for _name in "matmul dot inner outer vecdot tensordot kron cross".split():
    add_case(f"np.{_name}", combine_operands(SQUARE_MATRICES, SQUARE_MATRICES))
add_case("np.vdot", combine_operands(VECTORS, VECTORS))
for _name in "matmul vecdot".split():
    add_case(f"np.linalg.{_name}", combine_operands(SQUARE_MATRICES, SQUARE_MATRICES))
add_case(
    "np.einsum",
    combine_operands(SQUARE_MATRICES, SQUARE_MATRICES),
    lambda xp, x, y: xp.einsum("ij,kj->ik", x, y) * xp.einsum("ii->", x),
)
for _name in ("convolve", "correlate"):
    add_case(
        f"np.{_name}",
        combine_operands(VECTORS, VECTORS),
        lambda xp, x, y, n=_name: getattr(xp, n)(x, y, "same"),
    )
add_case(
    "np.linalg.norm",
    exclude_labels(VECTORS, "small", "large"),
    theirs=lambda xp, x: safe_sqrt(xp, xp.sum(x * x)),
)
add_case(
    "np.linalg.norm of rows",
    exclude_labels(MATRICES, "small", "large"),
    lambda xp, x: xp.linalg.norm(x, axis=-1),
    lambda xp, x: safe_sqrt(xp, xp.sum(x * x, -1)),
)
VECTOR_NORMS: dict[float, Function] = {
    1: lambda xp, x: xp.sum(abs_flat_at_zero(xp, x), -1),
    np.inf: lambda xp, x: xp.max(abs_flat_at_zero(xp, x), -1),
    -np.inf: lambda xp, x: xp.min(abs_flat_at_zero(xp, x), -1),
    0: lambda xp, x: xp.sum(x != 0, -1) * 1.0,
    3: lambda xp, x: p_norm(xp, x, 3.0),
    0.5: lambda xp, x: p_norm(xp, x, 0.5),
}
for _ord, _reference in VECTOR_NORMS.items():
    add_case(
        f"np.linalg.norm of rows, {_ord}",
        exclude_labels(MATRICES, "small", "large"),
        lambda xp, x, o=_ord: xp.linalg.norm(x, o, axis=-1),
        _reference,
    )
MATRIX_NORMS: dict[Any, Function] = {
    "fro": lambda xp, x: safe_sqrt(xp, xp.sum(x * x)),
    1: lambda xp, x: xp.max(xp.sum(abs_flat_at_zero(xp, x), 0)),
    -np.inf: lambda xp, x: xp.min(xp.sum(abs_flat_at_zero(xp, x), 1)),
}
for _ord, _reference in MATRIX_NORMS.items():
    add_case(
        f"np.linalg.norm of a matrix, {_ord}",
        exclude_labels(MATRICES, "small", "large"),
        lambda xp, x, o=_ord: xp.linalg.norm(x, o),
        _reference,
    )
add_case(
    "np.linalg.norm of complex numbers",
    exclude_labels(combine_operands(VECTORS, VECTORS), "small", "large"),
    lambda xp, x, y: xp.linalg.norm(x + 1j * y),
    lambda xp, x, y: safe_sqrt(xp, xp.sum(x * x + y * y)),
)
add_case("np.linalg.cholesky", INVERTIBLE, lambda xp, a: xp.linalg.cholesky(a @ a.T))
for _name in "inv det slogdet".split():
    add_case(f"np.linalg.{_name}", INVERTIBLE)
add_case("np.linalg.det of singular matrices", SQUARE_MATRICES)
add_case(
    "np.linalg.solve",
    combine_operands(INVERTIBLE, dict.fromkeys(INVERTIBLE, (np.ones((3, 2)),))),
)
add_case(
    "np.linalg.matrix_power",
    SQUARE_MATRICES,
    lambda xp, a: xp.linalg.matrix_power(a, 3),
)
add_case(
    "np.linalg.matrix_power of inverses",
    INVERTIBLE,
    lambda xp, a: xp.linalg.matrix_power(a, -2),
)
add_case(
    "np.linalg.multi_dot",
    combine_operands(SQUARE_MATRICES, SQUARE_MATRICES, SQUARE_MATRICES),
    lambda xp, a, b, c: xp.linalg.multi_dot([a, b, c]),
)


def rfft_power(xp: Any, x: Any) -> Any:
    z = xp.fft.rfft(x)
    return xp.real(z) ** 2 + xp.imag(z) ** 2


add_case(
    "np.fft.rfft, power", VECTORS, lambda xp, x: xp.abs(xp.fft.rfft(x)) ** 2, rfft_power
)
add_case(
    "np.fft.rfft, amplitude",
    exclude_labels(VECTORS, "small", "large"),
    lambda xp, x: xp.abs(xp.fft.rfft(x)),
    lambda xp, x: safe_sqrt(xp, rfft_power(xp, x)),
)

# --- complex numbers ------------------------------------------------------------------

COMPLEX_PLANE = cartesian_product(
    np.array([0.0, 1, -1, 0.5, -3]), np.array([0.0, 1, -2, 1e-3])
)
COMPLEX_UNARY = (
    "negative positive rint reciprocal square conjugate absolute exp log sqrt"
)
COMPLEX_BINARY = "add subtract multiply divide power"


def combine_parts(xp: Any, z: Any) -> Any:
    """Return a sum of the real and imaginary parts in which neither hides the other."""
    return xp.real(z) + np.sqrt(2) * xp.imag(z)


for _name in COMPLEX_UNARY.split():
    _valid = (
        (COMPLEX_PLANE[0] != 0) | (COMPLEX_PLANE[1] != 0)
        if _name in ("log", "reciprocal")
        else ...
    )
    add_elementwise_case(
        f"np.{_name} of complex numbers",
        tuple(x[_valid] for x in COMPLEX_PLANE),
        lambda xp, a, b, n=_name: combine_parts(xp, getattr(xp, n)(a + 1j * b)),
        atol=CANCELLATION_ATOL,
    )
COMPLEX_PAIRS = cartesian_product(*(np.array([0.0, 1, -2]),) * 4)
for _name in COMPLEX_BINARY.split():
    _valid = (
        (COMPLEX_PAIRS[0] != 0) | (COMPLEX_PAIRS[1] != 0)
        if _name == "power"
        else COMPLEX_PAIRS[2] != 0
    )
    add_elementwise_case(
        f"np.{_name} of complex numbers",
        tuple(x[_valid] for x in COMPLEX_PAIRS),
        lambda xp, a, b, c, d, n=_name: combine_parts(
            xp, getattr(xp, n)(a + 1j * b, c + 1j * d)
        ),
        atol=1e-10,
    )
add_elementwise_case(
    "np.power of complex numbers, 3",
    COMPLEX_PLANE,
    lambda xp, a, b: combine_parts(xp, (a + 1j * b) ** 3),
    lambda xp, a, b: combine_parts(xp, (a + 1j * b) * (a + 1j * b) * (a + 1j * b)),
    atol=CANCELLATION_ATOL,
)
add_elementwise_case(
    "np.angle of complex numbers",
    cartesian_product(ANGLE_VALUES, ANGLE_VALUES),
    lambda xp, a, b: xp.angle(a + 1j * b),
)

# --- linear functions -----------------------------------------------------------------

LINEAR_FUNCTIONS: dict[str, Function] = {
    "np.append": lambda x: np.append(x, 2 * x, axis=0),
    "np.array_split": lambda x: np.array_split(x, 3, axis=1)[1],
    "np.astype": lambda x: np.astype(x, np.float64),
    "np.atleast_1d": lambda x: np.atleast_1d(x),
    "np.atleast_2d": lambda x: np.atleast_2d(x),
    "np.atleast_3d": lambda x: np.atleast_3d(x),
    "np.average": lambda x: np.average(x),
    "np.broadcast_arrays": lambda x: np.broadcast_arrays(x, x[:1])[1],
    "np.broadcast_to": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "np.column_stack": lambda x: np.column_stack([x, x]),
    "np.concatenate": lambda x: np.concatenate([x, x[::-1]], axis=0),
    "np.copy": lambda x: np.copy(x),
    "np.cumsum": lambda x: np.cumsum(x, axis=1),
    "np.diag": lambda x: np.diag(x, 1),
    "np.diagonal": lambda x: np.diagonal(x),
    "np.diff": lambda x: np.diff(x),
    "np.dsplit": lambda x: np.dsplit(x[..., None], 1)[0],
    "np.dstack": lambda x: np.dstack([x, x]),
    "np.empty_like": lambda x: np.where(x == x, x, np.empty_like(x)),
    "np.expand_dims": lambda x: np.expand_dims(x, 1),
    "np.fft.fft": lambda x: np.fft.fft(x),
    "np.fft.fft2": lambda x: np.fft.fft2(x),
    "np.fft.fftn": lambda x: np.fft.fftn(x),
    "np.fft.fftshift": lambda x: np.fft.fftshift(x),
    "np.fft.ifft": lambda x: np.fft.ifft(x),
    "np.fft.ifft2": lambda x: np.fft.ifft2(x),
    "np.fft.ifftn": lambda x: np.fft.ifftn(x),
    "np.fft.ifftshift": lambda x: np.fft.ifftshift(x),
    "np.fft.irfft": lambda x: np.fft.irfft(x),
    "np.fft.irfft2": lambda x: np.fft.irfft2(x),
    "np.fft.irfftn": lambda x: np.fft.irfftn(x),
    "np.fft.rfft": lambda x: np.fft.rfft(x),
    "np.fft.rfft2": lambda x: np.fft.rfft2(x),
    "np.fft.rfftn": lambda x: np.fft.rfftn(x),
    "np.flip": lambda x: np.flip(x),
    "np.fliplr": lambda x: np.fliplr(x),
    "np.flipud": lambda x: np.flipud(x),
    "np.full_like": lambda x: np.full_like(x, 2.0) * x,
    "np.gradient": lambda x: np.gradient(x, axis=1),
    "np.hsplit": lambda x: np.hsplit(x, 2)[0],
    "np.hstack": lambda x: np.hstack([x, x]),
    "np.imag": lambda x: np.imag(1j * x),
    "np.lib.stride_tricks.sliding_window_view": lambda x: (
        np.lib.stride_tricks.sliding_window_view(x, (2, 3))
    ),
    "np.matrix_transpose": lambda x: np.matrix_transpose(x),
    "np.mean": lambda x: np.mean(x, axis=1),
    "np.meshgrid": lambda x: np.meshgrid(x[0], x[1])[0],
    "np.moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "np.ones_like": lambda x: np.ones_like(x) * x,
    "np.pad": lambda x: np.pad(x, ((1, 0), (2, 1)), mode="reflect"),
    "np.ravel": lambda x: np.ravel(x),
    "np.repeat": lambda x: np.repeat(x, 2, axis=1),
    "np.reshape": lambda x: np.reshape(x, (2, 6)),
    "np.roll": lambda x: np.roll(x, 1, axis=1),
    "np.rollaxis": lambda x: np.rollaxis(x, 1),
    "np.rot90": lambda x: np.rot90(x),
    "np.split": lambda x: np.split(x, 3)[0],
    "np.squeeze": lambda x: np.squeeze(x[None]),
    "np.stack": lambda x: np.stack([x, x], axis=1),
    "np.sum": lambda x: np.sum(x, axis=1),
    "np.swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "np.take": lambda x: np.take(x, np.array([0, 2, 2]), axis=1),
    "np.tile": lambda x: np.tile(x, (2, 3)),
    "np.trace": lambda x: np.trace(x),
    "np.transpose": lambda x: np.transpose(x),
    "np.trapezoid": lambda x: np.trapezoid(x),
    "np.tril": lambda x: np.tril(x),
    "np.triu": lambda x: np.triu(x, 1),
    "np.unstack": lambda x: np.unstack(x)[1],
    "np.vsplit": lambda x: np.vsplit(x, 3)[1],
    "np.vstack": lambda x: np.vstack([x, x]),
    "np.zeros_like": lambda x: np.zeros_like(x) + x,
}
"""Linear functions of a [3, 4] array: their derivatives are the same at every point."""

# --- functions without floats ---------------------------------------------------------

NON_FLOAT_FUNCTIONS: dict[str, Function] = {
    "np.all": lambda x: np.all(x),
    "np.any": lambda x: np.any(x),
    "np.argmax": lambda x: np.argmax(x),
    "np.argmin": lambda x: np.argmin(x),
    "np.argsort": lambda x: np.argsort(x),
    "np.bitwise_and": lambda x: np.bitwise_and(np.int32(3), x > 0),
    "np.bitwise_or": lambda x: np.bitwise_or(np.int32(3), x > 0),
    "np.bitwise_xor": lambda x: np.bitwise_xor(np.int32(3), x > 0),
    "np.count_nonzero": lambda x: np.count_nonzero(x),
    "np.digitize": lambda x: np.digitize(x, np.array([0.0, 1.0])),
    "np.equal": lambda x: np.equal(x, 1.0),
    "np.greater": lambda x: np.greater(x, 1.0),
    "np.greater_equal": lambda x: np.greater_equal(x, 1.0),
    "np.invert": lambda x: np.invert(x > 0),
    "np.isclose": lambda x: np.isclose(x, 1.0),
    "np.iscomplexobj": lambda x: np.iscomplexobj(x),
    "np.isfinite": lambda x: np.isfinite(x),
    "np.isinf": lambda x: np.isinf(x),
    "np.isnan": lambda x: np.isnan(x),
    "np.isneginf": lambda x: np.isneginf(x),
    "np.isposinf": lambda x: np.isposinf(x),
    "np.isrealobj": lambda x: np.isrealobj(x),
    "np.left_shift": lambda x: np.left_shift(np.int32(3), x > 0),
    "np.less": lambda x: np.less(x, 1.0),
    "np.less_equal": lambda x: np.less_equal(x, 1.0),
    "np.logical_and": lambda x: np.logical_and(x, 1.0),
    "np.logical_not": lambda x: np.logical_not(x),
    "np.logical_or": lambda x: np.logical_or(x, 1.0),
    "np.logical_xor": lambda x: np.logical_xor(x, 1.0),
    "np.ndim": lambda x: np.ndim(x),
    "np.not_equal": lambda x: np.not_equal(x, 1.0),
    "np.result_type": lambda x: np.result_type(x),
    "np.right_shift": lambda x: np.right_shift(np.int32(3), x > 0),
    "np.searchsorted": lambda x: np.searchsorted(np.array([0.0, 1.0]), x),
    "np.shape": lambda x: np.shape(x),
    "np.signbit": lambda x: np.signbit(x),
    "np.size": lambda x: np.size(x),
}
"""Functions that give bools, integers, shapes or dtypes."""
