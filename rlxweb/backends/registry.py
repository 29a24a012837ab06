"""Device label → how its engine is opened. A new engine is one module and one row.

What an engine is made of is imported when it is opened, so that a job on the CPU loads
no shader and no GPU library.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlxweb.backends.protocol import Backend

if TYPE_CHECKING:
    from rlxweb.gpu.port import BackendType

Open = Callable[[str], Awaitable[Backend]]


@dataclass(frozen=True, slots=True)
class Row:
    """How to open one device; `platforms` empty means everywhere.

    open   part of an adapter's name, or "" → the engine. Errors  AdapterMissing
    """

    open: Open
    platforms: tuple[str, ...] = ()


async def _cpu(adapter: str) -> Backend:
    from rlxweb.backends.cpu import CpuBackend

    return CpuBackend()


async def _browser(adapter: str) -> Backend:
    from rlxweb.backends.webgpu import WebGpuBackend
    from rlxweb.gpu.browser import BrowserPort
    from rlxweb.gpu.port import Want

    port = BrowserPort()
    await port.open(Want(name=adapter))
    return WebGpuBackend(port)


def _native(*backends: BackendType) -> Open:
    async def open_backend(adapter: str) -> Backend:
        from rlxweb.backends.webgpu import WebGpuBackend
        from rlxweb.gpu.native import NativePort
        from rlxweb.gpu.port import Want

        port = NativePort()
        await port.open(Want(backends=backends, name=adapter))
        return WebGpuBackend(port)

    return open_backend


ROWS: dict[str, Row] = {
    "cpu": Row(_cpu),
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
    return "webgpu" if label == "gpu" and sys.platform == "emscripten" else label


def blocker(label: str) -> str:
    """Why this device cannot even be tried here; "" when it can."""
    row = ROWS.get(label)
    if row is None:
        return "rlxweb has no backend for it yet"
    if row.platforms and sys.platform not in row.platforms:
        only = " or ".join(_PLATFORMS.get(p, f"on {p}") for p in row.platforms)
        return f"only {only}; this is {sys.platform}"
    if sys.platform == "emscripten" and label not in ("cpu", "gpu", "webgpu"):
        return "a browser tab has WebGPU and no other GPU interface; use 'webgpu'"
    return ""
