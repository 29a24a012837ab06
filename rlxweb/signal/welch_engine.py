"""Engines that compute a Welch estimate: NumPy on the host, or a graph on a device.

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

from rlxweb.core.adc_samples import Digital
from rlxweb.core.device import Device
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import CPU_IDENTITY, Engine
from rlxweb.ops.welch.cpu.kernel import welch_kernel_key
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower, strongest_bins
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.device_resident_rows import DeviceRows
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.integer_centering import CenteredIntegerRows, center_integer_rows

if TYPE_CHECKING:  # a job on the CPU loads no compiler
    from rlxweb.runtime.compiled_graph import CompiledGraph

Power = NDArray[Any]
HostRows: TypeAlias = NDArray[Any] | Digital
SampleRows: TypeAlias = HostRows | DeviceRows
"""Samples [B, T] of the spec's dtype; integers where that is "int24"."""

# Rows go to the device in batches of at most this many bytes, so that a batch of any
# size runs in bounded device memory and no dispatch takes long.
MAX_BATCH_BYTES = 64 << 20

GraphExecution = Literal["fused_op", "band_fft_host", "block_fft_host"]


class WelchEngine(Protocol):
    """Protocol of an engine that computes one spec over rows x [B, T].

    Coroutines, for hosts that must be awaited; elsewhere `drive` runs them to the end.
    Of a `band` that is given they tell its bins alone.
    """

    @property
    def device(self) -> Device: ...

    @property
    def name(self) -> str: ...

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        """Return the average power [B, F] of the spec's `power_dtype`."""

    async def strongest_bins(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None = None
    ) -> BinsAndPower:
        """Return (bins [B, k] int64, power [B, k]), strongest first, ties to the
        smaller bin.
        """

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        """Return True when a run of this shape needs no compiling first."""


@dataclass(frozen=True, slots=True)
class NumpyEngine:
    """Engine that computes rows in cache-sized blocks on a few threads with NumPy.

    may_trigger_compile  what it took counts towards a kernel for the next time
    """

    device: Device = Device.CPU
    name: str = CPU_IDENTITY.name
    may_trigger_compile: bool = True

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        start = perf_counter()
        power = self._power(x, spec)
        if self.may_trigger_compile:
            _compile_if_profitable(spec, 0, perf_counter() - start)
        return power if band is None else power[:, band.bins]

    def _power(self, x: SampleRows, spec: WelchSpec) -> Power:
        if not isinstance(x, Digital):
            return welch_power(np.asarray(x), spec)
        # Physical values take several times the memory of what was recorded.
        step = max(1, MAX_BATCH_BYTES // (8 * x.shape[1]))
        parts = [
            welch_power(x.rows(slice(start, start + step)).physical(), spec)
            for start in range(0, x.shape[0], step)
        ]
        return np.concatenate(parts) if parts else welch_power(x.physical(), spec)

    async def strongest_bins(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None = None
    ) -> BinsAndPower:
        start = perf_counter()
        bins_and_power = strongest_bins_in_band(self._power(x, spec), k, band)
        seconds = perf_counter() - start
        if self.may_trigger_compile:
            _compile_if_profitable(spec, k if band is None else 0, seconds)
        return bins_and_power

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        return True


NUMPY_ENGINE = NumpyEngine()
NUMPY_ENGINE_WITHOUT_COMPILE = NumpyEngine(may_trigger_compile=False)
"""Engine for estimates that no kernel computes, now or the next time."""


def strongest_bins_in_band(power: Power, k: int, band: BinRange | None) -> BinsAndPower:
    """Return the strongest bins, within a band, of whole spectra (B, F)."""
    if band is None:
        return strongest_bins(power, k)
    bins, bin_power = strongest_bins(power[:, band.bins], k)
    return bins + band.first, bin_power


def _compile_if_profitable(spec: WelchSpec, k: int, seconds: float) -> None:
    """Record the time that NumPy took, so that a kernel is compiled for the next time
    where that pays.
    """
    if welch_kernels.is_enabled:
        kernel_key = welch_kernel_key(spec, k)
        if not isinstance(kernel_key, str):
            welch_kernels.record_fallback_time(kernel_key, seconds)


@dataclass(slots=True)
class WelchGraphEngine:
    """Engine that runs a graph with one Welch op, compiled per batch shape.

    execution  "fused_op": the device searches the peaks too, or, "band_fft_host", cuts
               the band out; "block_fft_host": it averages the spectrum, which comes
               back whole, and the host does the rest

    Threads and tasks take turns. What was compiled is kept by the device's engine and
    goes with it when that is lost, and so does the run.
    """

    device: Device
    adapter: str = ""
    execution: GraphExecution = "fused_op"

    @property
    def name(self) -> str:
        return pool.engine(self.device.label, self.adapter).name

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        device_band = self._device_band(spec, band)
        power = await self._run_rows(x, spec, 0, device_band)
        return power if band is device_band or band is None else power[:, band.bins]

    async def strongest_bins(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None = None
    ) -> BinsAndPower:
        if not self._device_k(spec, k):
            return strongest_bins_in_band(
                await self._run_rows(x, spec, 0, None), k, band
            )
        pairs = await self._run_rows(x, spec, k, band)
        bins = pairs[:, 0::2].astype(np.int64) + (0 if band is None else band.first)
        return bins, np.ascontiguousarray(pairs[:, 1::2])

    def _device_k(self, spec: WelchSpec, k: int) -> int:
        """Return the number of peaks that the device searches for."""
        return k if self.execution == "fused_op" and not spec.has_level else 0

    def _device_band(self, spec: WelchSpec, band: BinRange | None) -> BinRange | None:
        """Return the band that the device cuts out; None where it computes whole
        spectra.
        """
        return (
            band if self.execution == "band_fft_host" and not spec.has_level else None
        )

    async def _run_rows(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None
    ) -> Power:
        """Run all rows on the device in batches; return [B, F], or pairs [B, 2k]."""
        n_rows, n_samples = x.shape
        width = 2 * k or (spec.n_freqs if band is None else len(band))
        out = np.empty((n_rows, width), spec.power_dtype)
        step = device_batch_rows(spec, n_samples)
        last_size = n_rows % step
        sizes = [step] * (n_rows // step) + [last_size] * (last_size > 0)
        engine = await pool.engine_async(self.device.label, self.adapter)
        async with engine_caches(engine).run_lock:
            first_row = 0
            for size, batches_of_size in groupby(sizes):
                shape = size, n_samples
                program = await self._get_program(
                    engine, shape, _device_spec(spec), k, band
                )
                starts = range(
                    first_row, first_row + size * len(list(batches_of_size)), size
                )
                batches, first_row = [slice(i, i + size) for i in starts], starts.stop
                if isinstance(x, DeviceRows):
                    await _run_device_batches(program, engine, x, batches, out)
                else:
                    await _run_host_batches(program, x, batches, spec, k, out)
        return out

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        k = self._device_k(spec, k)
        band = band if k else self._device_band(spec, band)
        n_rows, n_samples = shape
        step = device_batch_rows(spec, n_samples)
        sizes = {min(step, n_rows), n_rows % step or min(step, n_rows)}
        device_spec = _device_spec(spec)
        engine = pool.engine(self.device.label, self.adapter)
        programs = engine_caches(engine).programs
        return all(((n, n_samples), device_spec, k, band) in programs for n in sizes)

    async def _get_program(
        self,
        engine: Engine,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None,
    ) -> CompiledGraph:
        """Return the compiled graph of a batch shape from the engine's cache, compiling
        it if needed.
        """
        from rlxweb.ops.welch.graph import welch_graph
        from rlxweb.runtime.session import Session

        key = (shape, spec, k, band)
        programs = engine_caches(engine).programs
        program: CompiledGraph | None = programs.get(key)
        if program is None:
            session = Session(self.device, adapter=self.adapter, strict=True)
            bins = None if band is None else (band.first, band.stop)
            program = await session.compiled(welch_graph(shape, spec, k, bins))
            programs.put(key, program, program.nbytes + len(spec.window))
            # Whose last reference this was frees its buffers with the next run.
            programs.evict()
        return program


async def _run_device_batches(
    program: CompiledGraph,
    engine: Engine,
    x: DeviceRows,
    batches: Sequence[slice],
    out: Power,
) -> None:
    """Run batches of rows that are on the device."""
    for batch in batches:
        raise_if_cancelled()
        part = await x.slice_rows(engine, batch.start, batch.stop)
        (out[batch],) = await program.computed({"x": part.array}, strict=True)


async def _run_host_batches(
    program: CompiledGraph,
    x: HostRows,
    batches: Sequence[slice],
    spec: WelchSpec,
    k: int,
    out: Power,
) -> None:
    """Run batches of host rows, in their own units; the device may get the next batch
    before the answer of the one before is read.
    """
    pending: deque[CenteredIntegerRows | None] = deque()
    remaining_batches = iter(batches)

    def make_feeds() -> Iterator[dict[str, Any]]:
        """Yield the inputs of each batch."""
        for batch in batches:
            raise_if_cancelled()
            part = x.rows(batch) if isinstance(x, Digital) else x[batch]
            levelled = center_integer_rows(part) if spec.is_digital else None
            pending.append(levelled)
            yield {"x": np.asarray(part) if levelled is None else levelled.x}

    def store_output(outputs: list[Power]) -> None:
        """Store the answer of the next batch in its units."""
        (answer,), levelled = outputs, pending.popleft()
        if levelled is not None and k:
            levels = levelled.to_physical_units(answer[:, 1::2])
            answer = answer.astype(np.float64)
            answer[:, 1::2] = levels
        elif levelled is not None:
            answer = levelled.physical_power(answer, spec)
        out[next(remaining_batches)] = answer

    await program.computed_each(make_feeds(), store_output)


@lru_cache_if_small(128, lambda spec: spec.nperseg <= SMALL_TABLE_SAMPLES)
def _device_spec(spec: WelchSpec) -> WelchSpec:
    """Return the estimate as a device computes it."""
    return replace(spec, dtype="float32") if spec.is_digital else spec


@lru_cache(maxsize=32)
def device_engine(
    device: Device, adapter: str = "", execution: GraphExecution = "fused_op"
) -> WelchGraphEngine:
    """Return the engine of a device, cached so that its compiled graphs are reused."""
    return WelchGraphEngine(device, adapter, execution)


def device_batch_rows(spec: WelchSpec, n_samples: int) -> int:
    """Return the number of rows that are sent to a device at once.

    Many are a multiple of 64: rows of any length begin on 256 bytes then, from where
    those that lie on a device can be bound.
    """
    rows = max(1, MAX_BATCH_BYTES // (4 * max(1, n_samples, spec.n_freqs)))
    return rows if rows < 64 else rows - rows % 64
