"""Which devices this machine really has, and why the others are missing.

Availability of a wgpu device is a live probe: its adapter is opened and must give four
bytes back. Answers come from the pool of open backends, so asking twice costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.backends.registry import ROWS, blocker
from rlxweb.device import PRIORITY, Device, DeviceLike, parse_device
from rlxweb.errors import DeviceError


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One line of the report: is the device there, what is it, if not why.

    supports_graph  it can run the graph that was asked about; None without a graph
    recommended     it is the one the prediction picks for that graph
    """

    device: Device
    available: bool
    engine: str
    blocker: str
    facts: Mapping[str, Any]
    supports_graph: bool | None = None
    recommended: bool = False

    @property
    def label(self) -> str:
        return self.device.label

    @property
    def reason(self) -> str | None:
        """The blocker by pyrlx's name; None where there is none."""
        return self.blocker or None

    @property
    def registered(self) -> bool:
        """Has rlxweb a backend for it?"""
        return self.device.label in ROWS

    def as_json(self) -> dict[str, Any]:
        document = {
            "device": self.device.label,
            "name": self.device.display,
            "available": self.available,
            "registered": self.registered,
            "engine": self.engine,
            "blocker": self.blocker,
            "facts": dict(self.facts),
        }
        if self.supports_graph is not None:
            document["supports_graph"] = self.supports_graph
            document["recommended"] = self.recommended
        return document


def probe(device: DeviceLike, adapter: str = "") -> DeviceRow:
    """Open the device (once per process) and say what came of it."""
    which = parse_device(device)
    reason = blocker(which.label)
    if reason:
        return DeviceRow(which, False, "", reason, {})
    try:
        backend = pool.backend(which.label, adapter)
    except DeviceError as error:
        return DeviceRow(which, False, "", str(error), {})
    return DeviceRow(which, True, backend.name, "", _facts(backend))


async def open_async(device: DeviceLike = "webgpu", adapter: str = "") -> DeviceRow:
    """Open a device where opening must be awaited (a browser without JSPI).

    Blocking calls find it open afterwards. The row says why when it cannot be opened.
    Errors   UnknownDevice.
    """
    which = parse_device(device)
    try:
        backend = await pool.backend_async(which.label, adapter)
    except DeviceError as error:
        return DeviceRow(which, False, "", str(error), {})
    return DeviceRow(which, True, backend.name, "", _facts(backend))


def _facts(backend: Backend) -> dict[str, Any]:
    target = backend.target
    dtypes = sorted(d.value for d in target.dtypes)
    limits = target.limits
    if limits is None:
        return {"dtypes": dtypes}
    return {
        "adapter": backend.adapter,
        "vendor": backend.vendor,
        "backend": backend.api,
        "driver": backend.driver,
        "software": backend.software,
        "features": sorted(target.features),
        "limits": {name: getattr(limits, name) for name in limits.__slots__},
        "dtypes": dtypes,
    }


# pyrlx's name.
DeviceCandidate = DeviceRow


def backends_manifest() -> str:
    """What this installation has engines for, as JSON; pyrlx's form. Opens none.

    {"backends": labels of the devices that can be tried on this system}
    """
    return json.dumps({"backends": [label for label in ROWS if not blocker(label)]})


def is_available(device: DeviceLike) -> bool:
    """True when the device can be opened here. Errors  UnknownDevice."""
    return probe(device).available


def available_devices() -> tuple[Device, ...]:
    """Every device that opens here, fastest kind first."""
    return tuple(d for d in PRIORITY if d.label in ROWS and is_available(d))
