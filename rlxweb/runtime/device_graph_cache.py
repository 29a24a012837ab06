"""Cache of one graph compiled for each device that is asked for, with its params."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from rlxweb.core.device import Device, DeviceLike, is_auto, parse_device
from rlxweb.core.errors import SessionClosed
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.engines.protocol import Array
from rlxweb.ir.dim_binding import sample_graph
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.dynamic_shape_graph_cache import BoundGraphCheck, set_param_on
from rlxweb.runtime.engine_program_and_params import SharedProgramLookup
from rlxweb.runtime.session import Session
from rlxweb.select.device_loss_retry import DEVICE_LOST


class DeviceGraphCache:
    """Compiled graphs of one graph, keyed by device. Threads may share it.

    When an op of the graph is registered again, all of them are compiled again: every
    device computes the same op.

    cost_mode  as in `Session`
    check      refuses bindings of a graph whose sizes vary, before they are compiled
    compiled_graphs  by device (None: rlxweb chose) and adapter
    """

    def __init__(
        self,
        graph: Graph,
        cost_mode: str = "calibrated",
        check: BoundGraphCheck | None = None,
    ) -> None:
        self.graph, self._cost_mode, self._check = graph, cost_mode, check
        self.compiled_graphs: dict[tuple[Device | None, str], CompiledGraph] = {}
        self._ops: list[Op] = []
        self._registry_version = -1  # of the registry, when the ops were looked up
        self._lock = ForkSafeLock()
        self._closed = False

    async def get_or_compile(
        self,
        device: DeviceLike | None,
        adapter: str,
        params: Iterable[tuple[str, Array | DeviceArray]],
        context: str,
        find_shared_program: SharedProgramLookup | None = None,
    ) -> CompiledGraph:
        """Return the graph compiled for a device, compiling it if it is not yet.

        params   by name, gone through only where it is compiled now
        find_shared_program  a program that has the same params with the same values
        Errors   those of `Session.compile`; SessionClosed if it is closed meanwhile.
        """
        target = None if device is None or is_auto(device) else parse_device(device)
        cached = self.find(target, adapter)
        if cached is not None:
            return cached
        session = Session(
            "auto" if target is None else target,
            adapter=adapter,
            cost_mode=self._cost_mode,
        )
        compiled = await session.compiled(
            self.graph, beside=find_shared_program, check=self._check
        )
        shares_params = (
            find_shared_program is not None
            and compiled._placement.prepared.shares_params
        )
        for name, array in params:
            if shares_params:
                await set_param_on(compiled, name, array, shares_params)
            else:
                await compiled.param_set(name, array)
        with self._lock:
            closed, stored = self._closed, compiled
            if not closed:
                stored = self.compiled_graphs.setdefault((target, adapter), compiled)
        if closed or stored is not compiled:  # or another thread was as quick
            compiled.close()
        if closed:
            raise SessionClosed(context, "the graph was closed during compilation")
        return stored

    def find(self, device: Device | None, adapter: str) -> CompiledGraph | None:
        """Return the graph compiled for a device, or None; compiles nothing."""
        if self._registry_version != registry.revision:
            self._drop_outdated()
        return self.compiled_graphs.get((device, adapter))

    def _drop_outdated(self) -> None:
        """Drop every compiled graph if an op of the graph was registered again."""
        version = registry.revision
        names = {node.op for node in sample_graph(self.graph).nodes()}
        ops = [registry.get(name) for name in sorted(names)]
        if any(a is not b for a, b in zip(ops, self._ops, strict=False)):
            with self._lock:
                # Not closed: another thread may be running one of them.
                self.compiled_graphs.clear()
        self._ops, self._registry_version = ops, version

    def drop(self, compiled: CompiledGraph) -> None:
        """Free one compiled graph, such as a lost device's; the next use compiles it
        again.

        Another thread may have dropped it already, and compiled a new one.
        """
        with self._lock:
            for key in [
                k for k, graph in self.compiled_graphs.items() if graph is compiled
            ]:
                del self.compiled_graphs[key]
        with suppress(*DEVICE_LOST):  # the device's memory went with it
            compiled.close()

    def clear(self) -> None:
        """Free every compiled graph; the next use compiles again."""
        for compiled in list(self.compiled_graphs.values()):
            self.drop(compiled)

    def close(self) -> None:
        """Free every compiled graph for good. Idempotent."""
        with self._lock:
            self._closed = True
        self.clear()
