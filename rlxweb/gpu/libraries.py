"""wgpu-py and wgpudawn: the only file that imports them, inside functions only.

wgpudawn is the same interface over Dawn, whose compiler of shaders is another: Tint,
where wgpu has naga.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from rlxweb.errors import AdapterMissing
from rlxweb.forked import ForkLock
from rlxweb.gpu import adapters as choice
from rlxweb.gpu.c_types import parse_at_once
from rlxweb.gpu.drivers import drivers
from rlxweb.gpu.port import DeviceFacts, Want
from rlxweb.library_probe import library_problem
from rlxweb.library_versions import installed_version, version_problem

Library = Literal["wgpu", "wgpudawn"]
_LISTING = ForkLock()


def adapters(library: Library = "wgpu") -> tuple[DeviceFacts, ...]:
    """Every adapter the library finds, best first, with all its features and limits.

    Errors   AdapterMissing if it or its driver library cannot be used.
    """
    return tuple(facts for facts, _ in choice.ranked(natives(library), Want()))


def shader_compiler(library: Library = "wgpu") -> str:
    """What turns WGSL into a driver's language, with its version.

    Asked once the library has found adapters.
    """
    if library == "wgpudawn":
        return f"Tint (wgpudawn {version(library)})"
    from wgpu.backends.wgpu_native import lib_version_info

    return f"naga (wgpu-native {'.'.join(map(str, lib_version_info))})"


def natives(library: Library) -> list[Any]:
    """The library's own adapter objects. Errors  as `adapters`."""
    # One at a time, and once per process: each listing gives OpenGL adapters that
    # share one context and not the lock over it; two in two threads abort the process.
    drivers.load()
    # Dawn lists anew each time: it gives one device per adapter object, as the
    # standard says, and no more.
    with _LISTING:
        return _once(library) if library == "wgpu" else _listed(library)


@cache
def _once(library: Library) -> list[Any]:
    return _listed(library)


_TRIAL = "rlxweb.gpu.libraries:try_listing"


def try_listing(opened: Callable[[], object], library: Library) -> None:
    """Load the library and list its adapters: the work of a child."""
    natives(library)
    opened()


def _listed(library: Library) -> list[Any]:
    doing, instead = "looking for a GPU", "choose device 'cpu'"
    why = library_problem(library, _TRIAL, library)
    if why:
        hint = f"reinstall it, repair the graphics driver, or {instead}"
        raise AdapterMissing(doing, f"{library} cannot be used ({why})", hint=hint)
    try:
        gpu = _gpu(library)
        with choice.quiet_wayland():
            return list(gpu.enumerate_adapters_sync())
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise AdapterMissing(
            doing,
            f"{library} cannot be used ({type(error).__name__}: {error})",
            hint=f"install it with `pip install {library}`, or {instead}",
        ) from error


def _gpu(library: Library) -> Any:
    if library == "wgpudawn":
        import wgpudawn

        _check_version(library, installed_version(library))
        return wgpudawn.gpu
    import wgpu

    _check_version(library, getattr(wgpu, "__version__", ""))
    from wgpu.backends.wgpu_native import ffi

    parse_at_once(ffi)
    return wgpu.gpu


def _check_version(library: Library, version: object) -> None:
    why = version_problem(version, library)
    if why:
        raise ImportError(f"{library} {why}")
