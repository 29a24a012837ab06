"""Graph under construction with constant folding: ops whose operands are known are
evaluated at once.

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

from rlxweb.core.bfloat16 import as_bfloat16, is_bfloat16
from rlxweb.core.errors import DTypeError, ModelError
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.noop_elimination import is_noop, skip_noops
from rlxweb.ir.op import TensorType
from rlxweb.ir.reference_evaluation import evaluate_reference
from rlxweb.ir.shape_arithmetic import Shape, as_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.value_range_rules import Interval
from rlxweb.onnx.model_records import Weight

Array = npt.NDArray[Any]

MAX_FOLDED_NBYTES = 1 << 20
"""Maximum size of the operands and the result of an op that is folded; larger ones run
on the device.
"""
MAX_CONSTANT_NBYTES = 1 << 32
"""Maximum size of a single constant of a model."""

MAX_DERIVED_NBYTES = 1 << 28
"""Maximum size of a derived weight that is larger than its source."""

_MAX_ARRAY_NBYTES = 1 << 46
_MEMORY_RULE = f"an array can have at most {_MAX_ARRAY_NBYTES:,} bytes"


_REPEAT_OPS = ("expand", "tile")


@dataclass(frozen=True, slots=True, eq=False)
class UnhashedConstant:
    """Known array of a FoldingGraph: a `Constant` without a digest, which is costly to
    compute.
    """

    array: Array


class FoldingGraph(Graph):
    """Graph that folds constants; its values are tensors, known or not.

    computed_values  numbers of nodes that were computed on the way, by place
    nonzero_counts  how many elements are not zero, by the place of what they are of
    """

    def __init__(
        self, name: str, computed_values: Mapping[int, Array] | None = None
    ) -> None:
        super().__init__(name)
        self.computed_values = dict(computed_values or {})
        self.nonzero_counts: dict[int, Tensor] = {}
        self._weights: dict[int, Weight] = {}
        self._weight_tensors: dict[int, Tensor] = {}

    def add_constant(self, array: Any) -> Tensor:
        """Add a known value. Raises DTypeError if rlxweb does not have its dtype."""
        array = np.asarray(array)
        if is_bfloat16(array.dtype):
            array = as_bfloat16(array)
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        tensor_type = TensorType(as_shape(array.shape), as_dtype(array.dtype))
        return self._append_node(
            "constant", (), {"value": UnhashedConstant(array)}, tensor_type, ""
        )

    def add_weight(self, weight: Weight) -> Tensor:
        """Add a tensor of the model, read only when its values are needed.

        One node, however often the body that holds it is gone through.
        """
        if id(weight) in self._weight_tensors:
            return self._weight_tensors[id(weight)]
        tensor_type = TensorType(as_shape(weight.shape), as_dtype(weight.dtype))
        tensor = self._append_node(
            "param", (), {"name": weight.name}, tensor_type, weight.name
        )
        self._weights[tensor.id] = weight
        self._weight_tensors[id(weight)] = tensor
        return tensor

    def derive_weight(
        self,
        tensor: Tensor,
        key: Hashable,
        dtype: DType,
        function: Callable[[Array], Array],
        shape: Shape | None = None,
    ) -> Tensor | None:
        """Add a weight that `function` computes from another weight's values when it is
        read.

        key      what tells the function from others, in any draft
        dtype    of its result
        shape    of it; None: the weight's
        None where `tensor` is no weight, or the result too large to be kept beside it.
        """
        weight = self._weights.get(tensor.id)
        nbytes = TensorType(tensor.shape if shape is None else shape, dtype).nbytes
        is_too_large = (
            MAX_DERIVED_NBYTES < nbytes > TensorType(tensor.shape, tensor.dtype).nbytes
        )
        if weight is None or is_too_large:
            return None
        return self.add_weight(weight.derive(key, dtype.numpy, function, shape))

    def known_array(self, tensor: Tensor) -> Array | None:
        """Return the values of a tensor that is constant or was computed already, else
        None.
        """
        if tensor.id in self.computed_values:
            return self.computed_values[tensor.id]
        weight = self._weights.get(tensor.id)
        if weight is not None:
            return weight.array
        node = self.node(tensor.id)
        return node.attrs["value"].array if node.op == "constant" else None

    def apply(
        self, op_name: str, *inputs: Tensor, name: str = "", **attrs: Any
    ) -> Tensor:
        """Apply an op; the result is known if all operands are.

        Exporters write much that changes nothing; see `rlxweb.ir.noop_elimination`.
        """
        result = super().apply(op_name, *inputs, name=name, **attrs)
        node = self.node(result.id)
        if is_noop(self, node):
            source_id, merged_attrs = skip_noops(self, node, inputs[0].id)
            source = self.tensor(source_id)
            return (
                source
                if merged_attrs is None
                else self.apply(op_name, source, **merged_attrs)
            )
        if node.type.nbytes > _MAX_ARRAY_NBYTES:
            raise ModelError(
                "", f"the result would take {node.type.nbytes:,} bytes", _MEMORY_RULE
            )
        is_small = all(
            self.node(i).type.nbytes <= MAX_FOLDED_NBYTES
            for i in (*node.inputs, result.id)
        )
        if not is_small or not all(self._is_known(i) for i in node.inputs):
            return result
        # A weight that is repeated, for a batch say, stays a weight: else it would be
        # a param of the graph for some sizes of the inputs and not for others.
        if node.op in _REPEAT_OPS and self._is_param(node.inputs[0]):
            return result
        return self._fold_node(node)

    def _is_param(self, node_id: int) -> bool:
        """Return whether a node is a weight that is a param where it is used."""
        return node_id in self._weights and not _is_inlined_weight(
            self._weights[node_id]
        )

    def _is_known(self, node_id: int) -> bool:
        is_held = node_id in self._weights or node_id in self.computed_values
        return is_held or self.node(node_id).op == "constant"

    def _fold_node(self, node: Node) -> Tensor:
        """Return the constant that a node of known operands computes."""
        arrays = [self._require_array(i) for i in node.inputs]
        return self.add_constant(_evaluate_node(node, arrays))

    def evaluate_constant(self, tensor: Tensor) -> Array:
        """Return the values of a tensor that depends on no input, however large.

        Errors  ModelError where they are more than anybody would keep.
        """
        values: dict[int, Array] = {}
        for node_id in sorted(self._required_nodes([tensor])):
            node = self.node(node_id)
            check_constant_size(
                node.type.shape, node.type.dtype, f"the result of {node.op}"
            )
            array = self.known_array(self.tensor(node_id))
            if array is None:
                array = _evaluate_node(node, [values[i] for i in node.inputs])
            values[node_id] = array
        return values[tensor.id]

    def source_inputs(self, tensor: Tensor) -> set[str]:
        """Return the names of the graph's inputs that a tensor depends on."""
        names, visited, stack = set(), set(), [tensor.id]
        while stack:
            node = self.node(stack.pop())
            if node.op == "input":
                names.add(node.name)
            new = [i for i in node.inputs if i not in visited]
            visited.update(new)
            stack += new
        return names

    def extract_graph(
        self, outputs: Sequence[Tensor]
    ) -> tuple[Graph, dict[str, Weight]]:
        """Return a plain graph of the nodes that the outputs need, and its params."""
        graph, params = Graph(self.name), dict[str, Weight]()
        tensors: dict[int, Tensor] = {}
        for node_id in sorted(self._required_nodes(outputs)):
            tensors[node_id] = self._copy_node(
                graph, params, tensors, self.node(node_id)
            )
        graph.set_outputs([tensors[t.id] for t in outputs])
        return graph, params

    def extract_subgraph(
        self,
        outputs: Iterable[int],
        known_nodes: Collection[int],
        value_ranges: Mapping[int, Interval],
    ) -> tuple[Graph, dict[str, Weight], set[int]]:
        """Return a plain graph that computes some nodes, its params, and the nodes it
        computes.

        known_nodes  nodes whose values are given: inputs, called by
                     `intermediate_input_name`
        value_ranges  how far those of some of them lie: a device that has 32 bits asks
        """
        output_ids = list(outputs)
        needed = set(output_ids)
        for node_id in range(max(needed, default=-1), -1, -1):
            if node_id in needed and node_id not in known_nodes:
                needed.update(self.node(node_id).inputs)
        graph, params = Graph(self.name), dict[str, Weight]()
        tensors: dict[int, Tensor] = {}
        for node_id in sorted(needed):
            node, tensor_type = self.node(node_id), self.node(node_id).type
            if node_id in known_nodes:
                tensors[node_id] = graph.input(
                    intermediate_input_name(node_id),
                    tensor_type.shape,
                    tensor_type.dtype,
                )
                if node_id in value_ranges:
                    low, high = (int(end) for end in value_ranges[node_id])
                    tensors[node_id] = graph.clip(tensors[node_id], low, high)
            else:
                tensors[node_id] = self._copy_node(graph, params, tensors, node)
        graph.set_outputs([tensors[node_id] for node_id in output_ids])
        computed_nodes = {
            node_id
            for node_id in needed
            if node_id not in known_nodes and self.is_computed(node_id)
        }
        return graph, params, computed_nodes

    def is_computed(self, node_id: int) -> bool:
        """Return whether a node is neither an input, nor a constant, nor a weight."""
        ops = ("input", "constant")
        return node_id not in self._weights and self.node(node_id).op not in ops

    def _copy_node(
        self,
        graph: Graph,
        params: dict[str, Weight],
        tensors: Mapping[int, Tensor],
        node: Node,
    ) -> Tensor:
        """Copy a node into a plain graph; an inlined weight becomes a constant."""
        weight = self._weights.get(node.id)
        if node.op == "constant" or (weight is not None and _is_inlined_weight(weight)):
            return graph.constant(self._require_array(node.id))
        if weight is not None:
            name = _unique_name(weight.name, params)
            params[name] = weight
            return graph.param(name, node.type.shape, node.type.dtype)
        return graph.copied(node, [tensors[i] for i in node.inputs])

    def _require_array(self, node_id: int) -> Array:
        array = self.known_array(self.tensor(node_id))
        assert array is not None
        return array

    def _required_nodes(self, outputs: Iterable[Tensor]) -> set[int]:
        """Return the nodes that the outputs need, and every input: a run always gets
        its array.
        """
        needed = {t.id for t in outputs}
        for node in reversed(self.nodes()):
            if node.id in needed:
                needed.update(node.inputs)
        return needed


def intermediate_input_name(node_id: int) -> str:
    """Return the name of the subgraph input that stands for a node's values."""
    return f"value {node_id}"


def _evaluate_node(node: Node, arrays: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        array = evaluate_reference(node, arrays)
    array = np.ascontiguousarray(array, node.type.dtype.numpy)
    return array.reshape(node.type.shape)


def rlx_dtype_or_none(dtype: np.dtype[Any]) -> DType | None:
    """Return rlxweb's dtype that equals a NumPy dtype, or None if there is none."""
    try:
        return as_dtype(dtype)
    except DTypeError:
        return None


def _is_inlined_weight(weight: Weight) -> bool:
    """Return whether a weight is inlined into the graph as a constant and is no param.

    One number is, and so are few bools and integers of 32 or 64 bits: they are switches
    and indices, and kernels are made for them. Smaller integers are quantised weights.
    """
    size = int(np.prod(weight.shape, dtype=np.int64))
    is_small = size * weight.dtype.itemsize <= MAX_FOLDED_NBYTES
    is_wide_integer = weight.dtype.kind in "iu" and weight.dtype.itemsize >= 4
    is_index_like = weight.dtype.kind == "b" or (
        is_wide_integer and not weight.is_derived
    )
    return size <= 1 or (is_small and is_index_like)


def _unique_name(name: str, used_names: Iterable[str]) -> str:
    """Return the name, with a numeric suffix if it is already used."""
    unique, suffix = name, 1
    while unique in used_names:
        suffix += 1
        unique = f"{name}#{suffix}"
    return unique


def check_constant_size(shape: Sequence[int], dtype: DType, description: str) -> None:
    """Raise ModelError for a constant that is too large to keep in memory."""
    nbytes = TensorType(as_shape(shape), dtype).nbytes
    if nbytes > MAX_CONSTANT_NBYTES:
        raise ModelError(
            "",
            f"{description} would take {nbytes:,} bytes",
            f"a constant can have at most {MAX_CONSTANT_NBYTES:,} bytes",
        )
