"""FlexibleSession: a session whose device is resolved for each graph, by RLX's name."""

from __future__ import annotations

from typing import Self

from rlxweb.arguments import switch
from rlxweb.choose.graphs import checked_mode
from rlxweb.choose.resolve import decide_device
from rlxweb.device import Adapters, DeviceLike, adapters_of
from rlxweb.devices.policy import DevicePolicy, policy_of
from rlxweb.ir.graph import Graph
from rlxweb.names import formerly
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session


class FlexibleSession:
    """A session whose device is resolved for each graph, under a policy.

    policy, adapters, cost_mode   as in `GraphDevices`
    strict                        as in `Session`

    >>> compiled = FlexibleSession(DevicePolicy.from_env()).compile_resolved(graph)
    >>> compiled.device, compiled.run(inputs)
    """

    def __init__(
        self,
        policy: DevicePolicy | None = None,
        *,
        adapters: Adapters | None = None,
        cost_mode: str = "calibrated",
        strict: bool = False,
    ) -> None:
        self.policy = policy_of(policy)
        self._adapters = adapters_of(adapters)
        self._cost_mode = checked_mode(cost_mode)
        self._strict = switch("strict", strict, "FlexibleSession")

    @classmethod
    def from_env(cls) -> Self:
        """Return a session with the policy that the RLX_ variables describe."""
        return cls(DevicePolicy.from_env())

    @formerly(hint="device")
    def compile_resolved(
        self, graph: Graph, device: DeviceLike | None = None
    ) -> CompiledGraph:
        """Compile a graph for the device asked for, else as `resolve_device` decides.

        Errors   those of `resolve_device` and of compiling.
        """
        adapters, mode = self._adapters, self._cost_mode
        which = decide_device(
            graph, device, self.policy, adapters=adapters, cost_mode=mode
        ).device
        adapter = adapters.get(which, "")
        session = Session(which, adapter=adapter, cost_mode=mode, strict=self._strict)
        return session.compile(graph)

    def __repr__(self) -> str:
        return f"FlexibleSession({self.policy})"
