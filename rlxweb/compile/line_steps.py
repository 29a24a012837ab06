"""Which nodes become one pass along lines: reductions, and what stands around them.

A softmax that is written out is a maximum, a difference, an exponential, a sum and a
quotient: five passes over memory, or one that goes along each line as often as it must
and keeps what is between in registers. From each node that others read from memory, its
operands are taken in as long as they are computed along the same lines. What two such
passes need is computed in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rlxweb.compile.target import Target
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lines import Level, Lines, lines_of, reads_in
from rlxweb.ir.lowering import Expr, View
from rlxweb.ir.op import registry

MOST_NODES = 64
"""Longer texts cost the driver's compiler more than they save."""
MOST_DEEP = 5
"""Reductions one after another: each is one more walk along the line."""
_COMPUTED = frozenset({DType.F32, DType.I32, DType.U32, DType.BOOL})


@dataclass(frozen=True, slots=True)
class LineStep:
    """One pass along lines.

    nodes   in order; the last is the result
    reads   what they read from memory, and whether values without a line's axes do
    """

    lines: Lines
    nodes: tuple[int, ...]
    reads: tuple[tuple[int, bool], ...]

    def read(self) -> set[int]:
        """The nodes that it reads."""
        return {i for i, _ in self.reads}


def line_steps(graph: Graph, target: Target) -> dict[int, LineStep]:
    """Result → the pass that computes it, where one is worth it."""
    found: dict[int, LineStep] = {}
    needed = set(graph.outputs)
    for node in reversed(graph.nodes()):
        if node.id not in needed:
            continue
        step = _grown(graph, target, node, needed)
        if step is not None:
            found[node.id] = step
        needed.update(node.inputs if step is None else step.read())
    return found


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes along lines of a graph, and what is left beside them.

    steps  result → its pass
    alive  nodes that are computed by themselves, or by a pass as its result
    uses   how often each node is read, by a pass at most once
    """

    steps: Mapping[int, LineStep]
    alive: frozenset[int]
    uses: Mapping[int, int]

    @classmethod
    def of(cls, graph: Graph, steps: Mapping[int, LineStep]) -> Passes:
        """What those leave."""
        alive, uses = set(graph.outputs), Counter(graph.outputs)
        for node in reversed(graph.nodes()):
            if node.id in alive or registry.get(node.op).has("leaf"):
                step = steps.get(node.id)
                read = node.inputs if step is None else tuple(step.read())
                alive.update((node.id, *read))
                uses.update(read)
        return cls(steps, frozenset(alive), uses)

    def leave(self, at: int) -> bool:
        """Is a node computed by itself?"""
        return at in self.alive and at not in self.steps


def _grown(
    graph: Graph, target: Target, node: Node, needed: Collection[int]
) -> LineStep | None:
    """The pass that ends with a node, if there is one."""
    for lines in _candidates(graph, node):
        if lines.length > target.line_length or lines.level(graph, node) is None:
            continue
        inside = _inside(graph, lines, node, needed)
        if _is_worth_it(graph, lines, inside):
            nodes = tuple(sorted(inside))
            reads = reads_in(graph, lines, nodes)
            if len(reads) < target.max_operands:
                return LineStep(lines, nodes, reads)
    return None


def _candidates(graph: Graph, node: Node) -> Iterable[Lines]:
    """The lines of what a node reduces, or of the reductions that it is made of."""
    if isinstance(registry.get(node.op).lower, View):
        return ()
    found: dict[Lines, None] = {}
    asked, seen = [node.id], {node.id}
    while asked and len(seen) < MOST_NODES:
        at = graph.node(asked.pop(0))
        lines = lines_of(graph, at)
        if lines is not None:
            found[lines] = None
        elif isinstance(registry.get(at.op).lower, Expr | View):
            new = [i for i in dict.fromkeys(at.inputs) if i not in seen]
            seen.update(new)
            asked += new
    return found


def _inside(
    graph: Graph, lines: Lines, last: Node, needed: Collection[int]
) -> dict[int, Level]:
    """All that can be computed along the lines without being read from memory."""
    apart = set(needed) - {last.id}
    while True:
        inside = _reached(graph, lines, last, apart)
        wrong = {i for at in inside for i in _misread(graph, lines, at, inside)}
        if not wrong:
            return inside
        apart |= wrong


def _reached(
    graph: Graph, lines: Lines, last: Node, apart: Collection[int]
) -> dict[int, Level]:
    inside: dict[int, Level] = {}
    asked = [last.id]
    while asked:
        at = asked.pop()
        node = graph.node(at)
        level = None if at in apart or at in inside else lines.level(graph, node)
        if level is None or node.type.dtype not in _COMPUTED or node.is_literal:
            continue
        inside[at] = level
        asked += node.inputs
    return inside


def _misread(
    graph: Graph, lines: Lines, at: int, inside: Collection[int]
) -> Iterable[int]:
    """What has to be read from memory for a node to meet the right elements of it."""
    node = graph.node(at)
    is_view = isinstance(registry.get(node.op).lower, View)
    if is_view and node.inputs[0] not in inside:
        return (at,)
    return [
        i for i in node.inputs if i in inside and not lines.takes(node, graph.node(i))
    ]


def _is_worth_it(graph: Graph, lines: Lines, inside: dict[int, Level]) -> bool:
    """Does one pass do what several would? A reduction alone has better kernels, and
    so has one with something elementwise after it.
    """
    folds = sum(level == "fold" for level in inside.values())
    views = sum(isinstance(registry.get(graph.node(i).op).lower, View) for i in inside)
    along = sum(level == "line" for level in inside.values()) - views
    small = not lines.kept and len(inside) > 1 + views
    several = folds > 1 or (folds == 1 and (along > 0 or small))
    return several and len(inside) <= MOST_NODES and _depth(graph, inside) <= MOST_DEEP


def _depth(graph: Graph, inside: dict[int, Level]) -> int:
    """The most reductions that follow one from another."""
    deep: dict[int, int] = {}
    for at in sorted(inside):
        before = [deep.get(i, 0) for i in graph.node(at).inputs]
        deep[at] = max(before, default=0) + (inside[at] == "fold")
    return max(deep.values())
