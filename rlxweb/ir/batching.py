"""A part of a graph for many examples at once: vmap, node by node.

What was built for one example is built again on operands that have the examples along
their first axis. How an op takes such an axis is said in its record; one that does not
say is applied to one example after the other. No op is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlxweb.errors import Unsupported
from rlxweb.ir.lowering import Compose, parts_of
from rlxweb.ir.op import Op, registry
from rlxweb.ir.shape import Shape, normal_axis
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph, Node

MOST_TURNS = 256
"""Examples that an op without a rule is applied to one by one."""


@dataclass(frozen=True, slots=True)
class Examples:
    """A node for one example, and its operands for all of them.

    g        the graph, to which the rule adds
    op       the op's name
    attrs    of the node
    inputs   the operands; those that vary have the examples along axis 0
    varies   of each operand, whether it does
    ranks    of each operand, for one example
    shape    of the result, for one example
    count    how many examples there are
    """

    g: Graph
    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    varies: tuple[bool, ...]
    ranks: tuple[int, ...]
    shape: Shape
    count: int

    @property
    def x(self) -> Tensor:
        """The first operand."""
        return self.inputs[0]

    def apply(self, *inputs: Tensor, **attrs: Any) -> Tensor:
        """The op, with some attributes changed."""
        return self.g.apply(self.op, *inputs, **{**self.attrs, **attrs})

    def repeated(self, at: int) -> Tensor:
        """An operand with the examples along axis 0, be they all the same."""
        x = self.inputs[at]
        if self.varies[at]:
            return x
        return self.g.expand(x, (self.count, *x.shape))

    def aligned(self, at: int, rank: int) -> Tensor:
        """An operand of `rank` axes behind those of the examples, if it varies."""
        x = self.inputs[at]
        more = rank - self.ranks[at]
        if not self.varies[at] or not more:
            return x
        return self.g.reshape(x, (x.shape[0], *(1,) * more, *x.shape[1:]))


Batch = Callable[[Examples], Tensor]
"""The result with the examples along axis 0."""


def together(at: Examples) -> Tensor:
    """Of an op that takes more leading axes, which broadcast: its operands side by
    side.
    """
    rank = max(at.ranks)
    return at.apply(*(at.aligned(i, rank) for i in range(len(at.inputs))))


def alike(at: Examples) -> Tensor:
    """Of an op that takes more leading axes, which all its operands have."""
    return at.apply(*(at.repeated(i) for i in range(len(at.inputs))))


def along(*names: str) -> Batch:
    """Of an op of one operand whose attributes count axes: one further on."""

    def rule(at: Examples) -> Tensor:
        rank = at.ranks[0]
        moved: dict[str, Any] = {}
        for name in names:
            value = at.attrs[name]
            if isinstance(value, int):
                moved[name] = normal_axis(value, rank) + 1
            elif value is not None:
                moved[name] = tuple(normal_axis(a, rank) + 1 for a in value)
        return at.apply(*(at.repeated(i) for i in range(len(at.inputs))), **moved)

    return rule


def folded(at: Examples) -> Tensor:
    """Of an op whose first operand's first axis counts what it does one by one: the
    examples and that axis as one. Other operands that vary are taken in turn.
    """
    return merged(at, (0, *[None] * (len(at.inputs) - 1)), 0)


def merged(at: Examples, axes: Sequence[int | None], out: int) -> Tensor:
    """Of an op that does things one by one: the examples and those as one axis.

    axes   of each operand the axis that counts them; None: it is the same for all, and
           where it varies the examples are taken in turn
    out    that axis of the result
    """
    if any(
        varies and axis is None for varies, axis in zip(at.varies, axes, strict=True)
    ):
        return in_turn(at)
    given = []
    for n, axis in enumerate(axes):
        if axis is None:
            given.append(at.inputs[n])
            continue
        x = at.g.moveaxis(at.repeated(n), 0, axis)
        shape = x.shape
        one = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        given.append(at.g.reshape(x, one))
    made = at.apply(*given)
    apart = (*at.shape[:out], at.count, *at.shape[out:])
    return at.g.moveaxis(at.g.reshape(made, apart), out, 0)


def folding(*axes: int | None, out: int = 0) -> Batch:
    """`merged` as a rule; operands that may be left out are named too."""
    return lambda at: merged(at, axes[: len(at.inputs)], out)


def in_turn(at: Examples) -> Tensor:
    """One example after the other. Errors  Unsupported for too many."""
    if at.count > MOST_TURNS or not at.count:
        raise Unsupported(
            f"op '{at.op}' for {at.count:,} examples",
            "the op is applied to one example after the other",
            f"at most {MOST_TURNS} of them, and at least one",
            "map over fewer at a time, or write it with ops that take a batch",
        )
    made = []
    for n in range(at.count):
        parts = (
            at.g.reshape(at.g.narrow(x, 0, n, 1), x.shape[1:]) if varies else x
            for x, varies in zip(at.inputs, at.varies, strict=True)
        )
        one = at.apply(*parts)
        made.append(at.g.reshape(one, (1, *one.shape)))
    return at.g.concat(made, 0)


def vectorized(
    g: Graph,
    outputs: Sequence[Tensor],
    examples: Sequence[Tensor],
    wholes: Sequence[Tensor],
    count: int,
) -> list[Tensor]:
    """What was computed of `examples`, of the `wholes` that have many along axis 0.

    Results that depend on no example are repeated.
    Errors   Unsupported for too many examples of an op that takes none together.
    """
    made = {x.id: whole for x, whole in zip(examples, wholes, strict=True)}
    for node in _between(g, min(made), outputs):
        if node.id not in made and any(i in made for i in node.inputs):
            made[node.id] = _for_all(g, node, made, count)
    return [
        made[y.id] if y.id in made else g.expand(y, (count, *y.shape)) for y in outputs
    ]


def _between(g: Graph, low: int, outputs: Sequence[Tensor]) -> list[Node]:
    """The nodes from there on that the outputs need, in order."""
    found: set[int] = set()
    stack = [y.id for y in outputs]
    while stack:
        at = stack.pop()
        if at >= low and at not in found:
            found.add(at)
            stack += g.node(at).inputs
    return [g.node(at) for at in sorted(found)]


def _for_all(g: Graph, node: Node, made: Mapping[int, Tensor], count: int) -> Tensor:
    op = registry.get(node.op)
    varies = tuple(i in made for i in node.inputs)
    inputs = tuple(made[i] if i in made else g.tensor(i) for i in node.inputs)
    ranks = tuple(len(g.node(i).type.shape) for i in node.inputs)
    shape = node.type.shape
    at = Examples(g, node.op, node.attrs, inputs, varies, ranks, shape, count)
    rule = rule_of(op)
    if rule is not None:
        return rule(at)
    how = parts_of(op.lower)
    if how is not None:
        return _apart(how, node, at)
    return in_turn(at)


def rule_of(op: Op) -> Batch | None:
    """How an op takes many examples: elementwise ones as they broadcast."""
    if op.batch is None and op.has("elementwise"):
        return together
    return op.batch


def _apart(how: Compose, node: Node, at: Examples) -> Tensor:
    """By way of what the op is built of, for one example first."""
    g = at.g
    ones = [g.identity(g.tensor(i)) for i in node.inputs]
    one = how.build(g, node.attrs, *ones)
    moving = [(x, at.inputs[n]) for n, x in enumerate(ones) if at.varies[n]]
    (made,) = vectorized(
        g, [one], [x for x, _ in moving], [whole for _, whole in moving], at.count
    )
    return made
