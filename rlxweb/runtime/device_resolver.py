"""Resolver of the device a graph runs on: the one asked for, the environment's, or a
prediction.

Knows which devices can run the graph under a policy and holds the last decision;
compiles and runs nothing. The decisions are made by `rlxweb.select`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlxweb.core.device import (
    Adapters,
    Device,
    DeviceLike,
    none_if_auto,
    parse_adapters,
    parse_device,
    parse_devices,
)
from rlxweb.core.lazy_names import accept_deprecated_keywords
from rlxweb.cost.decision import Decision, explain_decision
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import require_graph
from rlxweb.select.availability import DeviceRow
from rlxweb.select.chooser import DevicePick
from rlxweb.select.device_report import device_report
from rlxweb.select.graph_job import GraphJob, check_cost_mode
from rlxweb.select.policy import DevicePolicy, check_policy, device_chain_from_env
from rlxweb.select.resolve import (
    add_named_devices,
    devices_for,
    devices_named_by_env,
    pick_by_environment,
    pick_device,
    pick_fastest,
    refusal_error,
    refusal_reason,
    resolve_device_chain,
)


class DeviceResolver:
    """Resolve a graph's device under a policy; base of `GraphDevices`.

    decision   the last choice of a device
    """

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None,
        adapters: Adapters | None,
        cost_mode: str,
    ) -> None:
        require_graph(graph)
        self._graph = graph.copy()
        self._policy = check_policy(policy)
        self._adapters = parse_adapters(adapters)
        self._cost_mode = check_cost_mode(cost_mode)
        self._pick: DevicePick[GraphJob] | None = None  # the last prediction
        self.decision: Decision | None = None
        self._find_devices()

    def __repr__(self) -> str:
        labels = ", ".join(device.label for device in self._supported)
        return f"{type(self).__name__}({self._graph!r} on {labels or 'no device'})"

    @property
    def graph(self) -> Graph:
        """A copy of the graph; changes to it change nothing here."""
        return self._graph.copy()

    @property
    def policy(self) -> DevicePolicy:
        """Policy that says which devices are allowed and preferred."""
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
        return device_report(self._graph, self._policy, **self._choice_options)

    def explain(self) -> str:
        """Describe the last decision with every candidate."""
        if self.decision is None:
            self.resolve()
        return explain_decision(self.decision) if self.decision else ""

    def fastest(self) -> Device:
        """Predict the fastest device again. Errors  Unsupported.

        For a graph whose sizes vary, the prediction is for sample sizes.
        """
        return self._predict_fastest(self._graph)

    @accept_deprecated_keywords(hint="device")
    def resolve(self, device: DeviceLike | None = None) -> Device:
        """Return the device asked for, else RLX_DEVICE, else the predicted fastest.

        Errors   Unsupported when nothing can run the graph or that device cannot.
        """
        return self._resolve_graph(self._graph, device)

    @accept_deprecated_keywords(hint="device", chain="device")
    def resolve_chain(
        self, device: DeviceLike | Sequence[DeviceLike] | None = None
    ) -> Device:
        """Return the device asked for, or of several the first that can run the graph.

        Left out: the same of RLX_DEVICE_CHAIN, else `resolve()`.
        Errors   those of `resolve`; Unsupported when none of the chain can.
        """
        device = none_if_auto(device)
        reason, chain = "RLX_DEVICE_CHAIN", device_chain_from_env()
        if device is not None:
            reason, chain = "it was requested", parse_devices(device)
            if len(chain) == 1:
                return self.resolve(chain[0])
        elif not chain:
            return self.resolve()
        viable = self._usable_devices(chain)
        arguments = self._graph, chain, self._policy
        target = resolve_device_chain(
            *arguments, viable=viable, adapters=self._adapters
        )
        self.decision = Decision(f"device {target.label}", reason)
        return target

    @property
    def _choice_options(self) -> dict[str, Any]:
        """Keyword arguments that every choice of a device takes."""
        return {"adapters": self._adapters, "cost_mode": self._cost_mode}

    def _find_devices(self) -> None:
        """List the devices that can run the graph under the policy."""
        self._supported = devices_for(self._graph, self._policy, self._adapters)
        self._usable = self._supported

    def _usable_devices(self, named: Iterable[Device]) -> tuple[Device, ...]:
        """Return the supported devices, and those used only when named that were named
        so far.
        """
        unlisted = [device for device in named if device not in self._usable]
        if unlisted:
            arguments = self._graph, self._policy, self._adapters
            self._usable = add_named_devices(self._usable, unlisted, *arguments)
        return self._usable

    def _refusal_reason(self, device: Device) -> str:
        """Return why a device cannot run the graph."""
        adapter = self.adapter_of(device)
        return refusal_reason(device, self._graph, self._policy, adapter)

    def _check_usable(self, device: Device) -> None:
        """Raise Unsupported for a device that is missing or cannot run the graph."""
        if device in self._usable_devices((device,)):
            return
        context, adapter = f"compile '{self._graph.name}'", self.adapter_of(device)
        arguments = self._graph, self._policy, adapter, self._usable
        raise refusal_error(context, device, *arguments)

    def _predict_fastest(self, graph: Graph) -> Device:
        """Predict the fastest device for a graph and record the decision."""
        return self._record_pick(
            pick_fastest(graph, self._policy, **self._choice_options)
        )

    def _resolve_graph(self, graph: Graph, device: DeviceLike | None) -> Device:
        """Resolve the device of a graph and record the decision."""
        options = {"viable": self._supported, **self._choice_options}
        return self._record_pick(pick_device(graph, device, self._policy, **options))

    def _environment_device(self) -> Device | None:
        """Return the device that the environment names, if the graph can run there."""
        options = {
            "viable": self._usable_devices(devices_named_by_env()),
            **self._choice_options,
        }
        pick = pick_by_environment(self._graph, self._policy, **options)
        return None if pick is None else self._record_pick(pick)

    def _record_pick(self, pick: DevicePick[GraphJob]) -> Device:
        """Store the decision of a pick and return its device."""
        self.decision = pick.decision
        if pick.decision.candidates:
            self._pick = pick
        return pick.device
