"""Device names of RLX: enum, labels, display names, aliases, parsing.

Knows names only; what is really there is asked in `select/availability.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from rlxweb.core.errors import UnknownDevice, UsageError, did_you_mean, shown
from rlxweb.core.lazy_names import load_provider

T = TypeVar("T")


class Device(StrEnum):
    """Kind of engine, in RLX's order; the value is its label.

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
        """Return the Device of a label that RLX does not define, if an engine has
        it.
        """
        return _extension_device(value) if isinstance(value, str) else None

    def __reduce_ex__(self, protocol: object) -> tuple[type[Device], tuple[str]]:
        return Device, (self.value,)  # the others cannot be found by attribute

    @property
    def label(self) -> str:
        """The label, such as "cpu"."""
        return self.value

    @property
    def display(self) -> str:
        """Name used in messages."""
        return _DISPLAY_NAMES.get(self, self.value.upper())

    def __str__(self) -> str:
        return self.display

    def __format__(self, spec: str) -> str:
        return format(self.display, spec)  # not the label, on every Python


# The others are abbreviations.
_DISPLAY_NAMES = {
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
RLX_PRIORITY = (
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

_EXTENSION_DEVICES: dict[str, Device] = {}
_RANKS: dict[Device, float] = {device: at for at, device in enumerate(RLX_PRIORITY)}


def _extension_device(label: str) -> Device | None:
    """Return the one Device of a label that RLX does not define; None if no engine has
    it.
    """
    row = load_provider("find_row")(label)
    if row is None:
        return None
    if label not in _EXTENSION_DEVICES:
        new_device = str.__new__(Device, label)
        new_device._name_ = label.upper().replace("-", "_")
        new_device._value_ = label
        new_device = _EXTENSION_DEVICES.setdefault(
            label, new_device
        )  # of two threads' the first
    device = _EXTENSION_DEVICES[label]
    _DISPLAY_NAMES[device] = row.display or label
    # Behind RLX's, but where "auto" may take it before the CPU, which is its last.
    _RANKS[device] = len(RLX_PRIORITY) + (1 if row.is_named_only() else -1.5)
    return device


def extension_devices() -> tuple[Device, ...]:
    """Return the devices that RLX does not define: rlxweb's own, then those of other
    packages.
    """
    devices = map(_extension_device, load_provider("extra_labels")())
    return tuple(device for device in devices if device is not None)


def device_rank(device: Device) -> float:
    """Return the device's rank in RLX's priority order, fastest kind first."""
    return _RANKS[device]


DeviceLike = Device | str
Adapters = Mapping[DeviceLike, str] | Mapping[Device, str] | Mapping[str, str]
"""Parts of adapter names by device, for machines with several adapters."""


def check_adapter_name(value: object) -> str:
    """Return a part of an adapter's name, or "". Raise UsageError if it is not text."""
    if isinstance(value, str):
        return value
    raise UsageError(
        "adapter",
        f"got {shown(value)}",
        "expected part of an adapter's name, as str",
        "run `rlxweb devices` to list the names",
    )


def parse_adapters(adapters: object) -> dict[Device, str]:
    """Return parts of adapter names keyed by Device; empty for None.

    Errors   UnknownDevice; UsageError for what is no dict of texts.
    """
    if adapters is None:
        return {}
    if not isinstance(adapters, Mapping):
        hint = "pass {'vulkan': 'part of the adapter name'}"
        raise UsageError("adapters", f"got {shown(adapters)}", "expected a dict", hint)
    return {parse_device(d): check_adapter_name(name) for d, name in adapters.items()}


def is_auto(device: object) -> bool:
    """Return whether the name is "auto", which leaves the choice of device open."""
    return isinstance(device, str) and device.strip().lower() == "auto"


def none_if_auto(device: T) -> T | None:
    """Return the requested device, or None for "auto"."""
    return None if is_auto(device) else device


def parse_device(name: DeviceLike) -> Device:
    """Return the Device of a label or alias; case and outer white space are ignored.

    Errors   UnknownDevice.
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise UnknownDevice(
            "device", f"expected a name or a Device, got {type(name).__name__}"
        )
    text = name.strip().lower()
    device = _BY_NAME.get(text)
    if device is not None:
        return device
    if not text:
        raise UnknownDevice("device", "empty device name")
    if is_auto(name):
        raise UnknownDevice(
            "device",
            f"'{name}' is not a specific device",
            "expected the name of one device",
            f"pass a device name; in a list of devices, omit '{name}'",
        )
    device = _extension_device(text)
    if device is None:
        names = [*_BY_NAME, *load_provider("extra_labels")()]
        raise UnknownDevice(
            "device",
            f"unknown device '{name}' (try: cpu, metal, mlx, cuda, rocm, gpu, vulkan, "
            "tpu)",
            hint=did_you_mean(text, names, 1),
        )
    return device


def fastest_among(devices: Iterable[DeviceLike] | str) -> Device:
    """Return the first of the devices in RLX's priority order; the CPU if there are
    none.

    Errors   UnknownDevice.
    """
    return min(parse_devices(devices), key=device_rank, default=Device.CPU)


def parse_devices(devices: DeviceLike | Iterable[DeviceLike]) -> tuple[Device, ...]:
    """Return devices from an iterable of names or from text with one or several
    names.
    """
    if isinstance(devices, str):
        return parse_device_list(devices)
    return tuple(parse_device(d) for d in _device_names(devices))


def _device_names(devices: Iterable[DeviceLike]) -> tuple[DeviceLike, ...]:
    """Return the device names of an iterable. Raise UnknownDevice if it is not
    iterable.
    """
    try:
        return tuple(devices)
    except TypeError as error:
        type_name = type(devices).__name__
        raise UnknownDevice(
            "device list", f"expected names or Devices, got {type_name}"
        ) from error


def parse_device_list(text: str | Sequence[DeviceLike]) -> tuple[Device, ...]:
    """Parse names separated by comma, semicolon or space; duplicates are dropped.

    Errors   UnknownDevice, also for an empty list and for what is none.
    """
    if isinstance(text, str):
        names: Iterable[DeviceLike] = filter(None, re.split(r"[,;\s]+", text.strip()))
    else:
        names = (n for n in _device_names(text) if not (isinstance(n, str) and n == ""))
    devices = tuple(dict.fromkeys(map(parse_device, names)))
    if not devices:
        raise UnknownDevice("device list", "device list is empty")
    return devices
