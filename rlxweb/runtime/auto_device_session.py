"""FlexibleSession: a session whose device is resolved for each graph, by RLX's name."""

from __future__ import annotations

from typing import Self

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.device import Adapters, DeviceLike, parse_adapters
from rlxweb.core.lazy_names import accept_deprecated_keywords
from rlxweb.ir.graph import Graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.session import Session
from rlxweb.select.graph_job import check_cost_mode
from rlxweb.select.policy import DevicePolicy, check_policy
from rlxweb.select.resolve import pick_device


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
        self.policy = check_policy(policy)
        self._adapters = parse_adapters(adapters)
        self._cost_mode = check_cost_mode(cost_mode)
        self._strict = coerce_bool("strict", strict, "FlexibleSession")

    @classmethod
    def from_env(cls) -> Self:
        """Return a session with the policy that the RLX_ variables describe."""
        return cls(DevicePolicy.from_env())

    @accept_deprecated_keywords(hint="device")
    def compile_resolved(
        self, graph: Graph, device: DeviceLike | None = None
    ) -> CompiledGraph:
        """Compile a graph for the device asked for, else as `resolve_device` decides.

        Errors   those of `resolve_device` and of compiling.
        """
        adapters, mode = self._adapters, self._cost_mode
        target = pick_device(
            graph, device, self.policy, adapters=adapters, cost_mode=mode
        ).device
        adapter = adapters.get(target, "")
        session = Session(target, adapter=adapter, cost_mode=mode, strict=self._strict)
        return session.compile(graph)

    def __repr__(self) -> str:
        return f"FlexibleSession({self.policy})"
