"""Values of 64 bits on a device that has none: held in 32 where that changes nothing.

Integers are held as i32 or u32 where every node is proven to fit, given what inputs and
params may hold: that is checked when they are given. Where more would be too much they
are held to fewer bits. Doubles are held as f32 where nothing is computed with them that
f32 would round: they are moved, compared, chosen from, or cast. Anything else is
refused, with the node. Names no op.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np

from rlxweb.advice import Advice
from rlxweb.compile.intervals import Intervals, concerned
from rlxweb.compile.plan import Held
from rlxweb.compile.target import Target
from rlxweb.decision.decision import Decision
from rlxweb.errors import DTypeError
from rlxweb.ir.bounds import Interval, whole, within
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Constant, Graph, Node
from rlxweb.ir.lowering import Expr, Join, View
from rlxweb.ir.op import TensorType, registry

LEAST = 8
"""Bits of magnitude that inputs may have at least; a device that takes less is none."""
RELAXED = 16
"""Inputs and params up to which each has a limit of its own."""
_SINGLE_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A graph of types that the device has.

    given    inputs and params of a type that it has not
    outputs  the declared type of each, where the device has it not
    """

    graph: Graph
    given: Mapping[str, Held]
    outputs: tuple[Held | None, ...]
    decisions: tuple[Decision, ...] = ()


def narrowed(graph: Graph, target: Target) -> Narrowing:
    """The graph in narrower types, where the device needs them and they are enough.

    Errors   DTypeError with the first node of which that is not known.
    """
    wide = {n.type.dtype for n in graph.nodes()} - target.dtypes
    wide &= target.narrower.keys()
    if not wide:
        return Narrowing(graph, {}, (None,) * len(graph.outputs))
    fits = {d: whole(target.narrower[d]) for d in wide if d.is_integer}
    known, because = _limited(graph, target, fits)
    floats = _Doubles(graph, target, known) if DType.F64 in wide else None
    given = {}
    for node in _given(graph, wide):
        low, high = known.given.get(node.name, whole(node.type.dtype))
        kept = floats.kept(node) if floats and node.type.dtype is DType.F64 else "exact"
        why = because.get(node.name, "")
        given[node.name] = Held(node.type.dtype, low, high, kept, why)
    outputs = tuple(
        Held(graph.node(i).type.dtype, *known.of[i])
        if graph.node(i).type.dtype in wide
        else None
        for i in graph.outputs
    )
    made = _retyped(graph, target)
    return Narrowing(made, given, outputs, _decisions(wide, target, given))


def _decisions(
    wide: set[DType], target: Target, given: Mapping[str, Held]
) -> tuple[Decision, ...]:
    said = []
    for dtype in sorted(wide, key=str):
        numbers = {f"'{n}'": str(h) for n, h in given.items() if h.dtype is dtype}
        why = "all values fit, by what is computed"
        why += ", and what is given is checked" if numbers else ""
        said.append(Decision(f"{dtype} held as {target.narrower[dtype]}", why, numbers))
    return tuple(said)


def _given(graph: Graph, wide: Collection[DType]) -> Iterator[Node]:
    for op in ("input", "param"):
        yield from (n for n in graph.named(op).values() if n.type.dtype in wide)


# --- integers ---------------------------------------------------------------------


def _limited(
    graph: Graph, target: Target, fits: Mapping[DType, Interval]
) -> tuple[Intervals, dict[str, str]]:
    """The values under the widest limits that were found, and which node set each.

    Errors   DTypeError.
    """
    given, asked = list(_given(graph, fits)), concerned(graph, target.narrower)

    def under(bits: Mapping[str, int]) -> Intervals:
        told = {n.name: _limit(fits[n.type.dtype], bits[n.name]) for n in given}
        return Intervals(graph, told, fits, asked)

    most = {n.name: _bits_of(fits[n.type.dtype]) for n in given}
    found = under(most)
    if found.beyond is None:
        return found, {}
    least = under(dict.fromkeys(most, LEAST))
    if least.beyond is not None:
        _refuse(*least.beyond, target)

    def together(count: int) -> Intervals:
        return under({name: min(full, count) for name, full in most.items()})

    all_of, why = _widest(together, LEAST, max(most.values()))
    bits = {name: min(full, all_of) for name, full in most.items()}
    because = dict.fromkeys(bits, why)
    for name in bits if len(bits) <= RELAXED else ():

        def alone(count: int, name: str = name) -> Intervals:
            return under({**bits, name: count})

        bits[name], because[name] = _widest(alone, bits[name], most[name])
    return under(bits), because


def _widest(under: Callable[[int], Intervals], low: int, high: int) -> tuple[int, str]:
    """How many bits fit, of which `low` do; the node that goes further with more."""
    beyond = under(high).beyond
    if beyond is None:
        return high, ""
    while high - low > 1:
        middle = (low + high) // 2
        found = under(middle).beyond
        if found is None:
            low = middle
        else:
            high, beyond = middle, found
    return low, str(beyond[0])


def _bits_of(limit: Interval) -> int:
    return int(limit[1]).bit_length()


def _limit(limit: Interval, bits: int) -> Interval:
    """Of as many negative numbers as positive ones: what is turned round still fits."""
    most = (1 << bits) - 1
    return max(limit[0], -most), min(limit[1], most)


def _refuse(node: Node, reach: Interval, target: Target) -> NoReturn:
    dtype = node.type.dtype
    if dtype not in target.narrower:
        raise DTypeError(
            f"{node} on {target.name}",
            "the device has no integers of 64 bits",
            f"nothing is known of what '{node.op}' makes of them in 32",
            Advice("cast to i32 before it, or run with {}", device="cpu"),
        )
    to = target.narrower[dtype]
    if dtype.is_float:
        _refuse_double(node, target)
    low, high = whole(to)
    raise DTypeError(
        f"{node} on {target.name}",
        f"the device has no {dtype}, and its values are not known to fit {to}",
        f"they may lie from {reach[0]} to {reach[1]}; {to} holds {low} to {high}",
        Advice(f"clip them or cast to {to} before it, or run with {{}}", device="cpu"),
    )


def _refuse_double(node: Node, target: Target) -> NoReturn:
    raise DTypeError(
        f"{node} on {target.name}",
        "the device has no f64",
        "f32 would round what is computed here",
        Advice("cast to f32 before it, or run with {}", device="cpu"),
    )


# --- doubles ----------------------------------------------------------------------

Kept = Literal["exact", "rounded", "odd"]


class _Doubles:
    """Which values of f64 have to be f32 numbers, and which may be rounded to them."""

    def __init__(self, graph: Graph, target: Target, known: Intervals) -> None:
        self._graph, self._target, self._known = graph, target, known
        self._needs: dict[int, frozenset[str]] = {}
        users: dict[int, list[Node]] = {}
        for node in graph.nodes():
            for i in dict.fromkeys(node.inputs):
                users.setdefault(i, []).append(node)
        for node in reversed(graph.nodes()):
            if node.type.dtype is DType.F64:
                asked = [self._asks(user) for user in users.get(node.id, ())]
                asked += [frozenset({"exact"})] * (node.id in graph.outputs)
                self._needs[node.id] = frozenset().union(*asked)
        for node in graph.nodes():
            kinds = {node.type.dtype, *(graph.node(i).type.dtype for i in node.inputs)}
            if DType.F64 in kinds and not self._is_same(node):
                _refuse_double(node, target)

    def _asks(self, user: Node) -> frozenset[str]:
        """What a node wants of its operands of f64."""
        bounds, to = registry.get(user.op).bounds, user.type.dtype
        if bounds is not None and bounds.floats == "cast" and to is DType.F32:
            return frozenset({"rounded"})
        if bounds is not None and bounds.floats == "cast" and to is DType.F16:
            return frozenset({"odd"})
        if to is DType.F64 and _commutes(user):
            return self._needs[user.id]
        return frozenset({"exact"})

    def kept(self, node: Node) -> Kept:
        needs = self._needs[node.id]
        if needs <= {"rounded"}:
            return "rounded"
        return "odd" if needs == {"odd"} else "exact"

    def _is_same(self, node: Node) -> bool:
        """Does f32 give the same as f64 here?"""
        op, to = registry.get(node.op), node.type.dtype
        if op.has("custom"):
            return False
        if op.has("leaf"):
            return node.op != "constant" or self._holds(node)
        if any(isinstance(v, float) and not _is_single(v) for v in node.attrs.values()):
            return False
        if op.bounds is not None and op.bounds.floats == "cast":
            return to is not DType.F64 or self._is_exact_cast(node)
        if to is DType.F64:
            return _commutes(node) or _is_exact(node)
        is_told = isinstance(op.lower, Expr) and to is DType.BOOL
        return is_told or (op.bounds is not None and op.bounds.floats == "exact")

    def _holds(self, node: Node) -> bool:
        array = node.attrs["value"].array
        return self.kept(node) == "rounded" or bool(np.all(_is_single(array)))

    def _is_exact_cast(self, node: Node) -> bool:
        source = self._graph.node(node.inputs[0])
        most = 1 << _SINGLE_DIGITS
        is_small = within(self._known.of[source.id], (-most, most))
        return (
            not source.type.dtype.is_integer or self.kept(node) == "rounded" or is_small
        )


def _commutes(node: Node) -> bool:
    """Is rounding before it the same as after?"""
    op = registry.get(node.op)
    if op.bounds is None:
        return isinstance(op.lower, View | Join)
    return op.bounds.floats == "monotone"


def _is_exact(node: Node) -> bool:
    bounds = registry.get(node.op).bounds
    return bounds is not None and bounds.floats == "exact"


def _is_single(value: object) -> Any:
    """Is a double a number of f32, and none that a device may take for 0?"""
    wide = np.asarray(value, np.float64)
    with np.errstate(all="ignore"):
        single = wide.astype(np.float32)
        same = (single == wide) | (single != single)
    return same & ((np.abs(wide) >= np.finfo(np.float32).tiny) | ~(wide != 0))


# --- the graph --------------------------------------------------------------------


def _retyped(graph: Graph, target: Target) -> Graph:
    """Every node in what the device has. Errors  DTypeError for one that is not so."""
    out = Graph(graph.name)

    def of(kind: TensorType) -> TensorType:
        return TensorType(kind.shape, target.narrower.get(kind.dtype, kind.dtype))

    for node in graph.nodes():
        kind = of(node.type)
        attrs = {
            name: target.narrower.get(value, value)
            if isinstance(value, DType)
            else value
            for name, value in node.attrs.items()
        }
        if node.op == "constant" and kind != node.type:
            with np.errstate(all="ignore"):
                array = node.attrs["value"].array.astype(kind.dtype.numpy)
            attrs["value"] = Constant(array)
        op = registry.get(node.op)
        if not op.has("leaf"):
            types = tuple(out.node(i).type for i in node.inputs)
            if op.output_type(types, attrs) != kind:
                raise DTypeError(
                    f"{node} on {target.name}",
                    f"the device has no {node.type.dtype}",
                    f"of narrower operands its result is no {kind.dtype}",
                    Advice("cast before it, or run with {}", device="cpu"),
                )
        out.copied(
            replace(node, type=kind, attrs=attrs), [out.tensor(i) for i in node.inputs]
        )
    out.set_outputs([out.tensor(i) for i in graph.outputs])
    return out
