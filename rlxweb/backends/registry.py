"""Device label → how its backend is opened. A new backend is one module and one row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import BackendType, Want


@dataclass(frozen=True, slots=True)
class Row:
    """How to open one device; `platforms` empty means everywhere."""

    open: Callable[[str], Any]
    platforms: tuple[str, ...] = ()


def _native(*backends: BackendType) -> Callable[[str], WebGpuBackend]:
    def open_backend(adapter: str) -> WebGpuBackend:
        port = NativePort()
        drive(port.open(Want(backends=backends, name=adapter)))
        return WebGpuBackend(port)

    return open_backend


ROWS: dict[str, Row] = {
    "cpu": Row(lambda adapter: CpuBackend()),
    "gpu": Row(_native()),
    "vulkan": Row(_native("vulkan")),
    "opengl": Row(_native("opengl")),
    "directx": Row(_native("directx"), ("win32",)),
    "metal": Row(_native("metal"), ("darwin",)),
}


def blocker(label: str) -> str:
    """Why this device cannot even be tried here; "" when it can."""
    row = ROWS.get(label)
    if row is None:
        return "rlxweb has no backend for it yet"
    if row.platforms and sys.platform not in row.platforms:
        return f"only on {', '.join(row.platforms)}; this is {sys.platform}"
    if sys.platform == "emscripten" and label != "cpu":
        return "wgpu-py does not run in a browser; use 'webgpu'"
    return ""
