"""Discovery of the machine's engines, with the reason for each that is unavailable.

Drivers are loaded in a child process: one that crashes or hangs where it is merely
listed must not end the run. Where that happens each Vulkan driver is listed alone, so
that the one at fault is named and the others are tried without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from rlxweb.core.device import Device, parse_device
from rlxweb.engines.registry import absence_reason, extra_labels, refused_entry_points
from rlxweb.smoke.child_process import ChildLimits, ChildProcess
from rlxweb.smoke.smoke_engine import DAWN, SmokeEngine, adapter_library
from rlxweb.smoke.vulkan_drivers import (
    ICD_VARIABLE,
    EnvironmentVariables,
    environment_icds,
    list_icds,
)

WGPU_DEVICES = ("vulkan", "opengl", "directx", "metal")
"""Devices whose adapters wgpu lists; each adapter is an engine."""


@dataclass(frozen=True, slots=True)
class AdapterListing:
    """Result of listing adapters; `failure_reason` is "" if the listing completed.

    failure_kind  of the ending: "crashed", "hung", or "" with a `failure_reason` for a
                  missing library
    faults  Vulkan drivers that the loader passes over, and why
    """

    engines: tuple[SmokeEngine, ...]
    failure_reason: str = ""
    failure_kind: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)


def discover_engines(
    limits: ChildLimits,
    environment: EnvironmentVariables,
    required_icds: Sequence[str] = (),
) -> list[SmokeEngine]:
    """Return every engine, unavailable ones with the reason, in device order.

    required_icds  Vulkan drivers that have to give an adapter, of those in the
                   environment
    """
    listing, extra_engines = list_wgpu_engines(limits, environment, required_icds)
    engines = [*listing.engines, *extra_engines, *_dawn_engines(limits, environment)]
    found_devices = {engine.device for engine in engines}
    for device in device_labels():
        reason = _unavailable_reason(device, listing)
        # Metal has adapters of wgpu's, and libraries of its own beside them.
        is_served = device in found_devices and not (device == "metal" and not reason)
        if device != "gpu" and not is_served:
            engines.append(SmokeEngine(device, missing=reason))
    for refused in refused_entry_points():
        engines.append(
            SmokeEngine(refused.partition(":")[0], fell="wrong", why_fell=refused)
        )
    order = {label: index for index, label in enumerate(device_labels())}
    return sorted(engines, key=lambda engine: order.get(engine.device, len(order)))


def device_labels() -> list[str]:
    """Return the label of every known device, the CPU first."""
    return [*(d.label for d in Device), *extra_labels()]


def _unavailable_reason(device: str, listing: AdapterListing) -> str:
    """Return why wgpu has no adapter of a device, or why the device cannot be
    tested.
    """
    reason = absence_reason(device)
    if reason or device not in WGPU_DEVICES or device == "metal":
        return reason
    if listing.failure_reason:
        return listing.failure_reason
    return f"wgpu finds no {parse_device(device).display} adapter"


def list_wgpu_engines(
    limits: ChildLimits,
    environment: EnvironmentVariables,
    required_icds: Sequence[str] = (),
) -> tuple[AdapterListing, list[SmokeEngine]]:
    """List wgpu's adapters, and an engine for each driver that provides none.

    One that ends whoever lists it is told by its name: each is listed alone then.
    """
    listing = _list_adapters(limits, environment)
    if not listing.failure_kind:
        return listing, list(
            _recheck_drivers(limits, environment, listing, required_icds)
        )
    engines: list[SmokeEngine] = []
    extra_engines: list[SmokeEngine] = []
    for icd in list_icds(environment):
        single_driver = {ICD_VARIABLE: icd}
        single_listing = _list_adapters(limits, environment | single_driver)
        engines += [
            replace(engine, environment=single_driver)
            for engine in single_listing.engines
        ]
        if single_listing.failure_kind:
            extra_engines.append(_failed_listing("vulkan", single_listing, icd, 0))
        elif icd in environment_icds(environment):
            extra_engines += _recheck_drivers(
                limits, environment | single_driver, single_listing, required_icds
            )
    if not any(engine.fell in ("crashed", "hung") for engine in extra_engines):
        extra_engines.append(_failed_listing("gpu", listing))
    return AdapterListing(
        _unique_engines(engines), listing.failure_reason
    ), extra_engines


def _recheck_drivers(
    limits: ChildLimits,
    environment: EnvironmentVariables,
    listing: AdapterListing,
    required_icds: Sequence[str],
) -> Iterator[SmokeEngine]:
    """Yield the Vulkan drivers that provide no adapter though they should, and the
    adapters that other drivers hide.

    One that somebody named and that cannot be loaded is wrong; so is an added one that
    can, and gives nothing. The others are told of and are no fault.
    """
    named = environment_icds(environment)
    for icd, reason in listing.faults.items():
        yield _driver_without_adapter(icd, reason, icd in named)
    loaded = [icd for icd in named if icd not in listing.faults]
    if listing.failure_reason or len(_vulkan_engines(listing)) >= len(loaded):
        return
    for icd in loaded:
        single_driver = {ICD_VARIABLE: icd}
        single_listing = (
            listing
            if len(named) == 1
            else _list_adapters(limits, environment | single_driver)
        )
        engines = _vulkan_engines(single_listing)
        if not engines:
            yield _driver_without_adapter(
                icd, "this driver finds no GPU", icd in required_icds
            )
        # Some loaders give up altogether where one of the files is broken.
        listed_keys = {engine.key for engine in listing.engines}
        yield from (
            replace(e, environment=single_driver)
            for e in engines
            if e.key not in listed_keys
        )


def _vulkan_engines(listing: AdapterListing) -> list[SmokeEngine]:
    """Return the listing's Vulkan engines."""
    return [engine for engine in listing.engines if engine.device == "vulkan"]


def _driver_without_adapter(icd: str, reason: str, is_wrong: bool) -> SmokeEngine:
    """Return the engine of a driver that provides no adapter."""
    if is_wrong:
        return SmokeEngine("vulkan", icd, 0, fell="wrong", why_fell=reason)
    return SmokeEngine("vulkan", icd, 0, missing=reason)


def _failed_listing(
    device: str,
    listing: AdapterListing,
    adapter: str = "",
    adapter_index: int | None = None,
) -> SmokeEngine:
    """Return the engine that stands for a listing whose process failed."""
    reason = f"{listing.failure_reason}, while listing the adapters"
    return SmokeEngine(
        device, adapter, adapter_index, fell=listing.failure_kind, why_fell=reason
    )


def _unique_engines(engines: Iterable[SmokeEngine]) -> tuple[SmokeEngine, ...]:
    """Return each adapter once; OpenGL adapters are listed again with every Vulkan
    driver.
    """
    return tuple({engine.key: engine for engine in engines}.values())


def _dawn_engines(
    limits: ChildLimits, environment: EnvironmentVariables
) -> list[SmokeEngine]:
    """Return Dawn's adapters: the same hardware through another shader compiler."""
    if absence_reason(DAWN):
        return []
    listing = _list_adapters(limits, environment, DAWN)
    if listing.failure_kind:
        return [*listing.engines, _failed_listing(DAWN, listing)]
    if listing.failure_reason or not listing.engines:
        reason = listing.failure_reason or "Dawn finds no usable adapter"
        return [*listing.engines, SmokeEngine(DAWN, missing=reason)]
    return list(listing.engines)


def _list_adapters(
    limits: ChildLimits, environment: EnvironmentVariables, device: str = ""
) -> AdapterListing:
    """List the adapters of wgpu, or of a device with a library of its own, in a child
    process.
    """
    library = adapter_library(device)
    drivers = list_icds(environment) if library == "wgpu" else []
    child = ChildProcess({"library": library, "icds": drivers}, limits, environment)
    try:
        messages = list(child.messages(monotonic() + limits.start_s))
    finally:
        child.close()
    open_error = next(
        (message["failed"] for message in messages if "failed" in message), ""
    )
    engines = tuple(
        _engines_from_messages(
            [message for message in messages if "adapter" in message], device
        )
    )
    faults = {
        message["icd"]: message["fault"] for message in messages if "fault" in message
    }
    if child.ending.kind:
        return AdapterListing(engines, child.ending.reason, child.ending.kind, faults)
    return AdapterListing(engines, open_error, faults=faults)


def _engines_from_messages(
    messages: Sequence[Mapping[str, Any]], device: str
) -> Iterator[SmokeEngine]:
    """Yield an engine per adapter, numbered among the adapters that its name
    matches.
    """
    for index, message in enumerate(messages):
        name, api = message["adapter"], message["backend"]
        earlier_matches = [
            other
            for other in messages[:index]
            if other["backend"] == api and _name_matches(name, other)
        ]
        yield SmokeEngine(
            device=device or api,
            adapter=name,
            at=len(earlier_matches),
            backend=api,
            vendor=message["vendor"],
            driver=message["driver"],
            compiler=f"{message['compiler']}, then {message['driver'] or name}",
            software=message["software"],
            twin=sum(
                other["adapter"] == name and other["backend"] == api
                for other in messages[:index]
            ),
        )


def _name_matches(name: str, message: Mapping[str, Any]) -> bool:
    """Return whether the name is part of the adapter's name, vendor or driver, as in
    `rlxweb.gpu.adapter_selection`.
    """
    return (
        name.lower()
        in f"{message['adapter']} {message['vendor']} {message['driver']}".lower()
    )
