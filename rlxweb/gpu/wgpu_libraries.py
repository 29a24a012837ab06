"""Import of wgpu-py and wgpudawn, and listing of their adapters.

wgpudawn is the same interface over Dawn, whose compiler of shaders is another: Tint,
where wgpu has naga.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from rlxweb.core.errors import AdapterMissing
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.library_crash_probe import library_problem
from rlxweb.core.required_library_versions import installed_version, version_problem
from rlxweb.gpu import adapter_selection as choice
from rlxweb.gpu.cffi_type_preparsing import parse_types
from rlxweb.gpu.driver_fork_guard import driver_fork_guard
from rlxweb.gpu.port_protocol import AdapterRequest, DeviceFacts

WgpuLibrary = Literal["wgpu", "wgpudawn"]
_LISTING_LOCK = ForkSafeLock()


def list_adapters(library: WgpuLibrary = "wgpu") -> tuple[DeviceFacts, ...]:
    """Return every adapter the library finds, best first, with all its features and
    limits.

    Errors   AdapterMissing if it or its driver library cannot be used.
    """
    return tuple(
        facts
        for facts, _ in choice.rank_adapters(native_adapters(library), AdapterRequest())
    )


def shader_compiler(library: WgpuLibrary = "wgpu") -> str:
    """Return the name and version of the compiler from WGSL to the driver's language.

    Asked once the library has found adapters.
    """
    if library == "wgpudawn":
        return f"Tint (wgpudawn {version(library)})"
    from wgpu.backends.wgpu_native import lib_version_info

    return f"naga (wgpu-native {'.'.join(map(str, lib_version_info))})"


def native_adapters(library: WgpuLibrary) -> list[Any]:
    """Return the library's own adapter objects. Raise AdapterMissing if it is
    unusable.
    """
    # One at a time, and once per process: each listing gives OpenGL adapters that
    # share one context and not the lock over it; two in two threads abort the process.
    driver_fork_guard.mark_loaded()
    # Dawn lists anew each time: it gives one device per adapter object, as the
    # standard says, and no more.
    with _LISTING_LOCK:
        return (
            _listed_once(library)
            if library == "wgpu"
            else _list_native_adapters(library)
        )


@cache
def _listed_once(library: WgpuLibrary) -> list[Any]:
    """Return the library's adapters, listed once per process."""
    return _list_native_adapters(library)


_PROBE_FUNCTION = "rlxweb.gpu.wgpu_libraries:try_listing"


def try_listing(on_opened: Callable[[], object], library: WgpuLibrary) -> None:
    """Load the library and list its adapters, in a child process that probes it."""
    native_adapters(library)
    on_opened()


def _list_native_adapters(library: WgpuLibrary) -> list[Any]:
    """Probe and import the library, then list its adapters."""
    context, alternative = "looking for a GPU", "choose device 'cpu'"
    problem = library_problem(library, _PROBE_FUNCTION, library)
    if problem:
        hint = f"reinstall {library}, repair the graphics driver, or {alternative}"
        raise AdapterMissing(
            context, f"{library} cannot be used ({problem})", hint=hint
        )
    try:
        gpu = _import_gpu(library)
        with choice.quiet_wayland():
            return list(gpu.enumerate_adapters_sync())
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise AdapterMissing(
            context,
            f"{library} cannot be used ({type(error).__name__}: {error})",
            hint=f"run `pip install {library}`, or {alternative}",
        ) from error


def _import_gpu(library: WgpuLibrary) -> Any:
    """Import a library and return its GPU object."""
    if library == "wgpudawn":
        import wgpudawn

        _check_library_version(library, installed_version(library))
        return wgpudawn.gpu
    import wgpu

    _check_library_version(library, getattr(wgpu, "__version__", ""))
    from wgpu.backends.wgpu_native import ffi

    parse_types(ffi)
    return wgpu.gpu


def _check_library_version(library: WgpuLibrary, version: object) -> None:
    """Raise ImportError for a version that is not supported."""
    problem = version_problem(version, library)
    if problem:
        raise ImportError(f"{library} {problem}")
