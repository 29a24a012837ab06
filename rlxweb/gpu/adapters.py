"""Which adapter to take: facts, ranking and reasons, over wgpu's adapter objects.

Reads the attributes of adapter objects it is handed and never imports wgpu; opening
one is the port's work. Used by `native.py` only.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from rlxweb.errors import AdapterMissing
from rlxweb.gpu.books import read_limits
from rlxweb.gpu.port import BackendType, DeviceFacts, Want
from rlxweb.limits import Limits

_BACKENDS: dict[str, BackendType] = {
    "Vulkan": "vulkan",
    "OpenGL": "opengl",
    "OpenGLES": "opengl",
    "D3D12": "directx",
    "Metal": "metal",
}
_KINDS = {"DiscreteGPU": 0, "IntegratedGPU": 1}
_OTHER, _SOFTWARE = 2, 3
_SOFTWARE_NAMES = ("llvmpipe", "softpipe", "swiftshader", "basic render")

Candidate = tuple[DeviceFacts, Any]


def facts_of(native: Any) -> DeviceFacts:
    """The facts of one adapter: all it has, not yet what a device is granted."""
    info = native.info
    name = info["device"] or info["description"] or "unnamed adapter"
    return DeviceFacts(
        name=name,
        vendor=info["vendor"] or "",
        backend=_BACKENDS[info["backend_type"]],
        driver=info["description"] or "",
        software=info["adapter_type"] == "CPU"
        or any(s in name.lower() for s in _SOFTWARE_NAMES),
        features=frozenset(native.features),
        limits=limits_of(native.limits),
        shared=info["adapter_type"] in ("CPU", "IntegratedGPU"),
    )


def limits_of(native: Mapping[str, int]) -> Limits:
    """Our limits from wgpu's `max-buffer-size` style names."""
    return read_limits(
        {f.name: native[f.name.replace("_", "-")] for f in fields(Limits)}
    )


def limits_to_ask(want: Limits, have: Limits) -> Limits:
    """What to request: the wish cut to the adapter, never under WebGPU's defaults."""
    return want.at_least_core().lowest(have)


def ranked(natives: Iterable[Any], want: Want) -> list[Candidate]:
    """The adapters of a wanted backend, best first.

    By place in `want.backends`; then discrete, integrated, other, software; then the
    modern APIs before OpenGL; then the larger workgroup.
    """

    def rank(found: Candidate) -> tuple[int, int, bool, int]:
        facts, native = found
        place = want.backends.index(facts.backend) if want.backends else 0
        kind = _KINDS.get(native.info["adapter_type"], _OTHER)
        return (
            place,
            _SOFTWARE if facts.software else kind,
            facts.backend == "opengl",
            -facts.limits.max_compute_invocations_per_workgroup,
        )

    found = [(facts_of(n), n) for n in natives if n.info["backend_type"] in _BACKENDS]
    if want.backends:
        found = [f for f in found if f[0].backend in want.backends]
    return sorted(found, key=rank)


def why_not(facts: DeviceFacts, want: Want) -> str:
    """Why this adapter is not the one asked for; empty if it may be."""
    said = f"{facts.name} {facts.vendor} {facts.driver}".lower()
    if want.name.lower() in said:
        return ""
    return f"its name has no {want.name!r}"


def asked(natives: Iterable[Any], want: Want) -> Iterator[tuple[DeviceFacts, Any, str]]:
    """The adapters of a wanted backend, best first, and why each may not be taken."""
    number = 0
    for facts, native in ranked(natives, want):
        why = why_not(facts, want)
        if not why:
            if want.at is not None and want.at != number:
                why = f"it is number {number + 1} of that name, not {want.at + 1}"
            number += 1
        yield facts, native, why


def missing(want: Want, passed: Sequence[tuple[str, str]]) -> AdapterMissing:
    """The error for a machine where no adapter could be taken."""
    wanted = " or ".join(want.backends) or "any backend"
    if want.name:
        wanted += f", name containing {want.name!r}"
    return AdapterMissing(
        f"open a GPU ({wanted})",
        "no adapter could be taken" if passed else "no adapter was found",
        "; ".join(f"{name}: {why}" for name, why in passed),
        "`rlxweb devices` lists what this machine has",
        passed,
    )


@contextmanager
def quiet_wayland() -> Iterator[None]:
    """Keep libwayland from printing that no desktop runs while GL looks for one."""
    # Its log hook gets a C function that ignores its arguments while adapters are
    # listed, and one that prints to stderr afterwards. Both are C, so nothing calls
    # into a Python that has ended.
    try:
        if sys.platform != "linux":
            raise OSError
        libc = ctypes.CDLL(None)
        ignore, show = libc.getpid, libc.vwarnx
        hook = ctypes.CDLL("libwayland-client.so.0").wl_log_set_handler_client
    except (OSError, AttributeError):
        yield
        return
    hook(ignore)
    try:
        yield
    finally:
        hook(show)
