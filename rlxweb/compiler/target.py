"""Target: an engine's description of itself to the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rlxweb.core.errors import RlxError
from rlxweb.core.limits import Limits
from rlxweb.cost.fusion_gate import IoFusionGate
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Epilogue
from rlxweb.ir.op import Attrs, Op, TensorType, Types

T = TypeVar("T")
TargetRule = Callable[[Op, Types, TensorType, Attrs], T]
"""Rule that answers about one node from (op, input types, output type, attrs)."""
EpilogueRule = Callable[
    [Graph, Sequence[int], Sequence[Layout], Sequence[tuple[int, Layout]]],
    Epilogue | None,
]


@dataclass(frozen=True, slots=True)
class Target:
    """Device as the compiler sees it.

    name          for messages and decisions ("NumPy", "llvmpipe on vulkan")
    dtypes        element types it can hold and compute in
    storage_dtypes  element types that leaves and outputs may have beside these, and
                    cast nodes; all else of them is computed in wider ones
    native        (op, input types, output type, attrs) → may stay one step as it is;
                  ops for which it says no are taken apart by their Compose
    max_operands  distinct buffers a fused region may touch, its output included
    keeps_views   view ops stay steps (NumPy makes its own views); otherwise they are
                  resolved into layouts and vanish
    bool_bytes    bytes a bool takes in a buffer
    refusal       why `native` said no, where a limit of the device is the reason
    launches      kernels a native op starts
    extra_bytes   bytes that a native op's kernels move besides its operands and result
    epilogue      (graph, a kernel's node and the elementwise ones after it, the layouts
                  of its operands, what else these read and through which layouts) →
                  the epilogue by which they are one step; None where they cannot be
    line_length   elements of the longest line that reductions and what is elementwise
                  around them may go along in one step; 0: there are no such steps
    row_kernel    (graph, the nodes of such a step) → what computes it, which the step
                  keeps; None where they cannot be one
    gate          what a fusion must gain there; None fuses whatever has a kernel
    limits        what the device granted; None where there is nothing to stay under
    features      optional abilities of the device, by their WebGPU names
    fuses_pattern  whether an op is put in the place of several that spell it out
    demotions     types that it has not → the one that values which fit are held in
    """

    name: str
    dtypes: frozenset[DType]
    native: TargetRule[bool]
    max_operands: int = 8
    keeps_views: bool = False
    bool_bytes: int = 4
    refusal: TargetRule[RlxError | None] = lambda op, inputs, out, attrs: None
    launches: TargetRule[int] = lambda op, inputs, out, attrs: 1
    extra_bytes: TargetRule[int] = lambda op, inputs, out, attrs: 0
    epilogue: EpilogueRule | None = None
    line_length: int = 0
    row_kernel: Callable[[Graph, Sequence[int]], object] = lambda graph, ids: ids
    gate: IoFusionGate | None = None
    limits: Limits | None = None
    features: frozenset[str] = frozenset()
    demotions: Mapping[DType, DType] = field(default_factory=dict)
    storage_dtypes: frozenset[DType] = frozenset()
    fuses_pattern: TargetRule[bool] = lambda op, inputs, out, attrs: False

    def supports_dtypes(self, graph: Graph) -> bool:
        """Tell whether the device has the element types of all nodes."""
        dtypes = {node.type.dtype for node in graph.nodes()}
        if dtypes <= self.dtypes:  # then it computes with all of them, too
            return True
        return all(self.supports_node_dtypes(graph, node) for node in graph.nodes())

    def supports_node_dtypes(self, graph: Graph, node: Node) -> bool:
        """Tell whether the device has the element types that a node needs."""
        if node.op in ("input", "param", "constant", "cast"):
            return node.type.dtype in self.array_dtypes
        computed = (graph.node(i).type.dtype for i in node.inputs)
        has_storage_only = any(
            dtype in self.storage_dtypes and dtype not in self.dtypes
            for dtype in computed
        )
        return node.type.dtype in self.dtypes and not has_storage_only

    @property
    def array_dtypes(self) -> frozenset[DType]:
        """Element types that arrays on the device may have."""
        return self.dtypes | self.storage_dtypes

    def nbytes(self, tensor_type: TensorType) -> int:
        """Return the bytes that a value takes in this device's memory."""
        if tensor_type.dtype is DType.BOOL:
            return tensor_type.numel * self.bool_bytes
        return tensor_type.nbytes
