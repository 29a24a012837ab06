"""Summary of a model: its ops and how each is converted, its memory, its predicted time
per device.

Nothing is computed. What is free is given sizes first, 1 where nobody says more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlxweb.core.errors import DTypeError, RlxError, UsageError, did_you_mean
from rlxweb.cost.decision import Candidate, rank_candidates
from rlxweb.cost.graph_work import node_flops
from rlxweb.engines.pool import pool
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.converter_registry import find_converter
from rlxweb.onnx.model import Model
from rlxweb.onnx.model_records import GraphRecord, ModelRecord, NodeRecord, Weight
from rlxweb.onnx.model_signature import ModelPort
from rlxweb.onnx.weight_loading import stored_nbytes
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, available_places
from rlxweb.select.graph_job import GraphJob

BY_RLXWEB = "rlxweb"
BY_ONNX_DEFINITION = "expanded by its ONNX definition"
BY_MODEL_FUNCTION = "function defined in the model"
MISSING = "missing"


@dataclass(frozen=True, slots=True)
class OpUse:
    """An operator of a model, the number of its nodes (in branches and bodies too), and
    how it is converted: BY_RLXWEB, BY_ONNX_DEFINITION, BY_MODEL_FUNCTION or MISSING.
    """

    op: str
    count: int
    how: str


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Size and predicted cost of the model with its free dims bound.

    dims        the sizes that named dims have
    nodes       of the graph that it becomes
    flops       operations of one run, by the ops' own count
    params      bytes of the weights in use
    values      bytes of what a run computes with beside them, on the CPU
    candidates  devices, fastest prediction first
    """

    dims: Mapping[str, int]
    nodes: int
    flops: float
    params: int
    values: int
    candidates: tuple[Candidate, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the costs as plain data for JSON."""
        candidates = [c.as_json() for c in self.candidates]
        return asdict(self) | {"dims": dict(self.dims), "candidates": candidates}


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """Summary of a model.

    bytes_by_type  bytes that its tensors have in its files, by type, the most first
    costs    None where it could not be converted, and `conversion_error` says why
    """

    model: Model
    ops: tuple[OpUse, ...]
    missing: Mapping[str, tuple[str, ...]]
    bytes_by_type: Mapping[str, int]
    costs: ModelCosts | None
    conversion_error: str = ""

    @property
    def weight_nbytes(self) -> int:
        """Size in bytes of all tensors in the model's files."""
        return sum(self.bytes_by_type.values())

    def as_json(self) -> dict[str, Any]:
        """Return the summary as plain data for JSON."""
        model = self.model
        return {
            "name": model.name,
            "producer": model.producer,
            "opsets": {k or "ai.onnx": v for k, v in model.opsets.items()},
            "inputs": [_port_json(p) for p in model.inputs.values()],
            "outputs": [_port_json(p) for p in model.outputs.values()],
            "weights_bytes": self.weight_nbytes,
            "weights_by_type": dict(self.bytes_by_type),
            "ops": [asdict(op_use) for op_use in self.ops],
            "missing": {name: list(places) for name, places in self.missing.items()},
            "sized": None if self.costs is None else self.costs.as_json(),
            "why_not": self.conversion_error,
        }


def _port_json(port: ModelPort) -> dict[str, Any]:
    """Return a port as plain data for JSON."""
    dims = None if port.dims is None else list(port.dims)
    return asdict(port) | {"dtype": str(port.dtype), "dims": dims}


def summarize_model(
    model: Model,
    dims: Mapping[str, int] | None = None,
    devices: Iterable[DevicePlace] = (),
) -> ModelSummary:
    """Summarize a model without running it.

    dims     sizes of named dims; of the others 1
    devices  those whose time is estimated; none: all that are there
    Errors   UsageError for a dim that the model has not
    """
    dims = dict(dims or {})
    _check_dims(model, dims)
    record = model.record
    weights = record.graph.weights.values()
    bytes_by_type: Counter[str] = Counter()
    for weight in weights:
        name = "text" if weight.dtype.kind == "O" else weight.dtype.name
        bytes_by_type[name] += stored_nbytes(weight.shape, weight.dtype)
    costs, conversion_error = None, ""
    try:
        costs = _estimate_costs(model, dims, tuple(devices) or available_places())
    except RlxError as error:
        conversion_error = str(error)
    sorted_bytes = dict(bytes_by_type.most_common())
    return ModelSummary(
        model, _count_ops(record), model.missing, sorted_bytes, costs, conversion_error
    )


def named_dims(model: Model) -> list[str]:
    """Return the named dims of the model's inputs, in order."""
    dims = (d for p in model.inputs.values() for d in p.dims or ())
    return list(dict.fromkeys(d for d in dims if isinstance(d, str)))


def _check_dims(model: Model, dims: Mapping[str, int]) -> None:
    """Raise UsageError for a dim that the model does not have."""
    known = named_dims(model)
    for name in dims:
        if name not in known:
            raise UsageError(
                f"set the dims of '{model.name}'",
                f"the model has no dim {name!r}",
                "its named dims: " + (", ".join(map(repr, known)) or "none"),
                did_you_mean(name, known),
            )


def example_inputs(model: Model, dims: Mapping[str, int]) -> dict[str, Any]:
    """Return arrays of zeros for every input, which take no memory; unnamed free dims
    are 1.

    Errors   DTypeError for an input that is no tensor of a type of ours.
    """
    return {name: _example_input(port, dims) for name, port in model.inputs.items()}


def _example_input(port: ModelPort, dims: Mapping[str, int]) -> Any:
    """Return the example value of one input."""
    if port.kind == "optional":
        return None
    if port.kind != "tensor" or not isinstance(port.dtype, DType):
        raise DTypeError(
            f"create example values for input '{port.name}'",
            f"the model declares {port}",
            "example values can be created only for a tensor of a supported dtype",
        )
    return port.zeros(dims)


def _estimate_costs(
    model: Model, dims: Mapping[str, int], places: Sequence[DevicePlace]
) -> ModelCosts:
    """Convert the model for these dims and predict its cost on each device."""
    converted_model = model.imported(example_inputs(model, dims))
    graph, job = converted_model.graph, GraphJob(converted_model.graph)
    values, candidates = 0, list[Candidate]()
    if graph.outputs:  # else all of it is known, and nothing is left to run
        candidates = [
            candidate for place in places for candidate in job.candidates(place)
        ]
        plan = job.plan_for(pool.engine(CPU_PLACE.device.label), CPU_PLACE)
        values = sum(plan.slot_bytes)
    return ModelCosts(
        dims={name: dims.get(name, 1) for name in named_dims(model)},
        nodes=len(graph),
        flops=sum(node_flops(graph, node) for node in graph.nodes()),
        params=sum(map(nbytes_of, converted_model.params.values())),
        values=values,
        candidates=tuple(rank_candidates(candidates)),
    )


def nbytes_of(weight: Weight) -> int:
    """Return the size of a tensor of the model in memory, in bytes."""
    return numel(weight.shape) * weight.dtype.itemsize


def _count_ops(record: ModelRecord) -> tuple[OpUse, ...]:
    """Return every operator with its count, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for node, opsets in _iter_nodes(record):
        counts[node.label, _conversion_route(record, node, opsets)] += 1
    return tuple(OpUse(op, n, route) for (op, route), n in counts.most_common())


def _iter_nodes(record: ModelRecord) -> Iterator[tuple[NodeRecord, Mapping[str, int]]]:
    """Yield every node of the model and its functions, with the opset versions that
    apply to it.
    """

    def walk_nodes(nodes: Iterable[NodeRecord]) -> Iterator[NodeRecord]:
        for node in nodes:
            yield node
            for value in node.attrs.values():
                if isinstance(value, GraphRecord):
                    yield from walk_nodes(value.nodes)

    for node in walk_nodes(record.graph.nodes):
        yield node, record.opsets
    for function in record.functions.values():
        for node in walk_nodes(function.nodes):
            yield node, function.opsets


def _conversion_route(
    record: ModelRecord, node: NodeRecord, opsets: Mapping[str, int]
) -> str:
    """Return how a node's operator is converted."""
    if (node.domain, node.op) in record.functions:
        return BY_MODEL_FUNCTION
    version = opsets.get(node.domain, 0)
    if find_converter(node.op, node.domain, version) is not None:
        return BY_RLXWEB
    if onnx_library_access.is_function_op(node.op, node.domain, version):
        return BY_ONNX_DEFINITION
    return MISSING
