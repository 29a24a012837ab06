"""Staged execution of a model whose shapes depend on computed values.

How many boxes are left, or elements are not zero, decides the shapes of what comes
after. Up to there the model is a graph: it is run, what it gives is known from then on,
and the conversion goes on. A stage hands on what later ones turned out to need, so that
nothing is computed twice once that is known. What was converted and compiled is kept by
the values that decided it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.compiler.range_analysis import RangeAnalysis
from rlxweb.core.errors import Unsupported
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.ir.dtype import DType
from rlxweb.ir.value_range_rules import Interval, dtype_interval
from rlxweb.onnx.constant_folding_graph import FoldingGraph, intermediate_input_name
from rlxweb.onnx.converted_model import (
    ComputedOutput,
    ConvertedModel,
    DataDependentShape,
    convert_outputs,
    data_dependence_error,
    inputs_of_unsupported_dtype,
    large_deciding_inputs,
    locate_outputs,
    value_bytes,
)
from rlxweb.onnx.converter_registry import NeedsValues
from rlxweb.onnx.model_records import ModelRecord
from rlxweb.onnx.model_signature import InputBinding
from rlxweb.runtime.compiled_graph import CompiledGraph

Array = npt.NDArray[Any]
CompileStage = Callable[[ConvertedModel], Awaitable[CompiledGraph]]
"""Function that compiles a stage's graph on the device of the run and sets its params.
"""

MAX_STAGES = 256
"""Maximum number of values that are computed before the conversion can finish."""
MAX_CACHED_CONVERSIONS = 32
"""Maximum number of cached conversions, partial or complete."""

_TRACKED_RANGES = {
    dtype: dtype_interval(dtype) for dtype in (DType.I32, DType.U32, DType.I64)
}
"""Full ranges of the integer dtypes whose value ranges are tracked between stages."""


class StageGraph(NamedTuple):
    """Graph of one stage, the nodes that it computes, and the value ranges of its
    integer outputs.
    """

    converted_model: ConvertedModel
    computed_nodes: set[int]
    ranges: dict[int, Interval]


@dataclass
class PartialConversion:
    """Conversion of the model up to the next value that must be known, or to its end.

    deciding_node  the node whose values decide how it goes on; None: it came to its end
    outputs  of the model, by name: known, or where among the targets
    targets  the nodes that are computed
    stage_graphs  their graphs, by what else they give and what is there
    """

    draft: FoldingGraph
    deciding_node: int | None
    outputs: dict[str, Any]
    targets: tuple[int, ...]
    stage_graphs: dict[Any, StageGraph] = field(default_factory=dict)

    def stage_graph(
        self,
        extra_nodes: frozenset[int],
        available: dict[int, Any],
        ranges: dict[int, Interval],
    ) -> tuple[ConvertedModel, set[int], tuple[int, ...]]:
        """Return the graph of the target nodes, the nodes that it computes, and its
        output nodes.

        ranges  how far integers that are there lie; it learns of those that are given
        """
        extra = sorted(extra_nodes - {*self.targets, *available})
        key = tuple(extra), tuple(sorted(available)), tuple(sorted(ranges.items()))
        requested = (*self.targets, *extra)
        if key not in self.stage_graphs:
            graph, params, computed_nodes = self.draft.extract_subgraph(
                requested, available, ranges
            )
            outputs = self.outputs or {
                intermediate_input_name(node_id): ComputedOutput(index)
                for index, node_id in enumerate(requested)
            }
            all_ranges = RangeAnalysis(graph, {}, _TRACKED_RANGES).node_ranges
            new_ranges = {}
            for node_id, output_id in zip(requested, graph.outputs, strict=True):
                dtype = graph.node(output_id).type.dtype
                if dtype.is_integer and all_ranges[output_id] != dtype_interval(dtype):
                    new_ranges[node_id] = all_ranges[output_id]
            self.stage_graphs[key] = StageGraph(
                ConvertedModel(graph, params, outputs), computed_nodes, new_ranges
            )
        converted_model, computed_nodes, new_ranges = self.stage_graphs[key]
        ranges.update(new_ranges)
        return converted_model, computed_nodes, requested


class StagedModel:
    """Model for one binding of its inputs, run in stages. Thread-safe."""

    def __init__(self, model: ModelRecord, binding: InputBinding, context: str) -> None:
        self._model, self._context = model, context
        self._deciding_inputs = set(
            inputs_of_unsupported_dtype(binding.arrays, context)
        )
        self._conversions: dict[Any, PartialConversion] = {}
        self._needed_later: dict[int, frozenset[int]] = {}
        self._lock = ForkSafeLock()

    async def run(
        self, binding: InputBinding, keep: Any, compile_stage: CompileStage
    ) -> dict[str, Any]:
        """Run all stages and return the model's outputs by name.

        Errors   those of a conversion and of a run; Unsupported where there is no end
        of the values that decide.
        """
        known_values: dict[int, Array] = {}
        available: dict[int, Any] = {}
        computed_in_stage: dict[int, int] = {}
        ranges: dict[int, Interval] = {}
        for _ in range(MAX_STAGES):
            with self._lock:
                conversion = self._get_or_convert(binding, known_values)
                if conversion is None:  # an input decides, too: all begins anew
                    known_values, available, computed_in_stage, ranges = {}, {}, {}, {}
                    conversion = self._get_or_convert(binding, known_values)
                assert conversion is not None
                extra_nodes = self._needed_later.get(len(known_values), frozenset())
                extra_nodes = (
                    frozenset() if conversion.deciding_node is None else extra_nodes
                )
                converted_model, computed_nodes, output_nodes = conversion.stage_graph(
                    self._shared_nodes(conversion, extra_nodes), available, ranges
                )
                self._record_recomputed(conversion, computed_nodes, computed_in_stage)
            values: list[Any] = []
            if converted_model.graph.outputs:
                compiled = await compile_stage(converted_model)
                feeds = {
                    n: _feed_value(n, binding, available)
                    for n in converted_model.inputs
                }
                kept_outputs = (
                    converted_model.output_positions_to_keep(keep)
                    if conversion.deciding_node is None
                    else False
                )
                values = await compiled.computed(feeds, keep=kept_outputs)
            if conversion.deciding_node is None:
                results: dict[str, Any] = converted_model.collect_outputs(values)
                return results
            available.update(zip(output_nodes, values, strict=True))
            computed_in_stage.update(dict.fromkeys(computed_nodes, len(known_values)))
            known_values[conversion.deciding_node] = np.asarray(
                available[conversion.deciding_node]
            )
        raise Unsupported(
            self._context,
            f"more than {MAX_STAGES} computed values determine shapes or branches",
            "each of these values needs a separate stage of the run, and at most "
            f"{MAX_STAGES} stages are supported",
        )

    def _get_or_convert(
        self, binding: InputBinding, known_values: dict[int, Array]
    ) -> PartialConversion | None:
        """Return the conversion for the values known so far, cached; None if an input's
        values turn out to be needed, so that the run must start over.
        """
        input_bytes = (
            (n, value_bytes(binding.flat_arrays[n]))
            for n in sorted(self._deciding_inputs)
        )
        known_bytes = (
            (node_id, value_bytes(a)) for node_id, a in sorted(known_values.items())
        )
        key = tuple(input_bytes), tuple(known_bytes)
        if key in self._conversions:
            self._conversions[key] = self._conversions.pop(key)
            return self._conversions[key]
        g = FoldingGraph(self._model.graph.name or "model", known_values)
        try:
            output_values = convert_outputs(
                self._model, binding.arrays, self._deciding_inputs, self._context, g
            )
        except NeedsValues as request:
            if not large_deciding_inputs(
                request, binding.arrays, self._deciding_inputs
            ):
                self._deciding_inputs |= request.input_names
                if not known_values:
                    return self._get_or_convert(binding, known_values)
                return None
            error = data_dependence_error(
                request, binding.arrays, self._deciding_inputs, self._context
            )
            if not isinstance(error, DataDependentShape):
                raise error from None
            conversion = PartialConversion(
                g, request.tensor.id, {}, (request.tensor.id,)
            )
        else:
            computed, outputs = locate_outputs(self._model, g, output_values)
            conversion = PartialConversion(
                g, None, outputs, tuple(t.id for t in computed)
            )
        self._conversions[key] = conversion
        if (
            len(self._conversions) > MAX_CACHED_CONVERSIONS
        ):  # let go of, not closed: somebody may run it
            self._conversions.pop(next(iter(self._conversions)))
        return conversion

    @staticmethod
    def _shared_nodes(
        conversion: PartialConversion, extra_nodes: frozenset[int]
    ) -> frozenset[int]:
        """Return those nodes requested by later stages that this conversion has too."""
        count = len(conversion.draft.nodes())
        return frozenset(
            node_id
            for node_id in extra_nodes
            if node_id < count and conversion.draft.is_computed(node_id)
        )

    def _record_recomputed(
        self,
        conversion: PartialConversion,
        computed_nodes: set[int],
        computed_in_stage: dict[int, int],
    ) -> None:
        """Note the recomputed nodes, so that later runs pass their values on."""
        recomputed = computed_nodes & computed_in_stage.keys()
        boundary = set(conversion.targets) & recomputed
        for node_id in computed_nodes - recomputed:
            boundary.update(
                i for i in conversion.draft.node(node_id).inputs if i in recomputed
            )
        for node_id in boundary:
            self._needed_later[computed_in_stage[node_id]] = self._needed_later.get(
                computed_in_stage[node_id], frozenset()
            ) | {node_id}

    @property
    def converted_models(self) -> Iterator[ConvertedModel]:
        """The converted models of all stages."""
        for conversion in list(self._conversions.values()):
            for stage_graph in list(conversion.stage_graphs.values()):
                yield stage_graph.converted_model


def _feed_value(name: str, binding: InputBinding, available: dict[int, Any]) -> Any:
    """Return the array for an input of a stage's graph."""
    if name in binding.flat_arrays:
        return binding.flat_arrays[name]
    return available[
        next(
            node_id for node_id in available if intermediate_input_name(node_id) == name
        )
    ]
