"""Places: a device and, where the machine has several adapters of its kind, which one.

A candidate list holds each engine once: on a machine with one Vulkan adapter "gpu" and
"vulkan" open the same, and only the first stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.backends.registry import ROWS
from rlxweb.device import PRIORITY, Device, DeviceLike, parse_device
from rlxweb.devices.availability import is_available
from rlxweb.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job could run. adapter: part of an adapter's name, "" for the best."""

    device: Device
    adapter: str = ""

    @property
    def label(self) -> str:
        """What `parse_place` reads: "cpu", "vulkan:SwiftShader"."""
        return f"{self.device.label}:{self.adapter}".rstrip(":")

    def __str__(self) -> str:
        return self.label


CPU = Place(Device.CPU)


def parse_place(text: DeviceLike | Place) -> Place:
    """A place from "device" or "device:part of the adapter's name".

    Errors   UnknownDevice.
    """
    if isinstance(text, Place):
        return text
    if isinstance(text, Device):
        return Place(text)
    name, _, adapter = str(text).partition(":")
    return Place(parse_device(name), adapter.strip())


def engine_key(place: Place) -> tuple[str, ...]:
    """What tells one engine from another: adapter, API and driver.

    Errors   AdapterMissing, DeviceLost when the place cannot be opened.
    """
    if place.device is Device.CPU:
        return ("cpu",)
    backend: Any = pool.backend(place.device.label, place.adapter)
    facts = getattr(backend, "facts", None)
    if facts is None:
        return (backend.name,)
    return (facts.name, facts.backend, facts.driver)


def distinct(places: Iterable[Place]) -> tuple[Place, ...]:
    """The places that open, each engine once, in the order given."""
    found: dict[tuple[str, ...], Place] = {}
    for place in places:
        try:
            found.setdefault(engine_key(place), place)
        except DeviceError:
            continue
    return tuple(found.values())


def available_places(devices: Iterable[Device] | None = None) -> tuple[Place, ...]:
    """Every engine of the machine once, the CPU first; only `devices` when given."""
    wanted = tuple(PRIORITY if devices is None else devices)
    cpu = [CPU] if Device.CPU in wanted else []
    others = [d for d in wanted if d is not Device.CPU and d.label in ROWS]
    # In a tab "gpu" opens the same adapter, and the more telling name stays.
    others.sort(key=lambda d: d is not Device.WEBGPU)
    return distinct([*cpu, *(Place(d) for d in others if is_available(d))])
