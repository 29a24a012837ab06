"""A graph whose large matrices become packed weights of few bits.

The right operand of a product that is a param or a constant [K, N], or the transpose of
one, is packed by `rlxweb.packed_weights`; the product becomes `quantized_matmul`. Of a
table whose rows are gathered, those that are wanted are unpacked. What else reads a
matrix wants its floats, so it stays as it is. A graph with dims has its calls done
again, with those of products and gathers changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import switch
from rlxweb.bfloat16 import is_bfloat16, to_float32
from rlxweb.errors import InputError, UsageError, shown
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.recording import Call, Recording, Replay
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import must_be_graph
from rlxweb.packed_weights import Quantized, groups_of, quantize

Array = npt.NDArray[Any]
LEAST = 4096
"""Weights of a matrix that is worth packing."""
_PRODUCTS = ("matmul", "fused_matmul_bias_act")
_TURNS = ("transpose", "swapaxes")
_PARTS = ("words", "scales", "biases")


def quantize_weights(
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    bits: int = 8,
    group_size: int = 64,
    *,
    symmetric: bool = True,
    least: int = LEAST,
) -> tuple[Graph, dict[str, Any]]:
    """The graph with matrices of products and tables of rows packed, and its params.

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
    doing = "quantize_weights"
    must_be_graph(graph, doing)
    doing = f"{doing} of graph {shown(graph.name)}"
    switch("symmetric", symmetric, doing)
    if params is not None and not isinstance(params, Mapping):
        raise UsageError(doing, f"params is {shown(params)}", "arrays by name")
    groups_of(1, bits, group_size)
    work = _Packing(graph, dict(params or {}), bits, group_size, symmetric)
    work.find(least)
    if not work.chosen:
        raise InputError(
            doing,
            f"no product has a matrix of {least:,} weights or more to pack",
            "a param with a value or a constant, which products alone read",
            "give the values by name in `params`",
        )
    log = graph.recording
    return (work.rebuilt() if log is None else work.replayed(log)), work.params


@dataclass
class _Packing:
    """One walk.

    chosen   the nodes of matrices that are packed
    products nodes of products and gathers: (their matrix, whether it is [N, K])
    packed   of matrices, and the params or constants that hold them
    """

    graph: Graph
    params: dict[str, Any]
    bits: int
    group_size: int
    symmetric: bool
    chosen: set[int] = field(default_factory=set)
    products: dict[int, tuple[int, bool]] = field(default_factory=dict)
    packed: dict[tuple[int, bool], Quantized] = field(default_factory=dict)
    held: dict[tuple[int, bool], list[Tensor]] = field(default_factory=dict)

    def find(self, least: int) -> None:
        """Which products change, and which matrices."""
        readers: dict[int, set[int]] = {}
        for node in self.graph.nodes():
            found = self._matrix_of(node)
            if found is None:
                continue
            at, _ = found
            if self.graph.node(at).type.numel >= least and self._value(at) is not None:
                self.products[node.id] = found
                readers.setdefault(at, set()).add(node.id)
        for at, products in readers.items():
            if self._read_by(at) <= products and at not in self.graph.outputs:
                self.chosen.add(at)
        self.products = {n: f for n, f in self.products.items() if f[0] in self.chosen}

    def _matrix_of(self, node: Node) -> tuple[int, bool] | None:
        """The leaf that is a product's right operand, and whether it is turned."""
        if len(set(node.inputs)) < 2:
            return None
        if _op(node) == "gather" and not node.attrs.get("axis", 0):
            at, turned = node.inputs[0], True
        elif _op(node) in _PRODUCTS:
            at, turned = node.inputs[1], False
        else:
            return None
        while _op(self.graph.node(at)) in _TURNS and self._is_turn(self.graph.node(at)):
            at, turned = self.graph.node(at).inputs[0], not turned
        leaf = self.graph.node(at)
        is_leaf = leaf.op in ("param", "constant") and len(leaf.type.shape) == 2
        return (at, turned) if is_leaf and leaf.type.dtype.is_float else None

    def _is_turn(self, node: Node) -> bool:
        """Does it exchange the axes of a matrix?"""
        shape = self.graph.node(node.inputs[0]).type.shape
        ends = node.attrs.get("perm") or [
            node.attrs.get(n) for n in ("first", "second")
        ]
        return (
            len(shape) == 2
            and len({end % 2 for end in ends}) == 2
            and (_op(node) == "swapaxes" or ends[0] % 2 == 1)
        )

    def _read_by(self, at: int) -> set[int]:
        """What reads a leaf, through transposes."""
        found: set[int] = set()
        for user in self.graph.users(at):
            node = self.graph.node(user)
            turns = _op(node) in _TURNS and user not in self.graph.outputs
            found |= self._read_by(user) if turns else {user}
        return found

    def _value(self, at: int) -> Array | None:
        node = self.graph.node(at)
        if node.op == "param":
            found = self.params.get(node.name)
            return None if found is None else np.asarray(found)
        value = node.attrs["value"]
        return np.asarray(getattr(value, "array", value))

    def quantized(self, at: int, turned: bool) -> Quantized:
        """A matrix as [N, K], packed."""
        known = self.packed.get((at, turned))
        if known is None:
            value = self._value(at)
            assert value is not None
            array = to_float32(value) if is_bfloat16(value.dtype) else value
            array = array if turned else np.ascontiguousarray(array.T)
            kind = self.graph.node(at).type.dtype
            array = array.astype(kind.held, copy=False)
            known = quantize(
                array, self.bits, self.group_size, symmetric=self.symmetric
            )
            self.packed[at, turned] = known
        return known

    def instead(self, out: Graph, node: Node, x: Tensor, rest: list[Tensor]) -> Tensor:
        """What a product of x, or a gather of rows x, becomes.

        rest   other operands than these and the matrix
        """
        found = self.products[node.id]
        if found not in self.held:
            self.held[found] = self._leaves(out, *found)
        how: dict[str, Any] = {"bits": self.bits, "group_size": self.group_size}
        words, scales, *biases = self.held[found]
        bias = biases[0] if biases else None
        if _op(node) != "gather":
            y = out.quantized_matmul(x, words, scales, bias, **how)
            return _ended(out, y, node.attrs.get("activation"), rest)
        words, scales = out.gather(words, x), out.gather(scales, x)
        bias = None if bias is None else out.gather(bias, x)
        y, k = out.dequantize(words, scales, bias, **how), self._numel_of_row(found[0])
        return y if y.shape[-1] == k else out.narrow(y, y.rank - 1, 0, k)

    def _numel_of_row(self, at: int) -> int:
        return self.graph.node(at).type.shape[1]

    def _leaves(self, out: Graph, at: int, turned: bool) -> list[Tensor]:
        node, made = self.graph.node(at), self.quantized(at, turned)
        parts = [(n, a) for n, a in zip(_PARTS, made, strict=True) if a is not None]
        if node.op == "constant":
            return [out.constant(array) for _, array in parts]
        # A matrix that is read both ways is packed both ways.
        end = ".turned" if any(at == other for other, _ in self.held) else ""
        leaves = []
        for part, array in parts:
            name = f"{node.name}{end}.{part}"
            self.params[name] = array
            leaves.append(out.param(name, array.shape, array.dtype))
        return leaves

    def rebuilt(self) -> Graph:
        """A graph of given sizes, node by node."""
        out, graph = Graph(self.graph.name), self.graph
        made: dict[int, Tensor] = {}
        gone = self._gone()
        for node in graph.nodes():
            if node.id in gone:
                continue
            if node.id not in self.products:
                made[node.id] = out.copied(node, [made[i] for i in node.inputs])
                continue
            x, *rest = (made[i] for i in node.inputs if i in made)
            made[node.id] = self.instead(out, node, x, rest)
        out.set_outputs([made[at] for at in graph.outputs])
        self._forget()
        return out

    def _gone(self) -> set[int]:
        """The matrices and their transposes."""
        gone = set(self.chosen)
        for node in self.graph.nodes():
            if _op(node) in _TURNS and set(node.inputs) <= gone:
                gone.add(node.id)
        return gone

    def _forget(self) -> None:
        for at in self.chosen:
            self.params.pop(self.graph.node(at).name, None)

    def replayed(self, log: Recording) -> Graph:
        """A graph with dims: its calls again."""
        ids = {node.id: node.id for node in log.first.nodes()}
        now, gone = Replay(log.first.copy(), {}, ids), self._gone()
        for call in log.calls:
            at = next(iter(_made(call)), -1)
            if at in gone:
                continue
            if at in self.products:
                x, *rest = (now.tensor(r.id) for r in call.operands if r.id in now.ids)
                made: Any = self.instead(now.graph, self.graph.node(at), x, rest)
            else:
                made = now.called(call)
            now.learned(made, call.made)
        log.check_held(now)
        now.graph.set_outputs([now.tensor(at) for at in self.graph.outputs])
        self._forget()
        return now.graph


def _op(node: Node) -> str:
    """The op that a node is of; a graph with dims writes down calls of `apply`."""
    return str(node.attrs["op_name"]) if node.op == "apply" else node.op


def _ended(g: Graph, y: Tensor, activation: Any, rest: list[Tensor]) -> Tensor:
    """What a product had in itself: a bias and an activation."""
    for bias in rest:
        y = y + bias
    return y if activation is None else g.activation(activation, y)


def _made(call: Call) -> list[int]:
    refs = call.made if isinstance(call.made, list | tuple) else [call.made]
    return [ref.id for ref in refs if hasattr(ref, "id")]
