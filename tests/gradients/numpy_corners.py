"""Corner points of NumPy's functions: each that a traced function may call has a case.

A function is written once for NumPy and JAX, `xp` is either. Linear functions and those
without floats have tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gradients.corners import Array, Case, Function, Points

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 2.5, 3.0, -3.0, 6.0])
SMALL_AND_LARGE = np.array([1e-8, -1e-8, 1e8, -1e8, 1e-300, -1e-300, 1e300, -1e300])
EVERY = np.concatenate([EDGES, SMALL_AND_LARGE])
PAIRED = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-300, 1e300, -1e300])
FEW = np.array([0.0, -0.0, 1.0, -2.0])
ROUND_OFF = 1e-12
"""What rounding may leave of a sum that cancels."""


def crossed(*each: Array) -> tuple[Array, ...]:
    """Return every value of one array beside every value of the others."""
    return tuple(m.ravel() for m in np.meshgrid(*each, indexing="ij"))


def special(*shape: int, small: float = 1e-150) -> Points:
    """Return arrays with something special in them, their rows along the last axis."""
    some = np.random.default_rng(0).normal(size=shape)
    lone = np.zeros(shape)
    lone.flat[lone.size // 2] = 2.0
    row = some.copy()
    row[0] = 0.0
    ties = np.round(some)
    ties[..., :2] = 1.0
    return {
        "zeros": (np.zeros(shape),),
        "negative zeros": (-np.zeros(shape),),
        "constant": (np.full(shape, 1.5),),
        "one that is not zero": (lone,),
        "a row of zeros": (row,),
        "ties": (ties,),
        "plain": (some,),
        "small": (some * small,),
        "large": (some / small,),
    }


def together(*every: Points) -> Points:
    """Return points of several operands, those of one label beside each other."""
    return {k: tuple(p[k][0] for p in every) for k in every[0]}


def without(points: Points, *labels: str) -> Points:
    """Return the points of other labels."""
    return {k: p for k, p in points.items() if k not in labels}


CASES: dict[str, Callable[[Any], Case]] = {}
"""By the function's name, with more words behind it where it has several cases: the
case, for a module `jax`.
"""


def add(
    name: str,
    points: Points,
    f: Function | None = None,
    theirs: Function | None = None,
    each: bool = False,
    rounding: float = ROUND_OFF,
) -> None:
    """Note a case of the function of that name, or of another, with its twin."""
    path = name.split()[0].strip(",").split(".")[1:]

    def plain(xp: Any, *x: Any) -> Any:
        for part in path:
            xp = getattr(xp, part)
        return xp(*x)

    ours = f or plain
    twin = theirs or ours
    assert name not in CASES, name
    CASES[name] = lambda jax: Case(
        lambda *x: ours(np, *x),
        lambda *x: twin(jax.numpy, *x),
        points,
        each,
        rounding=rounding,
    )


def of_elements(
    name: str,
    operands: tuple[Array, ...],
    f: Function | None = None,
    theirs: Function | None = None,
    rounding: float = 0.0,
) -> None:
    """Note a case of an elementwise function, at all values at once."""
    add(name, {"values": operands}, f, theirs, True, rounding)


# --- functions of elements ------------------------------------------------------------

ONE = """absolute fabs negative positive conjugate square sqrt reciprocal exp exp2 expm1
log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh
sign degrees rad2deg radians deg2rad rint floor ceil trunc nan_to_num real
round around angle"""
TWO = """add subtract multiply divide remainder hypot maximum
minimum fmax fmin copysign heaviside logaddexp logaddexp2 fmod floor_divide"""
for _name in ONE.split():
    of_elements(f"np.{_name}", (EVERY,))
for _name in TWO.split():
    of_elements(f"np.{_name}", crossed(PAIRED, PAIRED))
# Second derivatives at smaller points are beyond what floats hold.
of_elements("np.cbrt", (np.where(np.abs(EVERY) == 1e-300, 1e-150, EVERY),))
of_elements("np.arctanh", (EVERY,), rounding=1e-15)
ANGLED = np.where(PAIRED == 1e-300, 1e-150, PAIRED)
of_elements("np.arctan2", crossed(ANGLED, ANGLED))
for _name in ("power", "float_power"):
    of_elements(f"np.{_name}", crossed(PAIRED, PAIRED[np.abs(PAIRED) < 1e100]))


def line(xp: Any, x: Any) -> Any:
    return xp.interp(x, np.array([-1.0, 0.0, 2.0]), np.array([1.0, 3.0, -1.0]))


of_elements("np.divmod", crossed(PAIRED, PAIRED), lambda xp, x, y: xp.divmod(x, y)[1])
of_elements("np.modf", (EVERY,))
of_elements("np.ldexp", (EVERY,), lambda xp, x: xp.ldexp(x, np.int32(3)))
of_elements("np.fix", (EVERY,), theirs=lambda xp, x: xp.trunc(x))
of_elements("np.sinc", (EVERY,), rounding=ROUND_OFF)
for _power in (0, 1, 2, 3.0, 0.5, -1, 1.5):
    of_elements(f"np.power {_power}", (EVERY,), lambda xp, x, p=_power: x**p)
of_elements("np.clip", (EVERY,), lambda xp, x: xp.clip(x, -1.0, 2.0))
of_elements("np.clip crossed", (EVERY,), lambda xp, x: xp.clip(x, 2.0, -1.0))
of_elements("np.clip by arrays", crossed(FEW, FEW, FEW))
of_elements(
    "np.where", crossed(PAIRED, PAIRED), lambda xp, x, y: xp.where(x > y, x * y, x - y)
)
of_elements(
    "np.select",
    (EVERY,),
    lambda xp, x: xp.select([x < 0, x < 1], [-x, x**2], 2 * x),
)
of_elements("np.real_if_close", (EVERY,), theirs=lambda xp, x: x)
of_elements("np.interp", (EVERY,), line)
of_elements(
    "np.polyval",
    (EVERY[np.abs(EVERY) < 1e100],),
    lambda xp, x: xp.polyval(np.array([1.0, -2.0, 0.5]), x),
)

# --- reductions, orders, statistics ---------------------------------------------------

V, M, SQUARE = special(6), special(3, 4), special(3, 3)
MILD = special(3, 4, small=1e-40)
"""So that products of a few neither overflow nor vanish."""


def over_rows(name: str, points: Points, theirs: Function | None = None) -> None:
    """Note the case of a reduction along the last axis."""
    add(
        f"np.{name}",
        points,
        lambda xp, x: getattr(xp, name)(x, axis=-1),
        theirs,
    )


def root(xp: Any, squares: Any) -> Any:
    """Return the root with slope 0 at 0, as PyTorch's norm and std have it."""
    some = squares > 0
    return xp.where(some, xp.sqrt(xp.where(some, squares, 1.0)), 0.0)


def size(xp: Any, x: Any) -> Any:
    """Return |x| with slope 0 at 0: JAX's own has slope 1."""
    return x * xp.sign(x)


def p_norm(xp: Any, x: Any, p: float) -> Any:
    """Return the norms of rows, with slope 0 by elements that are 0."""
    some = x != 0
    sums = xp.sum(xp.where(some, size(xp, xp.where(some, x, 1.0)) ** p, 0.0), -1)
    any_of = sums > 0
    return xp.where(any_of, xp.where(any_of, sums, 1.0) ** (1 / p), 0.0)


for _name in "prod cumprod".split():
    over_rows(_name, MILD)
for _name in "var max min amax amin ptp median".split():
    over_rows(_name, M)
over_rows("std", M, lambda xp, x: root(xp, xp.var(x, -1)))
add("np.max of all", M, lambda xp, x: xp.max(x))
add("np.median of all", M, lambda xp, x: xp.median(x))
add("np.prod of all", special(3, 4, small=1e-20), lambda xp, x: xp.prod(x))
HOLES = {k: (np.where(np.arange(4) == 1, np.nan, p[0]),) for k, p in MILD.items()}
for _name in "nansum nanprod nanmean nanvar nanmax nanmin nanmedian".split():
    over_rows(_name, HOLES)
over_rows("nanstd", HOLES, lambda xp, x: root(xp, xp.nanvar(x, axis=-1)))
add("np.var of complex numbers", together(V, V), lambda xp, x, y: xp.var(x + 1j * y))
add(
    "np.quantile",
    M,
    lambda xp, x: xp.quantile(x, np.array([0.0, 0.3, 0.5, 1.0]), axis=-1),
)
add("np.percentile", M, lambda xp, x: xp.percentile(x, 40, axis=-1))
add("np.nanquantile", HOLES, lambda xp, x: xp.nanquantile(x, 0.3, axis=-1))
add("np.nanpercentile", HOLES, lambda xp, x: xp.nanpercentile(x, 40, axis=-1))
add("np.sort", M)
add(
    "np.take_along_axis",
    M,
    lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=-1)[:, :2], axis=-1),
)
add("np.unwrap", V)
add("np.unwrap of half turns", {"half turns": (np.pi * np.arange(6.0),)})
add("np.trapezoid with places", together(V, V), lambda xp, y, x: xp.trapezoid(y, x))
add("np.cov", M)
add("np.corrcoef", {k: M[k] for k in ("plain", "ties")})
add(
    "np.interp by its table",
    V,
    lambda xp, y: xp.interp(np.array([-2.0, 0, 0.5, 5, 9]), np.arange(6.0), y),
)
add(
    "np.polyval by its factors",
    V,
    lambda xp, p: xp.polyval(p, np.array([0.0, 1, -1, 0.5])),
)

# --- products, norms and systems ------------------------------------------------------

WELL: Points = {
    "identity": (np.eye(3),),
    "diagonal": (np.diag([1.0, -2.0, 3.0]),),
    "zeros on the diagonal": (np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 2.0]]),),
    "ties": (np.array([[2.0, 1, 1], [1, 2, 1], [1, 1, 2]]),),
    "small": (np.eye(3) * 1e-50,),
    "large": (np.eye(3) * 1e50,),
}
"""Matrices that have inverses."""

for _name in "matmul dot inner outer vecdot tensordot kron cross".split():
    add(f"np.{_name}", together(SQUARE, SQUARE))
add("np.vdot", together(V, V))
for _name in "matmul vecdot".split():
    add(f"np.linalg.{_name}", together(SQUARE, SQUARE))
add(
    "np.einsum",
    together(SQUARE, SQUARE),
    lambda xp, x, y: xp.einsum("ij,kj->ik", x, y) * xp.einsum("ii->", x),
)
for _name in ("convolve", "correlate"):
    add(
        f"np.{_name}",
        together(V, V),
        lambda xp, x, y, n=_name: getattr(xp, n)(x, y, "same"),
    )
add(
    "np.linalg.norm",
    without(V, "small", "large"),
    theirs=lambda xp, x: root(xp, xp.sum(x * x)),
)
add(
    "np.linalg.norm of rows",
    without(M, "small", "large"),
    lambda xp, x: xp.linalg.norm(x, axis=-1),
    lambda xp, x: root(xp, xp.sum(x * x, -1)),
)
NORMS: dict[float, Function] = {
    1: lambda xp, x: xp.sum(size(xp, x), -1),
    np.inf: lambda xp, x: xp.max(size(xp, x), -1),
    -np.inf: lambda xp, x: xp.min(size(xp, x), -1),
    0: lambda xp, x: xp.sum(x != 0, -1) * 1.0,
    3: lambda xp, x: p_norm(xp, x, 3.0),
    0.5: lambda xp, x: p_norm(xp, x, 0.5),
}
for _ord, _twin in NORMS.items():
    add(
        f"np.linalg.norm of rows, {_ord}",
        without(M, "small", "large"),
        lambda xp, x, o=_ord: xp.linalg.norm(x, o, axis=-1),
        _twin,
    )
OF_MATRICES: dict[Any, Function] = {
    "fro": lambda xp, x: root(xp, xp.sum(x * x)),
    1: lambda xp, x: xp.max(xp.sum(size(xp, x), 0)),
    -np.inf: lambda xp, x: xp.min(xp.sum(size(xp, x), 1)),
}
for _ord, _twin in OF_MATRICES.items():
    add(
        f"np.linalg.norm of a matrix, {_ord}",
        without(M, "small", "large"),
        lambda xp, x, o=_ord: xp.linalg.norm(x, o),
        _twin,
    )
add(
    "np.linalg.norm of complex numbers",
    without(together(V, V), "small", "large"),
    lambda xp, x, y: xp.linalg.norm(x + 1j * y),
    lambda xp, x, y: root(xp, xp.sum(x * x + y * y)),
)
add("np.linalg.cholesky", WELL, lambda xp, a: xp.linalg.cholesky(a @ a.T))
for _name in "inv det slogdet".split():
    add(f"np.linalg.{_name}", WELL)
add("np.linalg.det of singular matrices", SQUARE)
add("np.linalg.solve", together(WELL, dict.fromkeys(WELL, (np.ones((3, 2)),))))
add("np.linalg.matrix_power", SQUARE, lambda xp, a: xp.linalg.matrix_power(a, 3))
add(
    "np.linalg.matrix_power of inverses",
    WELL,
    lambda xp, a: xp.linalg.matrix_power(a, -2),
)
add(
    "np.linalg.multi_dot",
    together(SQUARE, SQUARE, SQUARE),
    lambda xp, a, b, c: xp.linalg.multi_dot([a, b, c]),
)


def power(xp: Any, x: Any) -> Any:
    z = xp.fft.rfft(x)
    return xp.real(z) ** 2 + xp.imag(z) ** 2


add("np.fft.rfft, power", V, lambda xp, x: xp.abs(xp.fft.rfft(x)) ** 2, power)
add(
    "np.fft.rfft, amplitude",
    without(V, "small", "large"),
    lambda xp, x: xp.abs(xp.fft.rfft(x)),
    lambda xp, x: root(xp, power(xp, x)),
)

# --- complex numbers ------------------------------------------------------------------

PLANE = crossed(np.array([0.0, 1, -1, 0.5, -3]), np.array([0.0, 1, -2, 1e-3]))
COMPLEX_ONE = "negative positive rint reciprocal square conjugate absolute exp log sqrt"
COMPLEX_TWO = "add subtract multiply divide power"


def both(xp: Any, z: Any) -> Any:
    """Return numbers in which neither part of z hides the other."""
    return xp.real(z) + np.sqrt(2) * xp.imag(z)


for _name in COMPLEX_ONE.split():
    _some = (PLANE[0] != 0) | (PLANE[1] != 0) if _name in ("log", "reciprocal") else ...
    of_elements(
        f"np.{_name} of complex numbers",
        tuple(x[_some] for x in PLANE),
        lambda xp, a, b, n=_name: both(xp, getattr(xp, n)(a + 1j * b)),
        rounding=ROUND_OFF,
    )
FOUR = crossed(*(np.array([0.0, 1, -2]),) * 4)
for _name in COMPLEX_TWO.split():
    _some = (FOUR[0] != 0) | (FOUR[1] != 0) if _name == "power" else FOUR[2] != 0
    of_elements(
        f"np.{_name} of complex numbers",
        tuple(x[_some] for x in FOUR),
        lambda xp, a, b, c, d, n=_name: both(
            xp, getattr(xp, n)(a + 1j * b, c + 1j * d)
        ),
        rounding=1e-10,
    )
of_elements(
    "np.power of complex numbers, 3",
    PLANE,
    lambda xp, a, b: both(xp, (a + 1j * b) ** 3),
    lambda xp, a, b: both(xp, (a + 1j * b) * (a + 1j * b) * (a + 1j * b)),
    rounding=ROUND_OFF,
)
of_elements(
    "np.angle of complex numbers",
    crossed(ANGLED, ANGLED),
    lambda xp, a, b: xp.angle(a + 1j * b),
)

# --- linear functions -----------------------------------------------------------------

LINEAR: dict[str, Function] = {
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
"""Functions whose derivatives are themselves, whatever the point. Of [3, 4]."""

# --- functions without floats ---------------------------------------------------------

WITHOUT: dict[str, Function] = {
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
