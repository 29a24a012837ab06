"""Facts of the machine for `./dev bench kernels`: engines with limits and memory, GPU
and driver, installed libraries, and why a device is missing.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from rlxweb.cli.bench_engines import gpu_roofline
from rlxweb.core.errors import RlxError
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import absence_reason
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.select.device_and_adapter import DevicePlace
from tests.benchmarks.kernel_contenders import PEER_TITLES, peer_library

GPU_LABELS = ("vulkan", "metal", "directx", "opengl", "cuda", "rocm", "tpu")
"""Devices whose absence is explained."""
_NVIDIA_FIELDS = (
    "name,driver_version,memory.total,memory.free,clocks.max.sm,clocks.max.memory"
)
_NVIDIA_FIELDS += ",pcie.link.gen.max,pcie.link.width.max"


def engine_facts(place: DevicePlace) -> dict[str, Any]:
    """Return one engine's identity, capabilities and limits."""
    engine = pool.engine(place.device.label, place.adapter)
    identity = engine.identity
    memory, arithmetic = gpu_roofline(identity.adapter)
    facts = {
        "place": place.label,
        "adapter": identity.adapter,
        "api": identity.api,
        "driver": identity.driver,
        "vendor": identity.vendor,
        "software": identity.software,
        "memory_gb_s": finite_or_none(memory),
        "f32_tflop_s": finite_or_none(arithmetic),
    }
    if isinstance(engine, WebGpuEngine):
        facts["limits"] = asdict(engine.limits)
        facts["features"] = sorted(engine.facts.features)
    return facts


def missing_devices(places: Sequence[DevicePlace]) -> dict[str, str]:
    """Return the devices that are not timed, with the reasons."""
    timed_labels = {place.device.label for place in places}
    reasons = {
        label: _absence_reason(label)
        for label in GPU_LABELS
        if label not in timed_labels
    }
    return {label: why for label, why in reasons.items() if why}


def _absence_reason(label: str) -> str:
    reason = absence_reason(label)
    if reason:
        return reason
    try:
        identity = pool.engine(label).identity
    except RlxError as error:
        return str(error)
    return f"{identity.name} computes on the CPU" if identity.software else ""


def peer_versions() -> dict[str, str]:
    """Return the libraries of handwritten work: their version, or why they take no
    part.
    """
    versions = {}
    for name, title in PEER_TITLES.items():
        try:
            versions[title] = str(peer_library(name).__version__)
        except RlxError as error:
            versions[title] = f"none: {error.problem}"
    return versions


def nvidia_gpus() -> list[str]:
    """Return a line for each GPU from nvidia-smi; [] where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    with suppress(OSError, subprocess.SubprocessError):
        command = [tool, f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv,noheader"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return [line.strip() for line in completed.stdout.splitlines() if line.strip()]
    return []


# --- memory, as Vulkan tells it -------------------------------------------------------

_MEMORY_FLAGS = ("device local", "host visible", "coherent", "cached")
_MAX_ADAPTERS = 16
_NAME_OFFSET, _PROPERTIES_NBYTES = 20, 4096
"""Where a name lies in VkPhysicalDeviceProperties, and room for all of it."""


class _VulkanHeap(ctypes.Structure):
    _fields_ = (("nbytes", ctypes.c_uint64), ("flags", ctypes.c_uint32))


class _VulkanMemoryType(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint32), ("heap", ctypes.c_uint32))


class _VulkanMemoryProperties(ctypes.Structure):
    _fields_ = (
        ("types", ctypes.c_uint32),
        ("type", _VulkanMemoryType * 32),
        ("heaps", ctypes.c_uint32),
        ("heap", _VulkanHeap * 16),
    )


class _VulkanInstanceInfo(ctypes.Structure):
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
    """Return Vulkan's memory types by adapter: "80.0 GiB, device local, host visible".

    Whether a part of a GPU's memory can be written by the host, which wgpu does not
    tell. {} where there is no loader.
    """
    for name in ("libvulkan.so.1", "libvulkan.so", "vulkan-1.dll"):
        with suppress(OSError):
            return dict(_query_memory_types(ctypes.CDLL(name)))
    return {}


def _query_memory_types(vulkan: Any) -> Iterator[tuple[str, list[str]]]:
    """Call vkGetPhysicalDeviceMemoryProperties (Vulkan 1.0) for every adapter."""
    instance = ctypes.c_void_p()
    create_info = _VulkanInstanceInfo(kind=1)  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
    if vulkan.vkCreateInstance(ctypes.byref(create_info), None, ctypes.byref(instance)):
        return
    count = ctypes.c_uint32(_MAX_ADAPTERS)
    handles = (ctypes.c_void_p * _MAX_ADAPTERS)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    for handle in handles[: count.value]:
        device = ctypes.c_void_p(handle)
        properties = ctypes.create_string_buffer(_PROPERTIES_NBYTES)
        vulkan.vkGetPhysicalDeviceProperties(device, properties)
        name = ctypes.string_at(ctypes.addressof(properties) + _NAME_OFFSET)
        memory = _VulkanMemoryProperties()
        vulkan.vkGetPhysicalDeviceMemoryProperties(device, ctypes.byref(memory))
        yield name.decode("utf-8", "replace"), _describe_types(memory)
    vulkan.vkDestroyInstance(instance, None)


def _describe_types(memory: _VulkanMemoryProperties) -> list[str]:
    descriptions = []
    for memory_type in memory.type[: memory.types]:
        flag_names = [
            flag_name
            for bit, flag_name in enumerate(_MEMORY_FLAGS)
            if memory_type.flags >> bit & 1
        ]
        size = f"{memory.heap[memory_type.heap].nbytes / (1 << 30):.1f} GiB"
        descriptions.append(", ".join([size, *flag_names]))
    return list(dict.fromkeys(descriptions))
