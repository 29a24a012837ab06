"""Reverse mode: the gradients of some results, as nodes added to their graph.

Walks from the results towards the operands that are asked for, by the rules in the
records of the ops. An op that is built of others is taken apart on the way, and its
parts differentiated. Forward mode is reverse mode twice: what takes gradients back is
linear in them, and the gradient of a linear map is its transpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from rlxweb.errors import DTypeError, GradientRefused, GraphError, ShapeError
from rlxweb.ir.derivative import Taken, summed_to
from rlxweb.ir.lowering import parts_of
from rlxweb.ir.op import Op, registry
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph, Node

MOST_SHOWN = 6
IN, OUT = "segment_in", "segment_out"
"""Ops at the ends of what `checkpoint` computes again."""
STOP = "stop_gradient"


def pulled_back(
    g: Graph,
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    wrt: Sequence[Tensor],
    doing: str,
) -> list[Tensor]:
    """The gradient of `sum(output * grad)` by each tensor of `wrt`; zeros where none.

    Errors   DTypeError for what is no float; ShapeError for a gradient unlike its
    output; GradientRefused for an op without a derivative.
    """
    _check(outputs, grads, wrt, doing)
    found = _Walk(g, wrt, doing).of(outputs, grads)
    made = []
    for one in wrt:
        grad = found.get(one.id)
        if grad is None:
            grad = g.expand(g.constant(0, one.dtype), one.shape)
        made.append(grad)
    return made


def pushed_forward(
    g: Graph,
    outputs: Sequence[Tensor],
    wrt: Sequence[Tensor],
    tangents: Sequence[Tensor],
    doing: str,
) -> list[Tensor]:
    """How each output moves when the tensors of `wrt` move along `tangents`.

    Errors   as `pulled_back`.
    """
    _check(wrt, tangents, outputs, doing)
    # Any gradients do: what takes them back is linear, so its own derivative has no
    # trace of them. Ones of a node each, by which to differentiate.
    ones = [g.expand(g.constant(1, y.dtype), y.shape) for y in outputs]
    back = pulled_back(g, outputs, ones, wrt, doing)
    return pulled_back(g, back, tangents, ones, doing)


def _check(
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    wrt: Sequence[Tensor],
    doing: str,
) -> None:
    for x in (*outputs, *wrt):
        if not x.dtype.is_float:
            node = x.graph.node(x.id)
            raise DTypeError(
                doing,
                f"{node} is {x.dtype}",
                "a gradient is of floats, by floats",
                "cast it, or leave it out",
            )
    if len(grads) != len(outputs):
        raise GraphError(
            doing, f"{len(grads)} gradients for {len(outputs)} outputs", "one for each"
        )
    for y, grad in zip(outputs, grads, strict=True):
        if (tuple(y.shape), y.dtype) != (tuple(grad.shape), grad.dtype):
            raise ShapeError(
                doing,
                f"a gradient is {show(grad.shape)} {grad.dtype}",
                f"its output is {show(y.shape)} {y.dtype}",
            )


class _Walk:
    """One walk back to the tensors `wrt`.

    above   nodes that depend on one of them through floats: for each, the operand by
            which it was found, to tell a path. What integers and bools carry on has
            zero slope: they are constant but for jumps
    """

    def __init__(self, g: Graph, wrt: Sequence[Tensor], doing: str) -> None:
        self.g, self.doing = g, doing
        self.wrt = {one.id for one in wrt}
        self.above: dict[int, int] = {}
        self.grads: dict[int, Tensor] = {}

    def of(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> dict[int, Tensor]:
        """The gradients by the id of what they are by, where there are any."""
        self._mark(max((y.id for y in outputs), default=-1))
        heap: list[int] = []
        for y, grad in zip(outputs, grads, strict=True):
            self._add(y.id, grad, heap)
        found = {}
        while heap:
            at = -heappop(heap)
            grad = self.grads.pop(at)
            if at in self.wrt:
                found[at] = grad
            node = self.g.node(at)
            if node.op == OUT and at in self.above:
                parts = self._again(node, grad, heap)
            else:
                parts = self._taken_back(node, grad)
            for operand, part in parts:
                self._add(operand, part, heap)
        return found

    def _mark(self, last: int) -> None:
        """Which nodes depend on what is asked for."""
        low = min(self.wrt, default=last + 1)
        for node in self.g.nodes()[low : last + 1]:
            if node.op == STOP or not node.type.dtype.is_float:
                continue
            for i in node.inputs:
                if i in self.wrt or i in self.above:
                    self.above.setdefault(node.id, i)

    def _path(self, at: int) -> Iterator[Node]:
        """From what is asked for to a node."""
        ids = [at]
        while ids[-1] not in self.wrt:
            ids.append(self.above[ids[-1]])
        return map(self.g.node, reversed(ids))

    def _said(self, path: Sequence[Node]) -> str:
        each = [n.name or f"%{n.id} {n.op}" for n in path]
        if len(each) > MOST_SHOWN:
            each[MOST_SHOWN // 2 : -MOST_SHOWN // 2] = ["…"]
        return " → ".join(each)

    def _add(self, at: int, grad: Tensor, heap: list[int]) -> None:
        if at not in self.wrt and at not in self.above:
            return
        if at in self.grads:
            self.grads[at] = self.grads[at] + grad
        else:
            self.grads[at] = grad
            heappush(heap, -at)

    def _taken_back(self, node: Node, grad: Tensor) -> list[tuple[int, Tensor]]:
        """The gradients of a node's operands that lead on."""
        g = self.g
        wants = tuple(i in self.wrt or i in self.above for i in node.inputs)
        if node.id not in self.above or not any(wants) or not node.type.numel:
            return []
        op = registry.get(node.op)
        inputs = tuple(g.tensor(i) for i in node.inputs)
        if op.vjp is not None:
            at = Taken(g, node.attrs, inputs, g.tensor(node.id), grad, wants)
            parts = op.vjp(at)
        else:
            parts = self._apart(op, node, inputs, grad, wants)
        return [
            (x.id, summed_to(part, x.shape))
            for x, part, wanted in zip(inputs, parts, wants, strict=True)
            if wanted and part is not None
        ]

    def _apart(
        self,
        op: Op,
        node: Node,
        inputs: tuple[Tensor, ...],
        grad: Tensor,
        wants: tuple[bool, ...],
    ) -> list[Tensor | None]:
        """The gradients by way of what an op is built of."""
        how = parts_of(op.lower)
        if how is None:
            path = self._said(list(self._path(node.id)))
            raise GradientRefused(
                self.doing,
                f"{path}: op '{op.name}' has no derivative",
                hint="take stop_gradient of what it is given or gives",
            )
        # An operand may be a part of another: the walk must end at this one.
        names = [self.g.apply("identity", x) for x in inputs]
        made = how.build(self.g, node.attrs, *names)
        asked = [x for x, wanted in zip(names, wants, strict=True) if wanted]
        found = _Walk(self.g, asked, f"{self.doing}, {node}").of([made], [grad])
        return [found.get(x.id) for x in names]

    def _again(
        self, last: Node, grad: Tensor, heap: list[int]
    ) -> list[tuple[int, Tensor]]:
        """The gradients of what a segment reads, by way of computing it once more.

        The ends of a segment are added together, so that whoever reads one comes after
        all of them: their gradients are complete when that of the last is.
        """
        g, ends, grads = self.g, [last], [grad]
        for at in [-one for one in heap]:
            node = g.node(at)
            if node.op == OUT and node.attrs == last.attrs:
                ends.append(node)
                grads.append(self.grads.pop(at))
                heap.remove(-at)
        heapify(heap)
        outs, read = self._copied(ends)
        asked = [one for at, one in read.items() if at in self.wrt or at in self.above]
        found = _Walk(g, asked, self.doing).of(outs, grads)
        return [(at, found[one.id]) for at, one in read.items() if one.id in found]

    def _copied(self, ends: Sequence[Node]) -> tuple[list[Tensor], dict[int, Tensor]]:
        """A segment's results computed again, and what it reads, by the ids it had."""
        g, key = self.g, ends[0].attrs
        made: dict[int, Tensor] = {}
        read: dict[int, Tensor] = {}

        def here(at: int) -> Tensor:
            if at in made:
                return made[at]
            if at not in read:
                read[at] = g.apply("again", g.tensor(at))
            return read[at]

        for at in sorted(self._inside(ends)):
            node = g.node(at)
            if node.attrs == key and node.op in (IN, OUT):
                made[at] = here(node.inputs[0])
            else:
                made[at] = g.copied(node, [here(i) for i in node.inputs])
        return [here(node.inputs[0]) for node in ends], read

    def _inside(self, ends: Sequence[Node]) -> set[int]:
        """The nodes of a segment: on a way from where it begins to one of its ends."""
        key, stack = ends[0].attrs, [node.id for node in ends]
        behind: set[int] = set()
        while stack:
            at = stack.pop()
            if at not in behind:
                behind.add(at)
                node = self.g.node(at)
                begins = node.op == IN and node.attrs == key
                stack += () if begins else node.inputs
        inside: set[int] = set()
        for at in sorted(behind):
            node = self.g.node(at)
            begins = node.op == IN and node.attrs == key
            if begins or any(i in inside for i in node.inputs):
                inside.add(at)
        return inside
