"""Whether a library and the driver it needs are here, without loading the library.

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

from rlxweb.backends.row import Why
from rlxweb.library_versions import installed_version

TPU_FILES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")


def importable(module: str) -> bool:
    """Can the module be found? Its package is not imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # one that was put into sys.modules by hand
        return module in sys.modules


def installed(module: str, library: str) -> Why:
    """Is the library installed?"""
    return lambda: "" if importable(module) else f"{library} is not installed"


def torch_built_for(kind: str) -> Why:
    """Is there a PyTorch, and may it have been built for "cuda", "rocm" or "mps"?

    Its version says what it was built for ("2.9.0+cpu", "2.9.0+cu130"), or nothing.
    """

    def why() -> str:
        if not importable("torch"):
            return "PyTorch is not installed"
        build = torch_version()
        made_for = build.partition("+")[2]
        if not made_for or made_for.startswith(_MARKS[kind]):
            return ""
        return f"PyTorch {build} is built without {_WORDS[kind]}"

    return why


_MARKS = {"cuda": "cu", "rocm": "rocm", "mps": "mps"}
_WORDS = {"cuda": "CUDA", "rocm": "ROCm", "mps": "Metal"}


def torch_version() -> str:
    """The version of the PyTorch that would be imported; "" where nothing tells."""
    spec = find_spec("torch")
    return _version_beside("torch", spec.origin if spec else None)


@cache
def _version_beside(name: str, origin: str | None) -> str:
    """Its version, read once for the place its module lies at."""
    return installed_version(name)


def _on(system: str) -> bool:
    return sys.platform == system


def nvidia_driver() -> str:
    """Is NVIDIA's driver library there?"""
    name = "nvcuda.dll" if _on("win32") else "libcuda.so.1"
    if _on("darwin"):
        return "macOS has no CUDA"
    return "" if _loads(name) else f"no NVIDIA driver ({name} is not found)"


def amd_driver() -> str:
    """Is AMD's compute driver there, and may we use it?"""
    if _on("darwin"):
        return "macOS has no ROCm"
    if _on("win32"):
        found = _loads("amdhip64.dll") or _loads("amdhip64_6.dll")
        return "" if found else "no AMD driver (amdhip64.dll is not found)"
    if not _there("/dev/kfd"):
        return "no AMD driver (/dev/kfd is not there)"
    if not os.access("/dev/kfd", os.R_OK | os.W_OK):
        return "no permission to use /dev/kfd (join the group 'render')"
    return ""


def _there(pattern: str) -> bool:
    return bool(glob(pattern))


def _loads(name: str) -> bool:
    """Can the system's loader find a driver's library? Nothing in it is called."""
    import ctypes  # not loaded by a job on the CPU

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def tpu() -> str:
    """Is there a device file of a TPU?"""
    if any(map(_there, TPU_FILES)):
        return ""
    return f"no TPU here ({' or '.join(TPU_FILES)} is not there)"


def apple_silicon() -> str:
    """Is this a Mac whose GPU Metal's libraries use?"""
    if not _on("darwin"):
        return f"needs macOS; this is {sys.platform}"
    machine = platform.machine()
    return "" if machine == "arm64" else f"needs Apple silicon; this is {machine}"


def mlx() -> str:
    """Is MLX installed? It is a namespace: a folder of that name says nothing."""
    return "" if _mlx_home() else "MLX is not installed"


def _mlx_home() -> str:
    """Where its native half lies; "" where there is none."""
    try:
        spec = find_spec("mlx")
    except (ImportError, ValueError):
        return ""
    where = None if spec is None else spec.submodule_search_locations
    core = PathFinder.find_spec("mlx.core", list(where)) if where else None
    return (core and core.origin) or ""


def mlx_on_cpu() -> bool:
    """Would MLX compute on a CPU here?"""
    if _on("darwin"):
        return False
    home = _mlx_home()
    if not home or nvidia_driver():
        return True
    return not any(_version_beside(f"mlx-cuda{x}", home) for x in ("", "-12", "-13"))
