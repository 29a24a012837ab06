"""Conversion of device facts, limits, commands and errors between Python and
`bridge.js`.

Plain data both ways, so that none of it needs a browser. Used by `browser_port.py` and
where plans are written down for pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rlxweb.core.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
)
from rlxweb.core.limits import Limits
from rlxweb.gpu.port_base import limits_from_driver
from rlxweb.gpu.port_protocol import BufferCopy, Command, DeviceFacts, Dispatch

_SOFTWARE_NAMES = ("swiftshader", "llvmpipe", "lavapipe", "basic render")
# WebGPU spells one feature otherwise than wgpu does, and rlxweb follows wgpu.
_FEATURE_NAMES = {"subgroups": "subgroup"}


def webgpu_feature(name: str) -> str:
    """Return WebGPU's name of a feature."""
    return next(
        (
            webgpu_name
            for webgpu_name, own_name in _FEATURE_NAMES.items()
            if own_name == name
        ),
        name,
    )


def convert_bridge_error(error: Any, context: str, source: str) -> DeviceError:
    """Convert an exception of bridge.js, by its name, to an rlxweb error."""
    kind, text = str(error.name), str(error.message)
    reopen_hint = "open the device again, or choose device 'cpu'"
    if kind == "lost":
        return DeviceLost(context, f"the device was lost ({text})", "", reopen_hint)
    if kind == "late":
        return GpuTimeout(context, text, "", reopen_hint)
    if kind == "out-of-memory":
        return OutOfMemory(context, text, "", "use smaller inputs, or close other tabs")
    if kind == "adapter-missing":
        return AdapterMissing(
            context, text, hint="choose device 'cpu', or another browser"
        )
    if kind == "shader":
        hint = "see the generated source in the attribute `source` of this exception"
        return ShaderRejected(context, text, "", hint, source)
    return DeviceError(context, f"{kind}: {text}", "", "choose device 'cpu'")


def facts_from_report(report: Mapping[str, Any]) -> DeviceFacts:
    """Return the facts of an adapter from the report of bridge.js."""
    vendor, architecture = report["vendor"], report["architecture"]
    name = (
        report["description"] or report["device"] or f"{vendor} {architecture}".strip()
    )
    description = f"{name} {vendor} {architecture}".lower()
    return DeviceFacts(
        name=name or "unnamed adapter",
        vendor=vendor,
        backend="webgpu",
        driver=report["agent"],
        software=report["fallback"] or any(s in description for s in _SOFTWARE_NAMES),
        features=frozenset(_FEATURE_NAMES.get(f, f) for f in report["features"]),
        limits=limits_from_webgpu(report["limits"]),
    )


def webgpu_limit(name: str) -> str:
    """Return WebGPU's name of a limit: "max_buffer_size" is maxBufferSize."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def limits_from_webgpu(values: Mapping[str, int]) -> Limits:
    """Return limits from WebGPU's camel-case names."""
    return limits_from_driver(
        {f.name: int(values[webgpu_limit(f.name)]) for f in fields(Limits)}
    )


def webgpu_limits_to_request(requested: Limits, available: Limits) -> dict[str, int]:
    """Return the limits to request, in WebGPU's names: the wish capped by the
    adapter.
    """
    limits = requested.at_least_core().intersect(available)
    return {webgpu_limit(f.name): getattr(limits, f.name) for f in fields(Limits)}


def command_as_list(command: Command) -> list[Any]:
    """Return a command as the list that bridge.js reads."""
    if isinstance(command, Dispatch):
        ranges = [[b.handle, b.offset, b.nbytes] for b in command.bindings]
        return ["d", command.pipeline, ranges, list(command.grid)]
    if isinstance(command, BufferCopy):
        source = command.source
        destination = [command.target, command.target_offset, source.nbytes]
        return ["c", source.handle, source.offset, *destination]
    span = command.target
    return ["z", span.handle, span.offset, span.nbytes]
