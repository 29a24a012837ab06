"""Selection of a GPU adapter: facts, ranking and reasons, over wgpu's adapter objects.

Reads the attributes of adapter objects it is handed and never imports wgpu; opening
one is the port's work. Used by `wgpu_port.py` only.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from rlxweb.core.errors import AdapterMissing
from rlxweb.core.limits import Limits
from rlxweb.gpu.port_base import limits_from_driver
from rlxweb.gpu.port_protocol import AdapterRequest, BackendType, DeviceFacts

_BACKEND_TYPES: dict[str, BackendType] = {
    "Vulkan": "vulkan",
    "OpenGL": "opengl",
    "OpenGLES": "opengl",
    "D3D12": "directx",
    "Metal": "metal",
}
_ADAPTER_RANKS = {"DiscreteGPU": 0, "IntegratedGPU": 1}
_OTHER_RANK, _SOFTWARE_RANK = 2, 3
_SOFTWARE_NAMES = ("llvmpipe", "softpipe", "swiftshader", "basic render")

AdapterCandidate = tuple[DeviceFacts, Any]


def adapter_facts(native: Any) -> DeviceFacts:
    """Return the facts of an adapter: everything it offers, not yet what a device is
    granted.
    """
    info = native.info
    name = info["device"] or info["description"] or "unnamed adapter"
    return DeviceFacts(
        name=name,
        vendor=info["vendor"] or "",
        backend=_BACKEND_TYPES[info["backend_type"]],
        driver=info["description"] or "",
        software=info["adapter_type"] == "CPU"
        or any(s in name.lower() for s in _SOFTWARE_NAMES),
        features=frozenset(native.features),
        limits=limits_from_wgpu(native.limits),
        has_shared_memory=info["adapter_type"] in ("CPU", "IntegratedGPU"),
    )


def limits_from_wgpu(native: Mapping[str, int]) -> Limits:
    """Return limits from wgpu's names in the style of `max-buffer-size`."""
    return limits_from_driver(
        {f.name: native[f.name.replace("_", "-")] for f in fields(Limits)}
    )


def limits_to_request(requested: Limits, available: Limits) -> Limits:
    """Return the limits to request: the wish capped by the adapter, never below
    WebGPU's defaults.
    """
    return requested.at_least_core().intersect(available)


def rank_adapters(
    native_adapters: Iterable[Any], request: AdapterRequest
) -> list[AdapterCandidate]:
    """Return the adapters of a requested backend, best first.

    By place in `request.backends`; then discrete, integrated, other, software; then the
    modern APIs before OpenGL; then the larger workgroup.
    """

    def rank(candidate: AdapterCandidate) -> tuple[int, int, bool, int]:
        """Return the sort key of a candidate."""
        facts, native = candidate
        backend_rank = request.backends.index(facts.backend) if request.backends else 0
        type_rank = _ADAPTER_RANKS.get(native.info["adapter_type"], _OTHER_RANK)
        return (
            backend_rank,
            _SOFTWARE_RANK if facts.software else type_rank,
            facts.backend == "opengl",
            -facts.limits.max_compute_invocations_per_workgroup,
        )

    candidates = [
        (adapter_facts(n), n)
        for n in native_adapters
        if n.info["backend_type"] in _BACKEND_TYPES
    ]
    if request.backends:
        candidates = [f for f in candidates if f[0].backend in request.backends]
    return sorted(candidates, key=rank)


def adapter_mismatch(facts: DeviceFacts, request: AdapterRequest) -> str:
    """Return why an adapter's name does not match the request; "" if it does."""
    description = f"{facts.name} {facts.vendor} {facts.driver}".lower()
    if request.name.lower() in description:
        return ""
    return f"its name does not contain {request.name!r}"


def check_adapters(
    native_adapters: Iterable[Any], request: AdapterRequest
) -> Iterator[tuple[DeviceFacts, Any, str]]:
    """Yield the adapters of a requested backend, best first, each with the reason to
    reject it or "".
    """
    match_count = 0
    for facts, native in rank_adapters(native_adapters, request):
        reason = adapter_mismatch(facts, request)
        if not reason:
            if request.index is not None and request.index != match_count:
                reason = (
                    f"it is number {match_count + 1} of the adapters that match, but "
                    f"number {request.index + 1} was requested"
                )
            match_count += 1
        yield facts, native, reason


def adapter_missing_error(
    request: AdapterRequest, rejected: Sequence[tuple[str, str]]
) -> AdapterMissing:
    """Return the error for a machine where no adapter could be opened."""
    description = " or ".join(request.backends) or "any backend"
    if request.name:
        description += f", name containing {request.name!r}"
    return AdapterMissing(
        f"open a GPU ({description})",
        "no adapter can be used" if rejected else "no adapter was found",
        "; ".join(f"{name}: {reason}" for name, reason in rejected),
        "run `rlxweb devices` to list the devices of this machine",
        rejected,
    )


@contextmanager
def quiet_wayland() -> Iterator[None]:
    """Silence libwayland's message about a missing desktop while OpenGL adapters are
    listed.
    """
    # Its log hook gets a C function that ignores its arguments while adapters are
    # listed, and one that prints to stderr afterwards. Both are C, so nothing calls
    # into a Python that has ended.
    try:
        if sys.platform != "linux":
            raise OSError
        libc = ctypes.CDLL(None)
        silent_handler, print_handler = libc.getpid, libc.vwarnx
        set_handler = ctypes.CDLL("libwayland-client.so.0").wl_log_set_handler_client
    except (OSError, AttributeError):
        yield
        return
    set_handler(silent_handler)
    try:
        yield
    finally:
        set_handler(print_handler)
