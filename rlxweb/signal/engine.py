"""The engines a Welch estimate can run on: NumPy on the host, or a graph on a device.

All answer the same two questions, power and strongest bins, for checked rows [B, T].
Which one is asked is the chooser's business; what the estimate means is in the spec.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import CPU_ENGINE, Backend
from rlxweb.device import Device
from rlxweb.digital import Digital
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.signal.levels import level_rows
from rlxweb.stopping import check_stopped

if TYPE_CHECKING:  # a job on the CPU loads no compiler
    from rlxweb.runtime.session import CompiledGraph

Power = NDArray[Any]
Rows: TypeAlias = NDArray[Any] | Digital
"""Samples [B, T] as the spec's dtype says; where that is "int24", integers."""

# Rows go to the device in batches of at most this many bytes, so that a batch of any
# size runs in bounded device memory and no dispatch takes long.
BATCH_BYTES = 64 << 20

How = Literal["fused_op", "block_fft_host"]


class Engine(Protocol):
    """Runs one spec over rows x [B, T].

    Coroutines, for hosts that must be awaited; elsewhere `drive` runs them to the end.
    """

    @property
    def device(self) -> Device: ...

    @property
    def name(self) -> str: ...

    async def power(self, x: Rows, spec: WelchSpec) -> Power:
        """Average power [B, F] of the spec's `power_dtype`."""

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Power]:
        """(bins [B, k] int64, power [B, k]), strongest first, ties to the smaller."""

    def is_ready(self, shape: tuple[int, ...], spec: WelchSpec, k: int) -> bool:
        """True when a run of this shape needs no compiling first."""


@dataclass(frozen=True, slots=True)
class NumpyEngine:
    """Rows in cache-sized blocks on a few threads."""

    device: Device = Device.CPU
    name: str = CPU_ENGINE[0]

    async def power(self, x: Rows, spec: WelchSpec) -> Power:
        if not isinstance(x, Digital):
            return welch_power(x, spec)
        # Physical values take several times the memory of what was recorded.
        step = max(1, BATCH_BYTES // (8 * x.shape[1]))
        parts = [
            welch_power(x.rows(slice(at, at + step)).physical(), spec)
            for at in range(0, x.shape[0], step)
        ]
        return np.concatenate(parts) if parts else welch_power(x.physical(), spec)

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Power]:
        return strongest_bins(await self.power(x, spec), k)

    def is_ready(self, shape: tuple[int, ...], spec: WelchSpec, k: int) -> bool:
        return True


NUMPY = NumpyEngine()


@dataclass(slots=True)
class GraphEngine:
    """A graph with one Welch op, compiled per batch shape.

    how   "fused_op": the device searches the peaks too; "block_fft_host": it averages
          the spectrum, which comes back whole, and the host searches

    Threads and tasks take turns. What was compiled is kept by the device's engine and
    goes with it when that is lost, and so does the run.
    """

    device: Device
    adapter: str = ""
    how: How = "fused_op"

    @property
    def name(self) -> str:
        return pool.backend(self.device.label, self.adapter).name

    async def power(self, x: Rows, spec: WelchSpec) -> Power:
        return await self._rows(x, spec, 0)

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int
    ) -> tuple[NDArray[np.int64], Power]:
        if not self._searched(spec, k):
            return strongest_bins(await self._rows(x, spec, 0), k)
        pairs = await self._rows(x, spec, k)
        return pairs[:, 0::2].astype(np.int64), np.ascontiguousarray(pairs[:, 1::2])

    def _searched(self, spec: WelchSpec, k: int) -> int:
        """The k that the device searches for."""
        return 0 if self.how == "block_fft_host" or spec.has_level else k

    async def _rows(self, x: Rows, spec: WelchSpec, k: int) -> Power:
        """All rows through the device, in batches; [B, F], or pairs [B, 2k]."""
        n_rows, n_samples = x.shape
        width = 2 * k if k else spec.n_freqs
        out = np.empty((n_rows, width), spec.power_dtype)
        step = batch_rows(spec, n_samples)
        backend = await pool.backend_async(self.device.label, self.adapter)
        async with backend.turn:
            for at in range(0, n_rows, step):
                check_stopped()
                mine = slice(at, at + step)
                part = x.rows(mine) if isinstance(x, Digital) else x[mine]
                out[mine] = await self._batch(backend, part, spec, k)
        return out

    async def _batch(self, backend: Backend, x: Rows, spec: WelchSpec, k: int) -> Power:
        """What the device finds in a few rows, in their own units."""
        own = level_rows(x) if spec.is_digital else None
        rows = np.asarray(x) if own is None else own.x
        program = await self._program(backend, rows.shape, _single(spec), k)
        (found,) = await program.computed({"x": rows}, strict=True)
        if own is None:
            return found
        if not k:
            return own.power(found, spec)
        pairs = found.astype(np.float64)
        pairs[:, 1::2] = own.scaled(found[:, 1::2])
        return pairs

    def is_ready(self, shape: tuple[int, ...], spec: WelchSpec, k: int) -> bool:
        k = self._searched(spec, k)
        n_rows, n_samples = shape
        step = batch_rows(spec, n_samples)
        sizes = {min(step, n_rows), n_rows % step or min(step, n_rows)}
        own = _single(spec)
        kept = pool.backend(self.device.label, self.adapter).kept
        return all(((n, n_samples), own, k) in kept for n in sizes)

    async def _program(
        self, backend: Backend, shape: tuple[int, ...], spec: WelchSpec, k: int
    ) -> CompiledGraph:
        from rlxweb.host.welch_graph import welch_graph
        from rlxweb.runtime.session import Session

        key = (shape, spec, k)
        program: CompiledGraph | None = backend.kept.get(key)
        if program is None:
            session = Session(self.device, adapter=self.adapter, strict=True)
            program = await session.compiled(welch_graph(shape, spec, k))
            backend.kept.put(key, program, program.nbytes + len(spec.window))
            # Whose last reference this was frees its buffers with the next run.
            backend.kept.trim()
        return program


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
    """Rows that go to a device at once."""
    return max(1, BATCH_BYTES // (4 * max(1, n_samples, spec.n_freqs)))
