"""Facts of the machine for `./dev bench kernels`: engines with limits and memory, GPU
and driver, the libraries beside it, and why a device is missing.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.backends.registry import blocker
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.cli.bench_engines import roof_of
from rlxweb.devices.place import Place
from rlxweb.errors import RlxError
from rlxweb.io.writers import finite
from tests.benchmarks.kernel_contenders import BY_HAND, peer_library

GPUS = ("vulkan", "metal", "directx", "opengl", "cuda", "rocm", "tpu")
"""Devices of which it is told why they are not there."""
_ASKED = "name,driver_version,memory.total,memory.free,clocks.max.sm,clocks.max.memory"
_ASKED += ",pcie.link.gen.max,pcie.link.width.max"


def engine(place: Place) -> dict[str, Any]:
    """One engine: what it is, what it can do, what it may be asked for."""
    backend = pool.backend(place.device.label, place.adapter)
    memory, arithmetic = roof_of(backend.adapter)
    found = {
        "place": place.label,
        "adapter": backend.adapter,
        "api": backend.api,
        "driver": backend.driver,
        "vendor": backend.vendor,
        "software": backend.software,
        "memory_gb_s": finite(memory),
        "f32_tflop_s": finite(arithmetic),
    }
    if isinstance(backend, WebGpuBackend):
        found["limits"] = asdict(backend.limits)
        found["features"] = sorted(backend.facts.features)
    return found


def missing(places: Sequence[Place]) -> dict[str, str]:
    """Devices that are not timed, and why not."""
    there = {place.device.label for place in places}
    found = {label: _why_not(label) for label in GPUS if label not in there}
    return {label: why for label, why in found.items() if why}


def _why_not(label: str) -> str:
    why = blocker(label)
    if why:
        return why
    try:
        backend = pool.backend(label)
    except RlxError as error:
        return str(error)
    return f"{backend.name} computes on the CPU" if backend.software else ""


def peers() -> dict[str, str]:
    """The libraries of work by hand: their version, or why they take no part."""
    found = {}
    for name, called in BY_HAND.items():
        try:
            found[called] = str(peer_library(name).__version__)
        except RlxError as error:
            found[called] = f"none: {error.problem}"
    return found


def nvidia() -> list[str]:
    """A line for each GPU as its driver's own tool tells it; [] where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    with suppress(OSError, subprocess.SubprocessError):
        order = [tool, f"--query-gpu={_ASKED}", "--format=csv,noheader"]
        told = subprocess.run(order, capture_output=True, text=True, timeout=20)
        return [line.strip() for line in told.stdout.splitlines() if line.strip()]
    return []


# --- memory, as Vulkan tells it -------------------------------------------------------

_KINDS = ("device local", "host visible", "coherent", "cached")
_MOST = 16
_NAME_AT, _PROPERTIES = 20, 4096
"""Where a name lies in VkPhysicalDeviceProperties, and room for all of it."""


class _Heap(ctypes.Structure):
    _fields_ = (("nbytes", ctypes.c_uint64), ("flags", ctypes.c_uint32))


class _Type(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint32), ("heap", ctypes.c_uint32))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("types", ctypes.c_uint32),
        ("type", _Type * 32),
        ("heaps", ctypes.c_uint32),
        ("heap", _Heap * 16),
    )


class _Create(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layers", ctypes.c_uint32),
        ("layer", ctypes.c_void_p),
        ("extensions", ctypes.c_uint32),
        ("extension", ctypes.c_void_p),
    )


def memory_types() -> dict[str, list[str]]:
    """Vulkan's memory types by adapter: "80.0 GiB, device local, host visible".

    Whether a part of a GPU's memory can be written by the host, which wgpu does not
    tell. {} where there is no loader.
    """
    for name in ("libvulkan.so.1", "libvulkan.so", "vulkan-1.dll"):
        with suppress(OSError):
            return dict(_told_by(ctypes.CDLL(name)))
    return {}


def _told_by(vulkan: Any) -> Iterator[tuple[str, list[str]]]:
    """VkGetPhysicalDeviceMemoryProperties (Vulkan 1.0) of every adapter."""
    instance = ctypes.c_void_p()
    how = _Create(kind=1)  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
    if vulkan.vkCreateInstance(ctypes.byref(how), None, ctypes.byref(instance)):
        return
    count = ctypes.c_uint32(_MOST)
    handles = (ctypes.c_void_p * _MOST)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    for handle in handles[: count.value]:
        one = ctypes.c_void_p(handle)
        told = ctypes.create_string_buffer(_PROPERTIES)
        vulkan.vkGetPhysicalDeviceProperties(one, told)
        name = ctypes.string_at(ctypes.addressof(told) + _NAME_AT)
        memory = _Memory()
        vulkan.vkGetPhysicalDeviceMemoryProperties(one, ctypes.byref(memory))
        yield name.decode("utf-8", "replace"), _types(memory)
    vulkan.vkDestroyInstance(instance, None)


def _types(memory: _Memory) -> list[str]:
    found = []
    for one in memory.type[: memory.types]:
        kinds = [kind for bit, kind in enumerate(_KINDS) if one.flags >> bit & 1]
        size = f"{memory.heap[one.heap].nbytes / (1 << 30):.1f} GiB"
        found.append(", ".join([size, *kinds]))
    return list(dict.fromkeys(found))
