"""The engines a Welch estimate can run on: NumPy on the host, or a graph on a device.

All answer the same two questions, power and strongest bins, for checked rows [B, T].
Which one is asked is `picker.py`'s business; what the estimate means is in the spec.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.pool import pool
from rlxweb.device import Device
from rlxweb.errors import Unsupported
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.ir.graph import Graph
from rlxweb.runtime.session import CompiledGraph, Session

Rows = NDArray[Any]

# Rows go to the device in batches of at most this many bytes, so that a batch of any
# size runs in bounded device memory and no dispatch takes long.
BATCH_BYTES = 64 << 20
CAPACITY = 16


How = Literal["fused_op", "block_fft_host"]


@dataclass(frozen=True, slots=True)
class WelchJob:
    """What is to be run: the estimate, rows [n_rows, n_samples] and k peaks of each.

    k             0 asks for the spectrum itself
    mode          "bins" or "peaks", as `welch_peaks` has them
    min_segments  1 where the caller allows a single segment to stand for all
    """

    spec: WelchSpec
    n_rows: int
    n_samples: int
    k: int
    mode: str = "bins"
    min_segments: int | None = None


class Engine(Protocol):
    """Runs one spec over rows x [B, T] of the spec's dtype.

    The `_async` forms are for hosts that must be awaited (a browser without JSPI).
    """

    @property
    def device(self) -> Device: ...

    @property
    def name(self) -> str: ...

    def power(self, x: Rows, spec: WelchSpec) -> Rows:
        """Average power [B, F]."""
        ...

    def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        """(bins [B, k] int64, power [B, k]), strongest first, ties to the smaller."""
        ...

    async def power_async(self, x: Rows, spec: WelchSpec) -> Rows: ...

    async def strongest_async(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]: ...

    def is_ready(self, shape: tuple[int, ...], spec: WelchSpec, k: int) -> bool:
        """True when a run of this shape needs no compiling first."""
        ...


@dataclass(frozen=True, slots=True)
class NumpyEngine:
    """Rows in cache-sized blocks on a few threads."""

    device: Device = Device.CPU

    @property
    def name(self) -> str:
        return f"NumPy {np.__version__}"

    def power(self, x: Rows, spec: WelchSpec) -> Rows:
        return welch_power(x, spec)

    def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        return strongest_bins(welch_power(x, spec), k)

    async def power_async(self, x: Rows, spec: WelchSpec) -> Rows:
        return self.power(x, spec)

    async def strongest_async(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        return self.strongest(x, spec, k)

    def is_ready(self, shape: tuple[int, ...], spec: WelchSpec, k: int) -> bool:
        return True


NUMPY = NumpyEngine()


@dataclass(slots=True)
class GraphEngine:
    """A graph with one Welch op, compiled per batch shape and kept.

    how   "fused_op": the device searches the peaks too; "block_fft_host": it averages
          the spectrum, which comes back whole, and the host searches

    Threads take turns. What was compiled goes with the device when that is lost.
    """

    device: Device
    adapter: str = ""
    how: How = "fused_op"
    _programs: OrderedDict[Any, CompiledGraph] = field(default_factory=OrderedDict)
    _backend: Any = None
    _turn: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        return str(pool.backend(self.device.label, self.adapter).name)

    def power(self, x: Rows, spec: WelchSpec) -> Rows:
        return drive(self.power_async(x, spec))

    def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        return drive(self.strongest_async(x, spec, k))

    async def power_async(self, x: Rows, spec: WelchSpec) -> Rows:
        return await self._rows(x, spec, 0)

    async def strongest_async(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Rows]:
        if self.how == "block_fft_host":
            return strongest_bins(await self._rows(x, spec, 0), k)
        pairs = await self._rows(x, spec, k)
        return pairs[:, 0::2].astype(np.int64), np.ascontiguousarray(pairs[:, 1::2])

    async def _rows(self, x: Rows, spec: WelchSpec, k: int) -> Rows:
        """All rows through the device, in batches; [B, F], or pairs [B, 2k]."""
        n_rows, n_samples = x.shape
        width = 2 * k if k else spec.n_freqs
        out = np.empty((n_rows, width), np.float32)
        step = batch_rows(WelchJob(spec, n_rows, n_samples, k))
        with self._turn:
            for at in range(0, n_rows, step):
                batch = x[at : at + step]
                program = await self._program(batch.shape, spec, k)
                (out[at : at + step],) = await program.run_async({"x": batch})
        return out

    def is_ready(self, shape: tuple[int, ...], spec: WelchSpec, k: int) -> bool:
        k = 0 if self.how == "block_fft_host" else k
        n_rows, n_samples = shape
        step = batch_rows(WelchJob(spec, n_rows, n_samples, k))
        sizes = {min(step, n_rows), n_rows % step or min(step, n_rows)}
        return all(((n, n_samples), spec, k) in self._programs for n in sizes)

    async def _program(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int
    ) -> CompiledGraph:
        backend = await pool.backend_async(self.device.label, self.adapter)
        if backend is not self._backend:
            self._programs.clear()
            self._backend = backend
        key = (shape, spec, k)
        if key not in self._programs:
            session = Session(self.device, adapter=self.adapter)
            graph = welch_graph(shape, spec, k)
            self._programs[key] = await session.compile_async(graph)
            if len(self._programs) > CAPACITY:
                self._programs.popitem(last=False)[1].close()
        self._programs.move_to_end(key)
        return self._programs[key]


@lru_cache(maxsize=32)
def device_engine(
    device: Device, adapter: str = "", how: How = "fused_op"
) -> GraphEngine:
    """The engine of a device, kept so that its compiled graphs are reused."""
    return GraphEngine(device, adapter, how)


def batch_rows(job: WelchJob) -> int:
    """Rows that go to a device at once."""
    return max(1, BATCH_BYTES // (4 * max(1, job.n_samples, job.spec.n_freqs)))


def welch_graph(shape: tuple[int, ...], spec: WelchSpec, k: int = 0) -> Graph:
    """Rows x [B, T] f32 → power [B, F] (k = 0) or packed peaks [B, 2k].

    Errors   Unsupported for what the device ops do not cover: medians, complex rows,
    two-sided spectra, float64.
    """
    reason = refusal(spec)
    if reason:
        raise Unsupported("welch on a device", reason, hint="use device='cpu'")
    graph = Graph("welch_peaks" if k else "welch")
    x = graph.input("x", shape, "f32")
    window = graph.constant(spec.window_array, "f32")
    attrs: dict[str, Any] = {
        "hop": spec.hop,
        "segments": spec.segments_of(shape[1]),
        "detrend": spec.detrend or "none",
        "doubling": True,
        "nfft": spec.nfft,
        "scale": spec.scale,
    }
    if k:
        graph.set_outputs([graph.apply("welch_row_peaks", x, window, k=k, **attrs)])
    else:
        graph.set_outputs([graph.apply("welch_power", x, window, **attrs)])
    return graph


def refusal(spec: WelchSpec) -> str:
    """Why a device cannot run this estimate; "" when it can."""
    if spec.dtype != "float32":
        return f"the samples are {spec.dtype} and devices compute float32"
    if spec.average != "mean":
        return f"average='{spec.average}' is computed by NumPy only"
    if not spec.one_sided:
        return "two-sided spectra are computed by NumPy only"
    return ""
