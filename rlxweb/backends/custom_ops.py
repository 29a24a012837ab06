"""A caller's own op is tried before it is trusted: its shader against its reference.

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

from rlxweb.backends.agreement import Agreement, compare, feeds_of, one_op, oracle
from rlxweb.backends.array import ArrayBackend
from rlxweb.backends.protocol import Array, Backend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.rewrites import drop_dead
from rlxweb.errors import Disagrees, RlxError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr, HostOnly
from rlxweb.ir.op import Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.verify import check_result

# Arrays of a graph's own types that are drawn to try an op on; larger ones are cut, and
# cut anew with one extent, or one axis, as long as it is.
DRAWN_ELEMENTS = 1 << 16
LONG_ELEMENTS = 1 << 20
CUT = 19
# An expression has a text for four lanes and one for a single one.
LENGTHS = (1024, 1023)
# Where arrays are drawn from, unless the op's samples say what it takes.
RANGES: tuple[tuple[float, float], ...] = ((-2.0, 2.0), (-10.0, 10.0))
# Integers that float32 does not hold are among these.
WIDE = (-(2.0**25), 2.0**25)
# Where functions jump and bend; numbers drawn at random hardly ever hit them.
MARKS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
# Floats of every magnitude between these, where WGSL's own functions are less exact.
FAR = (1e-3, 1e3)
COARSE = Tolerance(rtol=1e-3, atol=1e-3)
# What float32 itself is off by, times this, is allowed beside the tolerance.
ROUNDING = 8.0


async def try_custom_ops(graph: Graph, backend: Backend) -> None:
    """Run every registered op of a graph that was not yet tried on this engine.

    Of nodes that no output needs nothing is asked.
    Errors   Disagrees with the worst error and the first wrong element; GraphError for
    a reference that breaks its own shape rule; those of compiling and running.
    """
    if isinstance(backend, ArrayBackend):
        return
    ops = {name: registry.get(name) for name in {n.op for n in graph.nodes()}}
    own = {
        name
        for name, op in ops.items()
        if op.has("custom") and not isinstance(op.lower, HostOnly)
    }
    for node in drop_dead(graph).nodes() if own else ():
        if node.op not in own:
            continue
        op, types = ops[node.op], tuple(graph.node(i).type for i in node.inputs)
        if backend.tried.get(op.name) is not op:
            for at, sample in enumerate(op.samples):
                await _compared(op, _Trial(sample, sample.draw(at)), backend)
            backend.tried[op.name] = op
        key = _key(op, types, node)
        if backend.tried.get(key) is not op:
            tries = [await _compared(op, t, backend) for t in _drawn(op, types, node)]
            if all(tries) and not op.samples:
                raise _untried(op, types, backend, tries[0])
            backend.tried[key] = op


@dataclass(frozen=True, slots=True)
class _Trial:
    """Arrays that an op is computed on.

    is_drawn  they are not the caller's: where the reference is not finite, the op may
              be anything
    is_far    there it is held to `COARSE`
    """

    sample: Sample
    arrays: Sequence[Array]
    is_drawn: bool = False
    is_far: bool = False


def _key(op: Op, types: Types, node: Node) -> Hashable:
    shapes = tuple(t.shape for t in types)
    if isinstance(op.lower, Expr):
        # How operands are broadcast, and along how many axes, is all there is to it.
        shapes = tuple(tuple(min(d, 2) for d in shape) for shape in shapes)
    attrs = frozenset(
        (name, value.tobytes() if isinstance(value, np.ndarray) else repr(value))
        for name, value in node.attrs.items()
    )
    return op.name, tuple(t.dtype for t in types), shapes, attrs


def _drawn(op: Op, types: Types, node: Node) -> Iterator[_Trial]:
    """Arrays of the node's types, or of smaller shapes that the op takes as well."""
    lows = [d.low for sample in op.samples for d in sample.inputs]
    highs = [d.high for sample in op.samples for d in sample.inputs]
    ranges = RANGES if not lows else ((min(lows), max(highs)),)
    if not lows and all(t.dtype.is_integer for t in types):
        ranges = (*RANGES, WIDE)
    every = _shapes(op, types, node)
    for at, kinds in enumerate((*every, *_long(op, types, node))):
        for low, high in ranges if at < len(every) else ranges[-1:]:
            yield _marked(_sample(kinds, node, low, high), at)
    if not lows and any(t.dtype.is_float for t in types):
        yield _spread(_sample(every[0], node, -1.0, 1.0))


def _sample(kinds: Types, node: Node, low: float, high: float) -> Sample:
    drawn = (Drawn(t.shape, t.dtype, low, high) for t in kinds)
    return Sample(tuple(drawn), node.attrs)


def _shapes(op: Op, types: Types, node: Node) -> list[Types]:
    if not isinstance(op.lower, Expr):
        return [_cut(op, types, node)]
    every = [tuple(TensorType((n,), t.dtype) for t in types) for n in LENGTHS]
    if any(len(t.shape) != 1 for t in types):
        every.append(_cut(op, types, node))
    return every


def _cut(op: Op, types: Types, node: Node) -> Types:
    if sum(t.numel for t in types) <= DRAWN_ELEMENTS:
        return types
    cut = _shortened(types, lambda extent, axis: False)
    return cut if _takes(op, cut, node) else types


def _long(op: Op, types: Types, node: Node) -> list[Types]:
    """Types that were cut, with one extent or one axis (from the last) left long."""
    # An expression knows no extent.
    if isinstance(op.lower, Expr) or _cut(op, types, node) == types:
        return []
    extents = {d for t in types for d in t.shape if d > CUT}
    most = max(t.rank for t in types)
    kept = [partial(_is_extent, one) for one in sorted(extents)]
    kept += [partial(_is_axis, one) for one in range(most)]
    long = dict.fromkeys(_shortened(types, keep) for keep in kept)
    return [
        one
        for one in long
        if sum(t.numel for t in one) <= LONG_ELEMENTS and _takes(op, one, node)
    ]


def _is_extent(one: int, extent: int, axis: int) -> bool:
    return extent == one


def _is_axis(one: int, extent: int, axis: int) -> bool:
    return axis == one


def _shortened(types: Types, keep: Callable[[int, int], bool]) -> Types:
    """Every extent cut, but for those to keep; axes are counted from the last."""
    shapes = (
        tuple(
            d if keep(d, len(t.shape) - 1 - axis) else min(d, CUT)
            for axis, d in enumerate(t.shape)
        )
        for t in types
    )
    return tuple(TensorType(s, t.dtype) for s, t in zip(shapes, types, strict=True))


def _takes(op: Op, types: Types, node: Node) -> bool:
    try:
        op.output_type(types, node.attrs)
    except RlxError:
        return False
    return True


def _spread(sample: Sample) -> _Trial:
    """Floats drawn from -1 … 1, spread over all magnitudes."""
    low, high = np.log10(FAR)
    arrays = sample.draw()
    for array in arrays:
        if array.dtype.kind == "f":
            power = low + (high - low) * np.abs(array.astype(np.float64))
            array[...] = np.copysign(10.0**power, array)
    return _Trial(sample, arrays, is_drawn=True, is_far=True)


def _marked(sample: Sample, seed: int) -> _Trial:
    arrays = sample.draw(seed)
    _mark(sample, arrays)
    return _Trial(sample, arrays, is_drawn=True)


def _mark(sample: Sample, arrays: Sequence[Array]) -> None:
    """Every combination of marks at the front of drawn arrays of one shape."""
    if len({array.shape for array in arrays}) != 1:
        return
    each = [_marks_of(drawn) for drawn in sample.inputs]
    met = np.array([*product(*each)])[: arrays[0].size]
    for array, column in zip(arrays, met.T, strict=True):
        array.reshape(-1)[: len(column)] = column.astype(array.dtype)


def _marks_of(drawn: Drawn) -> list[float]:
    least = max(drawn.low, 0.0) if drawn.dtype.is_unsigned else drawn.low
    within = [mark for mark in MARKS if least <= mark <= drawn.high]
    if not drawn.dtype.is_float:
        within = [mark for mark in within if mark.is_integer()]
    return within or [drawn.low]


async def _compared(op: Op, trial: _Trial, backend: Backend) -> str:
    """Why that could not be; "" where the op agrees with its reference."""
    for array in trial.arrays:
        array.flags.writeable = False
    graph = one_op(op, trial.sample, trial.arrays)
    if not {n.type.dtype for n in graph.nodes()} <= backend.target.dtypes:
        return ""  # which is refused elsewhere
    try:
        want, rounding = _wanted(op, graph, trial)
    except RlxError:
        raise
    except Exception as error:
        if trial.is_drawn:
            return f"its reference raised {type(error).__name__}: {error}"
        raise
    if want.size and not np.isfinite(want).any():
        return "its reference is finite nowhere"
    program = await backend.prepare(compile_graph(graph, backend.target))
    try:
        (got,) = await backend.run(program, feeds_of(trial.arrays))
    finally:
        await backend.release(program)
    out = graph.node(graph.outputs[0]).type
    if trial.is_drawn and out.dtype.is_float:  # outside its domain all may be
        got = np.where(np.isfinite(want), got, want).astype(got.dtype)
    allowed = op.tolerance
    if trial.is_far:
        allowed = replace(
            allowed,
            rtol=max(allowed.rtol, COARSE.rtol),
            atol=max(allowed.atol, COARSE.atol),
        )
    found = compare(got, want, out.dtype, allowed, rounding)
    if found.why:
        raise _disagreement(op, trial.arrays, backend, found)
    return ""


def _wanted(op: Op, graph: Graph, trial: _Trial) -> tuple[Array, Any]:
    """The result in float64, and what float32 may be off by.

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
        want = oracle(graph, feeds_of(trial.arrays))[0]
        off = np.abs(single.astype(np.float64) - want)
    off = np.where(np.isfinite(off), off, 0.0)
    if not isinstance(op.lower, Expr):
        # A sum may come out exact by chance.
        off = off.max(initial=0.0)
    if trial.is_drawn:
        want = np.where(np.isfinite(single), want, np.nan)
    return want, ROUNDING * off


def _untried(op: Op, types: Types, backend: Backend, why: str) -> Disagrees:
    return Disagrees(
        f"custom op '{op.name}' of {', '.join(map(str, types))} on {backend.name}",
        "its WGSL could not be compared with its reference",
        why,
        "give register_custom `samples` that show what the op takes",
    )


def _disagreement(
    op: Op, arrays: Sequence[Array], backend: Backend, found: Agreement
) -> Disagrees:
    types = ", ".join(f"{list(a.shape)} {a.dtype}" for a in arrays)
    return Disagrees(
        f"custom op '{op.name}' of {types} on {backend.name}",
        "its WGSL gives other numbers than its reference",
        f"{found.why}; the worst error is {found.max_error:.6g}",
        "mend one of them; where both are right, give register_custom a `tolerance`, "
        "or `samples` that show what the op takes",
    )
