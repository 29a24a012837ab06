"""IO profile of a graph: kernel launches, host waits, bytes read back and memory
traffic.

RLX's counting rules, node by node. What a compiled plan really moves is counted from
its steps by the compiler; this one needs no device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from operator import index
from typing import Any, SupportsIndex

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.errors import UsageError, shown
from rlxweb.ir.dim_binding import UnboundOpGraph, op_graph, sample_graph
from rlxweb.ir.graph import Graph, Node, node_signature
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import require_graph

METADATA_OPS = frozenset(
    {"input", "param", "constant", "reshape", "transpose", "narrow"}
)
"""Op kinds that RLX counts nothing for. RLX has a kernel for some, and rlxweb has views
for more; the seed keeps RLX's list.
"""


TRANSFORM_OPS = frozenset({"fft", "rfft", "irfft"})
"""Fourier transform ops; every other op that contains one is composed of them."""


@dataclass(frozen=True, slots=True)
class GraphIoOptions:
    """Options of `profile_graph_io`. fft_host_sync: the device has no transform of its
    own, so every op that contains one waits once more: fft, rfft, stft, an estimate
    that transforms its segments.
    """

    fft_host_sync: bool = False

    def __post_init__(self) -> None:
        value = coerce_bool("fft_host_sync", self.fft_host_sync, "GraphIoOptions")
        object.__setattr__(self, "fft_host_sync", value)


@dataclass(frozen=True, slots=True)
class GraphIoProfile:
    """Counts of one forward run; bytes in bytes."""

    kernel_launches: int = 0
    sync_points: int = 0
    host_output_bytes: int = 0
    device_traffic_bytes: int = 0

    def host_readback_bytes(self, unified_memory: bool) -> int:
        """Return the bytes that reach the host, by RLX's rule.

        On a device with memory of its own a quarter of the traffic is added.
        """
        if unified_memory:
            return self.host_output_bytes
        return self.host_output_bytes + self.device_traffic_bytes // 4

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def host_sync_op_kinds() -> tuple[str, ...]:
    """Return the ops that RLX waits on the host for, by name; "custom" stands for all
    custom ops.
    """
    names = sorted(op.name for op in registry if op.has_trait("host_sync"))
    return (*names, "custom")


def profile_graph_io(
    graph: Graph, options: GraphIoOptions | None = None
) -> GraphIoProfile:
    """Return RLX's profile of a graph.

    Every node that is not metadata is one launch, moves its inputs (repeated ones
    repeatedly) and its output, and comes back to the host if it is an output; a
    repeated output counts once. An array whose size varies counts 0 bytes.

    Errors   VerifyError, UsageError for what is no graph and no options.
    """
    require_graph(graph, "profile_graph_io")
    has_fft_sync = _fft_host_sync(options)
    ops = op_graph(graph)
    outputs = set(ops.outputs)
    waits = readback_bytes = traffic = 0
    kernels = [node for node in ops.nodes() if node.op not in METADATA_OPS]
    for node in kernels:
        op = registry.get(node.op)
        waits += op.has_trait("host_sync") or op.has_trait("custom")
        nbytes = node.type.known_nbytes
        traffic += sum(ops.node(i).type.known_nbytes for i in node.inputs) + nbytes
        readback_bytes += nbytes if node.id in outputs else 0
    if has_fft_sync:
        sample_ops = sample_graph(graph)  # what an op is composed of depends on no size
        computed_nodes = (
            node for node in sample_ops.nodes() if node.op not in METADATA_OPS
        )
        waits += sum(contains_transform(sample_ops, node) for node in computed_nodes)
    return GraphIoProfile(len(kernels), waits, readback_bytes, traffic)


def _fft_host_sync(options: object) -> bool:
    if isinstance(options, GraphIoOptions):
        return options.fft_host_sync
    if options is None:
        return False
    problem = f"options is {shown(options)}"
    raise UsageError("profile_graph_io", problem, "expected GraphIoOptions")


def contains_transform(
    graph: Graph, node: Node, outer_ops: frozenset[str] = frozenset()
) -> bool:
    """Tell whether a node is a transform or composed of ops that contain one.

    outer_ops  the ops it was found in; one that composes itself is not followed
    """
    op, inputs, _, attrs = node_signature(graph, node)
    if op.name in TRANSFORM_OPS:
        return True
    if not isinstance(op.lower, Compose) or op.name in outer_ops:
        return False
    parts = Graph(op.name)
    operands = [parts.input(f"{i}", t.shape, t.dtype) for i, t in enumerate(inputs)]
    op.lower.build(parts, attrs, *operands)
    outer_ops |= {op.name}
    return any(contains_transform(parts, part, outer_ops) for part in parts.nodes())


def profile_graph_io_outputs(
    graph: Graph,
    output_indices: Iterable[SupportsIndex] | None = None,
    options: GraphIoOptions | None = None,
    *,
    node_ids: Iterable[SupportsIndex | Tensor] | None = None,
) -> GraphIoProfile:
    """Return the profile of a graph with only some arrays read back.

    Parameters
    ----------
    graph
        The graph, with its outputs.
    output_indices
        Positions of outputs, from 0, by the rule of RLX's runtime: 4 bytes an element
        whatever the dtype, metadata outputs count, a position named twice counts once
        and one that the graph has not counts nothing, also one below 0.
    options
        As `profile_graph_io` has them.
    node_ids
        In place of positions, nodes (or their ids) that are read back, by the rule of
        RLX's compiler: bytes by dtype, metadata counts nothing, a node named twice
        counts once and one that the graph has not counts nothing.

    Raises
    ------
    UsageError
        Neither or both are given, or something that is no list of whole numbers.
    """
    profile = profile_graph_io(graph, options)
    if (output_indices is None) == (node_ids is None):
        raise UsageError(
            "profile_graph_io_outputs",
            "got neither output_indices nor node_ids"
            if node_ids is None
            else "got both output_indices and node_ids",
            "pass exactly one of output_indices (positions from 0) and node_ids",
        )
    if node_ids is not None:
        ids = _index_set("node_ids", map(_node_id, _as_list("node_ids", node_ids)))
        ops = op_graph(graph)
        if isinstance(ops, UnboundOpGraph):
            ids = {ops.id_map[i] for i in ids if i in ops.id_map}
        kernels = (n for n in ops.nodes() if n.op not in METADATA_OPS and n.id in ids)
        readback_bytes = sum(node.type.known_nbytes for node in kernels)
    else:
        positions = _index_set(
            "output_indices", _as_list("output_indices", output_indices)
        )
        ops = op_graph(graph)
        output_ids = (
            i for position, i in enumerate(ops.outputs) if position in positions
        )
        readback_bytes = sum(4 * ops.node(i).type.known_numel for i in output_ids)
    return replace(profile, host_output_bytes=readback_bytes)


def _node_id(node: Any) -> Any:
    return node.id if isinstance(node, Tensor) else node


def _as_list(name: str, values: Any) -> Iterable[Any]:
    try:
        return list(values)
    except TypeError as error:
        raise _index_error(name, values) from error


def _index_set(name: str, values: Iterable[Any]) -> set[int]:
    items = list(values)
    try:
        return {index(item) for item in items}
    except TypeError as error:
        raise _index_error(name, items) from error


def _index_error(name: str, values: object) -> UsageError:
    what = "positions from 0" if name == "output_indices" else "node ids"
    rule = f"expected a list of {what}, such as [0, 2]"
    return UsageError("profile_graph_io_outputs", f"{name}={values!r}", rule)
