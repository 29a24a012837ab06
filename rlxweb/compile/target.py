"""What a backend tells the compiler about itself. Plain data and one question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rlxweb.cost.fusion_gate import IoFusionGate
from rlxweb.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.limits import Limits

T = TypeVar("T")
Rule = Callable[[Op, Types, TensorType, Attrs], T]
"""(op, input types, output type, attrs) → an answer about that node."""
Finishes = Callable[
    [Graph, Sequence[int], Sequence[Layout], Sequence[tuple[int, Layout]]], bool
]


@dataclass(frozen=True, slots=True)
class Target:
    """The device as the compiler sees it.

    name          for messages and decisions ("NumPy", "llvmpipe on vulkan")
    dtypes        element types it can hold and compute in
    stores        element types that leaves and outputs may have beside these, and cast
                  nodes; all else of them is computed in wider ones
    native        (op, input types, output type, attrs) → may stay one step as it is;
                  ops for which it says no are taken apart by their Compose
    max_operands  distinct buffers a fused region may touch, its output included
    keeps_views   view ops stay steps (NumPy makes its own views); otherwise they are
                  resolved into layouts and vanish
    bool_bytes    bytes a bool takes in a buffer
    refusal       why `native` said no, where a limit of the device is the reason
    launches      kernels a native op starts
    extra_bytes   bytes that a native op's kernels move besides its operands and result
    finishes      (graph, a kernel's node and the elementwise ones after it, the layouts
                  of its operands, what else these read and through which layouts) → may
                  be one step
    line_length   elements of the longest line that reductions and what is elementwise
                  around them may go along in one step; 0: there are no such steps
    gate          what a fusion must gain there; None fuses whatever has a kernel
    limits        what the device granted; None where there is nothing to stay under
    features      optional abilities of the device, by their WebGPU names
    joins         whether an op is put in the place of several that spell it out
    narrower      types that it has not → the one that values which fit are held in
    """

    name: str
    dtypes: frozenset[DType]
    native: Rule[bool]
    max_operands: int = 8
    keeps_views: bool = False
    bool_bytes: int = 4
    refusal: Rule[RlxError | None] = lambda op, inputs, out, attrs: None
    launches: Rule[int] = lambda op, inputs, out, attrs: 1
    extra_bytes: Rule[int] = lambda op, inputs, out, attrs: 0
    finishes: Finishes | None = None
    line_length: int = 0
    gate: IoFusionGate | None = None
    limits: Limits | None = None
    features: frozenset[str] = frozenset()
    narrower: Mapping[DType, DType] = field(default_factory=dict)
    stores: frozenset[DType] = frozenset()
    joins: Rule[bool] = lambda op, inputs, out, attrs: False

    def holds(self, graph: Graph) -> bool:
        """Has the device the element types of all nodes?"""
        return all(self.has(graph, node) for node in graph.nodes())

    def has(self, graph: Graph, node: Node) -> bool:
        """Has the device the element types of a node, for what the node is?"""
        if node.op in ("input", "param", "constant", "cast"):
            return node.type.dtype in self.accepts
        computed = (graph.node(i).type.dtype for i in node.inputs)
        stored = any(one in self.stores and one not in self.dtypes for one in computed)
        return node.type.dtype in self.dtypes and not stored

    @property
    def accepts(self) -> frozenset[DType]:
        """The element types that arrays on it may have."""
        return self.dtypes | self.stores

    def nbytes(self, kind: TensorType) -> int:
        """Bytes a value takes in this device's memory."""
        if kind.dtype is DType.BOOL:
            return kind.numel * self.bool_bytes
        return kind.nbytes
