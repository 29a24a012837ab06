"""Detection of libraries and their drivers without loading the libraries.

Each answers with what is missing, in words, or "". Whether it works shows when it is
opened; what is found here is only worth the try.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from glob import glob
from importlib.machinery import PathFinder
from importlib.util import find_spec

from rlxweb.core.required_library_versions import installed_version
from rlxweb.engines.registry_row import AbsenceCheck

TPU_DEVICE_FILES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")


def is_importable(module: str) -> bool:
    """Return True if the module can be found; its package is not imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # one that was put into sys.modules by hand
        return module in sys.modules


def installation_check(module: str, library: str) -> AbsenceCheck:
    """Return a check that tells if the library is missing."""
    return lambda: "" if is_importable(module) else f"{library} is not installed"


def torch_build_check(kind: str) -> AbsenceCheck:
    """Return a check that PyTorch is installed and may have been built for "cuda",
    "rocm" or "mps".

    Its version says what it was built for ("2.9.0+cpu", "2.9.0+cu130"), or nothing.
    """

    def absence_reason() -> str:
        if not is_importable("torch"):
            return "PyTorch is not installed"
        build = torch_version()
        build_tag = build.partition("+")[2]
        if not build_tag or build_tag.startswith(_TORCH_BUILD_TAGS[kind]):
            return ""
        return f"PyTorch {build} is built without {_TORCH_BUILD_NAMES[kind]}"

    return absence_reason


_TORCH_BUILD_TAGS = {"cuda": "cu", "rocm": "rocm", "mps": "mps"}
_TORCH_BUILD_NAMES = {"cuda": "CUDA", "rocm": "ROCm", "mps": "Metal"}


def torch_version() -> str:
    """Version of the PyTorch that would be imported; "" if it cannot be told."""
    spec = find_spec("torch")
    return _cached_version("torch", spec.origin if spec else None)


@cache
def _cached_version(name: str, origin: str | None) -> str:
    """Version of an installed package, read once per location of its module."""
    return installed_version(name)


def _is_platform(system: str) -> bool:
    """Return True if this is that value of `sys.platform`."""
    return sys.platform == system


def nvidia_driver_absence() -> str:
    """Reason why NVIDIA's driver library cannot be used; "" if it is present."""
    name = "nvcuda.dll" if _is_platform("win32") else "libcuda.so.1"
    if _is_platform("darwin"):
        return "macOS has no CUDA"
    return "" if _can_load_library(name) else f"no NVIDIA driver ({name} not found)"


def amd_driver_absence() -> str:
    """Reason why AMD's compute driver cannot be used; "" if it is present and
    permitted.
    """
    if _is_platform("darwin"):
        return "macOS has no ROCm"
    if _is_platform("win32"):
        is_loadable = _can_load_library("amdhip64.dll") or _can_load_library(
            "amdhip64_6.dll"
        )
        return "" if is_loadable else "no AMD driver (amdhip64.dll not found)"
    if not _path_exists("/dev/kfd"):
        return "no AMD driver (/dev/kfd not found)"
    if not os.access("/dev/kfd", os.R_OK | os.W_OK):
        return "no permission to use /dev/kfd (add your user to the group 'render')"
    return ""


def _path_exists(pattern: str) -> bool:
    """Return True if a file matches the pattern."""
    return bool(glob(pattern))


def _can_load_library(name: str) -> bool:
    """Return True if the system's loader finds a driver's library; nothing in it is
    called.
    """
    import ctypes  # not loaded by a job on the CPU

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def tpu_absence() -> str:
    """Reason why no TPU can be used; "" if there is a device file of one."""
    if any(map(_path_exists, TPU_DEVICE_FILES)):
        return ""
    return f"no TPU ({' or '.join(TPU_DEVICE_FILES)} not found)"


def apple_silicon_absence() -> str:
    """Reason why this is no Mac whose GPU Metal's libraries use; "" if it is one."""
    if not _is_platform("darwin"):
        return f"needs macOS; this is {sys.platform}"
    machine = platform.machine()
    return "" if machine == "arm64" else f"needs Apple silicon; this is {machine}"


def mlx_absence() -> str:
    """Reason why MLX cannot be used; "" if it is installed. A folder named `mlx` alone
    does not count: MLX is a namespace package.
    """
    return "" if _mlx_core_path() else "MLX is not installed"


def _mlx_core_path() -> str:
    """Path of MLX's native module; "" if there is none."""
    try:
        spec = find_spec("mlx")
    except (ImportError, ValueError):
        return ""
    locations = None if spec is None else spec.submodule_search_locations
    core = PathFinder.find_spec("mlx.core", list(locations)) if locations else None
    return (core and core.origin) or ""


def mlx_uses_cpu() -> bool:
    """Return True if MLX would compute on the CPU here."""
    if _is_platform("darwin"):
        return False
    core_path = _mlx_core_path()
    if not core_path or nvidia_driver_absence():
        return True
    return not any(
        _cached_version(f"mlx-cuda{x}", core_path) for x in ("", "-12", "-13")
    )
