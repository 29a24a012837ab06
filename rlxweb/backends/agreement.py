"""A result against the right one: NumPy in float64, within the op's tolerance.

Owns the graph of one op, what it must give, and the comparison. Who is judged, and on
which cases, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.backends.evaluate import evaluate
from rlxweb.backends.protocol import Array
from rlxweb.ir.dtype import DType, cast_to
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, Tolerance
from rlxweb.ir.sample import Sample

# A float16 holds 11 bits; NumPy also sums in it, a GPU sums in float32.
HALF = Tolerance(rtol=4e-3, atol=4e-3, relative_to_peak=True)
# And a bfloat16 eight.
BRAIN = Tolerance(rtol=3e-2, atol=3e-2, relative_to_peak=True)


def one_op(op: Op, sample: Sample, arrays: Sequence[Array]) -> Graph:
    """The op on inputs x0, x1 … of the sample's types."""
    graph = Graph(f"{op.name} sample")
    named = feeds_of(arrays).items()
    xs = [graph.input(name, array.shape, array.dtype) for name, array in named]
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return graph


def feeds_of(arrays: Sequence[Array]) -> dict[str, Array]:
    """The arrays by the names that `one_op` gives its inputs."""
    return {f"x{k}": array for k, array in enumerate(arrays)}


def dtypes_of(graph: Graph) -> set[DType]:
    """The element types of all nodes."""
    return {node.type.dtype for node in graph.nodes()}


def oracle(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """Every output in float64, by the ops' references."""
    return [np.asarray(a) for a in evaluate(graph, feeds, promote=True)]


def rounding(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """How far NumPy in the graph's own types is from float64, per element."""
    plain = evaluate(graph, feeds)
    return [
        np.abs(in_double(a) - np.asarray(b, np.float64))
        for a, b in zip(plain, oracle(graph, feeds), strict=True)
    ]


def in_double(array: Any) -> Array:
    """Numbers of any of our types in float64."""
    array = np.asarray(array)
    return cast_to(array, DType.F64)


def allowed_of(dtype: DType, own: Tolerance) -> Tolerance:
    """The tolerance of an op whose result is of a type: a short float's is its own."""
    return {DType.F16: HALF, DType.BF16: BRAIN}.get(dtype, own)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near a result is to what it must be.

    why        "" when every element is within its tolerance, else the reason
    wrong      elements that are not, of `size`
    max_error  the largest |got - want| where both are finite
    share      the largest error in parts of its own allowance; 0 when there is none
    allowed    the allowance of that element
    first      index, result and right value of the first wrong element
    answer     the result in words, where that is what was asked for
    """

    why: str = ""
    wrong: int = 0
    size: int = 0
    max_error: float = 0.0
    share: float = 0.0
    allowed: float = 0.0
    first: tuple[tuple[int, ...], Any, Any] | None = None
    answer: str = ""


def compare(
    got: Any, want: Array, dtype: DType, tolerance: Tolerance, extra: Any = 0.0
) -> Agreement:
    """A result against the right one.

    Integers, bools and non-finite values must be equal. `extra` is a further allowance
    per element (reliability.md A1: what NumPy in float32 is off by, times eight).
    """
    if not isinstance(got, np.ndarray):
        return Agreement(f"a {type(got).__name__}, not an array")
    if got.dtype != dtype.numpy or got.shape != want.shape:
        return Agreement(f"{got.shape} {got.dtype} instead of {want.shape} {dtype}")
    if got.size == 0:
        return Agreement()
    have, right = in_double(got), in_double(want)
    if dtype.is_float:
        tolerance = allowed_of(dtype, tolerance)
        allowed = np.broadcast_to(_allowed(right, tolerance, extra), right.shape)
        right_here = _agrees(have, right, allowed)
    else:
        allowed = np.zeros(right.shape)
        right_here = got == want
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(have - right)
        error = np.where(np.isfinite(error), error, 0.0)
        share = np.where(error > 0, error / allowed, 0.0)
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    numbers = (float(error.max()), float(share[worst]), float(allowed[worst]))
    wrong = int(right_here.size - np.count_nonzero(right_here))
    if not wrong:
        return Agreement("", 0, got.size, *numbers)
    at = tuple(int(i) for i in np.argwhere(~right_here)[0])
    is_near = 0 < allowed[at] < np.inf
    near = f"within {allowed[at]:.3g} of it" if is_near else "must be equal"
    shown = (have, right) if dtype is DType.BF16 else (got, want)
    found, wanted = (values[at] for values in shown)
    why = (
        f"{wrong} of {got.size} elements are wrong, first at {at}: "
        f"{found} instead of {wanted} ({near})"
    )
    return Agreement(why, wrong, got.size, *numbers, (at, found, wanted))


def _allowed(right: Array, tolerance: Tolerance, extra: Any) -> Array:
    peak = 1.0
    if tolerance.relative_to_peak:
        peak = float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        allowed = tolerance.atol * peak + tolerance.rtol * np.abs(right)
        return np.asarray(np.maximum(allowed, extra))


def _agrees(have: Array, right: Array, allowed: Array) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        near = np.abs(have - right) <= allowed
    same = (have == right) | (np.isnan(have) & np.isnan(right))
    return np.asarray(np.where(np.isfinite(right), near, same), np.bool_)
