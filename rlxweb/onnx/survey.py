"""What a model is made of: its ops and who does them, its memory, its time per device.

Nothing is computed. What is free is given sizes first, 1 where nobody says more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.choose.graphs import GraphJob
from rlxweb.cost.graph_work import flops_of
from rlxweb.decision.candidate import Candidate, ranked
from rlxweb.devices.place import CPU, Place, available_places
from rlxweb.errors import DTypeError, RlxError, UsageError, did_you_mean
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import numel
from rlxweb.onnx import library
from rlxweb.onnx.converters import converter_of
from rlxweb.onnx.model import Model
from rlxweb.onnx.records import GraphRecord, ModelRecord, NodeRecord, Weight
from rlxweb.onnx.signature import Port
from rlxweb.onnx.weights import bytes_in_file

OURS = "rlxweb"
BY_DEFINITION = "by other ops, as ONNX defines it"
OWN_FUNCTION = "a function of the model"
MISSING = "missing"


@dataclass(frozen=True, slots=True)
class OpUse:
    """An op of a model: how often it stands there, in branches and bodies too, and who
    does it: OURS, BY_DEFINITION, OWN_FUNCTION or MISSING.
    """

    op: str
    count: int
    how: str


@dataclass(frozen=True, slots=True)
class Sized:
    """The model with its free dims bound.

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
        ways = [c.as_json() for c in self.candidates]
        return asdict(self) | {"dims": dict(self.dims), "candidates": ways}


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of a model.

    kinds    bytes that its tensors have in its files, by type, the most first
    sized    None where it could not be converted, and `why_not` says why
    """

    model: Model
    ops: tuple[OpUse, ...]
    missing: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, int]
    sized: Sized | None
    why_not: str = ""

    @property
    def weights(self) -> int:
        """Bytes of all tensors in its files."""
        return sum(self.kinds.values())

    def as_json(self) -> dict[str, Any]:
        """Plain data for a record."""
        model = self.model
        return {
            "name": model.name,
            "producer": model.producer,
            "opsets": {k or "ai.onnx": v for k, v in model.opsets.items()},
            "inputs": [_port_json(p) for p in model.inputs.values()],
            "outputs": [_port_json(p) for p in model.outputs.values()],
            "weights_bytes": self.weights,
            "weights_by_type": dict(self.kinds),
            "ops": [asdict(one) for one in self.ops],
            "missing": {name: list(places) for name, places in self.missing.items()},
            "sized": None if self.sized is None else self.sized.as_json(),
            "why_not": self.why_not,
        }


def _port_json(port: Port) -> dict[str, Any]:
    dims = None if port.dims is None else list(port.dims)
    return asdict(port) | {"dtype": str(port.dtype), "dims": dims}


def survey(
    model: Model, dims: Mapping[str, int] | None = None, devices: Iterable[Place] = ()
) -> Survey:
    """Look into a model.

    dims     sizes of named dims; of the others 1
    devices  those whose time is estimated; none: all that are there
    Errors   UsageError for a dim that the model has not
    """
    dims = dict(dims or {})
    _check_dims(model, dims)
    record = model.record
    weights = record.graph.weights.values()
    kinds: Counter[str] = Counter()
    for one in weights:
        name = "text" if one.dtype.kind == "O" else one.dtype.name
        kinds[name] += bytes_in_file(one.shape, one.dtype)
    sized, why_not = None, ""
    try:
        sized = _sized(model, dims, tuple(devices) or available_places())
    except RlxError as error:
        why_not = str(error)
    kinds_of = dict(kinds.most_common())
    return Survey(model, _uses(record), model.missing, kinds_of, sized, why_not)


def named_dims(model: Model) -> list[str]:
    """The named dims of its inputs, in their order."""
    every = (d for p in model.inputs.values() for d in p.dims or ())
    return list(dict.fromkeys(d for d in every if isinstance(d, str)))


def _check_dims(model: Model, dims: Mapping[str, int]) -> None:
    known = named_dims(model)
    for name in dims:
        if name not in known:
            raise UsageError(
                f"dims of '{model.name}'",
                f"it has no dim {name!r}",
                "it has " + (", ".join(map(repr, known)) or "none by name"),
                did_you_mean(name, known),
            )


def example(model: Model, dims: Mapping[str, int]) -> dict[str, Any]:
    """Arrays of zeros for every input, which take no memory; free dims are 1.

    Errors   DTypeError for an input that is no tensor of a type of ours.
    """
    return {name: _example(port, dims) for name, port in model.inputs.items()}


def _example(port: Port, dims: Mapping[str, int]) -> Any:
    if port.kind == "optional":
        return None
    if port.kind != "tensor" or not isinstance(port.dtype, DType):
        raise DTypeError(f"input '{port.name}'", f"it is {port}", "no example is known")
    return port.zeros(dims)


def _sized(model: Model, dims: Mapping[str, int], places: Sequence[Place]) -> Sized:
    made = model.imported(example(model, dims))
    graph, job = made.graph, GraphJob(made.graph)
    values, ways = 0, list[Candidate]()
    if graph.outputs:  # else all of it is known, and nothing is left to run
        ways = [way for place in places for way in job.offers(place)]
        plan = job.plan_on(pool.backend(CPU.device.label), CPU)
        values = sum(plan.slot_bytes)
    return Sized(
        dims={name: dims.get(name, 1) for name in named_dims(model)},
        nodes=len(graph),
        flops=sum(flops_of(graph, node) for node in graph.nodes()),
        params=sum(map(nbytes_of, made.params.values())),
        values=values,
        candidates=tuple(ranked(ways)),
    )


def nbytes_of(weight: Weight) -> int:
    """What a tensor of a model takes in memory."""
    return numel(weight.shape) * weight.dtype.itemsize


def _uses(record: ModelRecord) -> tuple[OpUse, ...]:
    """Every op with its count, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for node, opsets in _every(record):
        counts[node.label, _how(record, node, opsets)] += 1
    return tuple(OpUse(op, n, how) for (op, how), n in counts.most_common())


def _every(record: ModelRecord) -> Iterator[tuple[NodeRecord, Mapping[str, int]]]:
    def of(nodes: Iterable[NodeRecord]) -> Iterator[NodeRecord]:
        for node in nodes:
            yield node
            for value in node.attrs.values():
                if isinstance(value, GraphRecord):
                    yield from of(value.nodes)

    for node in of(record.graph.nodes):
        yield node, record.opsets
    for function in record.functions.values():
        for node in of(function.nodes):
            yield node, function.opsets


def _how(record: ModelRecord, node: NodeRecord, opsets: Mapping[str, int]) -> str:
    if (node.domain, node.op) in record.functions:
        return OWN_FUNCTION
    version = opsets.get(node.domain, 0)
    if converter_of(node.op, node.domain, version) is not None:
        return OURS
    if library.is_function(node.op, node.domain, version):
        return BY_DEFINITION
    return MISSING
