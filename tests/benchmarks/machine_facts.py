"""Facts of the machine that ran a benchmark: processor, versions and adapters."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlxweb.core.errors import AdapterMissing
from rlxweb.gpu.port_protocol import DeviceFacts
from rlxweb.gpu.wgpu_libraries import list_adapters

LIBRARIES = ("rlxweb", "numpy", "scipy", "wgpu")


def collect_facts(libraries: Sequence[str] = LIBRARIES) -> dict[str, Any]:
    """Return everything a reader needs to judge a number, and nothing that identifies a
    machine.
    """
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2)
        if hasattr(os, "getloadavg")
        else None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in libraries},
        "adapters": [
            {"name": adapter.name, "backend": adapter.backend, "driver": adapter.driver}
            for adapter in _adapters()
        ],
    }


def find_lavapipe() -> DeviceFacts | None:
    """Return the software Vulkan adapter that the peers' page measured, if it is
    here.
    """
    matches = [
        adapter
        for adapter in _adapters()
        if adapter.backend == "vulkan" and "llvmpipe" in adapter.name
    ]
    return matches[0] if matches else None


def find_gpu() -> DeviceFacts | None:
    """Return the first Vulkan adapter that is not software, if there is one."""
    matches = [
        adapter
        for adapter in _adapters()
        if adapter.backend == "vulkan" and not adapter.software
    ]
    return matches[0] if matches else None


def _adapters() -> tuple[DeviceFacts, ...]:
    try:
        return list_adapters()
    except AdapterMissing:
        return ()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return models[0] if models else platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
