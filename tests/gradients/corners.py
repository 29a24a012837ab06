"""Derivatives at corner points: of what, along what, and how they are compared.

A case is a function, its twin and points at which functions have corners: zeros, ties,
equal rows, the ends of what floats hold. Of each come the gradient, the tangent and the
tangent of the gradient. Elementwise functions are differentiated at many points at
once, by each operand alone; others at one point after the other, by all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import rlxweb as rlx

Array = npt.NDArray[Any]
Function = Callable[..., Any]
Points = Mapping[str, tuple[Array, ...]]
Derivatives = dict[str, list[Array]]
Wanted = tuple[Derivatives, Array]
"""Derivatives at a point, and the value there."""
NEAR = 1e-8
QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""How JAX compiles what runs a few times on a few values."""
TINY = 1e-290
"""Smaller values may be 0."""


@dataclass(frozen=True)
class Case:
    """A function and its twin, and the points by what is special about them.

    ours      of traced arrays
    theirs    the same of JAX's
    points    operands, of the same shapes each
    each      is it elementwise? Then there is one point, of all values
    rounding  how far from the twin a value may be, beside a relative tolerance
    """

    ours: Function
    theirs: Function
    points: Points
    each: bool = False
    rounding: float = 0.0


@dataclass(frozen=True)
class Otherwise:
    """Values of an elementwise function that are right although JAX has others.

    at       condition of the operands
    wanted   by names of derivatives without their kind ("0": by operand 0, both modes;
             "0 1": that by operand 1 of the gradient by operand 0): a number, or a
             function of the operands
    why      in words
    """

    at: Callable[..., Array]
    wanted: Mapping[str, Any]
    why: str


@dataclass
class Comparison:
    """Counts of values, and differences.

    compared   with JAX
    otherwise  with the value of an exception
    outside    where the function itself is NaN
    """

    compared: int = 0
    otherwise: int = 0
    outside: int = 0
    wrong: list[str] = field(default_factory=list)


def leaves(result: Any) -> Iterator[Any]:
    """Yield the float arrays of a result, of complex ones both parts."""
    if isinstance(result, tuple | list):
        for one in result:
            yield from leaves(one)
    elif hasattr(result, "dtype") and result.dtype.kind == "c":
        yield from (result.real, result.imag)
    elif hasattr(result, "dtype") and result.dtype.kind == "f":
        yield result


def uneven(shape: Sequence[int], turn: float) -> Array:
    """Return numbers between -1 and 1 that all differ."""
    count = int(np.prod(shape))
    return np.cos(1.7 * np.arange(count) + turn).reshape(tuple(shape))


def program(xp: Any, grad: Function, jvp: Function, f: Function, each: bool) -> Any:
    """Return a function of a point that gives its value and all derivatives."""

    def whole(*x: Any) -> Any:
        return tuple(leaves(f(*x)))

    def loss(*x: Any) -> Any:
        total: Any = 0.0 * xp.sum(x[0])
        for n, leaf in enumerate(whole(*x)):
            weights = np.ones(leaf.shape) if each else uneven(leaf.shape, n)
            total = total + xp.sum(leaf * weights.astype(leaf.dtype))
        return total

    def along(of: Function, *x: Any) -> list[Any]:
        """Return the value and the tangent, by all operands or by each alone."""
        if not each:
            v = tuple(
                uneven(one.shape, 5.0 + n).astype(one.dtype) for n, one in enumerate(x)
            )
            return [jvp(of, tuple(x), v)]
        made = []
        for n, one in enumerate(x):
            alone = lambda y, n=n: of(*x[:n], y, *x[n + 1 :])  # noqa: E731
            made.append(jvp(alone, (one,), (np.ones(one.shape, one.dtype),)))
        return made

    def derivatives(*x: Any) -> Any:
        slopes = grad(loss, tuple(range(len(x))))
        tangents, seconds = along(whole, *x), along(slopes, *x)
        # JAX need not trace again what the second derivatives came with.
        grads = slopes(*x) if xp is np else seconds[0][0]
        moved = ([one[1] for one in both] for both in (tangents, seconds))
        return tangents[0][0], grads, *moved

    return derivatives


def named(each: bool, grads: Any, tangents: Any, seconds: Any) -> Derivatives:
    """Return derivatives by name: "grad 0", "tangent 0", "second 0 1"."""
    made = {f"grad {n}": [one] for n, one in enumerate(grads)}
    if not each:
        made["tangent"] = list(tangents[0])
        return made | {f"second {n}": [one] for n, one in enumerate(seconds[0])}
    made |= {f"tangent {n}": list(one) for n, one in enumerate(tangents)}
    for n, row in enumerate(seconds):
        made |= {f"second {m} {n}": [one] for m, one in enumerate(row)}
    return made


def ours_of(case: Case, **where: Any) -> Iterator[Derivatives]:
    """Yield the derivatives at each point."""

    def grad(f: Function, by: Any) -> Any:
        return rlx.grad(f, argnums=by)

    found = program(np, grad, rlx.jvp, case.ours, case.each)
    run = rlx.function(lambda *x: found(*x)[1:], **where)
    for x in case.points.values():
        yield named(case.each, *run(*x))


def theirs_of(jax: Any, case: Case) -> Iterator[Wanted]:
    """Yield JAX's derivatives at each point, and the sum of the values there."""
    found = program(jax.numpy, jax.grad, jax.jvp, case.theirs, case.each)
    run = jax.jit(found, compiler_options=QUICKLY)
    for x in case.points.values():
        values, *every = run(*x)
        made = named(case.each, *every)
        wanted = {n: [np.asarray(v) for v in d] for n, d in made.items()}
        with np.errstate(all="ignore"):
            sums = sum(np.asarray(v) if case.each else np.sum(v) for v in values)
        yield wanted, np.asarray(sums)


def apart(got: Array, want: Array, case: Case, near: float, rounding: float) -> Array:
    """Return where values differ; infinities and NaN are equal to themselves."""
    with np.errstate(all="ignore"):
        size = np.abs(want)
        if not case.each:
            size = np.max(np.where(np.isfinite(size), size, 0.0), initial=0.0)
        close = np.abs(got - want) <= near * size + rounding + TINY
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | close
    return ~same


def compare(
    case: Case,
    ours: Iterable[Derivatives],
    theirs: Iterable[Wanted],
    exceptions: Sequence[Otherwise] = (),
    near: float = NEAR,
    rounding: float = 0.0,
    every_exception: bool = True,
) -> Comparison:
    """Compare all derivatives of a case at all its points.

    every_exception  is one wrong that covers no value in which JAX differs from it?
    """
    made = Comparison()
    needed = [False] * len(exceptions)
    for (label, x), got, (want, value) in zip(
        case.points.items(), ours, theirs, strict=True
    ):
        outside = np.isnan(value)
        for name, arrays in got.items():
            for one, other in zip(arrays, want[name], strict=True):
                one = np.asarray(one)
                if one.shape != other.shape:
                    made.wrong.append(f"{name}: {one.shape} for {other.shape}")
                    continue
                right, is_exception = np.array(other), np.zeros(other.shape, bool)
                for n, exception in enumerate(exceptions):
                    at, wanted = excepted(exception, name, x)
                    needed[n] |= bool((at & apart(wanted, other, case, near, 0)).any())
                    right = np.where(at, wanted, right)
                    is_exception |= at
                off = apart(one, right, case, near, case.rounding + rounding)
                off &= ~outside
                made.outside += int((outside & np.ones(off.shape, bool)).sum())
                made.otherwise += int((is_exception & ~outside).sum())
                made.compared += int((~is_exception & ~outside).sum())
                made.wrong += differences(case, label, name, x, one, right, off)
    made.wrong += [
        f"JAX agrees, so this is no exception: {exception.why}"
        for exception, is_needed in zip(exceptions, needed, strict=True)
        if every_exception and not is_needed
    ]
    return made


def excepted(
    exception: Otherwise, name: str, x: Sequence[Array]
) -> tuple[Array, Array]:
    """Return where an exception holds for a derivative, and the values wanted."""
    by = name.split(" ", 1)[1]
    with np.errstate(all="ignore"):
        at = exception.at(*x) & (by in exception.wanted)
        wanted = exception.wanted.get(by, 0.0)
        values = wanted(*x) if callable(wanted) else np.full(at.shape, wanted)
    return at, values


def differences(
    case: Case,
    label: str,
    name: str,
    x: Sequence[Array],
    got: Array,
    want: Array,
    off: Array,
) -> list[str]:
    """Return a line about the first values that differ."""
    places = np.flatnonzero(off)[:3]
    if not len(places):
        return []
    if not case.each:
        some = f"{got.ravel()[places]} for {want.ravel()[places]} at {places}"
        return [f"{label}, {name}: {some}"]
    each = (
        f"({', '.join(f'{one.flat[n]:g}' for one in x)}) "
        f"{got.flat[n]:.7g} for {want.flat[n]:.7g}"
        for n in places
    )
    return [f"{name}, {off.sum()} values: {'; '.join(each)}"]
