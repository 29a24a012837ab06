"""The device names of RLX: enum, labels, display names, aliases, parsing.

Knows names only; what is really there is asked in `devices/availability.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from rlxweb.errors import UnknownDevice, UsageError, did_you_mean, shown
from rlxweb.names import from_above

T = TypeVar("T")


class Device(StrEnum):
    """A kind of engine, in RLX's order. The value is its label.

    It equals its label, as pyrlx's devices are: `device == "cpu"`; printed it is the
    name used in messages. The twelve members are RLX's; engines that RLX has no name
    for ("torch-cpu", and what other packages add) get a Device of their own when they
    are first named. Iterating gives the twelve.
    """

    CPU = "cpu"
    METAL = "metal"
    MLX = "mlx"
    ANE = "ane"
    CUDA = "cuda"
    ROCM = "rocm"
    TPU = "tpu"
    GPU = "gpu"
    VULKAN = "vulkan"
    OPENGL = "opengl"
    DIRECTX = "directx"
    WEBGPU = "webgpu"

    @classmethod
    def _missing_(cls, value: object) -> Device | None:
        return _further(value) if isinstance(value, str) else None

    def __reduce_ex__(self, protocol: object) -> tuple[type[Device], tuple[str]]:
        return Device, (self.value,)  # the others cannot be found by attribute

    @property
    def label(self) -> str:
        return self.value

    @property
    def display(self) -> str:
        """The name used in messages."""
        return _DISPLAY.get(self, self.value.upper())

    def __str__(self) -> str:
        return self.display

    def __format__(self, spec: str) -> str:
        return format(self.display, spec)  # not the label, on every Python


# The others are abbreviations.
_DISPLAY = {
    Device.METAL: "Metal",
    Device.ROCM: "ROCm",
    Device.GPU: "GPU (wgpu)",
    Device.VULKAN: "Vulkan",
    Device.OPENGL: "OpenGL",
    Device.DIRECTX: "DirectX 12",
    Device.WEBGPU: "WebGPU",
}

ALIASES = {
    "mtl": Device.METAL,
    "neural-engine": Device.ANE,
    "nvidia": Device.CUDA,
    "hip": Device.ROCM,
    "amd": Device.ROCM,
    "wgpu": Device.GPU,
    "vk": Device.VULKAN,
    "gl": Device.OPENGL,
    "dx12": Device.DIRECTX,
    "d3d12": Device.DIRECTX,
}

_BY_NAME = {d.value: d for d in Device} | ALIASES

# Fastest first, as RLX ranks them when nothing has been measured.
PRIORITY = (
    Device.TPU,
    Device.CUDA,
    Device.ROCM,
    Device.MLX,
    Device.METAL,
    Device.ANE,
    Device.GPU,
    Device.VULKAN,
    Device.DIRECTX,
    Device.OPENGL,
    Device.WEBGPU,
    Device.CPU,
)

_FURTHER: dict[str, Device] = {}
_RANK: dict[Device, float] = {device: at for at, device in enumerate(PRIORITY)}


def _further(label: str) -> Device | None:
    """The one Device of a label that RLX does not have; None where no engine has it."""
    row = from_above("row_of")(label)
    if row is None:
        return None
    if label not in _FURTHER:
        made = str.__new__(Device, label)
        made._name_ = label.upper().replace("-", "_")
        made._value_ = label
        made = _FURTHER.setdefault(label, made)  # of two threads' the first
    device = _FURTHER[label]
    _DISPLAY[device] = row.display or label
    # Behind RLX's, but where "auto" may take it before the CPU, which is its last.
    _RANK[device] = len(PRIORITY) + (1 if row.is_named_only() else -1.5)
    return device


def further_devices() -> tuple[Device, ...]:
    """The devices that RLX has no name for: of ours, then of other packages."""
    found = map(_further, from_above("further_labels")())
    return tuple(device for device in found if device is not None)


def rank(device: Device) -> float:
    """Its place in RLX's priority, the fastest kind first."""
    return _RANK[device]


DeviceLike = Device | str
Adapters = Mapping[DeviceLike, str] | Mapping[Device, str] | Mapping[str, str]
"""Part of an adapter's name by device, where a machine has several."""


def adapter_name(value: object) -> str:
    """Part of an adapter's name, or "". Errors  UsageError for what is no text."""
    if isinstance(value, str):
        return value
    raise UsageError(
        "adapter",
        f"it is {shown(value)}",
        "part of an adapter's name is wanted, as text",
        "`rlxweb devices` lists the names",
    )


def adapters_of(given: object) -> dict[Device, str]:
    """Parts of adapters' names by Device, whatever name it had; none for None.

    Errors   UnknownDevice; UsageError for what is no dict of texts.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        hint = "pass {'vulkan': 'part of its name'}"
        raise UsageError("adapters", f"they are {shown(given)}", "a dict", hint)
    return {parse_device(d): adapter_name(name) for d, name in given.items()}


def is_open(device: object) -> bool:
    """Is it the word that leaves the device open?"""
    return isinstance(device, str) and device.strip().lower() == "auto"


def unless_open(device: T) -> T | None:
    """The device that is asked for; None where that word stands for it."""
    return None if is_open(device) else device


def parse_device(name: DeviceLike) -> Device:
    """A Device, its label or an alias, case and outer space ignored.

    Errors   UnknownDevice.
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise UnknownDevice(
            "device", f"expected a name or a Device, got {type(name).__name__}"
        )
    text = name.strip().lower()
    found = _BY_NAME.get(text)
    if found is not None:
        return found
    if not text:
        raise UnknownDevice("device", "empty device name")
    if is_open(name):
        raise UnknownDevice(
            "device",
            f"'{name}' leaves the device open and names none",
            "one device is wanted here",
            "name it; in a list of devices, leave the word out",
        )
    found = _further(text)
    if found is None:
        names = [*_BY_NAME, *from_above("further_labels")()]
        raise UnknownDevice(
            "device",
            f"unknown device '{name}' (try: cpu, metal, mlx, cuda, rocm, gpu, vulkan, "
            "tpu)",
            hint=did_you_mean(text, names, 1),
        )
    return found


def fastest_among(devices: Iterable[DeviceLike] | str) -> Device:
    """The first of them in RLX's priority order; the CPU where there is none.

    Errors   UnknownDevice.
    """
    return min(devices_named(devices), key=rank, default=Device.CPU)


def devices_named(devices: DeviceLike | Iterable[DeviceLike]) -> tuple[Device, ...]:
    """A list of devices; a text is one name or several, and never its letters."""
    if isinstance(devices, str):
        return parse_device_list(devices)
    return tuple(parse_device(d) for d in _each(devices))


def _each(devices: Iterable[DeviceLike]) -> tuple[DeviceLike, ...]:
    try:
        return tuple(devices)
    except TypeError as error:
        given = type(devices).__name__
        raise UnknownDevice(
            "device list", f"expected names or Devices, got {given}"
        ) from error


def parse_device_list(text: str | Sequence[DeviceLike]) -> tuple[Device, ...]:
    """Names separated by comma, semicolon or space; first occurrences are kept.

    Errors   UnknownDevice, also for an empty list and for what is none.
    """
    if isinstance(text, str):
        names: Iterable[DeviceLike] = filter(None, re.split(r"[,;\s]+", text.strip()))
    else:
        names = (n for n in _each(text) if not (isinstance(n, str) and n == ""))
    found = tuple(dict.fromkeys(map(parse_device, names)))
    if not found:
        raise UnknownDevice("device list", "device list is empty")
    return found
