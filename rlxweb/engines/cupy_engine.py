"""CuPy engine: CUDA and ROCm by cuFFT and cuBLAS, or hipFFT and rocBLAS.

Imported when one of its devices is opened and never before. Elementwise regions are one
generated kernel each (`cupy_elementwise.py`), Welch estimates and lines are
kernels beside cuFFT (`cupy_kernel_variants.py`); memory comes from CuPy's own pool. All
of an engine's work goes through one stream of its own, whatever stream its callers are
in: what one thread left is there for the next, and it overlaps with what others do. Not
run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.compiler.plan import PlanStep
from rlxweb.core.errors import AdapterMissing
from rlxweb.engines.array import ArrayEngine, array_target, ignore_float_errors
from rlxweb.engines.array_library import (
    LibraryForkGuard,
    call_library,
    find_device_index,
    import_library,
    library_context,
)
from rlxweb.engines.cupy_elementwise import build_region_kernel
from rlxweb.engines.cupy_kernel_variants import cupy_variants
from rlxweb.engines.protocol import Engine, EngineIdentity
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph

INSTALL_HINT = (
    "pip install 'rlxweb[cuda]' (CUDA 12), 'rlxweb[cuda13]' or 'rlxweb[rocm]'"
)
# Each operation rounds by itself, as NumPy's do.
COMPILER_FLAGS = {"cuda": ("-fmad=false",), "hip": ("-ffp-contract=off",)}
fork_guard = LibraryForkGuard("CuPy")


class CupyEngine(ArrayEngine):
    """`ArrayEngine` on CuPy; a region is one kernel if each op has a CUDA expression.

    kernel   `cupy.ElementwiseKernel` with its flags, or None: op by op
    stream   where all of it runs; `around` makes it the current one
    """

    def __init__(
        self,
        *arguments: Any,
        kernel: Callable[..., Any] | None,
        stream: Any,
        **options: Any,
    ) -> None:
        self._kernel, self._stream = kernel, stream
        super().__init__(*arguments, **options)

    def finish_exchange(self) -> None:
        # DLPack has a copy of ours wait for its maker; here the copy is waited for, as
        # its maker may write there next, in a stream that knows nothing of ours. And
        # CuPy has a borrower wait for the stream that is current when it asks, which is
        # the caller's and not ours.
        self._stream.synchronize()

    def _region_function(
        self, graph: Graph, step: PlanStep
    ) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
        if self._kernel is None:
            return None
        return build_region_kernel(graph, step, self._kernel)


async def open_cupy(kind: str = "cuda", adapter: str = "") -> Engine:
    """Open the engine on "cuda" or "hip" (ROCm).

    adapter   part of the name of a GPU, or ""

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    context = f"open CuPy on '{kind}'"
    fork_guard.claim(context)
    cupy = import_library("cupy", context, INSTALL_HINT)
    compat = import_library("array_api_compat.cupy", context, INSTALL_HINT)
    index, name = call_library(
        lambda: _find_device(cupy, kind, adapter, context),
        context,
        "CuPy failed to list its devices",
        INSTALL_HINT,
    )
    return _build_engine(cupy, compat, kind, index, name)


def _find_device(cupy: Any, kind: str, adapter: str, context: str) -> tuple[int, str]:
    """Return index and name of the first GPU whose name contains `adapter`."""
    build_kind = "hip" if cupy.cuda.runtime.is_hip else "cuda"
    if build_kind != kind:
        raise AdapterMissing(
            context, f"this CuPy is built for {build_kind}", hint=INSTALL_HINT
        )
    count = cupy.cuda.runtime.getDeviceCount()
    raw_names = [cupy.cuda.runtime.getDeviceProperties(i)["name"] for i in range(count)]
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in raw_names]
    index = find_device_index(context, names, adapter)
    return index, names[index]


def _build_engine(
    cupy: Any, compat: Any, kind: str, index: int, name: str
) -> CupyEngine:
    version = f"CuPy {cupy.__version__}"
    runtime = cupy.cuda.runtime
    driver = (
        f"runtime {runtime.runtimeGetVersion()}, driver {runtime.driverGetVersion()}"
    )
    title = f"{name} ({version})"
    device = partial(cupy.cuda.Device, index)
    with device():
        stream = cupy.cuda.Stream(non_blocking=True)
    return CupyEngine(
        compat,
        EngineIdentity(title, adapter=name, api=kind, driver=f"{version}, {driver}"),
        array_target(title, frozenset(DType)),
        kernel=partial(cupy.ElementwiseKernel, options=COMPILER_FLAGS[kind]),
        stream=stream,
        to_device=cupy.asarray,
        to_host=cupy.asnumpy,
        copied=cupy.array,
        from_dlpack=cupy.from_dlpack,
        variants=cupy_variants(
            cupy, partial(cupy.RawModule, options=COMPILER_FLAGS[kind])
        ),
        why_lost=lambda: fork_guard.fork_problem,
        around=partial(
            library_context,
            title,
            fork_guard,
            ignore_float_errors,
            device,
            lambda: stream,
        ),
    )
