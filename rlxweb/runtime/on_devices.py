"""A graph compiled once for each device that is asked for, its params set there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from rlxweb.backends.protocol import Array
from rlxweb.choose.again import LOST
from rlxweb.device import Device, DeviceLike, is_open, parse_device
from rlxweb.errors import SessionClosed
from rlxweb.forked import ForkLock
from rlxweb.ir.binding import sample_bound
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.runtime.bindings import BoundCheck, set_on
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.placed import Beside
from rlxweb.runtime.session import Session


class OnDevices:
    """Compiled graphs of one graph by device. Threads may share it.

    When an op of the graph is registered again, all of them are compiled again: every
    device computes the same op.

    cost_mode  as in `Session`
    check      refuses bindings of a graph whose sizes vary, before they are compiled
    made       by device (None: rlxweb chose) and adapter
    """

    def __init__(
        self,
        graph: Graph,
        cost_mode: str = "calibrated",
        check: BoundCheck | None = None,
    ) -> None:
        self.graph, self._cost_mode, self._check = graph, cost_mode, check
        self.made: dict[tuple[Device | None, str], CompiledGraph] = {}
        self._ops: list[Op] = []
        self._changes = -1  # of the registry, when the ops were looked up
        self._turn = ForkLock()
        self._closed = False

    async def on(
        self,
        device: DeviceLike | None,
        adapter: str,
        params: Iterable[tuple[str, Array | DeviceArray]],
        doing: str,
        beside: Beside | None = None,
    ) -> CompiledGraph:
        """Return the graph compiled for a device, compiling it if it is not yet.

        params   by name, gone through only where it is compiled now
        beside   a program that has the same params with the same values
        Errors   those of `Session.compile`; SessionClosed if it is closed meanwhile.
        """
        label = None if device is None or is_open(device) else parse_device(device)
        found = self.find(label, adapter)
        if found is not None:
            return found
        session = Session(
            "auto" if label is None else label,
            adapter=adapter,
            cost_mode=self._cost_mode,
        )
        compiled = await session.compiled(self.graph, beside=beside, check=self._check)
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

    def find(self, device: Device | None, adapter: str) -> CompiledGraph | None:
        """Return the graph compiled for a device, or None; compiles nothing."""
        if self._changes != registry.changes:
            self._drop_outdated()
        return self.made.get((device, adapter))

    def _drop_outdated(self) -> None:
        """Forget everything if an op of the graph was registered again."""
        changes = registry.changes
        names = {node.op for node in sample_bound(self.graph).nodes()}
        ops = [registry.get(name) for name in sorted(names)]
        if any(a is not b for a, b in zip(ops, self._ops, strict=False)):
            with self._turn:
                self.made.clear()  # not closed: another thread may be running it
        self._ops, self._changes = ops, changes

    def drop(self, compiled: CompiledGraph) -> None:
        """Free one of them, say of a lost device; the next use compiles it again.

        Another thread may have dropped it already, and compiled a new one.
        """
        with self._turn:
            for key in [k for k, one in self.made.items() if one is compiled]:
                del self.made[key]
        with suppress(*LOST):  # the device's memory went with it
            compiled.close()

    def clear(self) -> None:
        """Free what was compiled; the next use compiles again."""
        for one in list(self.made.values()):
            self.drop(one)

    def close(self) -> None:
        """Free what was compiled, for good. Idempotent."""
        with self._turn:
            self._closed = True
        self.clear()
