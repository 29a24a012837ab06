"""Runnable ONNX model: converted for the inputs of a run, compiled, and cached.

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

from rlxweb.core.device import DeviceLike
from rlxweb.core.errors import ModelError, NotFinite, OutOfMemory, RlxError
from rlxweb.engines.protocol import Engine, Program
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.array_validation import unknown_name_error
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.symbolic_dim import Dim
from rlxweb.onnx.converted_model import (
    ConvertedModel,
    DataDependentShape,
    convert_model,
)
from rlxweb.onnx.data_dependent_shapes import StagedModel
from rlxweb.onnx.model_conversion import find_missing_ops
from rlxweb.onnx.model_records import ModelRecord, Weight
from rlxweb.onnx.model_signature import (
    InputBinding,
    ModelPort,
    bind_inputs,
    port_from_declaration,
)
from rlxweb.onnx.symbolic_size_graph import build_dynamic_graph, free_dim_names
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.loaded_model import LoadedModel, RunRequest

Array = npt.NDArray[Any]

MAX_CONVERSIONS = 8
"""Maximum number of conversions that a model keeps, each with its compiled graphs."""


class Model(LoadedModel):
    """Runnable ONNX model, loaded by `rlx.onnx.load`; a context manager that closes it.

    Threads may share it: they take turns where it is converted or compiled. A run takes
    a list of arrays for a sequence, None for an optional, and gives them so. It raises
    MissingOps, Unsupported or ModelError for what cannot be converted.

    name      what messages call it: its file's name
    inputs    by name: dtype and dims
    outputs   by name
    producer  what wrote the file, in its own words
    record    what the file says, as plain records
    """

    inputs: dict[str, ModelPort]
    outputs: dict[str, ModelPort]

    def __init__(self, record: ModelRecord, name: str) -> None:
        weights = record.graph.weights
        super().__init__(
            name,
            {
                d.name: port_from_declaration(d)
                for d in record.graph.inputs
                if d.name not in weights
            },
            {d.name: port_from_declaration(d) for d in record.graph.outputs},
        )
        self.producer = record.producer
        self.record = record
        self._conversions: list[tuple[Hashable, ConvertedModel]] = []
        self._graph_weights: dict[str, Weight] | None = None
        self._staged_runs: dict[Hashable, StagedModel] = {}

    @property
    def opsets(self) -> dict[str, int]:
        """Opset versions by domain; ONNX's own domain is ""."""
        return dict(self.record.opsets)

    @property
    def params(self) -> dict[str, Array]:
        """Weights that `graph` declares, by name: read-only arrays, in memory or mapped
        from the file.

        `graph.save(file, model.params)` and `set_param` take all of them. What the
        conversion computed or built in is left out: single numbers, small integers,
        products of weights; `record.graph.weights` has every tensor of the file. For a
        model without a single graph they are those of the graph that was made last.
        """
        self._check_open("params")
        if self._graph_weights is None:
            try:
                self.graph_over()
            except RlxError:
                latest = [conversion.params for _, conversion in self._conversions[-1:]]
                weights = latest[0] if latest else self.record.graph.weights
                return {n: w.array for n, w in weights.items()}
        return {n: w.array for n, w in (self._graph_weights or {}).items()}

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """Ops that rlxweb does not have, each with the places where the model uses it.

        Errors   Unsupported where functions call each other without end.
        """
        return find_missing_ops(self.record)

    @property
    def graph(self) -> Graph:
        """Model as a graph whose dims are the model's free dims.

        Errors   as `graph_over`.
        """
        return self.graph_over()

    def graph_over(
        self, dims: Mapping[str, Dim | int] | None = None, /, **named: Dim | int
    ) -> Graph:
        """Return the model as a graph, with the given dims or sizes for its free dims,
        by name.

        It is tried with some sizes of them: a model that needs more samples, or a
        multiple of 32 of pixels, needs to be told so, height=Dim("h", multiple_of=32).
        One Dim for several makes them the same; a number binds. What has no name in the
        model is called by its input and axis, "x_0".
        Errors   UnknownName; Unsupported where values of inputs decide shapes, and for
        inputs that are no tensors; ModelError, MissingOps; those of a shape that does
        not fit.
        """
        self._check_open("build the graph")
        context = self._error_context("build the graph")
        dim_sizes = {**(dims or {}), **named}
        if all(port.is_fixed for port in self.inputs.values()) and not dim_sizes:
            conversion = self.imported(self._add_zero_inputs({}))
            self._graph_weights = conversion.params
            return conversion.graph.copy()
        free_names = free_dim_names(self.inputs)
        for dim_name in dim_sizes:
            if dim_name not in free_names:
                raise unknown_name_error(
                    context, "free dim", dim_name, dict.fromkeys(free_names)
                )
        name = self.record.graph.name or self.name
        graph, weights = build_dynamic_graph(
            name, self.inputs, dim_sizes, self._convert_arrays, context
        )
        if not dim_sizes or self._graph_weights is None:
            self._graph_weights = weights
        return graph

    def _convert_arrays(self, arrays: dict[str, Any]) -> ConvertedModel:
        return self._convert(InputBinding(arrays))

    def graph_for(self, inputs: Mapping[str, Any] | None = None) -> Graph:
        """Return the graph that runs with these arrays use; omitted inputs are taken as
        zeros.

        Errors   those of `run`, and ModelError for an input left out whose dims are
        free.
        """
        return self.imported(self._add_zero_inputs(inputs)).graph.copy()

    def _add_zero_inputs(self, inputs: Any) -> Any:
        """Return the arrays, with zeros added for omitted inputs of fixed dims."""
        arrays = {} if inputs is None else inputs
        if not isinstance(arrays, Mapping):
            return arrays  # it is refused where a run's is
        fixed_ports = (p for p in self.inputs.values() if p.is_fixed)
        zeros = {p.name: p.zeros() for p in fixed_ports if isinstance(p.dtype, DType)}
        return {**zeros, **arrays}

    async def _run(
        self, inputs: Mapping[str, Any] | None, request: RunRequest
    ) -> dict[str, Any]:
        self._check_keep_names(request.keep)
        binding = self._bind_inputs("run", {} if inputs is None else inputs)
        conversion = self._convert_or_stage(binding)
        try:
            if isinstance(conversion, StagedModel):
                return await self._run_stages(conversion, binding, request)
            if not conversion.graph.outputs:
                return conversion.collect_outputs([])
            return await self._run_conversion(conversion, binding, request)
        except MemoryError as error:
            raise OutOfMemory(
                self._error_context("run"),
                f"the host is out of memory: {error}",
                hint="use a smaller batch",
            ) from None

    def _convert_or_stage(self, binding: InputBinding) -> ConvertedModel | StagedModel:
        """Return the conversion, or its stages if computed values decide its shapes."""
        with self._lock:
            if binding.cache_key in self._staged_runs:
                stages = self._staged_runs[binding.cache_key]
                self._check_open("run")
                return stages
        try:
            return self._convert_cached(binding)
        except DataDependentShape:
            context = f"'{self.name}'"
            with self._lock:
                stages = StagedModel(self.record, binding, context)
                entries = [*self._staged_runs.items(), (binding.cache_key, stages)]
                self._staged_runs = dict(entries[-MAX_CONVERSIONS:])
                return stages

    async def _run_stages(
        self, stages: StagedModel, binding: InputBinding, request: RunRequest
    ) -> dict[str, Any]:
        async def compile_part(conversion: ConvertedModel) -> CompiledGraph:
            return await self._compile_on(conversion, request.device, request.adapter)

        return await stages.run(binding, request.keep, compile_part)

    async def _run_conversion(
        self, conversion: ConvertedModel, binding: InputBinding, request: RunRequest
    ) -> dict[str, Any]:
        compiled = await self._compile_on(conversion, request.device, request.adapter)
        arrays = {name: binding.flat_arrays[name] for name in conversion.inputs}
        keep_positions = conversion.output_positions_to_keep(request.keep)
        return conversion.collect_outputs(
            await compiled.computed(arrays, request.strict, keep_positions)
        )

    def compiled(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> CompiledGraph:
        """Return the compiled graph that a run with these arrays uses, its params set.

        Errors   those of `run`.
        """
        binding = self._bind_inputs("compilation", {} if inputs is None else inputs)
        return run_blocking(
            self._compile_on(self._convert_cached(binding), device, adapter)
        )

    def imported(self, inputs: Mapping[str, Any]) -> ConvertedModel:
        """Convert the model for these arrays without compiling it.

        Errors   those of `run`.
        """
        return self._convert_cached(self._bind_inputs("conversion", inputs))

    def _bind_inputs(self, action: str, inputs: Any) -> InputBinding:
        self._check_open(action)
        return bind_inputs(self.inputs, inputs, self._error_context(action))

    def _convert_cached(self, binding: InputBinding) -> ConvertedModel:
        """Return the conversion for a binding, from the cache or converted now."""
        with self._lock:
            self._check_open("run")
            for index, (key, conversion) in enumerate(self._conversions):
                if key == binding.cache_key and conversion.has_matching_values(
                    binding.flat_arrays
                ):
                    self._conversions.append(self._conversions.pop(index))
                    return conversion
            conversion = self._convert(binding)
            # The oldest goes once nobody runs it: it is let go of, not closed.
            self._conversions = [*self._conversions, (binding.cache_key, conversion)][
                -MAX_CONVERSIONS:
            ]
            return conversion

    def _convert(self, binding: InputBinding) -> ConvertedModel:
        context = f"'{self.name}'"
        try:
            return convert_model(self.record, binding.arrays, context)
        except RecursionError:
            problem = "the graphs of the model are nested too deeply"
            raise ModelError(context, problem) from None

    async def _compile_on(
        self, conversion: ConvertedModel, device: DeviceLike | None, adapter: str
    ) -> CompiledGraph:
        """Compile a conversion for a device and put its params there."""
        params, context = self._iter_params(conversion), self._error_context("run")
        weights = _weight_identities(conversion)
        model_ref = ref(self)  # what is let go of is freed at once, without a cycle

        def find_shared_program(engine: Engine) -> Program | None:
            model = model_ref()
            return None if model is None else model._find_program_on(engine, weights)

        return await conversion.device_graphs.get_or_compile(
            device, adapter, params, context, find_shared_program
        )

    def _find_program_on(
        self, engine: Engine, weights: Mapping[str, int]
    ) -> Program | None:
        """Return the program of a conversion that has the same weights on an engine, or
        None.
        """
        for _, conversion in list(self._conversions):
            if weights == _weight_identities(conversion):
                for compiled_graph in list(
                    conversion.device_graphs.compiled_graphs.values()
                ):
                    placement = compiled_graph._placement
                    prepared = placement.prepared
                    is_usable = prepared.engine is engine and not engine.lost
                    if (
                        is_usable
                        and not placement.unset_params
                        and not placement.closed
                    ):
                        return prepared.program
        return None

    def _iter_params(self, conversion: ConvertedModel) -> Iterator[tuple[str, Array]]:
        for name, weight in conversion.params.items():
            self._check_finite(name, weight.array)
            yield name, weight.array

    def _check_finite(self, name: str, array: Array) -> None:
        """Raise NotFinite for a weight that holds NaN, which would make every result
        NaN.
        """
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise NotFinite(
                self._error_context("check the weights"),
                f"weight '{name}' {format_shape(array.shape)} contains NaN",
                f"{int(np.isnan(array).sum()):,} of {array.size:,} elements are NaN",
                "download the model again or retrain it",
            )

    @property
    def engines(self) -> tuple[str, ...]:
        """Engines that have computed any part of the model so far."""
        return tuple(sorted({graph.engine for graph in self._compiled_graphs()}))

    def _compiled_graphs(self) -> Iterable[CompiledGraph]:
        return (
            c
            for conversion in self._all_conversions
            for c in conversion.device_graphs.compiled_graphs.values()
        )

    @property
    def _all_conversions(self) -> Iterator[ConvertedModel]:
        """All cached conversions, including those of stages."""
        yield from (conversion for _, conversion in self._conversions)
        for stages in self._staged_runs.values():
            yield from stages.converted_models

    def _release(self) -> None:
        conversions = list(self._all_conversions)
        self._conversions, self._staged_runs = [], {}
        for conversion in conversions:
            conversion.device_graphs.close()

    @property
    def _node_count(self) -> int:
        return len(self.record.graph.nodes)

    def _describe_value(self, name: str, kind: Any) -> str:
        return str(kind)


def _weight_identities(conversion: ConvertedModel) -> dict[str, int]:
    """Return the identity of each param's weight; equal for conversions that share the
    very same weights.
    """
    return {name: id(weight) for name, weight in conversion.params.items()}
