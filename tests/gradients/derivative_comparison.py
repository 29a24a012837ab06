"""Compute derivatives at corner points and compare them with JAX's.

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
ExpectedDerivatives = tuple[Derivatives, Array]
"""Derivatives at a point, and the value there."""
DEFAULT_RTOL = 1e-8
FAST_COMPILE_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""JAX compiler options for code that runs a few times on a few values."""
VALUE_FLOOR = 1e-290
"""Smaller values may be 0."""


@dataclass(frozen=True)
class DerivativeCase:
    """Function with its JAX counterpart and the points to differentiate at, by label.

    ours      of traced arrays
    theirs    the same of JAX's
    points    operands, of the same shapes each
    is_elementwise  is it elementwise? Then there is one point, of all values
    atol      how far from the twin a value may be, beside a relative tolerance
    """

    ours: Function
    theirs: Function
    points: Points
    is_elementwise: bool = False
    atol: float = 0.0


@dataclass(frozen=True)
class ReferenceOverride:
    """Correct values of an elementwise function where JAX has others.

    condition  condition of the operands
    expected  by names of derivatives without their kind ("0": by operand 0, both modes;
             "0 1": that by operand 1 of the gradient by operand 0): a number, or a
             function of the operands
    reason   in words
    """

    condition: Callable[..., Array]
    expected: Mapping[str, Any]
    reason: str


@dataclass
class DerivativeComparison:
    """Counts of compared values, and the mismatches.

    compared_count  with JAX
    overridden_count  with the value of an exception
    undefined_count  where the function itself is NaN
    """

    compared_count: int = 0
    overridden_count: int = 0
    undefined_count: int = 0
    mismatches: list[str] = field(default_factory=list)


def float_leaves(result: Any) -> Iterator[Any]:
    """Yield the float arrays of a result; for complex arrays, their real and imaginary
    parts.
    """
    if isinstance(result, tuple | list):
        for part in result:
            yield from float_leaves(part)
    elif hasattr(result, "dtype") and result.dtype.kind == "c":
        yield from (result.real, result.imag)
    elif hasattr(result, "dtype") and result.dtype.kind == "f":
        yield result


def distinct_values(shape: Sequence[int], phase: float) -> Array:
    """Return numbers between -1 and 1 that all differ."""
    count = int(np.prod(shape))
    return np.cos(1.7 * np.arange(count) + phase).reshape(tuple(shape))


def derivative_program(
    xp: Any, grad: Function, jvp: Function, f: Function, is_elementwise: bool
) -> Any:
    """Return a function of a point that gives its value and all derivatives."""

    def flat_outputs(*x: Any) -> Any:
        return tuple(float_leaves(f(*x)))

    def loss(*x: Any) -> Any:
        total: Any = 0.0 * xp.sum(x[0])
        for n, leaf in enumerate(flat_outputs(*x)):
            weights = (
                np.ones(leaf.shape)
                if is_elementwise
                else distinct_values(leaf.shape, n)
            )
            total = total + xp.sum(leaf * weights.astype(leaf.dtype))
        return total

    def forward_derivatives(function: Function, *x: Any) -> list[Any]:
        """Return the value and the tangent, by all operands or by each alone."""
        if not is_elementwise:
            v = tuple(
                distinct_values(operand.shape, 5.0 + n).astype(operand.dtype)
                for n, operand in enumerate(x)
            )
            return [jvp(function, tuple(x), v)]
        results = []
        for n, operand in enumerate(x):
            single_operand = lambda y, n=n: function(*x[:n], y, *x[n + 1 :])  # noqa: E731
            results.append(
                jvp(
                    single_operand, (operand,), (np.ones(operand.shape, operand.dtype),)
                )
            )
        return results

    def derivatives(*x: Any) -> Any:
        slopes = grad(loss, tuple(range(len(x))))
        tangents = forward_derivatives(flat_outputs, *x)
        seconds = forward_derivatives(slopes, *x)
        # JAX need not trace again what the second derivatives came with.
        grads = slopes(*x) if xp is np else seconds[0][0]
        tangent_parts = ([pair[1] for pair in pairs] for pairs in (tangents, seconds))
        return tangents[0][0], grads, *tangent_parts

    return derivatives


def name_derivatives(
    is_elementwise: bool, grads: Any, tangents: Any, seconds: Any
) -> Derivatives:
    """Return derivatives by name: "grad 0", "tangent 0", "second 0 1"."""
    derivatives = {f"grad {n}": [value] for n, value in enumerate(grads)}
    if not is_elementwise:
        derivatives["tangent"] = list(tangents[0])
        return derivatives | {
            f"second {n}": [value] for n, value in enumerate(seconds[0])
        }
    derivatives |= {f"tangent {n}": list(value) for n, value in enumerate(tangents)}
    for n, row in enumerate(seconds):
        derivatives |= {f"second {m} {n}": [value] for m, value in enumerate(row)}
    return derivatives


def our_derivatives(case: DerivativeCase, **placement: Any) -> Iterator[Derivatives]:
    """Yield our derivatives at each point."""

    def grad(f: Function, argnums: Any) -> Any:
        return rlx.grad(f, argnums=argnums)

    compute = derivative_program(np, grad, rlx.jvp, case.ours, case.is_elementwise)
    run = rlx.function(lambda *x: compute(*x)[1:], **placement)
    for x in case.points.values():
        yield name_derivatives(case.is_elementwise, *run(*x))


def jax_derivatives(jax: Any, case: DerivativeCase) -> Iterator[ExpectedDerivatives]:
    """Yield JAX's derivatives at each point, and the sum of the values there."""
    compute = derivative_program(
        jax.numpy, jax.grad, jax.jvp, case.theirs, case.is_elementwise
    )
    run = jax.jit(compute, compiler_options=FAST_COMPILE_OPTIONS)
    for x in case.points.values():
        values, *parts = run(*x)
        derivatives = name_derivatives(case.is_elementwise, *parts)
        wanted = {n: [np.asarray(v) for v in d] for n, d in derivatives.items()}
        with np.errstate(all="ignore"):
            sums = sum(
                np.asarray(v) if case.is_elementwise else np.sum(v) for v in values
            )
        yield wanted, np.asarray(sums)


def mismatch_mask(
    got: Array, want: Array, case: DerivativeCase, rtol: float, atol: float
) -> Array:
    """Return the mask of values that differ; infinities and NaN equal themselves."""
    with np.errstate(all="ignore"):
        size = np.abs(want)
        if not case.is_elementwise:
            size = np.max(np.where(np.isfinite(size), size, 0.0), initial=0.0)
        close = np.abs(got - want) <= rtol * size + atol + VALUE_FLOOR
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | close
    return ~same


def compare_derivatives(
    case: DerivativeCase,
    ours: Iterable[Derivatives],
    theirs: Iterable[ExpectedDerivatives],
    exceptions: Sequence[ReferenceOverride] = (),
    rtol: float = DEFAULT_RTOL,
    atol: float = 0.0,
    requires_every_exception: bool = True,
) -> DerivativeComparison:
    """Compare all derivatives of a case at all its points.

    requires_every_exception  is one wrong that covers no value in which JAX differs
                              from it?
    """
    comparison = DerivativeComparison()
    needed = [False] * len(exceptions)
    for (label, x), got, (want, value) in zip(
        case.points.items(), ours, theirs, strict=True
    ):
        is_undefined = np.isnan(value)
        for name, arrays in got.items():
            for actual, reference in zip(arrays, want[name], strict=True):
                actual = np.asarray(actual)
                if actual.shape != reference.shape:
                    comparison.mismatches.append(
                        f"{name}: {actual.shape} for {reference.shape}"
                    )
                    continue
                expected = np.array(reference)
                is_exception = np.zeros(reference.shape, bool)
                for n, exception in enumerate(exceptions):
                    mask, wanted = override_values(exception, name, x)
                    needed[n] |= bool(
                        (mask & mismatch_mask(wanted, reference, case, rtol, 0)).any()
                    )
                    expected = np.where(mask, wanted, expected)
                    is_exception |= mask
                mismatch = mismatch_mask(actual, expected, case, rtol, case.atol + atol)
                mismatch &= ~is_undefined
                comparison.undefined_count += int(
                    (is_undefined & np.ones(mismatch.shape, bool)).sum()
                )
                comparison.overridden_count += int((is_exception & ~is_undefined).sum())
                comparison.compared_count += int((~is_exception & ~is_undefined).sum())
                comparison.mismatches += describe_mismatches(
                    case, label, name, x, actual, expected, mismatch
                )
    comparison.mismatches += [
        f"JAX agrees, so this is no exception: {exception.reason}"
        for exception, is_needed in zip(exceptions, needed, strict=True)
        if requires_every_exception and not is_needed
    ]
    return comparison


def override_values(
    exception: ReferenceOverride, name: str, x: Sequence[Array]
) -> tuple[Array, Array]:
    """Return the mask of values an exception overrides in a derivative, and the values
    expected there.
    """
    by = name.split(" ", 1)[1]
    with np.errstate(all="ignore"):
        mask = exception.condition(*x) & (by in exception.expected)
        wanted = exception.expected.get(by, 0.0)
        values = wanted(*x) if callable(wanted) else np.full(mask.shape, wanted)
    return mask, values


def describe_mismatches(
    case: DerivativeCase,
    label: str,
    name: str,
    x: Sequence[Array],
    got: Array,
    want: Array,
    mismatch: Array,
) -> list[str]:
    """Return a line about the first values that differ."""
    indices = np.flatnonzero(mismatch)[:3]
    if not len(indices):
        return []
    if not case.is_elementwise:
        summary = f"{got.ravel()[indices]} for {want.ravel()[indices]} at {indices}"
        return [f"{label}, {name}: {summary}"]
    descriptions = (
        f"({', '.join(f'{operand.flat[n]:g}' for operand in x)}) "
        f"{got.flat[n]:.7g} for {want.flat[n]:.7g}"
        for n in indices
    )
    return [f"{name}, {mismatch.sum()} values: {'; '.join(descriptions)}"]
