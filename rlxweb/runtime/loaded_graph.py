"""Graphs loaded from a file with their params, to run on any device.

`load` reads the file and checks all of it; nothing is computed and no weight is read
before a run wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlxweb.core.device import DeviceLike
from rlxweb.core.errors import shown
from rlxweb.engines.protocol import Array
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import TensorType
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_array import Keep
from rlxweb.runtime.device_graph_cache import DeviceGraphCache
from rlxweb.runtime.dynamic_shape_graph_cache import BoundGraphCheck
from rlxweb.runtime.graph_files.graph_budget import parse_budget
from rlxweb.runtime.graph_files.graph_reader import StoredGraph, read_graph
from rlxweb.runtime.graph_files.memory_mapped_bytes import Source, load_bytes
from rlxweb.runtime.loaded_model import LoadedModel, RunRequest


def load(source: Source, *, budget: Mapping[str, float] | None = None) -> LoadedGraph:
    """Load a graph that `Graph.save` wrote, ready to run.

    source   a path, whose weights are mapped into memory and read as they are used; the
             file's bytes, as a page has them; or an open binary file
    budget   what the graph may take: {"nodes": …, "nbytes": … of all its values,
             "flops": …}; one that takes more is refused. A graph whose sizes vary is
             also held to it at each run of other sizes, before it is compiled for them
    returns  the graph with its params. Nothing in a file is ever executed
    Errors   GraphFileError: the rule that the file breaks, and at which byte; runs
             raise it for sizes that take more than the budget

    Example  rlx.load("m.rlxg").run({"x": x})["y"]
    """
    context = "load"
    graph_budget = parse_budget(budget, context)
    name, data = load_bytes(source, context)
    context = f"load {shown(name)}" if name else context
    stored = read_graph(
        data, context, replace(graph_budget)
    )  # which uses its budget up
    return LoadedGraph(stored, name, None if budget is None else graph_budget.check)


class LoadedGraph(LoadedModel):
    """Graph of a file, made by `load`; a context manager that closes it.

    Threads may share it: they take turns where it is compiled.

    name     its file's name, or the graph's
    inputs   types by name
    outputs  types by name, in the order of `set_outputs`
    params   the weights that the file has, by name: read-only, mapped from it
    """

    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]

    def __init__(
        self, stored: StoredGraph, name: str = "", check: BoundGraphCheck | None = None
    ) -> None:
        graph = stored.graph
        output_ids = zip(stored.outputs, graph.outputs, strict=True)
        super().__init__(
            name or graph.name,
            {n: node.type for n, node in graph.named("input").items()},
            {n: graph.node(node_id).type for n, node_id in output_ids},
        )
        self.params: Mapping[str, Array] = stored.params
        self._device_graphs = DeviceGraphCache(graph, check=check)

    @property
    def graph(self) -> Graph:
        """A copy of the graph."""
        return self._device_graphs.graph.copy()

    async def _run(
        self, inputs: Mapping[str, Any] | None, request: RunRequest
    ) -> dict[str, Any]:
        """Compute the outputs by name on the requested device."""
        self._check_keep_names(request.keep)
        keep: Keep = (
            request.keep
            if isinstance(request.keep, bool)
            else tuple(
                position
                for position, name in enumerate(self.outputs)
                if name in request.keep
            )
        )
        compiled = await self._get_or_compile(request.device, request.adapter)
        outputs = await compiled.computed(inputs, request.strict, keep)
        return dict(zip(self.outputs, outputs, strict=True))

    def compiled(
        self, *, device: DeviceLike | None = None, adapter: str = ""
    ) -> CompiledGraph:
        """Return the compiled graph that runs on this device use, its params set.

        Errors   those of `Session.compile`.
        """
        return run_blocking(self._get_or_compile(device, adapter))

    async def _get_or_compile(
        self, device: DeviceLike | None, adapter: str
    ) -> CompiledGraph:
        """Return the graph compiled for a device, compiling it unless it is."""
        self._check_open("run")
        params = self.params.items()
        return await self._device_graphs.get_or_compile(
            device, adapter, params, self._error_context("run")
        )

    def _compiled_graphs(self) -> Iterable[CompiledGraph]:
        return self._device_graphs.compiled_graphs.values()

    def _release(self) -> None:
        self._device_graphs.close()
        self.params = {}

    @property
    def _node_count(self) -> int:
        return len(self._device_graphs.graph)
