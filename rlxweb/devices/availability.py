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
from rlxweb.backends.registry import (
    blocker,
    found_here,
    labels,
    named_only,
    package_of,
    row_of,
)
from rlxweb.device import Device, DeviceLike, further_devices, parse_device
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import AdapterMissing, DeviceError

WAITS = "named only"


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One line of the report: is the device there, what is it, if not why.

    named_only      it is used where somebody names it, and never by "auto"
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
    named_only: bool = False

    @property
    def label(self) -> str:
        return self.device.label

    @property
    def reason(self) -> str | None:
        """The blocker by pyrlx's name; None where there is none."""
        return self.blocker or None

    @property
    def waits(self) -> bool:
        """Is all there, as far as one sees, and nobody has named it?"""
        return self.blocker.startswith(WAITS)

    @property
    def registered(self) -> bool:
        """Has rlxweb a backend for it?"""
        return row_of(self.device.label) is not None

    def as_json(self) -> dict[str, Any]:
        document = {
            "device": self.device.label,
            "name": self.device.display,
            "available": self.available,
            "registered": self.registered,
            "named_only": self.named_only,
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
        return _missing(which, reason)
    try:
        backend = pool.backend(which.label, adapter)
    except DeviceError as error:
        return _missing(which, _reason(error))
    return _there(which, backend)


def listed(device: DeviceLike) -> DeviceRow:
    """The row of a device without a look: what is installed for one nobody named."""
    which = parse_device(device)
    reason = blocker(which.label)
    if reason:
        return _missing(which, reason)
    what = found_here(which.label) or "it"
    waits = f"{WAITS}: {what} is installed, and opened when somebody names it"
    return _missing(which, waits)


def further_listed() -> tuple[Device, ...]:
    """The devices that RLX has no name for and a report shows.

    Ours where their library is installed, and whatever other packages add.
    """
    found = further_devices()
    return tuple(d for d in found if package_of(d.label) or not blocker(d.label))


def _missing(device: Device, reason: str) -> DeviceRow:
    alone = named_only(device.label)
    return DeviceRow(device, False, "", reason, {}, named_only=alone)


def _reason(error: DeviceError) -> str:
    """Return why nothing opened; the row names the device.

    Where adapters or libraries were tried in turn, it is the reason of each. A hint to
    look at this very list is left out.
    """
    sent_here = "`rlxweb devices`" in error.hint
    if isinstance(error, AdapterMissing) and (error.candidates or sent_here):
        return "; ".join(filter(None, (error.problem, error.rule)))
    return str(error)


def _there(device: Device, backend: Backend) -> DeviceRow:
    alone, facts = named_only(device.label), _facts(device, backend)
    return DeviceRow(device, True, backend.name, "", facts, named_only=alone)


async def open_async(device: DeviceLike = "webgpu", adapter: str = "") -> DeviceRow:
    """Open a device where opening must be awaited (a browser without JSPI).

    Blocking calls find it open afterwards. The row says why when it cannot be opened.
    Errors   UnknownDevice.
    """
    which = parse_device(device)
    try:
        backend = await pool.backend_async(which.label, adapter)
    except DeviceError as error:
        return _missing(which, _reason(error))
    return _there(which, backend)


def _facts(device: Device, backend: Backend) -> dict[str, Any]:
    target, limits = backend.target, backend.target.limits
    facts: dict[str, Any] = {
        "adapter": backend.adapter,
        "vendor": backend.vendor,
        "backend": backend.api,
        "driver": backend.driver,
        "software": backend.software,
    }
    if limits is not None:
        facts["features"] = sorted(target.features)
        facts["limits"] = {name: getattr(limits, name) for name in limits.__slots__}
    facts["dtypes"] = sorted(d.value for d in target.accepts)
    package = package_of(device.label)
    if package:
        facts["package"] = package
    if backend.passed_over:
        facts["passed over"] = [f"{name}: {why}" for name, why in backend.passed_over]
    return facts


# pyrlx's name.
DeviceCandidate = DeviceRow


def backends_manifest() -> str:
    """What this installation has engines for, as JSON; pyrlx's form. Opens none.

    {"backends": labels of the devices that can be tried on this system}
    """
    return json.dumps({"backends": [label for label in labels() if not blocker(label)]})


def is_available(device: DeviceLike) -> bool:
    """True when the device can be opened here. Errors  UnknownDevice."""
    return probe(device).available


def available_devices() -> tuple[Device, ...]:
    """Every device that opens here, fastest kind first.

    Those that are only used when they are named (MLX on a CPU, say) are not opened;
    `is_available` asks for one.
    """
    return tuple(d for d in DevicePolicy.all().candidates if is_available(d))
