"""One graph compiled on several devices, with params that reach all of them.

Owns the compiled graphs and the params; which device is meant is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.backends.protocol import Array
from rlxweb.choose.again import LOST
from rlxweb.device import Device
from rlxweb.errors import InputError, SessionClosed, Unsupported
from rlxweb.forked import ForkLock
from rlxweb.ir.binding import sample_bound
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.verify import must_be_graph
from rlxweb.runners.benchmark import Compile, Compiled
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray, Keep
from rlxweb.runtime.feeds import as_input, check_inputs, lying, param_named
from rlxweb.runtime.raw_bytes import as_typed

MOST_BOUND = 16
"""Sizes for which a graph whose sizes vary is kept with them, to be priced."""


def graph_param_names(graph: Graph) -> tuple[str, ...]:
    """The names of a graph's params, in node order."""
    must_be_graph(graph)
    return tuple(graph.named("param"))


class Programs:
    """Compiled graphs by device; threads may share them.

    A lost device's program is forgotten at once, and all of them when an op of the
    graph is registered anew: every device computes the same op.
    """

    def __init__(self, graph: Graph, compile_with: Compile) -> None:
        self.graph = graph
        self._compile_with = compile_with
        self._params: dict[str, Array | DeviceArray] = {}
        self._compiled: dict[Device, Compiled] = {}
        self._ran: set[Device] = set()
        self._bound: dict[tuple[int, ...], Graph] = {}
        self._ops, self._changes = self._records(), registry.changes
        self._closed = False
        self._lock = ForkLock()

    def has_run(self, device: Device) -> bool:
        """Is the next run there a warm one?"""
        return device in self._ran

    def set_param(self, name: str, value: Any) -> None:
        """Keep a value and hand it to every device compiled so far.

        Errors   UnknownName, DTypeError, ShapeError.
        """
        doing = f"set_param of '{self.graph.name}'"
        node = param_named(doing, self.graph.named("param"), name)
        kept = as_input(doing, node, value)
        if not isinstance(kept, DeviceArray):
            kept = kept.copy()
            kept.flags.writeable = False  # so that nobody need copy it again
        with self._lock:
            self._check_open(doing)
            for device in self._compiled:
                self._check_reaches(doing, name, kept, device)
            self._params[name] = kept
            for compiled in self._compiled.values():
                compiled.set_param(name, kept)

    def _check_reaches(
        self, doing: str, name: str, kept: Array | DeviceArray, device: Device
    ) -> None:
        """A value that lies on a device is there for no other. Errors  InputError."""
        if isinstance(kept, DeviceArray) and kept.device is not device:
            raise InputError(
                f"{doing}, param '{name}'",
                f"the array lies on device {kept.device.label!r}, {kept.engine}",
                f"the graph is compiled for {device.label!r} too",
                "pass x.numpy(), or use GraphDevices of that device alone",
            )

    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """`set_param` of raw bytes or an array-like read as `dtype`.

        Errors   UnknownName, DTypeError, ShapeError.
        """
        doing = f"set_param_typed of '{self.graph.name}'"
        node = param_named(doing, self.graph.named("param"), name)
        self.set_param(name, as_typed(doing, node, value, dtype))

    def sync_params(self) -> None:
        """Hand every stored param to every compiled device once more."""
        for compiled in self._compiled.values():
            for name, value in self._params.items():
                compiled.set_param(name, value)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """What would be wrong on every device.

        Errors   InputError and its kin; SessionClosed.
        """
        self._check_open(f"run '{self.graph.name}'")
        check_inputs(self.graph, inputs)
        names = graph_param_names(self.graph)
        missing = [n for n in names if n not in self._params]
        if missing:
            raise InputError(
                f"run '{self.graph.name}'",
                f"param '{missing[0]}' has no value",
                f"{len(missing)} of {len(names)} params unset",
                "call set_param first",
            )

    def bound_to(self, inputs: Mapping[str, Any] | None) -> Graph:
        """The graph with the sizes that inputs have; itself where none vary.

        Errors   those of the inputs, where sizes vary.
        """
        if not self.graph.dims:
            return self.graph
        sizes = check_inputs(self.graph, inputs)
        key = tuple(sizes.values())
        with self._lock:
            bound = self._bound.pop(key, None) or self.graph.bind(sizes)
            self._bound[key] = bound  # the one that was used last is the last
            while len(self._bound) > MOST_BOUND:
                del self._bound[next(iter(self._bound))]
        return bound

    def compile(self, device: Device) -> Compiled:
        """The graph on a device, compiled once, with every param set so far.

        Errors   those of compiling; SessionClosed.
        """
        with self._lock:
            self._check_open(f"compile '{self.graph.name}'")
            self._drop_outdated()
            if device not in self._compiled:
                compiled = self._compile_with(device, self.graph)
                for name, value in self._params.items():
                    compiled.set_param(name, value)
                self._compiled[device] = compiled
            return self._compiled[device]

    def lying(self, inputs: Mapping[str, Any] | None) -> dict[str, DeviceArray]:
        """What of a run lies on a device, by "input 'x'" or "param 'w'"."""
        fed, set_ = lying(inputs), lying(self._params)
        found = {f"input '{name}'": one for name, one in fed.items()}
        return found | {f"param '{name}'": one for name, one in set_.items()}

    def run(
        self, device: Device, inputs: Mapping[str, Any], keep: Keep = False
    ) -> list[Any]:
        """The outputs, computed there; compiled first where it was not yet.

        keep     as `CompiledGraph.run` has it
        Errors   those of `compile` and of the run; DeviceLost, GpuTimeout at once, as
        whoever asks decides where it is done again.
        """
        compiled = self.compile(device)
        try:
            if isinstance(compiled, CompiledGraph):
                outs = compiled.run(inputs, strict=True, keep=keep)
            elif keep is False:
                outs = compiled.run(inputs)
            else:
                raise Unsupported(
                    f"run '{self.graph.name}'",
                    f"what compiled it, a {type(compiled).__name__}, keeps no arrays",
                    hint="leave `keep` out",
                )
        except LOST:
            self._forget(device, compiled)
            raise
        self._ran.add(device)
        return outs

    def drop(self, device: Device) -> None:
        """Free and forget a device's program; the next use compiles anew."""
        with self._lock:
            compiled = self._compiled.get(device)
        if compiled is not None:
            self._forget(device, compiled)

    def _forget(self, device: Device, compiled: Compiled) -> None:
        """That one; another thread may have compiled a new one meanwhile."""
        with self._lock:
            if self._compiled.get(device) is compiled:
                del self._compiled[device]
                self._ran.discard(device)
        try:
            compiled.close()
        except LOST:
            return  # its memory went with the device

    def _records(self) -> list[Op]:
        ops = {node.op for node in sample_bound(self.graph).nodes()}
        return [registry.get(name) for name in sorted(ops)]

    def _drop_outdated(self) -> None:
        if self._changes == registry.changes:
            return
        now = self._records()
        if any(a is not b for a, b in zip(now, self._ops, strict=True)):
            self.drop_all()
        self._ops, self._changes = now, registry.changes

    def drop_all(self) -> None:
        """Free and forget every program; params stay."""
        for device in list(self._compiled):
            self.drop(device)

    def close(self) -> None:
        """Free every program; nothing is compiled any more. Idempotent."""
        self._closed = True
        self.drop_all()

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise SessionClosed(
                doing, "these devices were closed", hint="make a new GraphDevices"
            )
