"""JAX engine: a whole plan is compiled by `jax.jit` for a TPU, a GPU or the CPU.

Imported when one of its devices is opened and never before. JAX's own settings, which
its other users have made, stay as they are: what is needed here holds for the thread
and for the length of a call.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlxweb.engines.array import array_target, ignore_float_errors
from rlxweb.engines.array_library import (
    LibraryForkGuard,
    call_library,
    find_device_index,
    import_library,
    library_context,
)
from rlxweb.engines.protocol import Engine, EngineIdentity
from rlxweb.engines.traced_array import TracedArrayEngine
from rlxweb.ir.dtype import DType
from rlxweb.ops.conv.array_library import xla_convolution

INSTALL = "pip install 'rlxweb[jax]'; for accelerators see docs.jax.dev, Installation"
library_threads = LibraryForkGuard("JAX")


async def open_jax(
    kind: str = "cpu", adapter: str = "", *, trace_plans: bool = True
) -> Engine:
    """Open the JAX engine on "cpu", "gpu" or "tpu".

    adapter   part of the name of a device, or ""
    trace_plans  whether plans are compiled whole; op by op it is slower

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    context = f"open JAX on '{kind}'"
    library_threads.claim(context)
    jax = import_library("jax", context, INSTALL)
    device = call_library(
        lambda: _find_device(jax, kind, adapter, context),
        context,
        f"JAX finds no {kind.upper()} on this machine",
        INSTALL,
    )
    return _build_engine(jax, kind, device, trace_plans)


def _find_device(jax: Any, kind: str, adapter: str, context: str) -> Any:
    """Return the JAX device of that kind whose name contains `adapter`."""
    devices = jax.devices(kind)
    return devices[find_device_index(context, [*map(_device_name, devices)], adapter)]


def _device_name(device: Any) -> str:
    """Return the name of a JAX device for messages."""
    kind: str = device.device_kind
    return "JAX on the CPU" if kind == "cpu" else kind


def _build_engine(
    jax: Any, kind: str, device: Any, trace_plans: bool
) -> TracedArrayEngine:
    """Return the engine for one JAX device."""
    version = f"JAX {jax.__version__}"
    on_cpu = kind == "cpu"
    adapter = _device_name(device)

    name = version if on_cpu else f"{adapter} ({version})"
    settings = partial(jax.enable_x64, True), partial(jax.default_device, device)
    return TracedArrayEngine(
        jax.numpy,
        EngineIdentity(
            name,
            adapter,
            api="jax",
            driver=version
            if on_cpu
            else f"{version}, {device.client.platform_version}",
            software=on_cpu,
        ),
        array_target(version, frozenset(DType)),
        trace=jax.jit if trace_plans else None,
        to_device=lambda array: jax.device_put(_to_native_byte_order(array), device),
        to_host=_to_host,
        from_dlpack=jax.numpy.from_dlpack,
        variants=(xla_convolution(jax.lax),),
        why_lost=lambda: library_threads.fork_problem,
        around=partial(
            library_context, name, library_threads, ignore_float_errors, *settings
        ),
    )


def _to_host(array: Any) -> Any:
    """Copy an array to the host. It is waited for first: NumPy's access to an array
    whose computation failed ends the process, and waiting raises the reason.
    """
    return np.array(array.block_until_ready())


def _to_native_byte_order(array: Any) -> Any:
    """Return the same values in this machine's byte order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
