"""Comparison of a registered op's WGSL with its reference before its first use on an
engine.

The ops that come with rlxweb are held to NumPy by the tests; a registered one is not,
so the first graph that brings it to an engine that runs its WGSL has it computed on its
samples, and on drawn arrays of the graph's own types, and compared. Once per engine,
record, types and attributes. Where only the reference runs there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.rewrites import rewrite_graph
from rlxweb.core.errors import Disagrees, RlxError
from rlxweb.engines.array import ArrayEngine
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.protocol import Array, Engine
from rlxweb.engines.reference_comparison import (
    ComparisonResult,
    compare_to_reference,
    named_feeds,
    reference_outputs,
    single_op_graph,
)
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr, HostOnly
from rlxweb.ir.op import Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.verify import check_result

# Arrays of a graph's own types that are drawn to try an op on; larger ones are cut, and
# cut anew with one extent, or one axis, as long as it is.
MAX_DRAWN_ELEMENTS = 1 << 16
MAX_LONG_ELEMENTS = 1 << 20
MAX_SHORT_EXTENT = 19
# An expression has a text for four lanes and one for a single one.
EXPRESSION_LENGTHS = (1024, 1023)
# Where arrays are drawn from, unless the op's samples say what it takes.
DRAW_RANGES: tuple[tuple[float, float], ...] = ((-2.0, 2.0), (-10.0, 10.0))
# Integers that float32 does not hold are among these.
WIDE_INTEGER_RANGE = (-(2.0**25), 2.0**25)
# Where functions jump and bend; numbers drawn at random hardly ever hit them.
SPECIAL_VALUES = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
# Floats of every magnitude between these, where WGSL's own functions are less exact.
MAGNITUDE_RANGE = (1e-3, 1e3)
COARSE_TOLERANCE = Tolerance(rtol=1e-3, atol=1e-3)
# What float32 itself is off by, times this, is allowed beside the tolerance.
ROUNDING_FACTOR = 8.0


async def check_custom_ops(graph: Graph, engine: Engine) -> None:
    """Compare every registered op of a graph that was not yet checked on this engine
    with its reference.

    Of nodes that no output needs nothing is asked.
    Errors   Disagrees with the worst error and the first wrong element; GraphError for
    a reference that breaks its own shape rule; those of compiling and running.
    """
    if isinstance(engine, ArrayEngine):
        return
    ops = {name: registry.get(name) for name in {n.op for n in graph.nodes()}}
    custom_names = {
        name
        for name, op in ops.items()
        if op.has_trait("custom") and not isinstance(op.lower, HostOnly)
    }
    checked_ops = engine_caches(engine).checked_custom_ops
    for node in rewrite_graph(graph).nodes() if custom_names else ():
        if node.op not in custom_names:
            continue
        op, types = ops[node.op], tuple(graph.node(i).type for i in node.inputs)
        if checked_ops.get(op.name) is not op:
            for seed, sample in enumerate(op.samples):
                await _compare_op(op, _OpTrial(sample, sample.draw(seed)), engine)
            checked_ops[op.name] = op
        key = _trial_key(op, types, node)
        if checked_ops.get(key) is not op:
            reasons = [
                await _compare_op(op, trial, engine)
                for trial in _drawn_trials(op, types, node)
            ]
            if all(reasons) and not op.samples:
                raise _not_comparable_error(op, types, engine, reasons[0])
            checked_ops[key] = op


@dataclass(frozen=True, slots=True)
class _OpTrial:
    """Arrays that an op is compared on.

    is_drawn  they are not the caller's: where the reference is not finite, the op may
              be anything
    is_wide_range  there it is held to `COARSE_TOLERANCE`
    """

    sample: Sample
    arrays: Sequence[Array]
    is_drawn: bool = False
    is_wide_range: bool = False


def _trial_key(op: Op, types: Types, node: Node) -> Hashable:
    shapes = tuple(t.shape for t in types)
    if isinstance(op.lower, Expr):
        # How operands are broadcast, and along how many axes, is all there is to it.
        shapes = tuple(tuple(min(d, 2) for d in shape) for shape in shapes)
    attrs = frozenset(
        (name, value.tobytes() if isinstance(value, np.ndarray) else repr(value))
        for name, value in node.attrs.items()
    )
    return op.name, tuple(t.dtype for t in types), shapes, attrs


def _drawn_trials(op: Op, types: Types, node: Node) -> Iterator[_OpTrial]:
    """Generate trials of the node's types, or of smaller shapes that the op accepts as
    well.
    """
    lows = [d.low for sample in op.samples for d in sample.inputs]
    highs = [d.high for sample in op.samples for d in sample.inputs]
    ranges = DRAW_RANGES if not lows else ((min(lows), max(highs)),)
    if not lows and all(t.dtype.is_integer for t in types):
        ranges = (*DRAW_RANGES, WIDE_INTEGER_RANGE)
    type_sets = _trial_types(op, types, node)
    for seed, input_types in enumerate(
        (*type_sets, *_partly_shortened_types(op, types, node))
    ):
        for low, high in ranges if seed < len(type_sets) else ranges[-1:]:
            yield _special_value_trial(_make_sample(input_types, node, low, high), seed)
    if not lows and any(t.dtype.is_float for t in types):
        yield _wide_range_trial(_make_sample(type_sets[0], node, -1.0, 1.0))


def _make_sample(input_types: Types, node: Node, low: float, high: float) -> Sample:
    drawn = (Drawn(t.shape, t.dtype, low, high) for t in input_types)
    return Sample(tuple(drawn), node.attrs)


def _trial_types(op: Op, types: Types, node: Node) -> list[Types]:
    if not isinstance(op.lower, Expr):
        return [_shortened_types(op, types, node)]
    type_sets = [
        tuple(TensorType((n,), t.dtype) for t in types) for n in EXPRESSION_LENGTHS
    ]
    if any(len(t.shape) != 1 for t in types):
        type_sets.append(_shortened_types(op, types, node))
    return type_sets


def _shortened_types(op: Op, types: Types, node: Node) -> Types:
    if sum(t.numel for t in types) <= MAX_DRAWN_ELEMENTS:
        return types
    shortened = _shorten(types, lambda extent, axis: False)
    return shortened if _accepts(op, shortened, node) else types


def _partly_shortened_types(op: Op, types: Types, node: Node) -> list[Types]:
    """Return shortened types with one extent, or one axis counted from the last, at
    full length.
    """
    # An expression knows no extent.
    if isinstance(op.lower, Expr) or _shortened_types(op, types, node) == types:
        return []
    extents = {d for t in types for d in t.shape if d > MAX_SHORT_EXTENT}
    max_rank = max(t.rank for t in types)
    predicates = [partial(_is_extent, item) for item in sorted(extents)]
    predicates += [partial(_is_axis, item) for item in range(max_rank)]
    type_sets = dict.fromkeys(_shorten(types, predicate) for predicate in predicates)
    return [
        item
        for item in type_sets
        if sum(t.numel for t in item) <= MAX_LONG_ELEMENTS and _accepts(op, item, node)
    ]


def _is_extent(wanted_extent: int, extent: int, axis: int) -> bool:
    return extent == wanted_extent


def _is_axis(wanted_axis: int, extent: int, axis: int) -> bool:
    return axis == wanted_axis


def _shorten(types: Types, is_full_length: Callable[[int, int], bool]) -> Types:
    """Shorten every extent except those to keep; axes are counted from the last."""
    shapes = (
        tuple(
            d
            if is_full_length(d, len(t.shape) - 1 - axis)
            else min(d, MAX_SHORT_EXTENT)
            for axis, d in enumerate(t.shape)
        )
        for t in types
    )
    return tuple(TensorType(s, t.dtype) for s, t in zip(shapes, types, strict=True))


def _accepts(op: Op, types: Types, node: Node) -> bool:
    try:
        op.output_type(types, node.attrs)
    except RlxError:
        return False
    return True


def _wide_range_trial(sample: Sample) -> _OpTrial:
    """Spread floats drawn from -1 … 1 over all magnitudes."""
    low, high = np.log10(MAGNITUDE_RANGE)
    arrays = sample.draw()
    for array in arrays:
        if array.dtype.kind == "f":
            power = low + (high - low) * np.abs(array.astype(np.float64))
            array[...] = np.copysign(10.0**power, array)
    return _OpTrial(sample, arrays, is_drawn=True, is_wide_range=True)


def _special_value_trial(sample: Sample, seed: int) -> _OpTrial:
    arrays = sample.draw(seed)
    _insert_special_values(sample, arrays)
    return _OpTrial(sample, arrays, is_drawn=True)


def _insert_special_values(sample: Sample, arrays: Sequence[Array]) -> None:
    """Write every combination of special values to the front of drawn arrays of one
    shape.
    """
    if len({array.shape for array in arrays}) != 1:
        return
    special_values = [_special_values_for(drawn) for drawn in sample.inputs]
    combinations = np.array([*product(*special_values)])[: arrays[0].size]
    for array, column in zip(arrays, combinations.T, strict=True):
        array.reshape(-1)[: len(column)] = column.astype(array.dtype)


def _special_values_for(drawn: Drawn) -> list[float]:
    low = max(drawn.low, 0.0) if drawn.dtype.is_unsigned else drawn.low
    values = [value for value in SPECIAL_VALUES if low <= value <= drawn.high]
    if not drawn.dtype.is_float:
        values = [value for value in values if value.is_integer()]
    return values or [drawn.low]


async def _compare_op(op: Op, trial: _OpTrial, engine: Engine) -> str:
    """Compare the op with its reference; return why that was impossible, or "". Errors
    Disagrees.
    """
    for array in trial.arrays:
        array.flags.writeable = False
    graph = single_op_graph(op, trial.sample, trial.arrays)
    if not {n.type.dtype for n in graph.nodes()} <= engine.target.dtypes:
        return ""  # which is refused elsewhere
    try:
        want, rounding = _reference_result(op, graph, trial)
    except RlxError:
        raise
    except Exception as error:
        if trial.is_drawn:
            return f"the reference raised {type(error).__name__}: {error}"
        raise
    if want.size and not np.isfinite(want).any():
        return "the reference returned no finite value"
    program = await engine.prepare(compile_graph(graph, engine.target))
    try:
        (got,) = await engine.run(program, named_feeds(trial.arrays))
    finally:
        await program.close()
    out = graph.node(graph.outputs[0]).type
    if trial.is_drawn and out.dtype.is_float:  # outside its domain all may be
        got = np.where(np.isfinite(want), got, want).astype(got.dtype)
    tolerance = op.tolerance
    if trial.is_wide_range:
        tolerance = replace(
            tolerance,
            rtol=max(tolerance.rtol, COARSE_TOLERANCE.rtol),
            atol=max(tolerance.atol, COARSE_TOLERANCE.atol),
        )
    comparison = compare_to_reference(got, want, out.dtype, tolerance, rounding)
    if comparison.reason:
        raise _disagreement_error(op, trial.arrays, engine, comparison)
    return ""


def _reference_result(op: Op, graph: Graph, trial: _OpTrial) -> tuple[Array, Any]:
    """Return the result in float64 and the allowance for float32 rounding.

    What the caller gave as a sample must work; what is drawn may be outside the domain,
    or where float32 ends.
    """
    node = graph.node(graph.outputs[0])
    with np.errstate(all="ignore"):
        single = np.asarray(op.reference(np, node.attrs, *trial.arrays))
    check_result(node, single)
    if not node.type.dtype.is_float:
        return single, 0.0
    with np.errstate(all="ignore"):
        want = reference_outputs(graph, named_feeds(trial.arrays))[0]
        rounding_error = np.abs(single.astype(np.float64) - want)
    rounding_error = np.where(np.isfinite(rounding_error), rounding_error, 0.0)
    if not isinstance(op.lower, Expr):
        # A sum may come out exact by chance.
        rounding_error = rounding_error.max(initial=0.0)
    if trial.is_drawn:
        want = np.where(np.isfinite(single), want, np.nan)
    return want, ROUNDING_FACTOR * rounding_error


def _not_comparable_error(
    op: Op, types: Types, engine: Engine, reason: str
) -> Disagrees:
    return Disagrees(
        f"custom op '{op.name}' of {', '.join(map(str, types))} on {engine.name}",
        "the WGSL could not be compared with the reference",
        reason,
        "pass `samples` to register_custom, with operands that the op accepts",
    )


def _disagreement_error(
    op: Op, arrays: Sequence[Array], engine: Engine, comparison: ComparisonResult
) -> Disagrees:
    types = ", ".join(f"{list(array.shape)} {array.dtype}" for array in arrays)
    return Disagrees(
        f"custom op '{op.name}' of {types} on {engine.name}",
        "the WGSL and the reference give different results",
        f"{comparison.reason}; the worst error is {comparison.max_error:.6g}",
        "fix the WGSL or the reference; if both are correct, pass a `tolerance` "
        "to register_custom, or `samples` with operands that the op accepts",
    )
