"""The one door up: two names of this room that need to know real devices.

Everything else in `cost` is arithmetic. The imports happen when they are called.
"""

from __future__ import annotations

from typing import Any

from rlxweb.cost.record import Calibration
from rlxweb.devices.device import Device
from rlxweb.ir.graph import Graph


def fastest_device_for(graph: Graph, policy: Any = None) -> Device:
    """The device a graph is predicted to run fastest on, under a DevicePolicy.

    Errors   Unsupported when no allowed device can run it.
    """
    from rlxweb.devices.fastest import fastest_device_for as found

    return found(graph, policy)


def record_for(device: Device, adapter: str = "") -> Calibration:
    """The calibration of a device of this machine, measured if it never was.

    Errors   DeviceError when it cannot be opened or may not be measured.
    """
    from rlxweb.devices.calibrated import record_for as found

    return found(device, adapter)
