"""Device label → how its backend is opened. A new backend is one module and one row."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.browser import BrowserPort
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import BackendType, Want


@dataclass(frozen=True, slots=True)
class Row:
    """How to open one device; `platforms` empty means everywhere.

    open   adapter's name → the backend, or an awaitable of it
    """

    open: Callable[[str], Any]
    platforms: tuple[str, ...] = ()


async def _browser(adapter: str) -> WebGpuBackend:
    port = BrowserPort()
    await port.open(Want(name=adapter))
    return WebGpuBackend(port)


def _in_a_tab() -> bool:
    return sys.platform == "emscripten"


def _native(*backends: BackendType) -> Callable[[str], Awaitable[WebGpuBackend]]:
    async def open_backend(adapter: str) -> WebGpuBackend:
        port = NativePort()
        await port.open(Want(backends=backends, name=adapter))
        return WebGpuBackend(port)

    return open_backend


ROWS: dict[str, Row] = {
    "cpu": Row(lambda adapter: CpuBackend()),
    "gpu": Row(_native()),
    "vulkan": Row(_native("vulkan")),
    "opengl": Row(_native("opengl")),
    "directx": Row(_native("directx"), ("win32",)),
    "metal": Row(_native("metal"), ("darwin",)),
    "webgpu": Row(_browser, ("emscripten",)),
}

_PLATFORMS = {
    "emscripten": "in a browser tab",
    "win32": "on Windows",
    "darwin": "on macOS",
}


def opened_as(label: str) -> str:
    """The label a device is kept under: a tab has one GPU, whatever it is called."""
    return "webgpu" if label == "gpu" and _in_a_tab() else label


def blocker(label: str) -> str:
    """Why this device cannot even be tried here; "" when it can."""
    row = ROWS.get(label)
    if row is None:
        return "rlxweb has no backend for it yet"
    if row.platforms and sys.platform not in row.platforms:
        only = " or ".join(_PLATFORMS.get(p, f"on {p}") for p in row.platforms)
        return f"only {only}; this is {sys.platform}"
    if _in_a_tab() and label not in ("cpu", "gpu", "webgpu"):
        return "a browser tab has WebGPU and no other GPU interface; use 'webgpu'"
    return ""
