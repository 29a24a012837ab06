"""The engines a Welch estimate can run on: NumPy on the host, or a graph on a device.

All answer the same two questions, power and strongest bins, for checked rows [B, T].
Which one is asked is the chooser's business; what the estimate means is in the spec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import CPU_ENGINE, Backend
from rlxweb.device import Device
from rlxweb.digital import Digital
from rlxweb.host.compiled import wanted
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import Found, strongest_bins
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.levels import LevelRows, level_rows
from rlxweb.signal.rows_there import RowsThere
from rlxweb.stopping import check_stopped

if TYPE_CHECKING:  # a job on the CPU loads no compiler
    from rlxweb.runtime.compiled import CompiledGraph

Power = NDArray[Any]
HostRows: TypeAlias = NDArray[Any] | Digital
Rows: TypeAlias = HostRows | RowsThere
"""Samples [B, T] as the spec's dtype says; where that is "int24", integers."""

# Rows go to the device in batches of at most this many bytes, so that a batch of any
# size runs in bounded device memory and no dispatch takes long.
BATCH_BYTES = 64 << 20

How = Literal["fused_op", "band_fft_host", "block_fft_host"]


class Engine(Protocol):
    """Runs one spec over rows x [B, T].

    Coroutines, for hosts that must be awaited; elsewhere `drive` runs them to the end.
    Of a `band` that is given they tell its bins alone.
    """

    @property
    def device(self) -> Device: ...

    @property
    def name(self) -> str: ...

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        """Average power [B, F] of the spec's `power_dtype`."""

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int, band: Band | None = None
    ) -> Found:
        """(bins [B, k] int64, power [B, k]), strongest first, ties to the smaller."""

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        """True when a run of this shape needs no compiling first."""


@dataclass(frozen=True, slots=True)
class NumpyEngine:
    """Rows in cache-sized blocks on a few threads.

    is_kept   what it took counts towards a kernel for the next time
    """

    device: Device = Device.CPU
    name: str = CPU_ENGINE[0]
    is_kept: bool = True

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        begun = perf_counter()
        power = self._power(x, spec)
        if self.is_kept:
            _compile_if_worth_it(spec, 0, perf_counter() - begun)
        return power if band is None else power[:, band.bins]

    def _power(self, x: Rows, spec: WelchSpec) -> Power:
        if not isinstance(x, Digital):
            return welch_power(np.asarray(x), spec)
        # Physical values take several times the memory of what was recorded.
        step = max(1, BATCH_BYTES // (8 * x.shape[1]))
        parts = [
            welch_power(x.rows(slice(at, at + step)).physical(), spec)
            for at in range(0, x.shape[0], step)
        ]
        return np.concatenate(parts) if parts else welch_power(x.physical(), spec)

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int, band: Band | None = None
    ) -> Found:
        begun = perf_counter()
        found = strongest_of(self._power(x, spec), k, band)
        took = perf_counter() - begun
        if self.is_kept:
            _compile_if_worth_it(spec, k if band is None else 0, took)
        return found

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        return True


NUMPY = NumpyEngine()
NUMPY_ALONE = NumpyEngine(is_kept=False)
"""For estimates that no kernel computes, now or the next time."""


def strongest_of(power: Power, k: int, band: Band | None) -> Found:
    """The strongest bins of whole spectra (B, F) that lie in a band."""
    if band is None:
        return strongest_bins(power, k)
    bins, found = strongest_bins(power[:, band.bins], k)
    return bins + band.first, found


def _compile_if_worth_it(spec: WelchSpec, k: int, seconds: float) -> None:
    """So long NumPy took: for the next time there may be a kernel."""
    if welch_kernels.is_open:
        about = wanted(spec, k)
        if not isinstance(about, str):
            welch_kernels.spent(about, seconds)


@dataclass(slots=True)
class GraphEngine:
    """A graph with one Welch op, compiled per batch shape.

    how   "fused_op": the device searches the peaks too, or, "band_fft_host", cuts the
          band out; "block_fft_host": it averages the spectrum, which comes back whole,
          and the host does the rest

    Threads and tasks take turns. What was compiled is kept by the device's engine and
    goes with it when that is lost, and so does the run.
    """

    device: Device
    adapter: str = ""
    how: How = "fused_op"

    @property
    def name(self) -> str:
        return pool.backend(self.device.label, self.adapter).name

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        cut = self._cut(spec, band)
        power = await self._rows(x, spec, 0, cut)
        return power if band is cut or band is None else power[:, band.bins]

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int, band: Band | None = None
    ) -> Found:
        if not self._searched(spec, k):
            return strongest_of(await self._rows(x, spec, 0, None), k, band)
        pairs = await self._rows(x, spec, k, band)
        bins = pairs[:, 0::2].astype(np.int64) + (0 if band is None else band.first)
        return bins, np.ascontiguousarray(pairs[:, 1::2])

    def _searched(self, spec: WelchSpec, k: int) -> int:
        """The k that the device searches for."""
        return k if self.how == "fused_op" and not spec.has_level else 0

    def _cut(self, spec: WelchSpec, band: Band | None) -> Band | None:
        """The band that the device cuts out."""
        return band if self.how == "band_fft_host" and not spec.has_level else None

    async def _rows(self, x: Rows, spec: WelchSpec, k: int, band: Band | None) -> Power:
        """All rows through the device, in batches; [B, F], or pairs [B, 2k]."""
        n_rows, n_samples = x.shape
        width = 2 * k or (spec.n_freqs if band is None else len(band))
        out = np.empty((n_rows, width), spec.power_dtype)
        step = batch_rows(spec, n_samples)
        rest = n_rows % step
        sizes = [step] * (n_rows // step) + [rest] * (rest > 0)
        backend = await pool.backend_async(self.device.label, self.adapter)
        async with backend.turn:
            at = 0
            for size, alike in groupby(sizes):
                shape = size, n_samples
                program = await self._program(backend, shape, _single(spec), k, band)
                starts = range(at, at + size * len(list(alike)), size)
                mine, at = [slice(i, i + size) for i in starts], starts.stop
                if isinstance(x, RowsThere):
                    await _there(program, backend, x, mine, out)
                else:
                    await _from_host(program, x, mine, spec, k, out)
        return out

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        k = self._searched(spec, k)
        band = band if k else self._cut(spec, band)
        n_rows, n_samples = shape
        step = batch_rows(spec, n_samples)
        sizes = {min(step, n_rows), n_rows % step or min(step, n_rows)}
        own = _single(spec)
        kept = pool.backend(self.device.label, self.adapter).kept
        return all(((n, n_samples), own, k, band) in kept for n in sizes)

    async def _program(
        self,
        backend: Backend,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: Band | None,
    ) -> CompiledGraph:
        from rlxweb.host.welch_graph import welch_graph
        from rlxweb.runtime.session import Session

        key = (shape, spec, k, band)
        program: CompiledGraph | None = backend.kept.get(key)
        if program is None:
            session = Session(self.device, adapter=self.adapter, strict=True)
            bins = None if band is None else (band.first, band.stop)
            program = await session.compiled(welch_graph(shape, spec, k, bins))
            backend.kept.put(key, program, program.nbytes + len(spec.window))
            # Whose last reference this was frees its buffers with the next run.
            backend.kept.trim()
        return program


async def _there(
    program: CompiledGraph,
    engine: Backend,
    x: RowsThere,
    batches: Sequence[slice],
    out: Power,
) -> None:
    """Batches of rows that lie on the device."""
    for mine in batches:
        check_stopped()
        part = await x.some(engine, mine.start, mine.stop)
        (out[mine],) = await program.computed({"x": part.whole}, strict=True)


async def _from_host(
    program: CompiledGraph,
    x: HostRows,
    batches: Sequence[slice],
    spec: WelchSpec,
    k: int,
    out: Power,
) -> None:
    """Batches of rows of the host, in their own units: the device may have the next
    before it has given back what it found in the one before.
    """
    begun: deque[LevelRows | None] = deque()
    taken = iter(batches)

    def feeds() -> Iterator[dict[str, Any]]:
        for mine in batches:
            check_stopped()
            part = x.rows(mine) if isinstance(x, Digital) else x[mine]
            own = level_rows(part) if spec.is_digital else None
            begun.append(own)
            yield {"x": np.asarray(part) if own is None else own.x}

    def take(outs: list[Power]) -> None:
        (found,), own = outs, begun.popleft()
        if own is not None and k:
            levels = own.scaled(found[:, 1::2])
            found = found.astype(np.float64)
            found[:, 1::2] = levels
        elif own is not None:
            found = own.power(found, spec)
        out[next(taken)] = found

    await program.computed_each(feeds(), take)


@lru_of_small(128, lambda spec: spec.nperseg <= SMALL)
def _single(spec: WelchSpec) -> WelchSpec:
    """The estimate as a device computes it."""
    return replace(spec, dtype="float32") if spec.is_digital else spec


@lru_cache(maxsize=32)
def device_engine(
    device: Device, adapter: str = "", how: How = "fused_op"
) -> GraphEngine:
    """The engine of a device, kept so that its compiled graphs are reused."""
    return GraphEngine(device, adapter, how)


def batch_rows(spec: WelchSpec, n_samples: int) -> int:
    """Rows that go to a device at once.

    Many are a multiple of 64: rows of any length begin on 256 bytes then, from where
    those that lie on a device can be bound.
    """
    rows = max(1, BATCH_BYTES // (4 * max(1, n_samples, spec.n_freqs)))
    return rows if rows < 64 else rows - rows % 64
