"""Where the numbers were taken: processor, versions and adapters, for the record."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlxweb.errors import AdapterMissing
from rlxweb.gpu.libraries import adapters
from rlxweb.gpu.port import DeviceFacts

LIBRARIES = ("rlxweb", "numpy", "scipy", "wgpu")


def facts(libraries: Sequence[str] = LIBRARIES) -> dict[str, Any]:
    """Everything a reader needs to judge a number, and nothing that names a machine."""
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
            {"name": one.name, "backend": one.backend, "driver": one.driver}
            for one in _adapters()
        ],
    }


def lavapipe() -> DeviceFacts | None:
    """The software Vulkan adapter that the peers' page measured, if it is here."""
    found = [
        one for one in _adapters() if one.backend == "vulkan" and "llvmpipe" in one.name
    ]
    return found[0] if found else None


def gpu() -> DeviceFacts | None:
    """The first adapter of Vulkan that is no software, if there is one."""
    found = [o for o in _adapters() if o.backend == "vulkan" and not o.software]
    return found[0] if found else None


def _adapters() -> tuple[DeviceFacts, ...]:
    try:
        return adapters()
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
