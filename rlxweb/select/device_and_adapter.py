"""Places to compute: a device and, on machines with several adapters of its kind, the
adapter.

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

from rlxweb.core.device import Device, DeviceLike, check_adapter_name, parse_device
from rlxweb.core.errors import DeviceError
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import CPU_IDENTITY
from rlxweb.engines.registry import absence_reason
from rlxweb.select.policy import DevicePolicy


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """Device and part of an adapter's name ("" for the best): where a job can run.

    Errors   UsageError for an adapter that is no text.
    """

    device: Device
    adapter: str = ""

    def __post_init__(self) -> None:
        check_adapter_name(self.adapter)

    @property
    def label(self) -> str:
        """Text that `parse_place` reads: "cpu", "vulkan:SwiftShader"."""
        return f"{self.device.label}:{self.adapter}".rstrip(":")

    def __str__(self) -> str:
        return self.label


CPU_PLACE = DevicePlace(Device.CPU)


def parse_place(text: DeviceLike | DevicePlace) -> DevicePlace:
    """Return a place from "device" or "device:part of the adapter's name".

    Errors   UnknownDevice.
    """
    if isinstance(text, DevicePlace):
        return text
    if isinstance(text, Device):
        return DevicePlace(text)
    name, _, adapter = str(text).partition(":")
    return DevicePlace(parse_device(name), adapter.strip())


def engine_key(place: DevicePlace) -> tuple[str, ...]:
    """Return what distinguishes an engine: adapter, API and driver with its compiler.

    Errors   AdapterMissing, DeviceLost when the place cannot be opened.
    """
    if place.device is Device.CPU:
        return CPU_IDENTITY.calibration_key
    engine = pool.engine(place.device.label, place.adapter)
    return engine.identity.calibration_key


def engine_identity(place: DevicePlace) -> tuple[str, ...]:
    """Return the engine's key with rlxweb's version and the machine; measurements hold
    for it.

    Errors   AdapterMissing, DeviceLost when the place cannot be opened.
    """
    adapter, api, driver = engine_key(place)
    return (
        adapter,
        api or place.device.label,
        driver,
        _package_version(),
        _machine_description(),
    )


@cache
def _machine_description() -> str:
    """Return the machine's architecture and number of cores."""
    return f"{platform.machine()} {os.cpu_count()} cores"


@cache
def _package_version() -> str:
    """Return rlxweb's version; "source" in a tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, distributions, version

    # Looked for where the package lies: the search for it reads all of sys.path, which
    # in a tab starts with Python's own zip.
    package_parent = str(Path(__file__).parents[2])
    for distribution in distributions(name="rlxweb", path=[package_parent]):
        return distribution.version
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # run from a source tree
        return "source"


def distinct_places(places: Iterable[DevicePlace]) -> tuple[DevicePlace, ...]:
    """Return the places that open, each engine once, in the given order."""
    place_by_engine: dict[tuple[str, ...], DevicePlace] = {}
    for place in places:
        try:
            place_by_engine.setdefault(engine_key(place), place)
        except DeviceError:
            continue
    return tuple(place_by_engine.values())


def available_places(
    devices: Iterable[Device] | None = None,
    adapters: Mapping[Device, str] | None = None,
) -> tuple[DevicePlace, ...]:
    """Return every engine of the machine once, the CPU first; only `devices` if given.

    adapters   part of an adapter's name by device
    """
    if devices is None:
        devices = DevicePolicy.all().candidates
    candidates = [d for d in devices if not absence_reason(d.label)]
    # Of equals the one that needs no trip is taken. In a tab "gpu" opens the same
    # adapter, and the more telling name stays.
    candidates.sort(key=lambda d: (d is not Device.CPU, d is not Device.WEBGPU))
    adapter_names = adapters or {}
    return distinct_places(DevicePlace(d, adapter_names.get(d, "")) for d in candidates)
