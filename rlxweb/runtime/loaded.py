"""A graph that came from a file, with its params: run it where you like.

`load` reads the file and checks all of it; nothing is computed and no weight is read
before a run wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlxweb.backends.protocol import Array
from rlxweb.device import DeviceLike
from rlxweb.errors import shown
from rlxweb.gpu.drive import drive
from rlxweb.graphfile.budget import budget_of
from rlxweb.graphfile.opened import Source, opened
from rlxweb.graphfile.read import Stored, read_graph
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import TensorType
from rlxweb.runtime.bindings import BoundCheck
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import Keep
from rlxweb.runtime.from_file import Asked, FromFile
from rlxweb.runtime.on_devices import OnDevices


def load(source: Source, *, budget: Mapping[str, float] | None = None) -> LoadedGraph:
    """A graph that `Graph.save` wrote, ready to be run.

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
    doing = "load"
    allowed = budget_of(budget, doing)
    name, data = opened(source, doing)
    doing = f"load {shown(name)}" if name else doing
    stored = read_graph(data, doing, replace(allowed))  # which uses its budget up
    return LoadedGraph(stored, name, None if budget is None else allowed.check)


class LoadedGraph(FromFile):
    """A graph of a file. Made by `load`; a context manager that closes it.

    Threads may share it: they take turns where it is compiled.

    name     its file's name, or the graph's
    inputs   types by name
    outputs  types by name, in the order of `set_outputs`
    params   the weights that the file has, by name: read-only, mapped from it
    """

    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]

    def __init__(
        self, stored: Stored, name: str = "", check: BoundCheck | None = None
    ) -> None:
        graph = stored.graph
        ends = zip(stored.outputs, graph.outputs, strict=True)
        super().__init__(
            name or graph.name,
            {n: node.type for n, node in graph.named("input").items()},
            {n: graph.node(at).type for n, at in ends},
        )
        self.params: Mapping[str, Array] = stored.params
        self._places = OnDevices(graph, check=check)

    @property
    def graph(self) -> Graph:
        """A copy of the graph."""
        return self._places.graph.copy()

    async def _run(
        self, inputs: Mapping[str, Any] | None, asked: Asked
    ) -> dict[str, Any]:
        self._check_kept(asked.keep)
        keep: Keep = (
            asked.keep
            if isinstance(asked.keep, bool)
            else tuple(at for at, name in enumerate(self.outputs) if name in asked.keep)
        )
        compiled = await self._on(asked.device, asked.adapter)
        outs = await compiled.computed(inputs, asked.strict, keep)
        return dict(zip(self.outputs, outs, strict=True))

    def compiled(
        self, *, device: DeviceLike | None = None, adapter: str = ""
    ) -> CompiledGraph:
        """The compiled graph that runs use there, its params set.

        Errors   those of `Session.compile`.
        """
        return drive(self._on(device, adapter))

    async def _on(self, device: DeviceLike | None, adapter: str) -> CompiledGraph:
        self._check_open("run")
        params = self.params.items()
        return await self._places.on(device, adapter, params, self._doing("run"))

    def _compiled(self) -> Iterable[CompiledGraph]:
        return self._places.made.values()

    def _let_go(self) -> None:
        self._places.close()
        self.params = {}

    @property
    def _size(self) -> int:
        return len(self._places.graph)
