"""Trace of the builder calls that made a graph with symbolic sizes; replayed with
numbers to bind the dims.

Every call of the graph's methods is written down. It is done at once, too, with some
sizes that the dims may have, so that what is wrong is said at the line that wrote it
and shapes are known: lengths of an axis that differ are a Size. To bind the dims is to
do all calls again with their sizes, by the rules that any graph has. What a program was
told of sizes while it built the graph is held on to, and checked then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import (
    GraphError,
    RlxError,
    ShapeError,
    UsageError,
)
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape_arithmetic import as_tuple, format_shape, short_repr
from rlxweb.ir.sym_int import (
    OPERATOR_FUNCTIONS,
    SAMPLE_COUNT,
    SymAxisLength,
    SymInt,
    evaluate_size,
)
from rlxweb.ir.symbolic_dim import Dim
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


LEAF_METHODS = ("input", "param")
UNTRACED_METHODS = (
    *(
        *LEAF_METHODS,
        "bind",
        "recorded",
        "copied",
        "copy_node",
        "copy",
        "save",
        "set_outputs",
    ),
    *("node", "nodes", "tensor", "shape_of", "named", "subgraph", "users"),
)
"""Methods of a graph that build nothing, or that trace their calls themselves."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Reference to a tensor of the graph, in a traced call."""

    id: int

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A traced method call of the graph: its arguments and, as references, its
    results.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: Any = None

    @property
    def operands(self) -> list[TensorRef]:
        """The references among its arguments."""
        return _tensor_leaves((self.args, dict(self.kwargs)))


@dataclass(slots=True)
class TraceReplay:
    """Replay of traced calls on a graph with given sizes; evaluates symbolic sizes
    there.

    tensor_ids  of tensors here, by those of the recorded graph
    """

    graph: Graph
    sizes: Mapping[str, int | SymInt]
    tensor_ids: dict[int, int]

    def dim_size(self, dim: Dim) -> int | SymInt:
        return self.sizes.get(dim.name, dim)

    def axis_length(self, extent: SymAxisLength) -> int | SymInt:
        return self.tensor(extent.tensor_id).shape[extent.axis]

    def tensor(self, node_id: int) -> Tensor:
        """Return the replayed tensor for a node id of the traced graph."""
        return self.graph.tensor(self.tensor_ids[node_id])

    def run_call(self, call: TracedCall) -> Any:
        """Run a traced call on the graph of this replay."""
        args = _map_leaves(call.args, self._resolve_argument)
        kwargs = _map_leaves(dict(call.kwargs), self._resolve_argument)
        return getattr(self.graph, call.method)(*args, **kwargs)

    def _resolve_argument(self, argument: Any) -> Any:
        """Resolve a reference or a symbolic size to its value in this replay."""
        if isinstance(argument, TensorRef):
            return self.tensor(argument.id)
        return argument.at(self) if isinstance(argument, SymInt) else argument

    def map_results(self, results: Any, refs: Any) -> None:
        """Map the references of a call to the tensors that it returned here."""
        pairs = zip(_tensor_leaves(results), _tensor_leaves(refs), strict=True)
        self.tensor_ids.update({ref.id: tensor.id for tensor, ref in pairs})

    def copy(self) -> TraceReplay:
        return TraceReplay(self.graph.copy(), self.sizes, dict(self.tensor_ids))

    @property
    def sizes_text(self) -> str:
        """The sizes as text: `batch=5, n=31`."""
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(slots=True)
class SizeTrace:
    """Trace of the calls of a graph since it has dims.

    initial_graph  its nodes before
    dims    by name
    calls   in order
    trials  the calls on graphs of sizes that the dims may have
    guards  what Python code was told of sizes: sign, both sides, and the answer
    observed_shapes  those it was told of tensors
    token   what it shares with its copies
    """

    initial_graph: Graph
    dims: dict[str, Dim] = field(default_factory=dict)
    calls: list[TracedCall] = field(default_factory=list)
    trials: list[TraceReplay] = field(default_factory=list)
    guards: list[tuple[str, SymInt, SymInt | int, bool]] = field(default_factory=list)
    observed_shapes: dict[int, tuple[int | SymInt, ...]] = field(default_factory=dict)
    token: object = field(default_factory=object)

    @classmethod
    def from_graph(cls, graph: Graph) -> SizeTrace:
        """Start the trace of a graph that has no dims yet."""
        trace = cls(graph.copy())
        ids = {node.id: node.id for node in graph.nodes()}
        trace.trials = [
            TraceReplay(graph.copy(), {}, dict(ids)) for _ in range(SAMPLE_COUNT)
        ]
        return trace

    def copy(self) -> SizeTrace:
        return SizeTrace(
            self.initial_graph,
            dict(self.dims),
            list(self.calls),
            [trial.copy() for trial in self.trials],
            list(self.guards),
            dict(self.observed_shapes),
            self.token,
        )

    def add_guard(self, op: str, x: SymInt, y: SymInt | int, answer: bool) -> None:
        """Add a guard: a comparison of sizes that Python code was answered."""
        self.guards.append((op, x, y, answer))

    def register_dim(self, dim: Dim, context: str) -> Dim:
        """Register a dim, or return the one of that name. Errors  GraphError if it
        allows other sizes.
        """
        known = self.dims.setdefault(dim.name, dim)
        if known.ends != dim.ends:
            raise GraphError(
                context,
                f"{dim!r} differs from the earlier {known!r}",
                "dims with the same name must have the same bounds",
                "use the same Dim, or another name",
            )
        for index, trial in enumerate(self.trials):
            trial.sizes = {**trial.sizes, dim.name: known.samples[index]}
        return known

    def trace_call(
        self, graph: Graph, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call on the graph of every trial, and append it to the trace. Errors
        the call's.
        """
        previous_dims = dict(self.dims)
        try:
            call = TracedCall(
                method,
                _map_leaves(
                    args, lambda value: self._freeze_argument(graph, method, value)
                ),
                _map_leaves(
                    kwargs, lambda value: self._freeze_argument(graph, method, value)
                ),
            )
            trial_results = [self._run_trial(value, call) for value in self.trials]
        except RlxError:
            self.dims = previous_dims
            raise
        outlines = {
            repr(_map_leaves(value, lambda _: TensorRef(0))) for value in trial_results
        }
        if len(outlines) > 1:
            raise UsageError(
                f"{method} of graph '{graph.name}'",
                "the number of results depends on sizes known only when the graph runs",
                hint="request a fixed number of tensors",
            )
        tensors_by_trial = zip(*map(_tensor_leaves, trial_results), strict=True)
        new_tensors = iter(
            [self._add_node(graph, call, tensors) for tensors in tensors_by_trial]
        )
        results = _map_leaves(
            trial_results[0],
            lambda value: next(new_tensors) if _is_tensor_or_ref(value) else value,
        )
        refs = _map_leaves(
            results,
            lambda value: TensorRef(value.id) if _is_tensor_or_ref(value) else value,
        )
        for value, trial_result in zip(self.trials, trial_results, strict=True):
            value.map_results(trial_result, refs)
        self.calls.append(TracedCall(method, call.args, call.kwargs, refs))
        return results

    def _freeze_argument(self, graph: Graph, method: str, value: Any) -> Any:
        """Return an argument in a form that nobody changes later."""
        if isinstance(value, Tensor):
            if value.graph is not graph:
                raise GraphError(
                    f"{method} in graph '{graph.name}'",
                    f"operand {short_repr(value)} is not a tensor of this graph",
                    hint="create the operand with the graph's input, param or constant "
                    "method",
                )
            return TensorRef(value.id)
        if isinstance(value, SymInt):
            for atom in value.free_symbols:
                if (
                    isinstance(atom, SymAxisLength)
                    and atom.trace_token is not self.token
                ):
                    raise GraphError(
                        f"{method} in graph '{graph.name}'",
                        f"size {value} belongs to a tensor of another graph",
                    )
                if isinstance(atom, Dim):
                    self.register_dim(atom, f"{method} in graph '{graph.name}'")
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        return value

    def _run_trial(self, trial: TraceReplay, call: TracedCall) -> Any:
        """Run a call on one trial's graph; errors name its sizes."""
        try:
            return trial.run_call(call)
        except RlxError as error:
            if trial.sizes:
                error.doing = f"{error.doing} (tried with {trial.sizes_text})"
            raise

    def _add_node(
        self, graph: Graph, call: TracedCall, tensors: Sequence[Tensor]
    ) -> Tensor:
        """Add the node that stands for a call's result, given as one tensor for each
        trial.
        """
        node_id = len(graph)
        shapes = [t.shape for t in tensors]
        if len(set(map(len, shapes))) > 1:
            raise UsageError(
                f"{call.method} of graph '{graph.name}'",
                "the rank of the result depends on sizes known only when the graph "
                "runs",
            )
        shape = self._input_shape(call)
        if shape is None:
            lengths = enumerate(zip(*shapes, strict=True))
            shape = tuple(
                self._axis_length(node_id, axis, axis_lengths)
                for axis, axis_lengths in lengths
            )
        tensor_type = TensorType(shape, tensors[0].dtype)  # type: ignore[arg-type]
        return graph.recorded(call, tensor_type)

    def _input_shape(self, call: TracedCall) -> tuple[int | SymInt, ...] | None:
        """Return the declared shape of an input; None for other calls."""
        if call.method != "input":
            return None
        return tuple(as_tuple(call.args[1]) or ())

    def _axis_length(
        self, node_id: int, axis: int, lengths: tuple[int, ...]
    ) -> int | SymInt:
        """Return an axis length: a number where all trials agree, else a symbolic
        length.
        """
        if len(set(lengths)) == 1:
            return lengths[0]
        extent = SymAxisLength(
            self.token, node_id, axis, lengths, self._guess_length_text(lengths)
        )
        return SymInt({(extent.key,): ((extent,), 1)}, self)

    def _guess_length_text(self, lengths: tuple[int, ...]) -> str:
        """Return the first simple expression of dims that gives these lengths in all
        trials.
        """
        dims = list(self.dims.values())
        for size in (*dims, *(x * y for x in dims for y in dims)):
            assert isinstance(size, SymInt)
            a, b = size.samples[:2]
            factor = (lengths[1] - lengths[0]) // (b - a) if a != b else 0
            offset = lengths[0] - factor * a
            if factor and tuple(factor * n + offset for n in size.samples) == lengths:
                return str(size * factor + offset)
            divisor = a // lengths[0] if lengths[0] else 0
            if divisor > 1 and tuple(n // divisor for n in size.samples) == lengths:
                return str(size // divisor)
        return "?"

    def observe_shape(self, node_id: int, shape: Sequence[int | SymInt]) -> Any:
        """Return the shape of a tensor, and note that Python code knows it from now
        on.
        """
        lengths = (SymInt(d.terms, self) if isinstance(d, SymInt) else d for d in shape)
        self.observed_shapes[node_id] = observed = tuple(lengths)
        return observed

    def trial_graph(self, outputs: Sequence[int], index: int = 0) -> Graph:
        """Return the graph of one trial, with these outputs."""
        trial = self.trials[index].copy()
        trial.graph.set_outputs([trial.tensor(index) for index in outputs])
        return trial.graph

    def replay(self, graph: Graph, sizes: Mapping[str, int]) -> TraceReplay:
        """Replay all calls on a graph, with these dims bound.

        Errors   those of the calls; ShapeError where what was built does not hold.
        """
        replay = TraceReplay(
            graph, sizes, {n.id: n.id for n in self.initial_graph.nodes()}
        )
        for call in self.calls:
            results = replay.run_call(call)
            if len(_tensor_leaves(results)) != len(_tensor_leaves(call.results)):
                raise ShapeError(
                    f"{call.method} of graph '{graph.name}'",
                    f"the method returns {len(_tensor_leaves(results))} tensors",
                    f"it returned {len(_tensor_leaves(call.results))} when the graph "
                    f"was built",
                )
            replay.map_results(results, call.results)
        self.check_guards(replay)
        return replay

    def check_guards(self, replay: TraceReplay) -> None:
        """Check that all guards and observed shapes hold in a replay, for tensors that
        exist there.

        Errors  ShapeError.
        """
        hint = (
            "build the graph for these sizes, or set bounds with "
            "Dim(name, min=…, max=…)"
        )
        for op, x, y, answer in self.guards:
            left, right = evaluate_size(x, replay), evaluate_size(y, replay)
            if bool(OPERATOR_FUNCTIONS[op](left, right)) is not answer:
                raise ShapeError(
                    f"size condition {x} {op} {y}",
                    f"the condition was {answer} when the graph was built",
                    f"with the given sizes it is {not answer} ({left} {op} {right})",
                    hint,
                )
        for node_id, shape in self.observed_shapes.items():
            if node_id not in replay.tensor_ids:
                continue  # it has no such tensor any more
            replayed_shape = replay.tensor(node_id).shape
            length_pairs = zip(shape, replayed_shape, strict=True)
            if any(isinstance(d, int) and d != n for d, n in length_pairs):
                raise ShapeError(
                    f"shape of node %{node_id}",
                    f"the shape is {format_shape(replayed_shape)}",
                    f"it was {format_shape(shape)} when the graph was built",
                    hint,
                )


def _is_tensor_or_ref(value: Any) -> bool:
    return isinstance(value, Tensor | TensorRef)


def _map_leaves(value: Any, transform: Callable[[Any], Any]) -> Any:
    """Apply `transform` to every leaf of nested tuples, lists, dicts and slices."""
    if isinstance(value, tuple):
        parts = [_map_leaves(part, transform) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Iterator | list):
        return [_map_leaves(part, transform) for part in value]
    if isinstance(value, Mapping):
        return {key: _map_leaves(part, transform) for key, part in value.items()}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return slice(*(_map_leaves(part, transform) for part in ends))
    return transform(value)


def _tensor_leaves(value: Any) -> list[Any]:
    """Return the tensors or references in a call's result, in order."""
    leaves: list[Any] = []
    _map_leaves(
        value, lambda leaf: leaves.append(leaf) if _is_tensor_or_ref(leaf) else None
    )
    return leaves


def call_attributes(graph: Any, call: TracedCall) -> dict[str, Any]:
    """Return a call's arguments other than tensors, by parameter name, for display."""
    arguments: dict[str, Any] = dict(call.kwargs)
    names = list(signature(getattr(type(graph), call.method)).parameters)[1:]
    for index, value in enumerate(call.args):
        arguments[names[min(index, len(names) - 1)]] = value
    return {
        name: value for name, value in arguments.items() if not _tensor_leaves(value)
    }


def trace_methods(untraced: Sequence[str]) -> Callable[[type[Any]], type[Any]]:
    """Return a class decorator that traces the public methods of graphs with symbolic
    sizes.

    untraced  names of those that are not
    """

    def decorate(cls: type[Any]) -> type[Any]:
        public_members = {
            name: getattr(cls, name) for name in type.__dir__(cls) if name[0] != "_"
        }
        methods = {
            name: method
            for name, method in public_members.items()
            if isfunction(method) and name not in untraced
        }
        traced_methods: dict[Any, Any] = {}
        for name, method in methods.items():
            if method not in traced_methods:  # else it is one of two names
                method_name = method.__name__
                traced_name = (
                    method_name if methods.get(method_name) is method else name
                )
                traced_methods[method] = traced_method(traced_name, method)
            setattr(cls, name, traced_methods[method])
        cls._builder_names = frozenset((*methods, *LEAF_METHODS))
        return cls

    return decorate


def traced_method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that a graph with symbolic sizes traces its calls."""

    @wraps(method)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        trace = self.recording
        if trace is None:
            return method(self, *args, **kwargs)
        return trace.trace_call(self, name, args, kwargs)

    return traced
