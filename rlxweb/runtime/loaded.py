"""A graph that came from a file, with its params: run it where you like.

`load` reads the file and checks all of it; nothing is computed and no weight is read
before a run wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from rlxweb.backends.protocol import Array
from rlxweb.device import Device, DeviceLike, is_open, parse_device
from rlxweb.errors import SessionClosed, Unsupported, shown
from rlxweb.forked import ForkLock
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.graphfile.budget import budget_of
from rlxweb.graphfile.opened import Source, opened
from rlxweb.graphfile.read import Stored, read_graph
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import TensorType
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session


def load(source: Source, *, budget: Mapping[str, float] | None = None) -> LoadedGraph:
    """A graph that `Graph.save` wrote, ready to be run.

    source   a path, whose weights are mapped into memory and read as they are used; the
             file's bytes, as a page has them; or an open binary file
    budget   what the graph may take: {"nodes": …, "nbytes": … of all its values,
             "flops": …}; one that takes more is refused
    returns  the graph with its params. Nothing in a file is ever executed
    Errors   GraphFileError: the rule that the file breaks, and at which byte

    Example  rlx.load("m.rlxg").run({"x": x})["y"]
    """
    doing = "load"
    allowed = budget_of(budget, doing)
    name, data = opened(source, doing)
    doing = f"load {shown(name)}" if name else doing
    return LoadedGraph(read_graph(data, doing, allowed), name)


class LoadedGraph:
    """A graph of a file. Made by `load`; a context manager that closes it.

    Threads may share it: they take turns where it is compiled.

    name     its file's name, or the graph's
    inputs   types by name
    outputs  types by name, in the order of `set_outputs`
    params   the weights that the file has, by name: read-only, mapped from it
    """

    def __init__(self, stored: Stored, name: str = "") -> None:
        graph = stored.graph
        self.name = name or graph.name
        self.params: Mapping[str, Array] = stored.params
        self.inputs: dict[str, TensorType] = {
            n: node.type for n, node in graph.named("input").items()
        }
        self.outputs: dict[str, TensorType] = {
            n: graph.node(at).type
            for n, at in zip(stored.outputs, graph.outputs, strict=True)
        }
        self._graph = graph
        self._made: dict[tuple[Device | None, str], CompiledGraph] = {}
        self._turn = ForkLock()
        self._closed = False

    @property
    def graph(self) -> Graph:
        """A copy of the graph."""
        return self._graph.copy()

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
    ) -> dict[str, Any]:
        """The outputs by name.

        inputs   arrays by name, as `CompiledGraph.run` takes them
        device   where; None: rlxweb chooses. It is compiled there once
        adapter  part of an adapter's name, where a device has several
        strict   True: a run that is lost with its device raises
        Errors   those of `Session.compile` and of `CompiledGraph.run`
        """
        return drive(self._run(inputs, device, adapter, strict))

    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
    ) -> dict[str, Any]:
        """`run` beside the caller's event loop."""
        return await awaited_here(lambda: self._run(inputs, device, adapter, strict))

    async def _run(
        self,
        inputs: Mapping[str, Any] | None,
        device: DeviceLike | None,
        adapter: str,
        strict: bool | None,
    ) -> dict[str, Any]:
        compiled = await self._compiled(device, adapter)
        outs = await compiled.computed(inputs, strict)
        return dict(zip(self.outputs, outs, strict=True))

    def compiled(
        self, *, device: DeviceLike | None = None, adapter: str = ""
    ) -> CompiledGraph:
        """The compiled graph that runs use there, its params set.

        Errors   those of `Session.compile`.
        """
        return drive(self._compiled(device, adapter))

    async def _compiled(self, device: DeviceLike | None, adapter: str) -> CompiledGraph:
        self._check_open()
        label = None if device is None or is_open(device) else parse_device(device)
        found = self._made.get((label, adapter))
        if found is not None:
            return found
        session = Session("auto" if label is None else label, adapter=adapter)
        compiled = await session.compiled(self._graph)
        for name, array in self.params.items():
            await compiled.set_param_async(name, array)
        with self._turn:
            first = self._made.setdefault((label, adapter), compiled)
        if first is not compiled:  # another thread was as quick
            compiled.close()
        return first

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"run '{self.name}'", "this graph was closed")

    def explain(self) -> str:
        """What it takes and gives; what was compiled, where it runs and why."""
        lines = [f"{self.name}: {len(self._graph)} nodes"]
        lines += [f"  in   {name} {kind}" for name, kind in self.inputs.items()]
        lines += [f"  out  {name} {kind}" for name, kind in self.outputs.items()]
        if not self._made:
            lines.append("  nothing was compiled yet: a run does that")
        return "\n".join([*lines, *(c.explain() for c in self._made.values())])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ins, outs = len(self.inputs), len(self.outputs)
        return f"LoadedGraph('{self.name}': {ins} inputs, {outs} outputs)"

    def close(self) -> None:
        """Free what was compiled, and let go of the file. Idempotent."""
        with self._turn:
            self._closed = True
            gone, self._made = list(self._made.values()), {}
            self.params = {}
        for one in gone:
            one.close()

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self.name}'",
            "it may hold device memory and an open file",
            hint="load it where it is needed",
        )
