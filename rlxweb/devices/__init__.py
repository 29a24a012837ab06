"""WHERE to compute: device names, availability, policies, reports, runners.

The names are loaded when they are used, so that the enum alone costs nothing and the
rooms below may read it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Device": "device",
    "parse_device": "device",
    "parse_device_list": "device",
    "available_devices": "availability",
    "is_available": "availability",
    "DevicePolicy": "policy",
    "device_chain_from_env": "policy",
    "device_from_env": "policy",
    "supports_graph": "supports",
    "devices_for": "supports",
    "device_report": "report",
    "fastest_device_for": "fastest",
    "resolve_device": "resolve",
    "resolve_device_chain": "resolve",
    "run_with_fallback": "fallback",
    "benchmark_devices": "benchmark",
    "warm_all": "benchmark",
    "DeviceBenchResult": "benchmark",
    "GraphDevices": "graph_devices",
    "graph_param_names": "programs",
    "DeviceRouter": "router",
}

__all__ = [*sorted(_HOME), "DeviceFallbackError"]


def __getattr__(name: str) -> Any:
    if name == "DeviceFallbackError":
        from rlxweb.errors import DeviceFallbackError

        return DeviceFallbackError
    if name in _HOME:
        return getattr(import_module(f"rlxweb.devices.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rlxweb.devices' has no attribute {name!r}")
