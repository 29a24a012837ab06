"""Devices available on this machine, and why the others are missing.

Availability of a wgpu device is a live probe: its adapter is opened and must give four
bytes back. Answers come from the pool of open engines, so asking twice costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.core.device import Device, DeviceLike, extension_devices, parse_device
from rlxweb.core.errors import AdapterMissing, DeviceError
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry import (
    absence_reason,
    engine_labels,
    find_row,
    installed_library,
    is_named_only,
    providing_package,
)
from rlxweb.select.policy import DevicePolicy

NAMED_ONLY_PREFIX = "named only"


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device of the report: whether it is available, its engine, or why not.

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
        """The device's label."""
        return self.device.label

    @property
    def reason(self) -> str | None:
        """The blocker, by pyrlx's name; None if there is none."""
        return self.blocker or None

    @property
    def waits(self) -> bool:
        """True if the device is installed but opened only when named."""
        return self.blocker.startswith(NAMED_ONLY_PREFIX)

    @property
    def registered(self) -> bool:
        """True if rlxweb has an engine for the device."""
        return find_row(self.device.label) is not None

    def as_json(self) -> dict[str, Any]:
        """Return the row as a dictionary for JSON."""
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
    """Open the device (once per process) and return its row."""
    parsed = parse_device(device)
    reason = absence_reason(parsed.label)
    if reason:
        return _missing_row(parsed, reason)
    try:
        engine = pool.engine(parsed.label, adapter)
    except DeviceError as error:
        return _missing_row(parsed, _open_failure(error))
    return _available_row(parsed, engine)


def row_without_opening(device: DeviceLike) -> DeviceRow:
    """Return the row of a device without opening it."""
    parsed = parse_device(device)
    reason = absence_reason(parsed.label)
    if reason:
        return _missing_row(parsed, reason)
    library = installed_library(parsed.label) or "its library"
    unopened_reason = (
        f"{NAMED_ONLY_PREFIX}: {library} is installed, but used only when "
        "requested by name"
    )
    return _missing_row(parsed, unopened_reason)


def listed_extension_devices() -> tuple[Device, ...]:
    """Return the devices unknown to RLX that a report shows.

    Ours where their library is installed, and whatever other packages add.
    """
    devices = extension_devices()
    return tuple(
        d for d in devices if providing_package(d.label) or not absence_reason(d.label)
    )


def _missing_row(device: Device, reason: str) -> DeviceRow:
    """Return the row of a device that is not available."""
    only_when_named = is_named_only(device.label)
    return DeviceRow(device, False, "", reason, {}, named_only=only_when_named)


def _open_failure(error: DeviceError) -> str:
    """Return why nothing opened; the row names the device.

    Where adapters or libraries were tried in turn, it is the reason of each. A hint to
    look at this very list is left out.
    """
    is_listing_hint = "`rlxweb devices`" in error.hint
    if isinstance(error, AdapterMissing) and (error.candidates or is_listing_hint):
        return "; ".join(filter(None, (error.problem, error.rule)))
    return str(error)


def _available_row(device: Device, engine: Engine) -> DeviceRow:
    """Return the row of a device that is open."""
    only_when_named = is_named_only(device.label)
    facts = _engine_facts(device, engine)
    return DeviceRow(device, True, engine.name, "", facts, named_only=only_when_named)


async def open_async(device: DeviceLike = "webgpu", adapter: str = "") -> DeviceRow:
    """Open a device where opening must be awaited (a browser without JSPI).

    Blocking calls find it open afterwards. The row says why when it cannot be opened.
    Errors   UnknownDevice.
    """
    parsed = parse_device(device)
    try:
        engine = await pool.engine_async(parsed.label, adapter)
    except DeviceError as error:
        return _missing_row(parsed, _open_failure(error))
    return _available_row(parsed, engine)


def _engine_facts(device: Device, engine: Engine) -> dict[str, Any]:
    """Return the facts of an engine for the report."""
    identity, target, limits = engine.identity, engine.target, engine.target.limits
    facts: dict[str, Any] = {
        "adapter": identity.adapter,
        "vendor": identity.vendor,
        "backend": identity.api,
        "driver": identity.driver,
        "software": identity.software,
    }
    if limits is not None:
        facts["features"] = sorted(target.features)
        facts["limits"] = {name: getattr(limits, name) for name in limits.__slots__}
    facts["dtypes"] = sorted(d.value for d in target.array_dtypes)
    package = providing_package(device.label)
    if package:
        facts["package"] = package
    if engine.skipped_libraries:
        facts["passed over"] = [
            f"{name}: {reason}" for name, reason in engine.skipped_libraries
        ]
    return facts


# pyrlx's name.
DeviceCandidate = DeviceRow


def backends_manifest() -> str:
    """Return the devices that this installation has engines for, as JSON in pyrlx's
    form. Opens none.

    {"backends": labels of the devices that can be tried on this system}
    """
    return json.dumps(
        {"backends": [label for label in engine_labels() if not absence_reason(label)]}
    )


def is_available(device: DeviceLike) -> bool:
    """Return whether the device can be opened here. Raise UnknownDevice for an unknown
    name.
    """
    return probe(device).available


def available_devices() -> tuple[Device, ...]:
    """Return every device that opens here, fastest kind first.

    Those that are only used when they are named (MLX on a CPU, say) are not opened;
    `is_available` asks for one.
    """
    return tuple(d for d in DevicePolicy.all().candidates if is_available(d))
