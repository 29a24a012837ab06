"""Comparison of a result with the reference: NumPy in float64, within the op's
tolerance.

Owns the graph of one op, what it must give, and the comparison. Who is judged, and on
which cases, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.protocol import Array
from rlxweb.ir.dtype import DType, cast_array
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, Tolerance
from rlxweb.ir.sample import Sample

# A float16 holds 11 bits; NumPy also sums in it, a GPU sums in float32.
F16_TOLERANCE = Tolerance(rtol=4e-3, atol=4e-3, relative_to_peak=True)
# And a bfloat16 eight.
BF16_TOLERANCE = Tolerance(rtol=3e-2, atol=3e-2, relative_to_peak=True)


def single_op_graph(op: Op, sample: Sample, arrays: Sequence[Array]) -> Graph:
    """Build a graph of one op whose inputs x0, x1, ... have the sample's types."""
    graph = Graph(f"{op.name} sample")
    named_arrays = named_feeds(arrays).items()
    xs = [graph.input(name, array.shape, array.dtype) for name, array in named_arrays]
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return graph


def named_feeds(arrays: Sequence[Array]) -> dict[str, Array]:
    """Name the arrays as `single_op_graph` names its inputs."""
    return {f"x{k}": array for k, array in enumerate(arrays)}


def graph_dtypes(graph: Graph) -> set[DType]:
    """Return the element types of all nodes."""
    return {node.type.dtype for node in graph.nodes()}


def reference_outputs(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """Compute every output in float64 with the ops' reference implementations."""
    return [np.asarray(a) for a in evaluate(graph, feeds, promote=True)]


def rounding_errors(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """Return the difference, per element, between NumPy in the graph's own types and in
    float64.
    """
    native_outputs = evaluate(graph, feeds)
    return [
        np.abs(as_float64(a) - np.asarray(b, np.float64))
        for a, b in zip(native_outputs, reference_outputs(graph, feeds), strict=True)
    ]


def as_float64(array: Any) -> Array:
    """Convert numbers of any supported type to float64."""
    array = np.asarray(array)
    return cast_array(array, DType.F64)


def dtype_tolerance(dtype: DType, tolerance: Tolerance) -> Tolerance:
    """Return the tolerance for a result type: float16 and bfloat16 have their own,
    other types keep the op's.
    """
    return {DType.F16: F16_TOLERANCE, DType.BF16: BF16_TOLERANCE}.get(dtype, tolerance)


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Result of comparing an array with its reference values.

    reason     "" when every element is within its tolerance, else the reason
    wrong_count  elements that are not, of `size`
    max_error  the largest |got - want| where both are finite
    error_fraction  the largest error in parts of its own allowance; 0 when there is
                    none
    allowance  the allowance of that element
    first_wrong  index, result and right value of the first wrong element
    answer     the result in words, where that is what was asked for
    """

    reason: str = ""
    wrong_count: int = 0
    size: int = 0
    max_error: float = 0.0
    error_fraction: float = 0.0
    allowance: float = 0.0
    first_wrong: tuple[tuple[int, ...], Any, Any] | None = None
    answer: str = ""


def compare_to_reference(
    got: Any,
    want: Array,
    dtype: DType,
    tolerance: Tolerance,
    extra_allowance: Any = 0.0,
) -> ComparisonResult:
    """Compare a result with its reference values.

    Integers, bools and non-finite values must be equal. `extra_allowance` is a further
    allowance per element (reliability.md A1: what NumPy in float32 is off by, times
    eight).
    """
    if not isinstance(got, np.ndarray):
        return ComparisonResult(f"got a {type(got).__name__}, expected an array")
    if got.dtype != dtype.numpy or got.shape != want.shape:
        return ComparisonResult(
            f"got {got.shape} {got.dtype}, expected {want.shape} {dtype}"
        )
    if got.size == 0:
        return ComparisonResult()
    actual, expected = as_float64(got), as_float64(want)
    if dtype.is_float:
        tolerance = dtype_tolerance(dtype, tolerance)
        allowance = np.broadcast_to(
            _allowance(expected, tolerance, extra_allowance), expected.shape
        )
        is_right = _within_allowance(actual, expected, allowance)
    else:
        allowance = np.zeros(expected.shape)
        is_right = got == want
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(actual - expected)
        error = np.where(np.isfinite(error), error, 0.0)
        fraction = np.where(error > 0, error / allowance, 0.0)
    worst = np.unravel_index(int(np.argmax(fraction)), fraction.shape)
    error_numbers = (
        float(error.max()),
        float(fraction[worst]),
        float(allowance[worst]),
    )
    wrong_count = int(is_right.size - np.count_nonzero(is_right))
    if not wrong_count:
        return ComparisonResult("", 0, got.size, *error_numbers)
    index = tuple(int(i) for i in np.argwhere(~is_right)[0])
    has_allowance = 0 < allowance[index] < np.inf
    bound_text = (
        f"tolerance {allowance[index]:.3g}" if has_allowance else "equality is required"
    )
    array_pair = (actual, expected) if dtype is DType.BF16 else (got, want)
    got_value, wanted_value = (values[index] for values in array_pair)
    reason = (
        f"{wrong_count} of {got.size} elements are wrong, first at {index}: "
        f"got {got_value}, expected {wanted_value} ({bound_text})"
    )
    return ComparisonResult(
        reason, wrong_count, got.size, *error_numbers, (index, got_value, wanted_value)
    )


def _allowance(expected: Array, tolerance: Tolerance, extra_allowance: Any) -> Array:
    peak = 1.0
    if tolerance.relative_to_peak:
        peak = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        allowance = tolerance.atol * peak + tolerance.rtol * np.abs(expected)
        return np.asarray(np.maximum(allowance, extra_allowance))


def _within_allowance(
    actual: Array, expected: Array, allowance: Array
) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        is_near = np.abs(actual - expected) <= allowance
    is_same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return np.asarray(np.where(np.isfinite(expected), is_near, is_same), np.bool_)
