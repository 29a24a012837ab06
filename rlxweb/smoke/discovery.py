"""Which engines this machine has, and why not the others.

Drivers are loaded in a child process: one that crashes or hangs where it is merely
listed must not end the run. Where that happens each Vulkan driver is listed alone, so
that the one at fault is named and the others are tried without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from rlxweb.backends.registry import blocker, further_labels, refused_entry_points
from rlxweb.device import Device, parse_device
from rlxweb.smoke.engine import DAWN, Engine, library_of
from rlxweb.smoke.icds import ICDS, Variables, icds, named_icds
from rlxweb.smoke.process import Bounds, Child

BY_WGPU = ("vulkan", "opengl", "directx", "metal")
"""Devices whose adapters wgpu lists, each of which is an engine."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing of adapters gave; `why` it gave no more, "" where it ended well.

    word    of the ending: "crashed", "hung", or "" with a `why` for a missing library
    faults  Vulkan drivers that the loader passes over, and why
    """

    engines: tuple[Engine, ...]
    why: str = ""
    word: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)


def discover(
    bounds: Bounds, environment: Variables, added: Sequence[str] = ()
) -> list[Engine]:
    """Every engine, those that are missing with the reason, in the order of devices.

    added   Vulkan drivers that have to give an adapter, of those in the environment
    """
    listed, others = adapters_here(bounds, environment, added)
    found = [*listed.engines, *others, *_by_dawn(bounds, environment)]
    there = {engine.device for engine in found}
    for device in labels():
        why = _why_not(device, listed)
        # Metal has adapters of wgpu's, and libraries of its own beside them.
        is_served = device in there and not (device == "metal" and not why)
        if device != "gpu" and not is_served:
            found.append(Engine(device, missing=why))
    for refused in refused_entry_points():
        found.append(Engine(refused.partition(":")[0], fell="wrong", why_fell=refused))
    order = {label: at for at, label in enumerate(labels())}
    return sorted(found, key=lambda engine: order.get(engine.device, len(order)))


def labels() -> list[str]:
    """Every device there is a name or a row for, the CPU first."""
    return [*(d.label for d in Device), *further_labels()]


def _why_not(device: str, listed: Listed) -> str:
    """Why wgpu has no adapter of a device, or why its row cannot be tried."""
    why = blocker(device)
    if why or device not in BY_WGPU or device == "metal":
        return why
    if listed.why:
        return listed.why
    return f"wgpu finds no {parse_device(device).display} adapter"


def adapters_here(
    bounds: Bounds, environment: Variables, added: Sequence[str] = ()
) -> tuple[Listed, list[Engine]]:
    """Wgpu's adapters, and an engine for each driver that gives none.

    One that ends whoever lists it is told by its name: each is listed alone then.
    """
    listed = _listed(bounds, environment)
    if not listed.word:
        return listed, list(_idle(bounds, environment, listed, added))
    found: list[Engine] = []
    others: list[Engine] = []
    for icd in icds(environment):
        alone = {ICDS: icd}
        one = _listed(bounds, environment | alone)
        found += [replace(engine, environment=alone) for engine in one.engines]
        if one.word:
            others.append(_fallen("vulkan", one, icd, 0))
        elif icd in named_icds(environment):
            others += _idle(bounds, environment | alone, one, added)
    if not any(engine.fell in ("crashed", "hung") for engine in others):
        others.append(_fallen("gpu", listed))
    return Listed(_distinct(found), listed.why), others


def _idle(
    bounds: Bounds, environment: Variables, listed: Listed, added: Sequence[str]
) -> Iterator[Engine]:
    """The Vulkan drivers that give no adapter, as far as one may expect any, and the
    adapters that others keep from being listed.

    One that somebody named and that cannot be loaded is wrong; so is an added one that
    can, and gives nothing. The others are told of and are no fault.
    """
    named = named_icds(environment)
    for icd, why in listed.faults.items():
        yield _without_adapter(icd, why, icd in named)
    loaded = [icd for icd in named if icd not in listed.faults]
    if listed.why or len(_by_vulkan(listed)) >= len(loaded):
        return
    for icd in loaded:
        alone = {ICDS: icd}
        one = listed if len(named) == 1 else _listed(bounds, environment | alone)
        found = _by_vulkan(one)
        if not found:
            yield _without_adapter(icd, "this driver finds no card", icd in added)
        # Some loaders give up altogether where one of the files is broken.
        there = {engine.key for engine in listed.engines}
        yield from (replace(e, environment=alone) for e in found if e.key not in there)


def _by_vulkan(listed: Listed) -> list[Engine]:
    return [engine for engine in listed.engines if engine.device == "vulkan"]


def _without_adapter(icd: str, why: str, is_wrong: bool) -> Engine:
    if is_wrong:
        return Engine("vulkan", icd, 0, fell="wrong", why_fell=why)
    return Engine("vulkan", icd, 0, missing=why)


def _fallen(
    device: str, listed: Listed, adapter: str = "", at: int | None = None
) -> Engine:
    """What ended the process that only listed its adapters."""
    why = f"{listed.why}, where its adapters are listed"
    return Engine(device, adapter, at, fell=listed.word, why_fell=why)


def _distinct(engines: Iterable[Engine]) -> tuple[Engine, ...]:
    """Each adapter once: OpenGL's show up beside every Vulkan driver."""
    return tuple({engine.key: engine for engine in engines}.values())


def _by_dawn(bounds: Bounds, environment: Variables) -> list[Engine]:
    """Dawn's adapters: the same hardware through another compiler of shaders."""
    if blocker(DAWN):
        return []
    listed = _listed(bounds, environment, DAWN)
    if listed.word:
        return [*listed.engines, _fallen(DAWN, listed)]
    if listed.why or not listed.engines:
        why = listed.why or "Dawn finds no adapter that it takes"
        return [*listed.engines, Engine(DAWN, missing=why)]
    return list(listed.engines)


def _listed(bounds: Bounds, environment: Variables, device: str = "") -> Listed:
    """The adapters of wgpu, or those of a device that has its own list."""
    library = library_of(device)
    drivers = icds(environment) if library == "wgpu" else []
    child = Child({"library": library, "icds": drivers}, bounds, environment)
    try:
        said = list(child.lines(monotonic() + bounds.start_s))
    finally:
        child.close()
    failed = next((one["failed"] for one in said if "failed" in one), "")
    engines = tuple(_numbered([one for one in said if "adapter" in one], device))
    faults = {one["icd"]: one["fault"] for one in said if "fault" in one}
    if child.ending.word:
        return Listed(engines, child.ending.why, child.ending.word, faults)
    return Listed(engines, failed, faults=faults)


def _numbered(said: Sequence[Mapping[str, Any]], device: str) -> Iterator[Engine]:
    """An engine per adapter, with its number among those that its name fits."""
    for at, one in enumerate(said):
        name, api = one["adapter"], one["backend"]
        before = [o for o in said[:at] if o["backend"] == api and _fits(name, o)]
        yield Engine(
            device=device or api,
            adapter=name,
            at=len(before),
            backend=api,
            vendor=one["vendor"],
            driver=one["driver"],
            compiler=f"{one['compiler']}, then {one['driver'] or name}",
            software=one["software"],
            twin=sum(o["adapter"] == name and o["backend"] == api for o in said[:at]),
        )


def _fits(name: str, one: Mapping[str, Any]) -> bool:
    """As `rlxweb.gpu.adapters.why_not` asks."""
    return name.lower() in f"{one['adapter']} {one['vendor']} {one['driver']}".lower()
