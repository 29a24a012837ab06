"""Bind the symbolic dimensions of a graph to numbers, given by the caller or inferred
from a run's arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from rlxweb.core.errors import OutOfMemory, RlxError, ShapeError
from rlxweb.ir.array_validation import unknown_name_error
from rlxweb.ir.shape_arithmetic import format_shape, short_repr
from rlxweb.ir.sym_int import SymAxisLength, SymInt
from rlxweb.ir.symbolic_dim import Dim

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph, Node


def bind_graph(graph: Graph, sizes_by_name: Mapping[str, Any]) -> Graph:
    """Return the graph rebuilt with these sizes of its dims; see `Graph.bind`."""
    size_trace, known = graph.recording, graph.dims
    assignments = ", ".join(
        f"{name}={short_repr(size)}" for name, size in sizes_by_name.items()
    )
    context = f"bind graph '{graph.name}' to {assignments or 'nothing'}"
    for name in sizes_by_name:
        if name not in known:
            raise unknown_name_error(context, "dim", str(name), known)
    sizes = {
        name: known[name].check(size, context) for name, size in sizes_by_name.items()
    }
    if size_trace is None or not sizes_by_name:
        return graph.copy()
    try:
        replay = size_trace.replay(size_trace.initial_graph.copy(), sizes)
        replay.graph.set_outputs([replay.tensor(i) for i in graph.outputs])
    except RlxError as error:
        error.doing = f"{context}: {error.doing}"
        raise
    except MemoryError as error:
        raise OutOfMemory(
            context,
            f"the host is out of memory: {error}",
            hint="bind smaller sizes",
        ) from None
    return replay.graph


def sample_graph(graph: Graph) -> Graph:
    """Return the graph bound to sample sizes that its dims allow, or the graph itself
    if no size varies.

    Answers what does not depend on the sizes: which ops there are, of which types.
    """
    if graph.recording is None or not graph.dims:
        return graph
    return graph.recording.trial_graph(graph.outputs)


OpGraph: TypeAlias = "Graph | UnboundOpGraph"
"""A graph of ops whose sizes may be unknown."""


@dataclass(frozen=True, slots=True)
class UnboundOpGraph:
    """The ops of a graph with varying sizes; each unknown size is a dim.

    id_map  of nodes here, by those of the graph
    """

    name: str
    outputs: tuple[int, ...]
    node_list: tuple[Node, ...]
    id_map: Mapping[int, int]

    def nodes(self) -> tuple[Node, ...]:
        return self.node_list

    def node(self, at: int) -> Node:
        return self.node_list[at]


def op_graph(graph: Graph) -> OpGraph:
    """Return the graph itself or, if its sizes vary, the ops that its methods add.

    A size is unknown where it differs between the sizes that the graph was tried with.
    """
    size_trace = graph.recording
    if size_trace is None or not graph.dims:
        return graph
    first, *others = (
        size_trace.trial_graph(graph.outputs, index)
        for index in range(len(size_trace.trials))
    )
    unknown_dim = next(iter(graph.dims.values()))
    nodes = []
    for node in first.nodes():
        shapes = [_matching_shape(other, node) for other in others]
        shape: Any = tuple(
            size
            if all(s is not None and s[axis] == size for s in shapes)
            else unknown_dim
            for axis, size in enumerate(node.type.shape)
        )
        nodes.append(node._replace(type=replace(node.type, shape=shape)))
    id_map = size_trace.trials[0].tensor_ids
    return UnboundOpGraph(graph.name, tuple(first.outputs), tuple(nodes), id_map)


def _matching_shape(graph: Graph, reference: Node) -> Sequence[int] | None:
    """Return the shape of the same node in a graph of other sizes, or None if that
    graph has another op there.
    """
    if reference.id >= len(graph):
        return None
    node = graph.node(reference.id)
    is_same_op = node.op == reference.op and node.type.rank == reference.type.rank
    return node.type.shape if is_same_op else None


@dataclass
class _DimBindings:
    """Dim sizes known so far, each with the input that determined it."""

    sizes: dict[str, int] = field(default_factory=dict)
    source_inputs: dict[str, str] = field(default_factory=dict)

    def dim_size(self, dim: Dim) -> int | SymInt:
        return self.sizes.get(dim.name, dim)

    def axis_length(self, extent: SymAxisLength) -> int | SymInt:
        raise ShapeError("", f"size {extent.text} depends on a tensor")

    def bind_dim(
        self, dim: Dim, size: int, axis: int, input_name: str, context: str
    ) -> None:
        """Set the size of a dim. Errors  ShapeError for a size that the dim does not
        allow.
        """
        self.sizes[dim.name] = dim.check(
            size, f"{context}, input '{input_name}', axis {axis}"
        )
        self.source_inputs[dim.name] = input_name


def infer_dim_sizes(
    graph: Graph, shapes: Mapping[str, Sequence[int]], context: str
) -> dict[str, int]:
    """Infer the sizes of a graph's dims from the shapes of its inputs.

    Errors   ShapeError for shapes that contradict what is declared, each other, or what
    a dim may be; and for dims that no input tells.
    """
    bindings = _DimBindings()
    pending: list[tuple[str, int, SymInt, int]] = []
    for name, node in graph.named("input").items():
        declared: Sequence[Any] = node.type.shape
        if len(declared) != len(shapes[name]):
            raise _shape_mismatch_error(node, shapes[name], context)
        for axis, (expected, actual) in enumerate(
            zip(declared, shapes[name], strict=True)
        ):
            if isinstance(expected, SymInt):
                pending.append((name, axis, expected, actual))
            elif expected != actual:
                raise _shape_mismatch_error(node, shapes[name], context)
    while pending:
        unresolved = [
            entry
            for entry in pending
            if not _check_or_solve_axis(bindings, *entry, context)
        ]
        if len(unresolved) == len(pending):
            break
        pending = unresolved
    for name in graph.dims:
        if name not in bindings.sizes:
            raise ShapeError(
                context,
                f"no input shape determines dim '{name}'",
                "the size of a dim is read from an input axis declared with this dim",
                f"call graph.bind({name}=…), or declare an input axis with this dim",
            )
    return {name: bindings.sizes[name] for name in graph.dims}


def _shape_mismatch_error(node: Node, shape: Sequence[int], context: str) -> ShapeError:
    return ShapeError(
        f"{context}, input '{node.name}'",
        f"the array has shape {format_shape(shape)}",
        f"the graph declares shape {format_shape(node.type.shape)}",
        "reshape the array",
    )


def _check_or_solve_axis(
    bindings: _DimBindings,
    name: str,
    axis: int,
    expected: SymInt,
    actual: int,
    context: str,
) -> bool:
    """Check the length of an axis, or solve it for an unknown dim; return False if it
    cannot be decided yet.

    Errors   ShapeError.
    """
    atoms = list(expected.free_symbols)
    unknown_dims = {
        d.name: d for d in atoms if isinstance(d, Dim) and d.name not in bindings.sizes
    }
    if len(unknown_dims) > 1 or not all(isinstance(atom, Dim) for atom in atoms):
        # What the rules of ops say is held against the array when all dims are bound.
        return not unknown_dims
    if not unknown_dims:
        size = expected.at(bindings)
        if size != actual:
            rule = f"the other inputs require {size}"
            if str(expected) in bindings.source_inputs:
                rule = (
                    f"input '{bindings.source_inputs[str(expected)]}' sets "
                    f"'{expected}' to {size}"
                )
            raise ShapeError(
                f"{context}, input '{name}'",
                f"dimension {axis} ('{expected}') is {actual}",
                rule,
                "pass the same size for this dim in every input",
            )
        return True
    (dim,) = unknown_dims.values()
    solved = _solve_dim(bindings, expected, dim, actual)
    if solved is None:
        return False
    bindings.bind_dim(dim, solved, axis, name, context)
    if expected.at(bindings) != actual:
        raise ShapeError(
            f"{context}, input '{name}'",
            f"dimension {axis} is {actual}",
            f"it must equal {expected} for some integer {dim.name}",
        )
    return True


def _solve_dim(
    bindings: _DimBindings, expression: SymInt, dim: Dim, target: int
) -> int | None:
    """Return the value of a dim for which a size equals `target`, or None if the size
    is not linear in it.
    """

    def evaluate(size: int) -> int:
        """Return the value of the size when the dim is `size`."""
        sizes = {**bindings.sizes, dim.name: size}
        value = expression.at(_DimBindings(sizes))
        assert isinstance(value, int)
        return value

    try:
        at_zero, at_one, at_two = evaluate(0), evaluate(1), evaluate(2)
    except ShapeError:  # it divides something
        return None
    if at_one == at_zero or at_two - at_one != at_one - at_zero:
        return None
    return (target - at_zero) // (at_one - at_zero)
