"""One graph compiled for each of its devices, with params that reach all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlxweb.device import Adapters, Device, DeviceLike
from rlxweb.devices.policy import DevicePolicy
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph
from rlxweb.names import also, formerly
from rlxweb.runners.benchmark import Compile, Compiled
from rlxweb.runners.programs import Programs
from rlxweb.runners.resolver import GraphResolver
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session


class CompiledDevices(GraphResolver):
    """What `GraphDevices` compiles, and the params it keeps."""

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None = None,
        adapters: Adapters | None = None,
        cost_mode: str = "calibrated",
        compile_with: Compile | None = None,
    ) -> None:
        super().__init__(graph, policy, adapters, cost_mode)
        self._programs = Programs(self._graph, compile_with or self._session)

    def _session(self, device: Device, graph: Graph) -> Compiled:
        adapter, mode = self.adapter_of(device), self._cost_mode
        return Session(device, adapter=adapter, cost_mode=mode).compile(graph)

    @also(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Keep a param's value and hand it to every device compiled so far.

        A DeviceArray reaches its own device and no other; compiling for another one
        is refused then.

        Errors   UnknownName, DTypeError, ShapeError; RLX ignores an unknown name.
        """
        self._programs.set_param(name, value)

    @also(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """`set_param` of raw bytes or of anything array-like, read as `dtype`.

        See `CompiledGraph.set_param_typed`.
        """
        self._programs.set_param_typed(name, value, dtype)

    def sync_params_to_all(self) -> None:
        """Hand every stored param to every compiled device once more."""
        self._programs.sync_params()

    def compile(self, device: DeviceLike) -> Compiled:
        """The graph compiled for a device, once; with every param set so far.

        Errors   Unsupported when the device is not there or cannot run the graph, and
        those of compiling.
        """
        return self._programs.compile(self._ensure_supported(device))

    def compile_fastest(self) -> Compiled:
        """The graph compiled for the fastest device; its `device` says which."""
        return self.compile(self.fastest())

    @formerly(hint="device")
    def compile_resolved(self, device: DeviceLike | None = None) -> Compiled:
        """The graph compiled for `resolve(device)`."""
        return self.compile(self.resolve(device))

    @formerly(hint="device", chain="device")
    def compile_chain(
        self, device: DeviceLike | Sequence[DeviceLike] | None = None
    ) -> Compiled:
        """The graph compiled for `resolve_chain(device)`."""
        return self.compile(self.resolve_chain(device))

    def map(
        self,
        batches: Iterable[Mapping[str, Any]],
        take: Callable[[list[Any]], object] | None = None,
        device: DeviceLike | None = None,
    ) -> list[list[Any]]:
        """The outputs of every batch, in order, computed on `resolve(device)`.

        As `CompiledGraph.map` has it: a GPU gets the next batch while it computes.
        """
        compiled = self.compile_resolved(device)
        if isinstance(compiled, CompiledGraph):
            return compiled.map(batches, take)
        kept: list[list[Any]] = []
        for one in batches:
            (take or kept.append)(compiled.run(one))
        return kept

    def warm_all(self) -> tuple[Device, ...]:
        """Compile for every device; the first error ends it. The devices."""
        for device in self._supported:
            self.compile(device)
        return self._supported

    def close(self) -> None:
        """Free what was compiled; nothing runs any more. Idempotent."""
        self._programs.close()
