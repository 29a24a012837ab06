"""A model of ONNX that runs: converted for what a run gives it, compiled, kept.

Nothing is converted before it is wanted. Free dims are bound by the arrays of a run;
for each binding the model is converted and compiled once, and the latest few are kept.
The weights are read once, and bindings that have the same share them on a device.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from rlxweb.backends.protocol import Backend, Program
from rlxweb.device import DeviceLike
from rlxweb.errors import ModelError, NotFinite, OutOfMemory, RlxError
from rlxweb.gpu.drive import drive
from rlxweb.ir.dim import Dim
from rlxweb.ir.dtype import DType
from rlxweb.ir.fitting import unknown
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import show
from rlxweb.onnx.imported import Imported, Undecided, converted
from rlxweb.onnx.records import ModelRecord, Weight
from rlxweb.onnx.signature import Binding, Port, bind, port_of
from rlxweb.onnx.staged import Stages
from rlxweb.onnx.varying import free_dims, varying_graph
from rlxweb.onnx.walk import missing_in
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.from_file import Asked, FromFile

Array = npt.NDArray[Any]

MOST_KEPT = 8
"""Conversions that a model keeps, each with what was compiled of it."""


class Model(FromFile):
    """A model of ONNX. Made by `rlx.onnx.load`; a context manager that closes it.

    Threads may share it: they take turns where it is converted or compiled. A run takes
    a list of arrays for a sequence, None for an optional, and gives them so. It raises
    MissingOps, Unsupported or ModelError for what cannot be converted.

    name      what messages call it: its file's name
    inputs    by name: dtype and dims
    outputs   by name
    producer  what wrote the file, in its own words
    record    what the file says, as plain records
    """

    inputs: dict[str, Port]
    outputs: dict[str, Port]

    def __init__(self, record: ModelRecord, name: str) -> None:
        weights = record.graph.weights
        super().__init__(
            name,
            {d.name: port_of(d) for d in record.graph.inputs if d.name not in weights},
            {d.name: port_of(d) for d in record.graph.outputs},
        )
        self.producer = record.producer
        self.record = record
        self._made: list[tuple[Hashable, Imported]] = []
        self._declared: dict[str, Weight] | None = None
        self._staged_ones: dict[Hashable, Stages] = {}

    @property
    def opsets(self) -> dict[str, int]:
        """Versions by domain; ONNX's own domain is ""."""
        return dict(self.record.opsets)

    @property
    def params(self) -> dict[str, Array]:
        """The weights that `graph` declares, by name: read-only, in memory or mapped
        from their file.

        `graph.save(file, model.params)` and `set_param` take all of them. What the
        conversion computed or built in is left out: single numbers, small integers,
        products of weights; `record.graph.weights` has every tensor of the file. For a
        model without a single graph they are those of the graph that was made last.
        """
        self._check_open("params")
        if self._declared is None:
            try:
                self.graph_over()
            except RlxError:
                last = [made.params for _, made in self._made[-1:]]
                every = last[0] if last else self.record.graph.weights
                return {n: w.array for n, w in every.items()}
        return {n: w.array for n, w in (self._declared or {}).items()}

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The ops that rlxweb has not, each with the places where they stand.

        Errors   Unsupported where functions call each other without end.
        """
        return missing_in(self.record)

    @property
    def graph(self) -> Graph:
        """The model as a graph, whose dims are those that are free.

        Errors   as `graph_over`.
        """
        return self.graph_over()

    def graph_over(
        self, dims: Mapping[str, Dim | int] | None = None, /, **named: Dim | int
    ) -> Graph:
        """The model as a graph, with what its free dims are to be, by their names.

        It is tried with some sizes of them: a model that needs more samples, or a
        multiple of 32 of pixels, needs to be told so, height=Dim("h", multiple_of=32).
        One Dim for several makes them the same; a number binds. What has no name in the
        model is called by its input and axis, "x_0".
        Errors   UnknownName; Unsupported where values of inputs decide shapes, and for
        inputs that are no tensors; ModelError, MissingOps; those of a shape that does
        not fit.
        """
        self._check_open("the graph")
        doing, said = self._doing("the graph"), {**(dims or {}), **named}
        if all(port.is_fixed for port in self.inputs.values()) and not said:
            made = self.imported(self._with_zeros({}))
            self._declared = made.params
            return made.graph.copy()
        free = free_dims(self.inputs)
        for one in said:
            if one not in free:
                raise unknown(doing, "free dim", one, dict.fromkeys(free))
        name = self.record.graph.name or self.name
        graph, weights = varying_graph(name, self.inputs, said, self._converted, doing)
        if not said or self._declared is None:
            self._declared = weights
        return graph

    def _converted(self, arrays: dict[str, Any]) -> Imported:
        return self._convert(Binding(arrays))

    def graph_for(self, inputs: Mapping[str, Any] | None = None) -> Graph:
        """The graph that runs of these arrays use; of inputs left out all zeros.

        Errors   those of `run`, and ModelError for an input left out whose dims are
        free.
        """
        return self.imported(self._with_zeros(inputs)).graph.copy()

    def _with_zeros(self, inputs: Any) -> Any:
        """Arrays for all inputs of fixed dims: zeros for those that are left out."""
        given = {} if inputs is None else inputs
        if not isinstance(given, Mapping):
            return given  # it is refused where a run's is
        fixed = (p for p in self.inputs.values() if p.is_fixed)
        zeros = {p.name: p.zeros() for p in fixed if isinstance(p.dtype, DType)}
        return {**zeros, **given}

    async def _run(
        self, inputs: Mapping[str, Any] | None, asked: Asked
    ) -> dict[str, Any]:
        self._check_kept(asked.keep)
        binding = self._bound("run", {} if inputs is None else inputs)
        made = self._import_or_stages(binding)
        try:
            if isinstance(made, Stages):
                return await self._staged(made, binding, asked)
            if not made.graph.outputs:
                return made.results([])
            return await self._computed(made, binding, asked)
        except MemoryError as error:
            raise OutOfMemory(
                self._doing("run"),
                f"the host's memory is not enough: {error}",
                hint="run it with fewer items at once",
            ) from None

    def _import_or_stages(self, binding: Binding) -> Imported | Stages:
        """The conversion; where what it computes decides its shapes, its stages."""
        with self._turn:
            if binding.key in self._staged_ones:
                stages = self._staged_ones[binding.key]
                self._check_open("run")
                return stages
        try:
            return self._import(binding)
        except Undecided:
            doing = f"'{self.name}'"
            with self._turn:
                stages = Stages(self.record, binding, doing)
                kept = [*self._staged_ones.items(), (binding.key, stages)]
                self._staged_ones = dict(kept[-MOST_KEPT:])
                return stages

    async def _staged(
        self, stages: Stages, binding: Binding, asked: Asked
    ) -> dict[str, Any]:
        async def on(made: Imported) -> CompiledGraph:
            return await self._on(made, asked.device, asked.adapter)

        return await stages.run(binding, asked.keep, on)

    async def _computed(
        self, made: Imported, binding: Binding, asked: Asked
    ) -> dict[str, Any]:
        compiled = await self._on(made, asked.device, asked.adapter)
        wanted = {name: binding.leaves[name] for name in made.inputs}
        keep = made.staying(asked.keep)
        return made.results(await compiled.computed(wanted, asked.strict, keep))

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
        return drive(self._on(self._import(binding), device, adapter))

    def imported(self, inputs: Mapping[str, Any]) -> Imported:
        """The model converted for these arrays, and not compiled.

        Errors   those of `run`.
        """
        return self._import(self._bound("convert", inputs))

    def _bound(self, what: str, given: Any) -> Binding:
        self._check_open(what)
        return bind(self.inputs, given, self._doing(what))

    def _import(self, binding: Binding) -> Imported:
        """The conversion for a binding, made now or kept from before."""
        with self._turn:
            self._check_open("run")
            for at, (key, made) in enumerate(self._made):
                if key == binding.key and made.fits(binding.leaves):
                    self._made.append(self._made.pop(at))
                    return made
            made = self._convert(binding)
            # The oldest goes once nobody runs it: it is let go of, not closed.
            self._made = [*self._made, (binding.key, made)][-MOST_KEPT:]
            return made

    def _convert(self, binding: Binding) -> Imported:
        doing = f"'{self.name}'"
        try:
            return converted(self.record, binding.arrays, doing)
        except RecursionError:
            problem = "its graphs lie too deep within each other"
            raise ModelError(doing, problem) from None

    async def _on(
        self, made: Imported, device: DeviceLike | None, adapter: str
    ) -> CompiledGraph:
        """The conversion on a device, its params there."""
        params, doing = self._params_of(made), self._doing("run")
        weights = _identities(made)
        me = ref(self)  # what is let go of is freed at once, without a cycle

        def beside(backend: Backend) -> Program | None:
            model = me()
            return None if model is None else model._program_on(backend, weights)

        return await made.places.on(device, adapter, params, doing, beside)

    def _program_on(
        self, backend: Backend, weights: Mapping[str, int]
    ) -> Program | None:
        """The program of a binding that has these very weights on an engine."""
        for _, made in list(self._made):
            if weights == _identities(made):
                for one in list(made.places.made.values()):
                    placed, ready = one._placed, one._placed.ready
                    is_there = ready.backend is backend and not backend.lost
                    if is_there and not placed.unset and not placed.closed:
                        return ready.program
        return None

    def _params_of(self, made: Imported) -> Iterator[tuple[str, Array]]:
        for name, weight in made.params.items():
            self._check_finite(name, weight.array)
            yield name, weight.array

    def _check_finite(self, name: str, array: Array) -> None:
        """Errors  NotFinite: a weight that is NaN makes every result NaN."""
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise NotFinite(
                self._doing("the weights"),
                f"'{name}' {show(array.shape)} holds NaN",
                f"{int(np.isnan(array).sum()):,} of {array.size:,} numbers",
                "fetch the model again, or train it anew",
            )

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that computed anything of it so far."""
        return tuple(sorted({one.engine for one in self._compiled()}))

    def _compiled(self) -> Iterable[CompiledGraph]:
        return (c for made in self._every for c in made.places.made.values())

    @property
    def _every(self) -> Iterator[Imported]:
        """All conversions that are kept, those of stages too."""
        yield from (made for _, made in self._made)
        for stages in self._staged_ones.values():
            yield from stages.parts

    def _let_go(self) -> None:
        gone = list(self._every)
        self._made, self._staged_ones = [], {}
        for made in gone:
            made.places.close()

    @property
    def _size(self) -> int:
        return len(self.record.graph.nodes)

    def _told(self, name: str, kind: Any) -> str:
        return str(kind)


def _identities(made: Imported) -> dict[str, int]:
    """Its params: equal for conversions that have the very same weights."""
    return {name: id(weight) for name, weight in made.params.items()}
