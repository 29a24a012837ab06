"""What a graph moves: kernels started, host waits, bytes back, bytes through memory.

RLX's counting rules, node by node. What a compiled plan really moves is counted from
its steps by the compiler; this one needs no device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from operator import index
from typing import Any, SupportsIndex

from rlxweb.arguments import switch
from rlxweb.cost.graph_work import asked_of
from rlxweb.errors import UsageError, shown
from rlxweb.ir.binding import UnboundOps, ops_of, sample_bound
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import must_be_graph

METADATA = frozenset({"input", "param", "constant", "reshape", "transpose", "narrow"})
"""The kinds RLX counts nothing for. It has a kernel for some, and we have views for
more; the seed keeps RLX's list."""


TRANSFORMS = frozenset({"fft", "rfft", "irfft"})
"""The transforms themselves; what else holds one is composed of them."""


@dataclass(frozen=True, slots=True)
class GraphIoOptions:
    """fft_host_sync: the device has no transform of its own, so what holds one waits
    once more: fft, rfft, stft, an estimate that transforms its segments.
    """

    fft_host_sync: bool = False

    def __post_init__(self) -> None:
        given = switch("fft_host_sync", self.fft_host_sync, "GraphIoOptions")
        object.__setattr__(self, "fft_host_sync", given)


@dataclass(frozen=True, slots=True)
class GraphIoProfile:
    """Counts of one forward; bytes in bytes."""

    kernel_launches: int = 0
    sync_points: int = 0
    host_output_bytes: int = 0
    device_traffic_bytes: int = 0

    def host_readback_bytes(self, unified_memory: bool) -> int:
        """Bytes that reach the host, by RLX's rule.

        On a device with memory of its own a quarter of the traffic is added.
        """
        if unified_memory:
            return self.host_output_bytes
        return self.host_output_bytes + self.device_traffic_bytes // 4

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def host_sync_op_kinds() -> tuple[str, ...]:
    """The ops RLX waits on the host for, by name; "custom" stands for all of those."""
    named = sorted(op.name for op in registry if op.has("host_sync"))
    return (*named, "custom")


def profile_graph_io(
    graph: Graph, options: GraphIoOptions | None = None
) -> GraphIoProfile:
    """RLX's profile of a graph.

    Every node that is not metadata is one launch, moves its inputs (repeated ones
    repeatedly) and its output, and comes back to the host if it is an output; a
    repeated output counts once. An array whose size varies counts 0 bytes.

    Errors   VerifyError, UsageError for what is no graph and no options.
    """
    must_be_graph(graph, "profile_graph_io")
    hosted = _fft_host_sync(options)
    ops = ops_of(graph)
    outputs = set(ops.outputs)
    waits = back = traffic = 0
    kernels = [node for node in ops.nodes() if node.op not in METADATA]
    for node in kernels:
        op = registry.get(node.op)
        waits += op.has("host_sync") or op.has("custom")
        nbytes = node.type.known_nbytes
        traffic += sum(ops.node(i).type.known_nbytes for i in node.inputs) + nbytes
        back += nbytes if node.id in outputs else 0
    if hosted:
        tried = sample_bound(graph)  # what an op is composed of depends on no size
        ran = (node for node in tried.nodes() if node.op not in METADATA)
        waits += sum(holds_transform(tried, node) for node in ran)
    return GraphIoProfile(len(kernels), waits, back, traffic)


def _fft_host_sync(options: object) -> bool:
    if isinstance(options, GraphIoOptions):
        return options.fft_host_sync
    if options is None:
        return False
    problem = f"options is {shown(options)}"
    raise UsageError("profile_graph_io", problem, "GraphIoOptions are wanted")


def holds_transform(
    graph: Graph, node: Node, within: frozenset[str] = frozenset()
) -> bool:
    """Is the node a transform, or composed of ops that hold one?

    within   the ops it was found in; one that composes itself is not followed
    """
    op, inputs, _, attrs = asked_of(graph, node)
    if op.name in TRANSFORMS:
        return True
    if not isinstance(op.lower, Compose) or op.name in within:
        return False
    apart = Graph(op.name)
    operands = [apart.input(f"{i}", t.shape, t.dtype) for i, t in enumerate(inputs)]
    op.lower.build(apart, attrs, *operands)
    within |= {op.name}
    return any(holds_transform(apart, one, within) for one in apart.nodes())


def profile_graph_io_outputs(
    graph: Graph,
    output_indices: Iterable[SupportsIndex] | None = None,
    options: GraphIoOptions | None = None,
    *,
    node_ids: Iterable[SupportsIndex | Tensor] | None = None,
) -> GraphIoProfile:
    """The profile with only some arrays read back.

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
    whole = profile_graph_io(graph, options)
    if (output_indices is None) == (node_ids is None):
        raise UsageError(
            "profile_graph_io_outputs",
            "neither or both of output_indices and node_ids were given",
            "positions from 0, or the ids of nodes, say what is read back",
        )
    if node_ids is not None:
        ids = _numbers("node_ids", map(_id_of, _iterated("node_ids", node_ids)))
        ops = ops_of(graph)
        if isinstance(ops, UnboundOps):
            ids = {ops.ids[i] for i in ids if i in ops.ids}
        kernels = (n for n in ops.nodes() if n.op not in METADATA and n.id in ids)
        back = sum(node.type.known_nbytes for node in kernels)
    else:
        wanted = _numbers("output_indices", _iterated("output_indices", output_indices))
        ops = ops_of(graph)
        read = (i for at, i in enumerate(ops.outputs) if at in wanted)
        back = sum(4 * ops.node(i).type.known_numel for i in read)
    return replace(whole, host_output_bytes=back)


def _id_of(node: Any) -> Any:
    return node.id if isinstance(node, Tensor) else node


def _iterated(name: str, given: Any) -> Iterable[Any]:
    try:
        return list(given)
    except TypeError as error:
        raise _no_numbers(name, given) from error


def _numbers(name: str, given: Iterable[Any]) -> set[int]:
    every = list(given)
    try:
        return {index(one) for one in every}
    except TypeError as error:
        raise _no_numbers(name, every) from error


def _no_numbers(name: str, given: object) -> UsageError:
    what = "positions from 0" if name == "output_indices" else "ids of nodes"
    rule = f"they are {what}, as in [0, 2]"
    return UsageError("profile_graph_io_outputs", f"{name}={given!r}", rule)
