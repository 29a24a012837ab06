"""Registry of engines: device label → function that opens the engine. A new engine is
one module and one row.

What an engine is made of is imported when it is opened, so that a job on the CPU loads
no shader and no GPU library. Engines that other packages add are asked for where ours
do not have the label.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import invalidate_caches
from typing import TYPE_CHECKING, Final

from rlxweb.core.device import Device
from rlxweb.core.errors import AdapterMissing
from rlxweb.engines import library_detection
from rlxweb.engines.library_detection import installation_check, torch_build_check
from rlxweb.engines.plugin_entry_points import (
    InstalledEngines,
    clear_cache,
    installed_engines,
)
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry_row import (
    AbsenceCheck,
    EngineLibrary,
    OpenEngine,
    Row,
    array_library,
    row_from_libraries,
)

if TYPE_CHECKING:
    from rlxweb.gpu.port_protocol import BackendType
    from rlxweb.gpu.wgpu_libraries import WgpuLibrary


async def _open_cpu(adapter: str) -> Engine:
    """Open the CPU engine."""
    from rlxweb.engines.cpu import CpuEngine

    return CpuEngine()


async def _open_browser_gpu(adapter: str) -> Engine:
    """Open the browser's WebGPU engine."""
    from rlxweb.engines.webgpu.engine import WebGpuEngine
    from rlxweb.gpu.browser_port import BrowserPort
    from rlxweb.gpu.port_protocol import AdapterRequest

    port = BrowserPort()
    await port.open(AdapterRequest(name=adapter))
    return WebGpuEngine(port)


def _native_gpu_opener(
    *backends: BackendType, library: WgpuLibrary = "wgpu"
) -> OpenEngine:
    """Return a function that opens a native WebGPU library on one of these GPU
    interfaces.
    """

    async def open_engine(adapter: str) -> Engine:
        from rlxweb.engines.webgpu.engine import WebGpuEngine
        from rlxweb.gpu.port_protocol import AdapterRequest
        from rlxweb.gpu.wgpu_port import WgpuPort

        port = WgpuPort(library=library)
        await port.open(AdapterRequest(backends=backends, name=adapter))
        return WebGpuEngine(port)

    return open_engine


def _cupy_library(kind: str) -> EngineLibrary:
    """Return CuPy as a library that serves a kind of device."""
    return array_library("CuPy", "cupy", kind, installation_check("cupy", "CuPy"))


def _torch_library(kind: str, absence_check: AbsenceCheck) -> EngineLibrary:
    """Return PyTorch as a library that serves a kind of device."""
    return array_library("PyTorch", "torch", kind, absence_check)


def _jax_library(kind: str) -> EngineLibrary:
    """Return JAX as a library that serves a kind of device."""
    return array_library("JAX", "jax", kind, installation_check("jax", "JAX"))


def _mlx_library(kind: str, absence_check: AbsenceCheck) -> EngineLibrary:
    """Return MLX as a library that serves a kind of device."""
    return array_library("MLX", "mlx", kind, absence_check)


def _torch_mps_absence() -> str:
    """Reason why PyTorch's Metal engine cannot be tried; "" if it can."""
    platform_reason = library_detection.apple_silicon_absence()
    reason = platform_reason and f"PyTorch's Metal engine {platform_reason}"
    return reason or torch_build_check("mps")()


def _mlx_metal_absence() -> str:
    """Reason why MLX cannot use an Apple GPU; "" if it can be tried."""
    return library_detection.apple_silicon_absence() or library_detection.mlx_absence()


def _mlx_gpu_absence() -> str:
    """Reason why MLX cannot use a GPU; "" if it can be tried."""
    return library_detection.mlx_absence() or (
        "MLX finds no GPU on this machine" if library_detection.mlx_uses_cpu() else ""
    )


_CUDA_LIBRARIES = (
    _cupy_library("cuda"),
    _torch_library("cuda", torch_build_check("cuda")),
)
_ROCM_LIBRARIES = _cupy_library("hip"), _torch_library("hip", torch_build_check("rocm"))
_TORCH_MPS_LIBRARY = _torch_library("mps", _torch_mps_absence)
_MLX_LIBRARIES = (
    _mlx_library("gpu", _mlx_gpu_absence),
    _TORCH_MPS_LIBRARY,
    _mlx_library("cpu", library_detection.mlx_absence),
)
_WGPU_METAL_LIBRARY = EngineLibrary(
    "wgpu",
    installation_check("wgpu", "wgpu"),
    _native_gpu_opener("metal"),
    has_self_test=True,
)
_METAL_LIBRARIES = (
    _mlx_library("gpu", _mlx_metal_absence),
    _TORCH_MPS_LIBRARY,
    _WGPU_METAL_LIBRARY,
)
_TORCH_CPU_LIBRARY = _torch_library("cpu", installation_check("torch", "PyTorch"))
_JAX_TPU_LIBRARY, _JAX_CPU_LIBRARY = _jax_library("tpu"), _jax_library("cpu")
_DAWN_LIBRARY = EngineLibrary(
    "Dawn",
    installation_check("wgpudawn", "Dawn"),
    _native_gpu_opener(library="wgpudawn"),
    has_self_test=True,
    distribution="wgpudawn",
)


def _ane_absence() -> str:
    """Reason why Apple's Neural Engine cannot be used."""
    return (
        "only Core ML can use the Neural Engine, and Core ML does not report what ran "
        "there; use 'metal' or 'mlx' for the GPU"
    )


async def _open_ane(adapter: str) -> Engine:
    """Raise AdapterMissing: Apple's Neural Engine cannot be opened."""
    raise AdapterMissing("open device 'ane'", _ane_absence())


ROWS: dict[str, Row] = {
    "cpu": Row(_open_cpu),
    "gpu": Row(_native_gpu_opener()),
    "vulkan": Row(_native_gpu_opener("vulkan")),
    "opengl": Row(_native_gpu_opener("opengl")),
    "directx": Row(_native_gpu_opener("directx"), ("win32",)),
    "metal": row_from_libraries("metal", *_METAL_LIBRARIES, platforms=("darwin",)),
    "webgpu": Row(_open_browser_gpu, ("emscripten",)),
    "cuda": row_from_libraries(
        "cuda",
        *_CUDA_LIBRARIES,
        requirement=library_detection.nvidia_driver_absence,
        hint="needs an NVIDIA GPU with its driver, and CuPy: pip install "
        "'rlxweb[cuda]' (CUDA 12) or 'rlxweb[cuda13]'; device 'gpu' works with any "
        "GPU",
    ),
    "rocm": row_from_libraries(
        "rocm",
        *_ROCM_LIBRARIES,
        requirement=library_detection.amd_driver_absence,
        hint="needs an AMD GPU with its driver, and CuPy: pip install 'rlxweb[rocm]', "
        "or PyTorch built for ROCm; device 'gpu' works with any GPU",
    ),
    "mlx": row_from_libraries(
        "mlx",
        *_MLX_LIBRARIES,
        named_only=library_detection.mlx_uses_cpu,
        hint="pip install 'rlxweb[mlx]'; without a GPU, MLX runs on the CPU",
    ),
    "tpu": row_from_libraries(
        "tpu",
        _JAX_TPU_LIBRARY,
        requirement=library_detection.tpu_absence,
        hint="on a machine with a TPU: pip install 'rlxweb[tpu]'",
    ),
    "ane": Row(_open_ane, present=_ane_absence),
    "torch-cpu": row_from_libraries(
        "torch-cpu",
        _TORCH_CPU_LIBRARY,
        display="PyTorch (CPU)",
        named_only=True,
        hint="pip install 'rlxweb[torch]'",
    ),
    "jax-cpu": row_from_libraries(
        "jax-cpu",
        _JAX_CPU_LIBRARY,
        display="JAX (CPU)",
        named_only=True,
        hint="pip install 'rlxweb[jax]'",
    ),
    "dawn": row_from_libraries(
        "dawn",
        _DAWN_LIBRARY,
        display="WebGPU (Dawn)",
        named_only=True,
        hint="pip install 'rlxweb[dawn]'; supports the same GPUs as wgpu, with "
        "another shader compiler",
    ),
}

_DESKTOP_ROWS = {n: row for n, row in ROWS.items() if n not in ("cpu", "gpu", "webgpu")}
"""Own rows that need a library or an interface which no browser tab has."""

_PLATFORM_PHRASES = {
    "emscripten": "in a browser tab",
    "win32": "on Windows",
    "darwin": "on macOS",
}


def _declared_engines() -> InstalledEngines:
    """Return the engines that other packages declare."""
    return installed_engines(ROWS)


def find_row(label: str) -> Row | None:
    """Return the row of a label: our own, else another package's; None if there is no
    engine for it.
    """
    return ROWS.get(label) or _declared_engines().find_row(label)


def extra_labels() -> tuple[str, ...]:
    """Labels of all engines that RLX has no name for: our own, then other packages'."""
    known = {d.label for d in Device}
    own_labels = [label for label in ROWS if label not in known]
    return (*own_labels, *sorted(_declared_engines().entry_points))


def engine_labels() -> tuple[str, ...]:
    """Labels of all devices that have an engine, our own and other packages'."""
    return tuple(dict.fromkeys((*ROWS, *extra_labels())))


NO_ENGINE = "no engine supports this device"


def absence_reason(label: str) -> str:
    """Reason why this device cannot even be tried here; "" if it can. Imports no
    library.
    """
    row = find_row(label)
    if row is None:
        return NO_ENGINE
    if row.platforms and sys.platform not in row.platforms:
        platform_names = " or ".join(
            _PLATFORM_PHRASES.get(p, f"on {p}") for p in row.platforms
        )
        return f"available only {platform_names}; this is {sys.platform}"
    if sys.platform == "emscripten" and row is _DESKTOP_ROWS.get(label):
        return "a browser tab has WebGPU and no other GPU interface; use 'webgpu'"
    return _cached_absence_reason(row)


def is_named_only(label: str) -> bool:
    """Return True if "auto" leaves the device alone unless somebody names it."""
    row = find_row(label)
    return row is not None and _cached_is_named_only(row)


@cache
def _cached_absence_reason(row: Row) -> str:
    """Return the row's absence reason, computed once."""
    return row.absence_reason()


@cache
def _cached_is_named_only(row: Row) -> bool:
    """Return the row's `is_named_only()`, computed once."""
    return row.is_named_only()


def clear_detection_caches() -> None:
    """Forget which libraries, drivers and packages were found: some may be new."""
    _cached_absence_reason.cache_clear()
    _cached_is_named_only.cache_clear()
    clear_cache()
    invalidate_caches()


def providing_package(label: str) -> str:
    """Package that adds an engine, and its version; "" for our own."""
    engine = _declared_engines().entry_points.get(label)
    return "" if engine is None else engine.package


def refused_entry_points() -> tuple[str, ...]:
    """Engines of other packages that were refused, with the reasons."""
    return _declared_engines().rejections


def installed_library(label: str) -> str:
    """Name and version of the library that would serve a device; "" if unknown."""
    row = find_row(label)
    return "" if row is None else row.installed_library()


DEFAULT_HINT: Final = "see `rlxweb devices`"
"""Advice if nothing better is known; `rlxweb devices` itself does not use it."""


def row_hint(label: str) -> str:
    """Return the advice for a missing device; "" where nothing helps."""
    row = find_row(label)
    return row.hint if row else ""


def hint_or_default(label: str) -> str:
    """Return the advice for a missing device, or else the command that lists all
    devices.
    """
    return row_hint(label) or DEFAULT_HINT
