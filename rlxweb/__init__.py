"""rlxweb: one graph of tensor and signal operations, on the best engine there is.

The public names and nothing else. Importing this loads NumPy and no GPU library.
"""

from __future__ import annotations

from typing import Any

import rlxweb.ops  # noqa: F401  registers the vocabulary
from rlxweb.devices.availability import available_devices, is_available, open_async
from rlxweb.devices.device import Device, parse_device, parse_device_list
from rlxweb.devices.graph_devices import GraphDevices
from rlxweb.devices.policy import DevicePolicy
from rlxweb.devices.report import device_report
from rlxweb.devices.router import DeviceRouter
from rlxweb.errors import RlxError
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.custom import register_custom
from rlxweb.runtime.session import CompiledGraph, Session
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.welch import welch, welch_async
from rlxweb.signal.welch_peaks import welch_peaks, welch_peaks_async

__all__ = [
    "CompiledGraph",
    "Device",
    "DevicePolicy",
    "DeviceRouter",
    "Graph",
    "GraphDevices",
    "RlxError",
    "Session",
    "Tensor",
    "WelchPeaks",
    "available_devices",
    "device_report",
    "is_available",
    "open_async",
    "parse_device",
    "parse_device_list",
    "register_custom",
    "welch",
    "welch_async",
    "welch_peaks",
    "welch_peaks_async",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("rlxweb")
    raise AttributeError(f"module 'rlxweb' has no attribute {name!r}")
