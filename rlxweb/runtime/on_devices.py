"""A graph compiled once for each device that is asked for, its params set there."""

from __future__ import annotations

from collections.abc import Iterable

from rlxweb.backends.protocol import Array
from rlxweb.device import Device, DeviceLike, is_open, parse_device
from rlxweb.errors import SessionClosed
from rlxweb.forked import ForkLock
from rlxweb.ir.graph import Graph
from rlxweb.runtime.bindings import set_on
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.placed import Beside
from rlxweb.runtime.session import Session


class OnDevices:
    """What was compiled of a graph so far. Threads may share it.

    made     by device (None: rlxweb chose) and adapter
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[tuple[Device | None, str], CompiledGraph] = {}
        self._turn = ForkLock()
        self._closed = False

    async def on(
        self,
        device: DeviceLike | None,
        adapter: str,
        params: Iterable[tuple[str, Array]],
        doing: str,
        beside: Beside | None = None,
    ) -> CompiledGraph:
        """The graph on a device, compiled now or before.

        params   by name, gone through only where it is compiled now
        beside   a program that has the same params with the same values
        Errors   those of `Session.compile`; SessionClosed if it is closed meanwhile.
        """
        label = None if device is None or is_open(device) else parse_device(device)
        found = self.made.get((label, adapter))
        if found is not None:
            return found
        session = Session("auto" if label is None else label, adapter=adapter)
        compiled = await session.compiled(self.graph, beside=beside)
        is_there = beside is not None and compiled._placed.ready.shares
        for name, array in params:
            if is_there:
                await set_on(compiled, name, array, is_there)
            else:
                await compiled.param_set(name, array)
        with self._turn:
            closed, first = self._closed, compiled
            if not closed:
                first = self.made.setdefault((label, adapter), compiled)
        if closed or first is not compiled:  # or another thread was as quick
            compiled.close()
        if closed:
            raise SessionClosed(doing, "it was closed meanwhile")
        return first

    def close(self) -> None:
        """Free what was compiled. Idempotent."""
        with self._turn:
            self._closed = True
            gone, self.made = list(self.made.values()), {}
        for one in gone:
            one.close()
