"""Which device a graph runs on: the one asked for, the environment's, or a prediction.

Knows which devices can run the graph under a policy and holds the last decision;
compiles and runs nothing. The decisions are made by `rlxweb.choose`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlxweb.choose.chooser import Pick
from rlxweb.choose.graphs import GraphJob, checked_mode
from rlxweb.choose.report import device_report
from rlxweb.choose.resolve import (
    and_named,
    decide_by_environment,
    decide_device,
    devices_for,
    fastest,
    named_by_environment,
    refusal,
    resolve_device_chain,
    why_refused,
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
from rlxweb.devices.availability import DeviceRow
from rlxweb.devices.policy import DevicePolicy, device_chain_from_env, policy_of
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph
from rlxweb.names import formerly


class DeviceResolver:
    """A graph and the devices it may run on; see `GraphDevices`.

    decision   the last choice of a device
    """

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None,
        adapters: Adapters | None,
        cost_mode: str,
    ) -> None:
        must_be_graph(graph)
        self._graph = graph.copy()
        self._policy = policy_of(policy)
        self._adapters = adapters_of(adapters)
        self._cost_mode = checked_mode(cost_mode)
        self._pick: Pick[GraphJob] | None = None  # the last prediction
        self.decision: Decision | None = None
        self._find_devices()

    def __repr__(self) -> str:
        places = ", ".join(device.label for device in self._supported)
        return f"{type(self).__name__}({self._graph!r} on {places or 'no device'})"

    @property
    def graph(self) -> Graph:
        """A copy of the graph; changes to it change nothing here."""
        return self._graph.copy()

    @property
    def policy(self) -> DevicePolicy:
        return self._policy

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that can run the graph under the policy, in its order."""
        return self._supported

    def adapter_of(self, device: DeviceLike) -> str:
        """Return part of the name of the adapter to use; "" for the best."""
        return self._adapters.get(parse_device(device), "")

    def report(self) -> tuple[DeviceRow, ...]:
        """Return one row per device, probed again: can it run the graph, or why not."""
        return device_report(self._graph, self._policy, **self._how)

    def explain(self) -> str:
        """Describe the last decision with every candidate."""
        if self.decision is None:
            self.resolve()
        return explain_decision(self.decision) if self.decision else ""

    def fastest(self) -> Device:
        """Predict the fastest device again. Errors  Unsupported.

        For a graph whose sizes vary, the prediction is for sample sizes.
        """
        return self._fastest(self._graph)

    @formerly(hint="device")
    def resolve(self, device: DeviceLike | None = None) -> Device:
        """Return the device asked for, else RLX_DEVICE, else the predicted fastest.

        Errors   Unsupported when nothing can run the graph or that device cannot.
        """
        return self._resolve(self._graph, device)

    @formerly(hint="device", chain="device")
    def resolve_chain(
        self, device: DeviceLike | Sequence[DeviceLike] | None = None
    ) -> Device:
        """Return the device asked for, or of several the first that can run the graph.

        Left out: the same of RLX_DEVICE_CHAIN, else `resolve()`.
        Errors   those of `resolve`; Unsupported when none of the chain can.
        """
        device = unless_open(device)
        why, chain = "RLX_DEVICE_CHAIN", device_chain_from_env()
        if device is not None:
            why, chain = "it was asked for", devices_named(device)
            if len(chain) == 1:
                return self.resolve(chain[0])
        elif not chain:
            return self.resolve()
        viable = self._viable(chain)
        about = self._graph, chain, self._policy
        which = resolve_device_chain(*about, viable=viable, adapters=self._adapters)
        self.decision = Decision(f"device {which.label}", why)
        return which

    @property
    def _how(self) -> dict[str, Any]:
        return {"adapters": self._adapters, "cost_mode": self._cost_mode}

    def _find_devices(self) -> None:
        self._supported = devices_for(self._graph, self._policy, self._adapters)
        self._named = self._supported

    def _viable(self, named: Iterable[Device]) -> tuple[Device, ...]:
        """Return the devices, and those that are only used when named and once were."""
        wanted = [device for device in named if device not in self._named]
        if wanted:
            about = self._graph, self._policy, self._adapters
            self._named = and_named(self._named, wanted, *about)
        return self._named

    def _why_refused(self, device: Device) -> str:
        adapter = self.adapter_of(device)
        return why_refused(device, self._graph, self._policy, adapter)

    def _check_viable(self, device: Device) -> None:
        """Errors  Unsupported for a device that is missing or cannot run the graph."""
        if device in self._viable((device,)):
            return
        doing, adapter = f"compile '{self._graph.name}'", self.adapter_of(device)
        about = self._graph, self._policy, adapter, self._named
        raise refusal(doing, device, *about)

    def _fastest(self, graph: Graph) -> Device:
        return self._decided(fastest(graph, self._policy, **self._how))

    def _resolve(self, graph: Graph, device: DeviceLike | None) -> Device:
        about = {"viable": self._supported, **self._how}
        return self._decided(decide_device(graph, device, self._policy, **about))

    def _named_by_environment(self) -> Device | None:
        """Return the device that the environment names, if the graph can run there."""
        about = {"viable": self._viable(named_by_environment()), **self._how}
        pick = decide_by_environment(self._graph, self._policy, **about)
        return None if pick is None else self._decided(pick)

    def _decided(self, pick: Pick[GraphJob]) -> Device:
        self.decision = pick.decision
        if pick.decision.candidates:
            self._pick = pick
        return pick.device
