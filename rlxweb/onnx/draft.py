"""A graph in the making, in which whatever is known is computed at once.

It takes every call that a graph takes. An op whose operands are all known (constants,
weights of the model) becomes the constant that the op's own reference computes, so the
arithmetic of shapes folds by itself. What comes out is a plain graph of the nodes that
its outputs need, with the weights in use as params.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.bfloat16 import is_bfloat16, native
from rlxweb.errors import DTypeError, ModelError
from rlxweb.ir.bounds import Interval
from rlxweb.ir.by_reference import by_reference
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.needless import is_needless, shortened
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import Shape, as_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.records import Weight

Array = npt.NDArray[Any]

FOLDED_BYTES = 1 << 20
"""An op whose operands or result are larger is left to the device."""
MOST_BYTES = 1 << 32
"""No single constant of a model is larger."""

DERIVED_BYTES = 1 << 28
"""A weight that is made of another has at most so many."""

_NO_MACHINE_HAS = 1 << 46
_MEMORY = f"no machine has more than {_NO_MACHINE_HAS:,} for one array"


_REPEATS = ("expand", "tile")


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A known array in a draft: `Constant` without a digest, which costs to make."""

    array: Array


class Draft(Graph):
    """A graph that folds. Its values are tensors, known or not.

    answers  numbers of nodes that were computed on the way, by place
    counts   how many elements are not zero, by the place of what they are of
    """

    def __init__(self, name: str, answers: Mapping[int, Array] | None = None) -> None:
        super().__init__(name)
        self.answers = dict(answers or {})
        self.counts: dict[int, Tensor] = {}
        self._weights: dict[int, Weight] = {}
        self._nodes_of: dict[int, Tensor] = {}

    def hold(self, array: Any) -> Tensor:
        """A known value. Errors  DTypeError where rlxweb has no such type."""
        array = np.asarray(array)
        if is_bfloat16(array.dtype):
            array = native(array)
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        kind = TensorType(as_shape(array.shape), as_dtype(array.dtype))
        return self._append("constant", (), {"value": Held(array)}, kind, "")

    def weight(self, weight: Weight) -> Tensor:
        """A tensor of the model, read only where its numbers are wanted.

        One node, however often the body that holds it is gone through.
        """
        if id(weight) in self._nodes_of:
            return self._nodes_of[id(weight)]
        kind = TensorType(as_shape(weight.shape), as_dtype(weight.dtype))
        made = self._append("param", (), {"name": weight.name}, kind, weight.name)
        self._weights[made.id] = weight
        self._nodes_of[id(weight)] = made
        return made

    def derived(
        self,
        tensor: Tensor,
        key: Hashable,
        dtype: DType,
        function: Callable[[Array], Array],
        shape: Shape | None = None,
    ) -> Tensor | None:
        """A weight that `function` makes of another's numbers when it is read.

        key      what tells the function from others, in any draft
        dtype    of its result
        shape    of it; None: the weight's
        None where `tensor` is no weight, or the result too large to be kept beside it.
        """
        weight = self._weights.get(tensor.id)
        size = TensorType(tensor.shape if shape is None else shape, dtype).nbytes
        larger = DERIVED_BYTES < size > TensorType(tensor.shape, tensor.dtype).nbytes
        if weight is None or larger:
            return None
        return self.weight(weight.made(key, dtype.numpy, function, shape))

    def known(self, tensor: Tensor) -> Array | None:
        """The numbers of a tensor that depends on no input, or that were computed on
        the way; else None.
        """
        if tensor.id in self.answers:
            return self.answers[tensor.id]
        weight = self._weights.get(tensor.id)
        if weight is not None:
            return weight.array
        node = self.node(tensor.id)
        return node.attrs["value"].array if node.op == "constant" else None

    def apply(
        self, op_name: str, *inputs: Tensor, name: str = "", **attrs: Any
    ) -> Tensor:
        """`Graph.apply`; the result is known where all operands are.

        Exporters write much that changes nothing; see `rlxweb.ir.needless`.
        """
        made = super().apply(op_name, *inputs, name=name, **attrs)
        node = self.node(made.id)
        if is_needless(self, node):
            at, how = shortened(self, node, inputs[0].id)
            source = self.tensor(at)
            return source if how is None else self.apply(op_name, source, **how)
        if node.type.nbytes > _NO_MACHINE_HAS:
            raise ModelError(
                "", f"its result takes {node.type.nbytes:,} bytes", _MEMORY
            )
        small = all(
            self.node(i).type.nbytes <= FOLDED_BYTES for i in (*node.inputs, made.id)
        )
        if not small or not all(self._is_known(i) for i in node.inputs):
            return made
        # A weight that is repeated, for a batch say, stays a weight: else it would be
        # a param of the graph for some sizes of the inputs and not for others.
        if node.op in _REPEATS and self._is_param(node.inputs[0]):
            return made
        return self._computed(node)

    def _is_param(self, at: int) -> bool:
        """Return whether a node is a weight that is a param where it is used."""
        return at in self._weights and not _is_literal(self._weights[at])

    def _is_known(self, at: int) -> bool:
        is_held = at in self._weights or at in self.answers
        return is_held or self.node(at).op == "constant"

    def _computed(self, node: Node) -> Tensor:
        arrays = [self._array(i) for i in node.inputs]
        return self.hold(_by_reference(node, arrays))

    def evaluated(self, tensor: Tensor) -> Array:
        """The numbers of a tensor that depends on no input, however large.

        Errors  ModelError where they are more than anybody would keep.
        """
        values: dict[int, Array] = {}
        for at in sorted(self._needed([tensor])):
            node = self.node(at)
            checked_size(node.type.shape, node.type.dtype, f"the values of {node.op}")
            known = self.known(self.tensor(at))
            if known is None:
                known = _by_reference(node, [values[i] for i in node.inputs])
            values[at] = known
        return values[tensor.id]

    def inputs_behind(self, tensor: Tensor) -> set[str]:
        """The names of the graph's inputs that a tensor depends on."""
        found, seen, stack = set(), set(), [tensor.id]
        while stack:
            node = self.node(stack.pop())
            if node.op == "input":
                found.add(node.name)
            new = [i for i in node.inputs if i not in seen]
            seen.update(new)
            stack += new
        return found

    def finished(self, outputs: Sequence[Tensor]) -> tuple[Graph, dict[str, Weight]]:
        """The plain graph of what the outputs need, and its params."""
        graph, params = Graph(self.name), dict[str, Weight]()
        made: dict[int, Tensor] = {}
        for at in sorted(self._needed(outputs)):
            made[at] = self._copied(graph, params, made, self.node(at))
        graph.set_outputs([made[t.id] for t in outputs])
        return graph, params

    def part(
        self,
        outputs: Iterable[int],
        there: Collection[int],
        reach: Mapping[int, Interval],
    ) -> tuple[Graph, dict[str, Weight], set[int]]:
        """The plain graph of some nodes, its params, and the nodes it computes.

        there   nodes whose values are given: inputs, called by `given_as`
        reach   how far those of some of them lie: a device that has 32 bits asks
        """
        wanted = list(outputs)
        needed = set(wanted)
        for at in range(max(needed, default=-1), -1, -1):
            if at in needed and at not in there:
                needed.update(self.node(at).inputs)
        graph, params = Graph(self.name), dict[str, Weight]()
        made: dict[int, Tensor] = {}
        for at in sorted(needed):
            node, kind = self.node(at), self.node(at).type
            if at in there:
                made[at] = graph.input(given_as(at), kind.shape, kind.dtype)
                if at in reach:
                    low, high = (int(end) for end in reach[at])
                    made[at] = graph.clip(made[at], low, high)
            else:
                made[at] = self._copied(graph, params, made, node)
        graph.set_outputs([made[at] for at in wanted])
        own = {at for at in needed if at not in there and self.is_computed(at)}
        return graph, params, own

    def is_computed(self, at: int) -> bool:
        """Is a node neither given nor known from the start?"""
        ops = ("input", "constant")
        return at not in self._weights and self.node(at).op not in ops

    def _copied(
        self,
        graph: Graph,
        params: dict[str, Weight],
        made: Mapping[int, Tensor],
        node: Node,
    ) -> Tensor:
        """A node in a plain graph; what is literal of the weights is part of it."""
        weight = self._weights.get(node.id)
        if node.op == "constant" or (weight is not None and _is_literal(weight)):
            return graph.constant(self._array(node.id))
        if weight is not None:
            name = _free(weight.name, params)
            params[name] = weight
            return graph.param(name, node.type.shape, node.type.dtype)
        return graph.copied(node, [made[i] for i in node.inputs])

    def _array(self, at: int) -> Array:
        array = self.known(self.tensor(at))
        assert array is not None
        return array

    def _needed(self, outputs: Iterable[Tensor]) -> set[int]:
        """What the outputs need, and every input: its array is given at each run."""
        needed = {t.id for t in outputs}
        for node in reversed(self.nodes()):
            if node.id in needed:
                needed.update(node.inputs)
        return needed


def given_as(at: int) -> str:
    """The name of the input that stands for a node's values in a part."""
    return f"value {at}"


def _by_reference(node: Node, arrays: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        array = by_reference(node, arrays)
    array = np.ascontiguousarray(array, node.type.dtype.numpy)
    return array.reshape(node.type.shape)


def ours(dtype: np.dtype[Any]) -> DType | None:
    """The type of rlxweb that is NumPy's `dtype`; None where it has none."""
    try:
        return as_dtype(dtype)
    except DTypeError:
        return None


def _is_literal(weight: Weight) -> bool:
    """Return whether a weight is part of the graph, and no param of it.

    One number is, and so are few bools and integers of 32 or 64 bits: they are switches
    and indices, and kernels are made for them. Smaller integers are quantised weights.
    """
    size = int(np.prod(weight.shape, dtype=np.int64))
    small = size * weight.dtype.itemsize <= FOLDED_BYTES
    wide = weight.dtype.kind in "iu" and weight.dtype.itemsize >= 4
    indexes = weight.dtype.kind == "b" or (wide and not weight.is_derived)
    return size <= 1 or (small and indexes)


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, or with a number behind it where an inner graph has the same."""
    free, at = name, 1
    while free in taken:
        at += 1
        free = f"{name}#{at}"
    return free


def checked_size(shape: Sequence[int], dtype: DType, what: str) -> None:
    """Errors  ModelError for a constant that nobody would keep in memory."""
    nbytes = TensorType(as_shape(shape), dtype).nbytes
    if nbytes > MOST_BYTES:
        raise ModelError(
            "",
            f"{what} would take {nbytes:,} bytes",
            f"a constant of a model takes at most {MOST_BYTES:,}",
        )
