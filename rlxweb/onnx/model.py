"""A model of ONNX that runs: converted for what a run gives it, compiled, kept.

Nothing is converted before it is wanted. Free dims are bound by the arrays of a run;
for each binding the model is converted and compiled once, and the latest few are kept.
The weights are read once and shared by all.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlxweb.device import DeviceLike, is_open, parse_device
from rlxweb.errors import (
    ModelError,
    NotFinite,
    OutOfMemory,
    SessionClosed,
    Unsupported,
    UsageError,
    did_you_mean,
    shown,
)
from rlxweb.forked import ForkLock
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import show
from rlxweb.onnx.imported import Imported, converted, every_leaf
from rlxweb.onnx.records import ModelRecord
from rlxweb.onnx.signature import Binding, Port, bind, port_of
from rlxweb.onnx.walk import missing_in
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session

Array = npt.NDArray[Any]

MOST_KEPT = 8
"""Conversions that a model keeps, each with what was compiled of it."""


Keep = bool | Sequence[str]
"""Which outputs stay on the device: all, none, or those of these names."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was asked for; see `Model.run`."""

    device: DeviceLike | None
    adapter: str
    strict: bool | None
    keep: Keep


class Model:
    """A model of ONNX. Made by `rlx.onnx.load`; a context manager that closes it.

    Threads may share it: they take turns where it is converted or compiled.

    name      what messages call it: its file's name
    inputs    by name: dtype and dims
    outputs   by name
    producer  what wrote the file, in its own words
    record    what the file says, as plain records
    """

    def __init__(self, record: ModelRecord, name: str) -> None:
        self.name = name
        self.producer = record.producer
        self.record = record
        weights = record.graph.weights
        self.inputs: dict[str, Port] = {
            d.name: port_of(d) for d in record.graph.inputs if d.name not in weights
        }
        self.outputs = {d.name: port_of(d) for d in record.graph.outputs}
        self._made: list[tuple[Hashable, Imported]] = []
        self._turn = ForkLock()
        self._closed = False

    @property
    def opsets(self) -> dict[str, int]:
        """Versions by domain; ONNX's own domain is ""."""
        return dict(self.record.opsets)

    @property
    def params(self) -> dict[str, Array]:
        """The weights by name: read-only, in memory or mapped from their file."""
        self._check_open("params")
        return {n: w.array for n, w in self.record.graph.weights.items()}

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The ops that rlxweb has not, each with the places where they stand."""
        return missing_in(self.record)

    @property
    def graph(self) -> Graph:
        """The model as a graph, where all its dims are numbers.

        Errors   ModelError where some are free: a run binds them, or `graph_for`;
        MissingOps, Unsupported.
        """
        free = [p for p in self.inputs.values() if not p.is_fixed]
        if free:
            raise ModelError(
                self._doing("the graph"),
                f"input {free[0]} has dims that are free",
                "a graph has numbers",
                "graph_for({...}) gives it for arrays, and run binds them",
            )
        return self.graph_for({})

    def graph_for(self, inputs: Mapping[str, Any] | None = None) -> Graph:
        """The graph that runs of these arrays use; of inputs left out all zeros.

        Errors   those of `run`, and ModelError for an input left out whose dims are
        free.
        """
        given = {} if inputs is None else dict(inputs)
        for name, port in self.inputs.items():
            if name not in given and port.is_fixed and not isinstance(port.dtype, str):
                given[name] = _zeros(port)
        return self.imported(given).graph.copy()

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
        keep: Keep = False,
    ) -> dict[str, Any]:
        """The model's outputs by name.

        inputs   arrays by name, of the declared dtypes; whatever rlxweb takes as an
                 array. A list of arrays for a sequence, None for an optional.
        device   where; None: rlxweb chooses
        adapter  part of an adapter's name, where a device has several
        strict   True: a run that is lost with its device raises
        keep     True: outputs stay on the device, as DeviceArrays that a later run
                 takes; names of outputs, ("state",): those stay
        returns  NumPy arrays; a list of them for a sequence
        Errors   InputError, UnknownName, DTypeError, ShapeError for what is given;
        MissingOps, Unsupported, ModelError for what cannot be converted; those of
        `Session.compile` and of `CompiledGraph.run`.
        """
        return drive(self._run(inputs, Asked(device, adapter, strict, keep)))

    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
        keep: Keep = False,
    ) -> dict[str, Any]:
        """`run` beside the caller's event loop."""
        asked = Asked(device, adapter, strict, keep)
        return await awaited_here(lambda: self._run(inputs, asked))

    async def _run(
        self, inputs: Mapping[str, Any] | None, asked: Asked
    ) -> dict[str, Any]:
        self._check_kept(asked.keep)
        binding = self._bound("run", {} if inputs is None else inputs)
        made = self._import(binding)
        if not made.graph.outputs:
            return made.results([])
        try:
            return await self._computed(made, binding, asked)
        except MemoryError as error:
            raise OutOfMemory(
                self._doing("run"),
                f"the host's memory is not enough: {error}",
                hint="run it with fewer items at once",
            ) from None

    async def _computed(
        self, made: Imported, binding: Binding, asked: Asked
    ) -> dict[str, Any]:
        compiled = await self._compile(made, asked.device, asked.adapter)
        given = dict(every_leaf(binding.arrays))
        wanted = {name: given[name] for name in made.graph.named("input")}
        keep = made.staying(asked.keep)
        return made.results(await compiled.computed(wanted, asked.strict, keep))

    def _check_kept(self, keep: Keep) -> None:
        """Errors  UsageError for a name that is no output."""
        if isinstance(keep, bool):
            return
        for name in keep:
            if name not in self.outputs:
                raise UsageError(
                    self._doing("run"),
                    f"keep names {shown(name)}",
                    "its outputs are " + ", ".join(map(repr, self.outputs)),
                    did_you_mean(str(name), self.outputs),
                )

    def compiled(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> CompiledGraph:
        """The compiled graph that a run of these arrays uses, its params set.

        Errors   those of `run`.
        """
        binding = self._bound("compile", {} if inputs is None else inputs)
        return drive(self._compile(self._import(binding), device, adapter))

    def explain(self) -> str:
        """What it takes and gives; what was compiled so far, where it runs and why."""
        lines = [f"{self.name}: {len(self.record.graph.nodes)} nodes"]
        lines += [f"  in   {p}" for p in self.inputs.values()]
        lines += [f"  out  {p}" for p in self.outputs.values()]
        compiled = [c for _, made in self._made for c in made.compiled.values()]
        if not compiled:
            lines.append("  nothing was compiled yet: a run does that")
        lines += [c.explain() for c in compiled]
        return "\n".join(lines)

    def imported(self, inputs: Mapping[str, Any]) -> Imported:
        """The model converted for these arrays, and not compiled.

        Errors   those of `run`.
        """
        return self._import(self._bound("convert", inputs))

    def _doing(self, what: str) -> str:
        return f"{what} of '{self.name}'"

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise SessionClosed(self._doing(what), "this model was closed")

    def _bound(self, what: str, given: Any) -> Binding:
        self._check_open(what)
        return bind(self.inputs, given, self._doing(what))

    def _import(self, binding: Binding) -> Imported:
        """The conversion for a binding, made now or kept from before."""
        with self._turn:
            for at, (key, made) in enumerate(self._made):
                if key == binding.key and made.fits(binding.arrays):
                    self._made.append(self._made.pop(at))
                    return made
            made = self._convert(binding)
            self._made.append((binding.key, made))
            gone = self._made[:-MOST_KEPT]
            self._made = self._made[-MOST_KEPT:]
        for _, old in gone:
            old.close()
        return made

    def _convert(self, binding: Binding) -> Imported:
        doing = f"'{self.name}'"
        try:
            return converted(self.record, binding.arrays, doing)
        except RecursionError:
            problem = "its graphs lie too deep within each other"
            raise ModelError(doing, problem) from None

    async def _compile(
        self, made: Imported, device: DeviceLike | None, adapter: str
    ) -> CompiledGraph:
        """The conversion on a device, its params there."""
        label = None if is_open(device) or device is None else parse_device(device)
        found = made.compiled.get((label, adapter))
        if found is not None:
            return found
        session = Session("auto" if label is None else label, adapter=adapter)
        compiled = await session.compiled(made.graph)
        for name, weight in made.params.items():
            self._check_finite(name, weight.array)
            await compiled.set_param_async(name, weight.array)
        return made.compiled.setdefault((label, adapter), compiled)

    def _check_finite(self, name: str, array: Array) -> None:
        """Errors  NotFinite: a weight that is NaN makes every result NaN."""
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise NotFinite(
                self._doing("the weights"),
                f"'{name}' {show(array.shape)} holds NaN",
                f"{int(np.isnan(array).sum()):,} of {array.size:,} numbers",
                "fetch the model again, or train it anew",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ins, outs = len(self.inputs), len(self.outputs)
        return f"Model('{self.name}': {ins} inputs, {outs} outputs)"

    def close(self) -> None:
        """Free what was compiled, and let go of the weights. Idempotent."""
        with self._turn:
            self._closed = True
            gone, self._made = self._made, []
        for _, made in gone:
            made.close()

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self.name}'",
            "a model may hold device memory and open files",
            hint="load it where it is needed",
        )


def _zeros(port: Port) -> Array:
    """An array for an input of which only the type matters; it takes no memory."""
    assert isinstance(port.dtype, DType)
    zero = np.zeros((), port.dtype.numpy)
    return np.broadcast_to(zero, [d for d in port.dims or () if isinstance(d, int)])
