"""Device label → how its engine is opened. A new engine is one module and one row.

What an engine is made of is imported when it is opened, so that a job on the CPU loads
no shader and no GPU library. Engines that other packages add are asked for where ours
do not have the label.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import invalidate_caches
from typing import TYPE_CHECKING, Final

from rlxweb.backends import presence
from rlxweb.backends.entry_points import Declared, declared, forget
from rlxweb.backends.presence import installed, torch_built_for
from rlxweb.backends.protocol import Backend
from rlxweb.backends.row import Open, Row, Way, Why, arrays, by_libraries
from rlxweb.device import Device
from rlxweb.errors import AdapterMissing

if TYPE_CHECKING:
    from rlxweb.gpu.libraries import Library
    from rlxweb.gpu.port import BackendType


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


def _native(*backends: BackendType, library: Library = "wgpu") -> Open:
    async def open_backend(adapter: str) -> Backend:
        from rlxweb.backends.webgpu import WebGpuBackend
        from rlxweb.gpu.native import NativePort
        from rlxweb.gpu.port import Want

        port = NativePort(library=library)
        await port.open(Want(backends=backends, name=adapter))
        return WebGpuBackend(port)

    return open_backend


def _cupy(kind: str) -> Way:
    return arrays("CuPy", "cupy", kind, installed("cupy", "CuPy"))


def _torch(kind: str, here: Why) -> Way:
    return arrays("PyTorch", "torch", kind, here)


def _jax(kind: str) -> Way:
    return arrays("JAX", "jax", kind, installed("jax", "JAX"))


def _mlx(kind: str, here: Why) -> Way:
    return arrays("MLX", "mlx", kind, here)


def _mps_here() -> str:
    elsewhere = presence.apple_silicon()
    said = elsewhere and f"PyTorch's Metal engine {elsewhere}"
    return said or torch_built_for("mps")()


def _mlx_here() -> str:
    return presence.apple_silicon() or presence.mlx()


def _mlx_gpu_here() -> str:
    return presence.mlx() or ("MLX has no GPU here" if presence.mlx_on_cpu() else "")


_CUDA = _cupy("cuda"), _torch("cuda", torch_built_for("cuda"))
_ROCM = _cupy("hip"), _torch("hip", torch_built_for("rocm"))
_MPS = _torch("mps", _mps_here)
_MLX = _mlx("gpu", _mlx_gpu_here), _MPS, _mlx("cpu", presence.mlx)
_WGPU_METAL = Way("wgpu", installed("wgpu", "wgpu"), _native("metal"), proves=True)
_METAL = _mlx("gpu", _mlx_here), _MPS, _WGPU_METAL
_TORCH_CPU = _torch("cpu", installed("torch", "PyTorch"))
_TPU, _JAX_CPU = _jax("tpu"), _jax("cpu")
_DAWN = Way(
    "Dawn",
    installed("wgpudawn", "Dawn"),
    _native(library="wgpudawn"),
    proves=True,
    distribution="wgpudawn",
)


def _no_ane() -> str:
    return (
        "only Core ML reaches the Neural Engine, and nobody is told what ran there; "
        "'metal' and 'mlx' use the GPU beside it"
    )


async def _ane(adapter: str) -> Backend:
    raise AdapterMissing("open device 'ane'", _no_ane())


ROWS: dict[str, Row] = {
    "cpu": Row(_cpu),
    "gpu": Row(_native()),
    "vulkan": Row(_native("vulkan")),
    "opengl": Row(_native("opengl")),
    "directx": Row(_native("directx"), ("win32",)),
    "metal": by_libraries("metal", *_METAL, platforms=("darwin",)),
    "webgpu": Row(_browser, ("emscripten",)),
    "cuda": by_libraries(
        "cuda",
        *_CUDA,
        needs=presence.nvidia_driver,
        hint="it takes an NVIDIA GPU with its driver, and CuPy: pip install "
        "'rlxweb[cuda]' (CUDA 12) or 'rlxweb[cuda13]'; device 'gpu' is any GPU",
    ),
    "rocm": by_libraries(
        "rocm",
        *_ROCM,
        needs=presence.amd_driver,
        hint="it takes an AMD GPU with its driver, and CuPy: pip install "
        "'rlxweb[rocm]', or PyTorch built for ROCm; device 'gpu' is any GPU",
    ),
    "mlx": by_libraries(
        "mlx",
        *_MLX,
        named_only=presence.mlx_on_cpu,
        hint="pip install 'rlxweb[mlx]'; without a GPU MLX computes on the CPU",
    ),
    "tpu": by_libraries(
        "tpu",
        _TPU,
        needs=presence.tpu,
        hint="on a machine with a TPU: pip install 'rlxweb[tpu]'",
    ),
    "ane": Row(_ane, present=_no_ane),
    "torch-cpu": by_libraries(
        "torch-cpu",
        _TORCH_CPU,
        display="PyTorch (CPU)",
        named_only=True,
        hint="pip install 'rlxweb[torch]'",
    ),
    "jax-cpu": by_libraries(
        "jax-cpu",
        _JAX_CPU,
        display="JAX (CPU)",
        named_only=True,
        hint="pip install 'rlxweb[jax]'",
    ),
    "dawn": by_libraries(
        "dawn",
        _DAWN,
        display="WebGPU (Dawn)",
        named_only=True,
        hint="pip install 'rlxweb[dawn]'; it takes the GPUs that wgpu takes, by "
        "another compiler of shaders",
    ),
}

_DESKTOP = {n: row for n, row in ROWS.items() if n not in ("cpu", "gpu", "webgpu")}
"""Ours that need a library or an interface which no tab has."""

_PLATFORMS = {
    "emscripten": "in a browser tab",
    "win32": "on Windows",
    "darwin": "on macOS",
}


def _others() -> Declared:
    """What other packages add."""
    return declared(ROWS)


def row_of(label: str) -> Row | None:
    """Ours, else that of another package; None where nobody has an engine for it."""
    return ROWS.get(label) or _others().row_of(label)


def further_labels() -> tuple[str, ...]:
    """Labels of all engines that RLX has no name for: ours, then other packages'."""
    known = {d.label for d in Device}
    ours = [label for label in ROWS if label not in known]
    return (*ours, *sorted(_others().engines))


def labels() -> tuple[str, ...]:
    """Labels of all devices that have an engine, ours and other packages'."""
    return tuple(dict.fromkeys((*ROWS, *further_labels())))


def opened_as(label: str) -> str:
    """The label a device is kept under: a tab has one GPU, whatever it is called."""
    return "webgpu" if label == "gpu" and sys.platform == "emscripten" else label


NO_BACKEND = "there is no backend for it"


def blocker(label: str, *, looked: bool = False) -> str:
    """Why this device cannot even be tried here; "" when it can. Imports no library.

    looked   its library and driver were found before, and it was opened
    """
    row = row_of(label)
    if row is None:
        return NO_BACKEND
    if row.platforms and sys.platform not in row.platforms:
        only = " or ".join(_PLATFORMS.get(p, f"on {p}") for p in row.platforms)
        return f"only {only}; this is {sys.platform}"
    if sys.platform == "emscripten" and row is _DESKTOP.get(label):
        return "a browser tab has WebGPU and no other GPU interface; use 'webgpu'"
    return "" if looked else _absent(row)


def named_only(label: str) -> bool:
    """Does "auto" leave the device alone unless somebody names it?"""
    row = row_of(label)
    return row is not None and _waits(row)


@cache
def _absent(row: Row) -> str:
    return row.why_absent()


@cache
def _waits(row: Row) -> bool:
    return row.is_named_only()


def look_again() -> None:
    """Forget which libraries, drivers and packages were found: some may be new."""
    _absent.cache_clear()
    _waits.cache_clear()
    forget()
    invalidate_caches()


def package_of(label: str) -> str:
    """The package that adds an engine, and its version; "" for our own."""
    offered = _others().engines.get(label)
    return "" if offered is None else offered.package


def refused_entry_points() -> tuple[str, ...]:
    """Engines of other packages that were not taken, with the reasons."""
    return _others().refused


def found_here(label: str) -> str:
    """What would serve a device, by name and version; "" where nobody can say."""
    row = row_of(label)
    return "" if row is None else row.found()


LISTED: Final = "see `rlxweb devices`"
"""Advice where nothing better is known, but for `rlxweb devices` itself."""


def hint_of(label: str) -> str:
    """Return the advice for a missing device; "" where nothing helps."""
    row = row_of(label)
    return row.hint if row else ""


def how_to_get(label: str) -> str:
    """`hint_of`, or where all devices are listed."""
    return hint_of(label) or LISTED
