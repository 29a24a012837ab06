"""Which device one graph runs on: asked for by name, named outside, or predicted.

Knows who can run the graph under a policy and keeps the last decision; compiles and
runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlxweb.backends.registry import how_to_get
from rlxweb.choose.chooser import Pick
from rlxweb.choose.graphs import GraphJob, checked_mode
from rlxweb.choose.resolve import (
    and_named,
    decide_by_environment,
    decide_device,
    devices_for,
    fastest,
    named_by_environment,
    resolve_device_chain,
)
from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_decision
from rlxweb.device import (
    Adapters,
    Device,
    DeviceLike,
    adapters_of,
    devices_named,
    parse_device,
    unless_open,
)
from rlxweb.devices.availability import DeviceRow, is_available, probe
from rlxweb.devices.policy import DevicePolicy, device_chain_from_env, policy_of
from rlxweb.errors import Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph
from rlxweb.names import formerly
from rlxweb.runners.report import device_report


class GraphResolver:
    """A graph and the devices it may run on; see `GraphDevices`."""

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None = None,
        adapters: Adapters | None = None,
        cost_mode: str = "calibrated",
    ) -> None:
        must_be_graph(graph)
        self._graph = graph.copy()
        self._policy = policy_of(policy)
        self._adapters = adapters_of(adapters)
        self._cost_mode = checked_mode(cost_mode)
        self._supported: tuple[Device, ...] = ()
        self._named: tuple[Device, ...] = ()
        self.decision: Decision | None = None
        self._pick: Pick[GraphJob] | None = None
        self._look_around()

    def _look_around(self) -> None:
        """Ask anew which devices there are."""
        self._supported = devices_for(self._graph, self._policy, self._adapters)
        self._named = self._supported

    def _viable(self, named: Iterable[Device] = ()) -> tuple[Device, ...]:
        """Who can run the graph, with those that wait to be named and were once."""
        found = self._named
        wanted = [d for d in named if d not in found]
        if wanted:
            about = self._graph, self._policy, self._adapters
            found = self._named = and_named(found, wanted, *about)
        return found

    @property
    def graph(self) -> Graph:
        """A copy: what a caller does to a graph changes no device's answer."""
        return self._graph.copy()

    def __repr__(self) -> str:
        places = ", ".join(device.label for device in self._supported)
        return f"{type(self).__name__}({self._graph!r} on {places or 'no device'})"

    @property
    def policy(self) -> DevicePolicy:
        return self._policy

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that can run the graph under the policy, in its order."""
        return self._supported

    def adapter_of(self, device: DeviceLike) -> str:
        """Part of the name of the adapter that is meant; "" for the best."""
        return self._adapters.get(parse_device(device), "")

    def report(self) -> tuple[DeviceRow, ...]:
        """One row per device, made anew: what it makes of the graph, and blockers."""
        return device_report(
            self._graph,
            self._policy,
            adapters=self._adapters,
            cost_mode=self._cost_mode,
        )

    def explain(self) -> str:
        """The last decision with every candidate, as text."""
        if self.decision is None:
            self.resolve()
        return explain_decision(self.decision) if self.decision else ""

    def fastest(self) -> Device:
        """The device predicted fastest, asked anew. Errors  Unsupported.

        Of a graph whose sizes vary, for the sizes it is tried with.
        """
        return self._fastest(self._graph)

    def _fastest(self, graph: Graph) -> Device:
        about = graph, self._policy, self._adapters
        return self._picked(fastest(*about, self._cost_mode))

    @formerly(hint="device")
    def resolve(self, device: DeviceLike | None = None) -> Device:
        """The device asked for, else RLX_DEVICE, else the fastest by prediction.

        Errors   Unsupported when nothing can run the graph or that device cannot.
        """
        return self._resolved(self._graph, device)

    def _resolved(self, graph: Graph, device: DeviceLike | None = None) -> Device:
        return self._picked(decide_device(graph, device, self._policy, **self._told))

    @formerly(hint="device", chain="device")
    def resolve_chain(
        self, device: DeviceLike | Sequence[DeviceLike] | None = None
    ) -> Device:
        """The device asked for, or of several the first that can run the graph.

        Left out: the same of RLX_DEVICE_CHAIN, else `resolve()`.
        Errors   those of `resolve`; Unsupported when none of the chain can.
        """
        device = unless_open(device)
        if device is None:
            why, chain = "RLX_DEVICE_CHAIN", device_chain_from_env()
        else:
            why, chain = "it was asked for", devices_named(device)
        if len(chain) == (device is not None):
            return self.resolve(*chain)
        found = resolve_device_chain(
            self._graph, chain, self._policy, viable=self._viable(chain)
        )
        self.decision = Decision(f"device {found.label}", why)
        return found

    @property
    def _told(self) -> dict[str, Any]:
        """What a question about the graph's devices is asked with."""
        return {
            "viable": self._supported,
            "adapters": self._adapters,
            "cost_mode": self._cost_mode,
        }

    def named_outside(self) -> Device | None:
        """The device that the environment names and the graph can run on."""
        told = {**self._told, "viable": self._viable(named_by_environment())}
        pick = decide_by_environment(self._graph, self._policy, **told)
        return None if pick is None else self._picked(pick)

    def _picked(self, pick: Pick[GraphJob]) -> Device:
        self.decision = pick.decision
        if pick.decision.candidates:
            self._pick = pick
        return pick.device

    def _ensure_supported(self, device: DeviceLike) -> Device:
        which = parse_device(device)
        if which in self._viable((which,)):
            return which
        problem = f"device {which} cannot lower this graph under the active policy"
        hint = ""
        if self._policy.permits(which) and not is_available(which):
            problem = f"device {which} is not available: {probe(which).blocker}"
            hint = how_to_get(which.label)
        raise Unsupported(f"compile '{self._graph.name}'", problem, hint=hint)
