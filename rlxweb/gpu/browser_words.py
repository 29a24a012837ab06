"""What crosses between Python and bridge.js: its facts, commands and errors as ours.

Plain data both ways, so that none of it needs a browser. Used by `browser.py` and where
plans are written down for pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rlxweb.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
)
from rlxweb.gpu.books import read_limits
from rlxweb.gpu.port import Command, Copy, DeviceFacts, Dispatch
from rlxweb.limits import Limits

_SOFTWARE_NAMES = ("swiftshader", "llvmpipe", "lavapipe", "basic render")
# WebGPU spells one feature otherwise than wgpu does, and rlxweb follows wgpu.
_OURS = {"subgroups": "subgroup"}


def their_feature(name: str) -> str:
    """WebGPU's word for a feature."""
    return next((theirs for theirs, mine in _OURS.items() if mine == name), name)


def ours(error: Any, doing: str, source: str) -> DeviceError:
    """An exception of bridge.js, by its name, as one of our tree."""
    kind, text = str(error.name), str(error.message)
    again = "open the device again, or choose device 'cpu'"
    if kind == "lost":
        return DeviceLost(doing, f"the device was lost ({text})", "", again)
    if kind == "late":
        return GpuTimeout(doing, text, "", again)
    if kind == "out-of-memory":
        return OutOfMemory(doing, text, "", "use smaller blocks, or close other tabs")
    if kind == "adapter-missing":
        return AdapterMissing(
            doing, text, hint="choose device 'cpu', or another browser"
        )
    if kind == "shader":
        hint = "the generated source is on this exception, as `source`"
        return ShaderRejected(doing, text, "", hint, source)
    return DeviceError(doing, f"{kind}: {text}", "", "choose device 'cpu'")


def facts_of(found: Mapping[str, Any]) -> DeviceFacts:
    """What `find` reported of the adapter."""
    vendor, kind = found["vendor"], found["architecture"]
    name = found["description"] or found["device"] or f"{vendor} {kind}".strip()
    said = f"{name} {vendor} {kind}".lower()
    return DeviceFacts(
        name=name or "unnamed adapter",
        vendor=vendor,
        backend="webgpu",
        driver=found["agent"],
        software=found["fallback"] or any(s in said for s in _SOFTWARE_NAMES),
        features=frozenset(_OURS.get(f, f) for f in found["features"]),
        limits=limits_of(found["limits"]),
    )


def their_limit(name: str) -> str:
    """WebGPU's word for one of our limits: "max_buffer_size" is maxBufferSize."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def limits_of(found: Mapping[str, int]) -> Limits:
    """Our limits from WebGPU's camel case names."""
    return read_limits(
        {f.name: int(found[their_limit(f.name)]) for f in fields(Limits)}
    )


def limits_to_ask(want: Limits, have: Limits) -> dict[str, int]:
    """What to request, in WebGPU's names: the wish cut to the adapter."""
    asked = want.at_least_core().lowest(have)
    return {their_limit(f.name): getattr(asked, f.name) for f in fields(Limits)}


def plain(command: Command) -> list[Any]:
    """A command as bridge.js reads it."""
    if isinstance(command, Dispatch):
        ranges = [[b.handle, b.offset, b.nbytes] for b in command.bindings]
        return ["d", command.pipeline, ranges, list(command.grid)]
    if isinstance(command, Copy):
        source = command.source
        to = [command.target, command.target_offset, source.nbytes]
        return ["c", source.handle, source.offset, *to]
    span = command.target
    return ["z", span.handle, span.offset, span.nbytes]
