"""Engines that run a learned transform: NumPy, or its graph on any device.

Part of every answer is held against the exact one: recordings that are unlike those it
was trained on are refused, not computed wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.device import Device
from rlxweb.digital import Digital
from rlxweb.errors import Unsupported
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.accuracy import check
from rlxweb.signal.band_engine import OfBand
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.engine import Power, Rows, batch_rows
from rlxweb.signal.learned.in_numpy import learned_power
from rlxweb.signal.learned.on_graph import learned_graph
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.rows_there import RowsThere
from rlxweb.stopping import check_stopped


@dataclass(frozen=True, slots=True)
class LearnedEngine(OfBand):
    """A transform on the CPU, or where `device` says.

    limit    what the power may be off by on the rows that are checked
    """

    transform: LearnedTransform
    limit: float
    device: Device = Device.CPU
    adapter: str = ""

    @property
    def name(self) -> str:
        if self.device is Device.CPU:
            return CPU_ENGINE[0]
        return pool.backend(self.device.label, self.adapter).name

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        assert band is not None  # the chooser offers it for bands alone
        if isinstance(x, RowsThere):
            raise Unsupported("a learned transform", "the rows lie on a device")

        async def some(rows: Any, own: WelchSpec) -> Power:
            samples = _samples(rows)
            if self.device is Device.CPU:
                return learned_power(samples, own, self.transform, band)
            return await self._there(samples, own, band)

        await check(x, spec, band, self.limit, some)
        out = np.empty((x.shape[0], len(band)), spec.power_dtype)
        step = batch_rows(spec, x.shape[1])
        for at in range(0, len(out), step):
            check_stopped()
            mine = slice(at, at + step)
            part = x.rows(mine) if isinstance(x, Digital) else x[mine]
            out[mine] = await some(part, spec)
        return out

    async def _there(self, x: Any, spec: WelchSpec, band: Band) -> Power:
        """A batch of rows through the graph."""
        from rlxweb.runtime.session import Session

        backend = await pool.backend_async(self.device.label, self.adapter)
        key = ("learned", x.shape, spec, self.transform, band)
        async with backend.turn:
            program = backend.kept.get(key)
            if program is None:
                session = Session(self.device, adapter=self.adapter, strict=True)
                graph = learned_graph(x.shape, spec, self.transform, band)
                program = await session.compiled(graph)
                backend.kept.put(key, program, program.nbytes + 8 * self.transform.n)
                backend.kept.trim()
            (power,) = await program.computed({"x": x}, strict=True)
        return np.asarray(power)

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        if self.device is Device.CPU or band is None:
            return band is not None
        kept = pool.backend(self.device.label, self.adapter).kept
        rows = min(shape[0], batch_rows(spec, shape[1]))
        return ("learned", (rows, shape[1]), spec, self.transform, band) in kept


def _samples(rows: Any) -> np.typing.NDArray[Any]:
    """Rows of floats; of integers their physical values."""
    if isinstance(rows, Digital):
        return rows.physical()
    array = np.asarray(rows)
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)
