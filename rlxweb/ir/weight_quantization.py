"""Weight quantisation: replace the large matrices of a graph by packed weights.

The right operand of a product that is a param or a constant [K, N], or the transpose of
one, is packed by `rlxweb.core.quantized_weights`; the product becomes
`quantized_matmul`. Of a table whose rows are gathered, those that are wanted are
unpacked. What else reads a matrix wants its floats, so it stays as it is. A graph with
dims has its calls done again, with those of products and gathers changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.bfloat16 import is_bfloat16, to_float32
from rlxweb.core.errors import InputError, UsageError, shown
from rlxweb.core.quantized_weights import Quantized, group_counts, quantize
from rlxweb.ir.builder_call_trace import SizeTrace, TracedCall, TraceReplay
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import require_graph

Array = npt.NDArray[Any]
MIN_WEIGHTS = 4096
"""Fewest weights of a matrix that is worth packing."""
_PRODUCT_OPS = ("matmul", "fused_matmul_bias_act")
_TRANSPOSE_OPS = ("transpose", "swapaxes")
_PART_NAMES = ("words", "scales", "biases")


def quantize_weights(
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    bits: int = 8,
    group_size: int = 64,
    *,
    symmetric: bool = True,
    least: int = MIN_WEIGHTS,
) -> tuple[Graph, dict[str, Any]]:
    """Return the graph with product matrices and gathered tables packed, and its
    params.

    params      arrays by name, for `set_param` and `Graph.save`; not needed for
                matrices that are constants
    bits        of a weight, 2, 4 or 8; group_size and symmetric as `rlx.quantize` has
                them
    least       elements of a matrix below which it stays as it is

    A param "w" becomes "w.words", "w.scales" and, if not symmetric, "w.biases". What is
    read otherwise than as the right operand of products, or as a table of rows to
    gather, has more than two axes, or no value in `params`, stays as it is.
    Errors   UsageError; InputError where there is nothing to pack; those of `quantize`
    """
    context = "quantize_weights"
    require_graph(graph, context)
    context = f"{context} of graph {shown(graph.name)}"
    coerce_bool("symmetric", symmetric, context)
    if params is not None and not isinstance(params, Mapping):
        raise UsageError(
            context,
            f"params is {shown(params)}",
            "expected a mapping of names to arrays",
        )
    group_counts(1, bits, group_size)
    quantizer = _WeightQuantizer(graph, dict(params or {}), bits, group_size, symmetric)
    quantizer.find_matrices(least)
    if not quantizer.matrix_ids:
        raise InputError(
            context,
            f"the graph has no matrix of at least {least:,} weights to quantize",
            "to be quantized, a matrix must be a constant or a param with a value, and "
            "used only in matrix products and gathers",
            "pass the values of the params by name in `params`",
        )
    trace = graph.recording
    return (
        quantizer.rebuild_graph() if trace is None else quantizer.replay_trace(trace)
    ), quantizer.params


@dataclass
class _WeightQuantizer:
    """Weight quantisation of one graph.

    matrix_ids  the nodes of matrices that are packed
    products nodes of products and gathers: (their matrix, whether it is [N, K])
    packed_matrices  of matrices, and the params or constants that hold them
    """

    graph: Graph
    params: dict[str, Any]
    bits: int
    group_size: int
    symmetric: bool
    matrix_ids: set[int] = field(default_factory=set)
    products: dict[int, tuple[int, bool]] = field(default_factory=dict)
    packed_matrices: dict[tuple[int, bool], Quantized] = field(default_factory=dict)
    packed_leaves: dict[tuple[int, bool], list[Tensor]] = field(default_factory=dict)

    def find_matrices(self, min_weights: int) -> None:
        """Find the products that change and the matrices that are packed."""
        readers: dict[int, set[int]] = {}
        for node in self.graph.nodes():
            matrix = self._find_matrix(node)
            if matrix is None:
                continue
            node_id, _ = matrix
            if (
                self.graph.node(node_id).type.numel >= min_weights
                and self._matrix_value(node_id) is not None
            ):
                self.products[node.id] = matrix
                readers.setdefault(node_id, set()).add(node.id)
        for node_id, products in readers.items():
            if (
                self._reader_ids(node_id) <= products
                and node_id not in self.graph.outputs
            ):
                self.matrix_ids.add(node_id)
        self.products = {
            product_id: matrix_key
            for product_id, matrix_key in self.products.items()
            if matrix_key[0] in self.matrix_ids
        }

    def _find_matrix(self, node: Node) -> tuple[int, bool] | None:
        """Return the leaf that is a product's right operand, and whether it is
        transposed.
        """
        if len(set(node.inputs)) < 2:
            return None
        if _op_name(node) == "gather" and not node.attrs.get("axis", 0):
            node_id, transposed = node.inputs[0], True
        elif _op_name(node) in _PRODUCT_OPS:
            node_id, transposed = node.inputs[1], False
        else:
            return None
        while _op_name(
            self.graph.node(node_id)
        ) in _TRANSPOSE_OPS and self._is_transpose(self.graph.node(node_id)):
            node_id, transposed = self.graph.node(node_id).inputs[0], not transposed
        leaf = self.graph.node(node_id)
        is_leaf = leaf.op in ("param", "constant") and len(leaf.type.shape) == 2
        return (node_id, transposed) if is_leaf and leaf.type.dtype.is_float else None

    def _is_transpose(self, node: Node) -> bool:
        """Tell whether a node exchanges the two axes of a matrix."""
        shape = self.graph.node(node.inputs[0]).type.shape
        swapped_axes = node.attrs.get("perm") or [
            node.attrs.get(n) for n in ("first", "second")
        ]
        return (
            len(shape) == 2
            and len({axis % 2 for axis in swapped_axes}) == 2
            and (_op_name(node) == "swapaxes" or swapped_axes[0] % 2 == 1)
        )

    def _reader_ids(self, node_id: int) -> set[int]:
        """Return the ids of the nodes that read a leaf, through transposes."""
        readers: set[int] = set()
        for user in self.graph.users(node_id):
            node = self.graph.node(user)
            is_transpose = (
                _op_name(node) in _TRANSPOSE_OPS and user not in self.graph.outputs
            )
            readers |= self._reader_ids(user) if is_transpose else {user}
        return readers

    def _matrix_value(self, node_id: int) -> Array | None:
        """Return the array of a param or constant; None for a param without a value."""
        node = self.graph.node(node_id)
        if node.op == "param":
            array = self.params.get(node.name)
            return None if array is None else np.asarray(array)
        value = node.attrs["value"]
        return np.asarray(getattr(value, "array", value))

    def quantize_matrix(self, node_id: int, transposed: bool) -> Quantized:
        """Pack a matrix as [N, K], once."""
        packed = self.packed_matrices.get((node_id, transposed))
        if packed is None:
            value = self._matrix_value(node_id)
            assert value is not None
            array = to_float32(value) if is_bfloat16(value.dtype) else value
            array = array if transposed else np.ascontiguousarray(array.T)
            dtype = self.graph.node(node_id).type.dtype
            array = array.astype(dtype.reference_dtype, copy=False)
            packed = quantize(
                array, self.bits, self.group_size, symmetric=self.symmetric
            )
            self.packed_matrices[node_id, transposed] = packed
        return packed

    def add_replacement(
        self, out: Graph, node: Node, x: Tensor, other_operands: list[Tensor]
    ) -> Tensor:
        """Add the nodes that replace a product of x, or a gather of rows x.

        other_operands  other operands than these and the matrix
        """
        matrix = self.products[node.id]
        if matrix not in self.packed_leaves:
            self.packed_leaves[matrix] = self._add_packed_leaves(out, *matrix)
        attrs: dict[str, Any] = {"bits": self.bits, "group_size": self.group_size}
        words, scales, *biases = self.packed_leaves[matrix]
        bias = biases[0] if biases else None
        if _op_name(node) != "gather":
            y = out.quantized_matmul(x, words, scales, bias, **attrs)
            return _add_bias_activation(
                out, y, node.attrs.get("activation"), other_operands
            )
        words, scales = out.gather(words, x), out.gather(scales, x)
        bias = None if bias is None else out.gather(bias, x)
        y = out.dequantize(words, scales, bias, **attrs)
        row_length = self._row_length(matrix[0])
        return (
            y if y.shape[-1] == row_length else out.narrow(y, y.rank - 1, 0, row_length)
        )

    def _row_length(self, node_id: int) -> int:
        return self.graph.node(node_id).type.shape[1]

    def _add_packed_leaves(
        self, out: Graph, node_id: int, transposed: bool
    ) -> list[Tensor]:
        """Add the params or constants that hold a packed matrix."""
        node = self.graph.node(node_id)
        arrays = self.quantize_matrix(node_id, transposed)
        parts = [
            (n, a) for n, a in zip(_PART_NAMES, arrays, strict=True) if a is not None
        ]
        if node.op == "constant":
            return [out.constant(array) for _, array in parts]
        # A matrix that is read both ways is packed both ways.
        suffix = (
            ".turned"
            if any(node_id == other for other, _ in self.packed_leaves)
            else ""
        )
        leaves = []
        for part, array in parts:
            name = f"{node.name}{suffix}.{part}"
            self.params[name] = array
            leaves.append(out.param(name, array.shape, array.dtype))
        return leaves

    def rebuild_graph(self) -> Graph:
        """Rebuild a graph of fixed sizes, node by node."""
        out, graph = Graph(self.graph.name), self.graph
        tensors: dict[int, Tensor] = {}
        removed = self._removed_ids()
        for node in graph.nodes():
            if node.id in removed:
                continue
            if node.id not in self.products:
                tensors[node.id] = out.copied(node, [tensors[i] for i in node.inputs])
                continue
            x, *other_operands = (tensors[i] for i in node.inputs if i in tensors)
            tensors[node.id] = self.add_replacement(out, node, x, other_operands)
        out.set_outputs([tensors[node_id] for node_id in graph.outputs])
        self._drop_packed_params()
        return out

    def _removed_ids(self) -> set[int]:
        """Return the ids of the packed matrices and of their transposes."""
        removed = set(self.matrix_ids)
        for node in self.graph.nodes():
            if _op_name(node) in _TRANSPOSE_OPS and set(node.inputs) <= removed:
                removed.add(node.id)
        return removed

    def _drop_packed_params(self) -> None:
        """Remove the packed matrices from the params."""
        for node_id in self.matrix_ids:
            self.params.pop(self.graph.node(node_id).name, None)

    def replay_trace(self, trace: SizeTrace) -> Graph:
        """Rebuild a graph with dims by replaying its calls."""
        ids = {node.id: node.id for node in trace.initial_graph.nodes()}
        replay = TraceReplay(trace.initial_graph.copy(), {}, ids)
        removed = self._removed_ids()
        for call in trace.calls:
            node_id = next(iter(_result_ids(call)), -1)
            if node_id in removed:
                continue
            if node_id in self.products:
                x, *other_operands = (
                    replay.tensor(ref.id)
                    for ref in call.operands
                    if ref.id in replay.tensor_ids
                )
                results: Any = self.add_replacement(
                    replay.graph, self.graph.node(node_id), x, other_operands
                )
            else:
                results = replay.run_call(call)
            replay.map_results(results, call.results)
        trace.check_guards(replay)
        replay.graph.set_outputs(
            [replay.tensor(node_id) for node_id in self.graph.outputs]
        )
        self._drop_packed_params()
        return replay.graph


def _op_name(node: Node) -> str:
    """Return a node's op; a graph with dims records calls of `apply`."""
    return str(node.attrs["op_name"]) if node.op == "apply" else node.op


def _add_bias_activation(
    g: Graph, y: Tensor, activation: Any, biases: list[Tensor]
) -> Tensor:
    """Add the bias and the activation that a fused product had."""
    for bias in biases:
        y = y + bias
    return y if activation is None else g.activation(activation, y)


def _result_ids(call: TracedCall) -> list[int]:
    """Return the ids of the tensors that a call returned."""
    refs = call.results if isinstance(call.results, list | tuple) else [call.results]
    return [ref.id for ref in refs if hasattr(ref, "id")]
