"""Cases that pass special values (NaN, infinity, zeros, the largest numbers) through
every suitable op.

The policy: an engine gives what NumPy gives, up to rounding; below the smallest normal
number it may write 0. Transforms are apart: a value that is not finite spreads over its
row there, and which bins become NaN is the algorithm's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rlxweb.core.errors import DTypeError
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.protocol import Array
from rlxweb.engines.reference_comparison import ComparisonResult, reference_outputs
from rlxweb.ir.dtype import DType, cast_array
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.sample import Sample
from rlxweb.smoke.case import Judge, PreparedCase, SmokeCase, input_types

NAN, INF, F32_MAX = np.nan, np.inf, 3.4028234e38
_SPECIAL_VALUES_TEXT = """\
nan -nan inf -inf 0 -0 1 -1 .5 -.5 2 3 -3 7 3.4028234e38 -3.4028234e38 3e6
-3e6 16777218 88 -88 100 -104 150 1e10 -1e10 1e20 -1e20 .99999994 1.0000001 1e-30
12345.678 8192.5"""
SPECIAL_VALUES = np.array(_SPECIAL_VALUES_TEXT.split(), np.float32)
# Relative, and below this a GPU may write 0: what is denormal in a step is flushed.
RELATIVE_TOLERANCE, DENORMAL_TOLERANCE = 3e-5, 1.2e-38
NONFINITE_VALUES = {"nan": NAN, "inf": INF, "-inf": -INF}
_ELIMINATION_OPS = ("solve", "det", "slogdet", "solve_triangular", "cholesky")
"""Ops in which the spread of a non-finite value depends on the order of elimination."""
_MAX_NONFINITE_ELEMENTS = 4096
"""Largest sample, in elements, that a non-finite value is put into."""


def elementwise_match(got: Array, expected: Array, peak: float = 0.0) -> Array:
    """Return elementwise whether values are near, or the same infinity or NaN."""
    with np.errstate(all="ignore"):
        expected_as_got = expected.astype(got.dtype)
        expected_f64 = expected.astype(np.float64)
        error = np.abs(got.astype(np.float64) - expected_f64)
        is_near = (
            error
            <= RELATIVE_TOLERANCE * np.maximum(np.abs(expected_f64), peak)
            + DENORMAL_TOLERANCE
        )
        is_near &= np.isfinite(
            expected_f64
        )  # any distance is within a part of infinity
    is_same_special = (got == expected_as_got) | (
        np.isnan(got) & np.isnan(expected_as_got)
    )
    return np.asarray(is_same_special | is_near)


def compare_to_numpy(
    got: Any, expected: Array, dtype: DType, peak: float = 0.0
) -> ComparisonResult:
    """Compare a result with NumPy's by the policy of this module.

    peak   what an absolute error may be relative to, beside the value itself
    """
    if not isinstance(got, np.ndarray):
        return ComparisonResult(f"expected an array, got a {type(got).__name__}")
    if got.dtype != dtype.numpy or got.shape != expected.shape:
        return ComparisonResult(
            f"expected {expected.shape} {dtype}, got {got.shape} {got.dtype}"
        )
    if dtype is DType.BF16:
        got, expected = cast_array(got, DType.F32), cast_array(expected, DType.F32)
    is_right = (
        elementwise_match(got, expected, peak) if dtype.is_float else got == expected
    )
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        error = np.where(np.isfinite(error), error, 0.0)
    max_error = float(error.max(initial=0.0))
    wrong_count = int(is_right.size - np.count_nonzero(is_right))
    if not wrong_count:
        return ComparisonResult("", 0, got.size, max_error)
    index = tuple(int(i) for i in np.argwhere(~is_right)[0])
    reason = (
        f"{wrong_count} of {got.size} elements are wrong, first at {index}: "
        f"expected {expected[index]} (from NumPy, with a relative tolerance of "
        f"{RELATIVE_TOLERANCE:g}), got {got[index]}"
    )
    return ComparisonResult(
        reason,
        wrong_count,
        got.size,
        max_error,
        first_wrong=(index, got[index], expected[index]),
    )


# --- one op, every special value --------------------------------------------------

# These are near 0 at a value that is not: an absolute error beside 1.
NEAR_ZERO_PEAKS = dict.fromkeys(
    ["sin", "cos", "log", "gelu", "gelu_approx", "silu", "swish", "mish"], 0.02
)


def elementwise_op_names() -> list[str]:
    """Return the names of all float ops whose kernel is one expression."""
    return sorted(
        op.name
        for op in registry
        if isinstance(op.lower, Expr)
        and not op.has_trait("custom")
        and op.name not in ("where", "cast", "bitcast", "psd")
        and _accepts_floats(op)
    )


def _accepts_floats(op: Op) -> bool:
    """Return whether the op accepts float32 operands only."""
    operands = (TensorType((4,), DType.F32),) * int(str(op.arity))
    try:
        op.output_type(operands, op.check_attrs(op.example_attrs()))
    except DTypeError:
        return False
    return True


def prepare_elementwise(name: str, width: int) -> PreparedCase:
    """Prepare an elementwise op on every special value or pair of them; length 4n +
    width.
    """
    op = registry.get(name)
    grid = np.meshgrid(*[SPECIAL_VALUES] * int(str(op.arity)), indexing="ij")
    size = grid[0].size // 4 * 4 + width
    feeds = {f"x{k}": np.resize(axis.reshape(-1), size) for k, axis in enumerate(grid)}
    graph = Graph(name)
    operands = [graph.input(k, size) for k in feeds]
    graph.set_outputs([graph.apply(name, *operands, **op.example_attrs())])
    peak = NEAR_ZERO_PEAKS.get(name, 0.0)
    return _prepare(graph, feeds, lambda: reference_outputs(graph, feeds)[0], peak)


FOLDABLE_EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "x * 0": lambda x: x * 0.0,
    "0 * x": lambda x: 0.0 * x,
    "x / 0": lambda x: x / 0.0,
    "x / -0": lambda x: x / -0.0,
    "0 / x": lambda x: 0.0 / x,
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "x + inf": lambda x: x + float("inf"),
    "x * nan": lambda x: x * float("nan"),
    "(x + a) - a": lambda x: (x + 3e38) - 3e38,
    "(x - a) + a": lambda x: (x - 1e10) + 1e10,
    "a - (a - x)": lambda x: 1e10 - (1e10 - x),
    "(x * a) / a": lambda x: (x * 4.0) / 4.0,
    "(x / a) * a": lambda x: (x / 1e30) * 1e30,
    "|x| - |x|": lambda x: abs(x) - abs(x),
}
"""Arithmetic that a shader compiler must not simplify."""


def prepare_foldable(expression: str) -> PreparedCase:
    """Prepare a foldable expression on every special value."""
    graph = Graph(expression)
    graph.set_outputs(
        [FOLDABLE_EXPRESSIONS[expression](graph.input("x", SPECIAL_VALUES.size))]
    )

    def reference() -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(FOLDABLE_EXPRESSIONS[expression](SPECIAL_VALUES))

    return _prepare(graph, {"x": SPECIAL_VALUES}, reference)


def prepare_cast(dtype: str) -> PreparedCase:
    """Prepare a cast of every special value: it saturates, and NaN becomes 0 or
    true.
    """
    graph = Graph("cast")
    graph.set_outputs([graph.cast(graph.input("x", SPECIAL_VALUES.size), dtype)])
    feeds = {"x": SPECIAL_VALUES}
    return _prepare(graph, feeds, lambda: np.asarray(evaluate(graph, feeds)[0]))


def _prepare(
    graph: Graph,
    feeds: dict[str, Array],
    reference: Callable[[], Array],
    peak: float = 0.0,
) -> PreparedCase:
    """Prepare a graph judged against `reference`."""
    dtype = graph.node(graph.outputs[0]).type.dtype

    def judge(outputs: Sequence[Any]) -> ComparisonResult:
        return compare_to_numpy(outputs[0], reference(), dtype, peak)

    return PreparedCase(graph, feeds, judge)


# --- one odd value among others ---------------------------------------------------


def mixing_op_samples() -> Iterator[tuple[Op, int]]:
    """Yield up to five small float samples of every op whose outputs mix several
    elements.
    """
    for op in registry:
        excluded_traits = {"leaf", "elementwise", "spectral", "custom"} & set(op.traits)
        if excluded_traits or op.name in _ELIMINATION_OPS:
            continue
        sample_indices = [
            index
            for index, sample in enumerate(op.samples)
            if _accepts_nonfinite(sample)
        ]
        yield from (
            (op, index) for index in sample_indices[:: max(1, len(sample_indices) // 5)]
        )


def _accepts_nonfinite(sample: Sample) -> bool:
    """Return whether a non-finite value can be put into the sample."""
    operands = sample.inputs
    return (
        all(0 < prod(operand.shape) < _MAX_NONFINITE_ELEMENTS for operand in operands)
        and all(operand.dtype.nbytes < 8 for operand in operands)
        and any(operand.dtype is DType.F32 for operand in operands)
        and all(
            operand.dtype is not DType.F16 for operand in operands
        )  # not all devices have it
    )


def prepare_nonfinite(
    op: Op, sample: Sample, input_index: int, value: float
) -> PreparedCase:
    """Prepare the sample with `value` in one element of an input; NumPy is the
    reference.
    """
    arrays = [array.copy() for array in sample.draw(1)]
    element = np.random.default_rng(input_index).integers(0, arrays[input_index].size)
    arrays[input_index].reshape(-1)[element] = value
    feeds = {f"x{k}": array for k, array in enumerate(arrays)}
    graph = Graph(op.name)
    xs = [graph.input(name, a.shape, a.dtype) for name, a in feeds.items()]
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return PreparedCase(graph, feeds, _numpy_judge(graph, feeds))


def _numpy_judge(graph: Graph, feeds: dict[str, Array]) -> Judge:
    """Return a judge that compares with NumPy in the graph's own types."""
    dtype = graph.node(graph.outputs[0]).type.dtype

    def judge(outputs: Sequence[Any]) -> ComparisonResult:
        expected = np.asarray(evaluate(graph, feeds)[0])
        finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
        return compare_to_numpy(
            outputs[0], expected, dtype, 40 * float(finite.max(initial=0.0))
        )

    return judge


# --- the cases --------------------------------------------------------------------


def elementwise_cases(widths: Sequence[int] = (0, 1)) -> Iterator[SmokeCase]:
    """Yield the cases of elementwise ops, foldable expressions and casts."""
    for name in elementwise_op_names():
        for width in widths:
            variation = "one-by-one" if width else "by-fours"
            prepare = partial(prepare_elementwise, name, width)
            yield SmokeCase(f"special/{name}/{variation}", "special", name, prepare)
    for index, variation in enumerate(FOLDABLE_EXPRESSIONS):
        prepare = partial(prepare_foldable, variation)
        yield SmokeCase(
            f"special/folded/{index}", "special", "", prepare, note=variation
        )
    for dtype in ("i32", "u32", "bool", "f32"):
        prepare = partial(prepare_cast, dtype)
        yield SmokeCase(
            f"special/cast/{dtype}", "special", "cast", prepare, attrs={"to": dtype}
        )


def nonfinite_cases() -> Iterator[SmokeCase]:
    """Yield cases with one non-finite value in each float input of a sample in turn."""
    for op, index in mixing_op_samples():
        sample = op.samples[index]
        float_inputs = [
            k for k, operand in enumerate(sample.inputs) if operand.dtype.is_float
        ]
        for k in float_inputs:
            for word, value in NONFINITE_VALUES.items():
                name = f"special/{op.name}/{index}/x{k}-{word}"
                prepare = partial(prepare_nonfinite, op, sample, k, value)
                shapes, note = input_types(sample), f"{word} in x{k}"
                yield SmokeCase(
                    name, "special", op.name, prepare, shapes, sample.attrs, note
                )
