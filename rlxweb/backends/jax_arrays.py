"""JAX as an engine: a whole plan goes through `jax.jit`, to a TPU, a GPU or the CPU.

Imported when one of its devices is opened and never before. JAX's own settings, which
its other users have made, stay as they are: what is needed here holds for the thread
and for the length of a call.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.array import array_target, quiet
from rlxweb.backends.array_convolutions import xla_convolution
from rlxweb.backends.array_faults import around_library
from rlxweb.backends.array_forks import LibraryThreads
from rlxweb.backends.array_library import first_named, library, tried
from rlxweb.backends.protocol import Backend
from rlxweb.backends.traced import TracedArrayBackend
from rlxweb.ir.dtype import DType

INSTALL = "pip install 'rlxweb[jax]'; for your accelerator: docs.jax.dev, installation"
threads = LibraryThreads("JAX")


async def open_jax(
    kind: str = "cpu", adapter: str = "", *, traced: bool = True
) -> Backend:
    """The engine on "cpu", "gpu" or "tpu".

    adapter   part of the name of a device, or ""
    traced    whether plans are compiled whole; op by op it is slower

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    doing = f"open JAX on '{kind}'"
    threads.begin(doing)
    jax = library("jax", doing, INSTALL)
    device = tried(
        lambda: _device(jax, kind, adapter, doing),
        doing,
        f"JAX has no {kind.upper()} here",
        INSTALL,
    )
    return _engine(jax, kind, device, traced)


def _device(jax: Any, kind: str, adapter: str, doing: str) -> Any:
    devices = jax.devices(kind)
    return devices[first_named(doing, [*map(_name, devices)], adapter)]


def _name(device: Any) -> str:
    kind: str = device.device_kind
    return "JAX on the CPU" if kind == "cpu" else kind


def _engine(jax: Any, kind: str, device: Any, traced: bool) -> TracedArrayBackend:
    version = f"JAX {jax.__version__}"
    on_cpu = kind == "cpu"
    adapter = _name(device)

    name = version if on_cpu else f"{adapter} ({version})"
    settings = partial(jax.enable_x64, True), partial(jax.default_device, device)
    return TracedArrayBackend(
        jax.numpy,
        array_target(version, frozenset(DType)),
        trace=jax.jit if traced else None,
        name=name,
        adapter=adapter,
        api="jax",
        driver=version if on_cpu else f"{version}, {device.client.platform_version}",
        software=on_cpu,
        to_device=lambda array: jax.device_put(_native(array), device),
        to_host=_here,
        from_dlpack=jax.numpy.from_dlpack,
        variants=(xla_convolution(jax.lax),),
        why_lost=lambda: threads.why_not,
        around=partial(around_library, name, threads, quiet, *settings),
    )


def _here(array: Any) -> Any:
    """Its numbers. Waited for first, as NumPy's look at one that failed ends the
    process, and waiting raises why.
    """
    return np.array(array.block_until_ready())


def _native(array: Any) -> Any:
    """The same values in this machine's byte order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
