"""rlxweb: one graph of tensor and signal operations, on the best engine there is.

The public names and where they live, nothing else. A name is loaded when it is first
used, so importing this costs next to nothing and loads no GPU library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.names import found, hand_down, publish

if TYPE_CHECKING:  # for people's editors and type checkers; a test holds it to _OWN
    from rlxweb.device import Device as Device
    from rlxweb.device import parse_device as parse_device
    from rlxweb.device import parse_device_list as parse_device_list
    from rlxweb.devices.availability import available_devices as available_devices
    from rlxweb.devices.availability import is_available as is_available
    from rlxweb.devices.availability import open_async as open_async
    from rlxweb.devices.policy import DevicePolicy as DevicePolicy
    from rlxweb.errors import RlxError as RlxError
    from rlxweb.ir.graph import Graph as Graph
    from rlxweb.ir.tensor import Tensor as Tensor
    from rlxweb.ops.custom import register_custom as register_custom
    from rlxweb.runners.graph_devices import GraphDevices as GraphDevices
    from rlxweb.runners.report import device_report as device_report
    from rlxweb.runners.router import DeviceRouter as DeviceRouter
    from rlxweb.runtime.session import CompiledGraph as CompiledGraph
    from rlxweb.runtime.session import Session as Session
    from rlxweb.signal.result import WelchPeaks as WelchPeaks
    from rlxweb.signal.welch import welch as welch
    from rlxweb.signal.welch import welch_async as welch_async
    from rlxweb.signal.welch_peaks import welch_peaks as welch_peaks
    from rlxweb.signal.welch_peaks import welch_peaks_async as welch_peaks_async

_OWN = {
    "CompiledGraph": "rlxweb.runtime.session",
    "Device": "rlxweb.device",
    "DevicePolicy": "rlxweb.devices.policy",
    "DeviceRouter": "rlxweb.runners.router",
    "Graph": "rlxweb.ir.graph",
    "GraphDevices": "rlxweb.runners.graph_devices",
    "RlxError": "rlxweb.errors",
    "Session": "rlxweb.runtime.session",
    "Tensor": "rlxweb.ir.tensor",
    "WelchPeaks": "rlxweb.signal.result",
    "available_devices": "rlxweb.devices.availability",
    "device_report": "rlxweb.runners.report",
    "is_available": "rlxweb.devices.availability",
    "open_async": "rlxweb.devices.availability",
    "parse_device": "rlxweb.device",
    "parse_device_list": "rlxweb.device",
    "register_custom": "rlxweb.ops.custom",
    "welch": "rlxweb.signal.welch",
    "welch_async": "rlxweb.signal.welch",
    "welch_peaks": "rlxweb.signal.welch_peaks",
    "welch_peaks_async": "rlxweb.signal.welch_peaks",
}
_OF_DEVICES = {
    "Device": "rlxweb.device",
    "DeviceBenchResult": "rlxweb.runners.benchmark",
    "DeviceFallbackError": "rlxweb.errors",
    "DevicePolicy": "rlxweb.devices.policy",
    "DeviceRouter": "rlxweb.runners.router",
    "GraphDevices": "rlxweb.runners.graph_devices",
    "available_devices": "rlxweb.devices.availability",
    "benchmark_devices": "rlxweb.runners.benchmark",
    "device_chain_from_env": "rlxweb.devices.policy",
    "device_from_env": "rlxweb.devices.policy",
    "device_report": "rlxweb.runners.report",
    "devices_for": "rlxweb.choose.resolve",
    "fastest_device_for": "rlxweb.choose.resolve",
    "graph_param_names": "rlxweb.runners.programs",
    "is_available": "rlxweb.devices.availability",
    "parse_device": "rlxweb.device",
    "parse_device_list": "rlxweb.device",
    "resolve_device": "rlxweb.choose.resolve",
    "resolve_device_chain": "rlxweb.choose.resolve",
    "run_with_fallback": "rlxweb.runners.fallback",
    "supports_graph": "rlxweb.choose.resolve",
    "warm_all": "rlxweb.runners.benchmark",
}
publish(__name__, _OWN)
publish("rlxweb.devices", _OF_DEVICES)
hand_down(
    {
        "FAMILIES": "rlxweb.ops.vocabulary",  # importing it registers all ops
        "fastest_device_for": "rlxweb.choose.resolve",
        "record_for": "rlxweb.calibration.known",
    }
)

__all__ = [*_OWN]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("rlxweb")
    return found(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
