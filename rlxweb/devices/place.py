"""Places: a device and, where the machine has several adapters of its kind, which one.

A candidate list holds each engine once: on a machine with one Vulkan adapter "gpu" and
"vulkan" open the same, and only the first stays.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.backends.registry import blocker
from rlxweb.device import Device, DeviceLike, adapter_name, parse_device
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job could run. adapter: part of an adapter's name, "" for the best.

    Errors   UsageError for an adapter that is no text.
    """

    device: Device
    adapter: str = ""

    def __post_init__(self) -> None:
        adapter_name(self.adapter)

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
    """What tells one engine from another: adapter, API and driver with its compiler.

    Errors   AdapterMissing, DeviceLost when the place cannot be opened.
    """
    if place.device is Device.CPU:
        return CPU_ENGINE
    backend = pool.backend(place.device.label, place.adapter)
    driver = ", ".join(filter(None, (backend.driver, backend.compiler)))
    return (backend.adapter, backend.api, driver)


def identity_of(place: Place) -> tuple[str, ...]:
    """The same with rlxweb's version and the machine: what measurements hold for.

    Errors   AdapterMissing, DeviceLost when the place cannot be opened.
    """
    adapter, api, driver = engine_key(place)
    return adapter, api or place.device.label, driver, _version(), _machine()


@cache
def _machine() -> str:
    return f"{platform.machine()} {os.cpu_count()} cores"


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, distributions, version

    # Looked for where the package lies: the search for it reads all of sys.path, which
    # in a tab starts with Python's own zip.
    beside = str(Path(__file__).parents[2])
    for found in distributions(name="rlxweb", path=[beside]):
        return found.version
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # run from a source tree
        return "source"


def distinct(places: Iterable[Place]) -> tuple[Place, ...]:
    """The places that open, each engine once, in the order given."""
    found: dict[tuple[str, ...], Place] = {}
    for place in places:
        try:
            found.setdefault(engine_key(place), place)
        except DeviceError:
            continue
    return tuple(found.values())


def available_places(
    devices: Iterable[Device] | None = None,
    adapters: Mapping[Device, str] | None = None,
) -> tuple[Place, ...]:
    """Every engine of the machine once, the CPU first; only `devices` when given.

    adapters   part of an adapter's name by device
    """
    if devices is None:
        devices = DevicePolicy.all().candidates
    wanted = [d for d in devices if not blocker(d.label)]
    # Of equals the one that needs no trip is taken. In a tab "gpu" opens the same
    # adapter, and the more telling name stays.
    wanted.sort(key=lambda d: (d is not Device.CPU, d is not Device.WEBGPU))
    names = adapters or {}
    return distinct(Place(d, names.get(d, "")) for d in wanted)
