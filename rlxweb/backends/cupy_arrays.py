"""CuPy as an engine: CUDA and ROCm by cuFFT and cuBLAS, or hipFFT and rocBLAS.

Imported when one of its devices is opened and never before. Elementwise regions are one
generated kernel each (`cupy_regions.py`), Welch estimates and lines are kernels beside
cuFFT (`cupy_variants.py`); memory comes from CuPy's own pool. All of an engine's work
goes through one stream of its own, whatever stream its callers are in: what one thread
left is there for the next, and it overlaps with what others do. Not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.backends.array import ArrayBackend, array_target, quiet
from rlxweb.backends.array_faults import around_library
from rlxweb.backends.array_forks import LibraryThreads
from rlxweb.backends.array_library import first_named, library, tried
from rlxweb.backends.array_residents import ArrayResident
from rlxweb.backends.cupy_regions import region_kernel
from rlxweb.backends.cupy_variants import cupy_variants
from rlxweb.backends.protocol import Backend, Resident
from rlxweb.compile.plan import Step
from rlxweb.errors import AdapterMissing
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph

INSTALL = "pip install 'rlxweb[cuda]' (CUDA 12), 'rlxweb[cuda13]' or 'rlxweb[rocm]'"
# Each operation rounds by itself, as NumPy's do.
FLAGS = {"cuda": ("-fmad=false",), "hip": ("-ffp-contract=off",)}
threads = LibraryThreads("CuPy")


class CupyBackend(ArrayBackend):
    """`ArrayBackend` on CuPy; a region is one kernel where each op has a row.

    kernel   `cupy.ElementwiseKernel` with its flags, or None: op by op
    stream   where all of it runs; `around` makes it the current one
    """

    def __init__(
        self,
        *of_arrays: Any,
        kernel: Callable[..., Any] | None,
        stream: Any,
        **how: Any,
    ) -> None:
        self._kernel, self._stream = kernel, stream
        super().__init__(*of_arrays, **how)

    async def take(self, given: object) -> ArrayResident | None:
        # DLPack has our copy wait for its maker; here the copy is waited for, as its
        # maker may write there next, in a stream that knows nothing of ours.
        taken = await super().take(given)
        self._settled()
        return taken

    def lend(self, resident: Resident, copy: bool = False) -> object | None:
        # CuPy has a borrower wait for the stream that is current when it asks, which
        # is the caller's and not ours.
        lent = super().lend(resident, copy)
        self._settled()
        return lent

    def _settled(self) -> None:
        with self._around():
            self._stream.synchronize()

    def _region(
        self, graph: Graph, step: Step
    ) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
        if self._kernel is None:
            return None
        return region_kernel(graph, step, self._kernel)


async def open_cupy(kind: str = "cuda", adapter: str = "") -> Backend:
    """The engine on "cuda" or "hip" (ROCm).

    adapter   part of the name of a GPU, or ""

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    doing = f"open CuPy on '{kind}'"
    threads.begin(doing)
    cupy = library("cupy", doing, INSTALL)
    compat = library("array_api_compat.cupy", doing, INSTALL)
    at, name = tried(
        lambda: _device(cupy, kind, adapter, doing),
        doing,
        "CuPy was asked for its devices and failed",
        INSTALL,
    )
    return _engine(cupy, compat, kind, at, name)


def _device(cupy: Any, kind: str, adapter: str, doing: str) -> tuple[int, str]:
    """Number and name of the first GPU whose name has that in it."""
    made_for = "hip" if cupy.cuda.runtime.is_hip else "cuda"
    if made_for != kind:
        raise AdapterMissing(doing, f"this CuPy is built for {made_for}", hint=INSTALL)
    count = cupy.cuda.runtime.getDeviceCount()
    found = [cupy.cuda.runtime.getDeviceProperties(i)["name"] for i in range(count)]
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in found]
    at = first_named(doing, names, adapter)
    return at, names[at]


def _engine(cupy: Any, compat: Any, kind: str, at: int, name: str) -> CupyBackend:
    version = f"CuPy {cupy.__version__}"
    runtime = cupy.cuda.runtime
    driver = (
        f"runtime {runtime.runtimeGetVersion()}, driver {runtime.driverGetVersion()}"
    )
    title = f"{name} ({version})"
    device = partial(cupy.cuda.Device, at)
    with device():
        stream = cupy.cuda.Stream(non_blocking=True)
    return CupyBackend(
        compat,
        array_target(title, frozenset(DType)),
        kernel=partial(cupy.ElementwiseKernel, options=FLAGS[kind]),
        stream=stream,
        name=title,
        adapter=name,
        api=kind,
        driver=f"{version}, {driver}",
        to_device=cupy.asarray,
        to_host=cupy.asnumpy,
        copied=cupy.array,
        from_dlpack=cupy.from_dlpack,
        variants=cupy_variants(cupy, partial(cupy.RawModule, options=FLAGS[kind])),
        why_lost=lambda: threads.why_not,
        around=partial(around_library, title, threads, quiet, device, lambda: stream),
    )
