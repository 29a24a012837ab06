"""Integers on an engine that computes in float32: exact going in, float64 coming out.

Every row gives up one whole number, its level, which leaves integers that float32 holds
exactly however far the row lies from zero. Gain and offset are applied to the power in
float64. Where nothing is removed from the segments the level belongs to the answer: the
spectrum of (x + L)·w is that of x·w and L times the window's, so its mean power follows
from the device's and from one transform of the mean segment. Knows no engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.digital import Digital
from rlxweb.errors import UsageError
from rlxweb.host.segment_power import tables
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import BLOCK_SAMPLES, frames


@dataclass(frozen=True, slots=True, eq=False)
class LevelRows:
    """Rows about their level, and what they stand for: gain · (x + level).

    x      (B, T) float32, whole numbers
    level  (B,) in counts, the offset included
    gain   (B,) in physical units per count
    """

    x: NDArray[np.float32]
    level: NDArray[np.float64]
    gain: NDArray[np.float64]

    def power(self, found: NDArray[Any], spec: WelchSpec) -> NDArray[np.float64]:
        """Power (B, F) in physical units, from the float32 power of x.

        Errors   UsageError where float64 cannot hold it.
        """
        power = found.astype(np.float64)
        if spec.detrend is None:
            rows = max(1, BLOCK_SAMPLES // spec.nfft)
            for at in range(0, len(power), rows):
                mine = slice(at, at + rows)
                power[mine] += self._of_level(mine, spec)
            # Terms that cancel leave their rounding.
            np.maximum(power, 0.0, out=power)
        return self.scaled(power)

    def scaled(self, power: NDArray[Any]) -> NDArray[np.float64]:
        """Power (B, …) of counts in physical units. Errors  as `power`."""
        with np.errstate(over="ignore"):
            wide: NDArray[np.float64] = power * self.gain[:, None] ** 2
        if not np.isfinite(wide).all():
            row = int((~np.isfinite(wide)).any(axis=1).argmax())
            raise UsageError(
                "welch",
                f"the power of channel {row} is over the largest float64",
                f"a count of it stands for {self.gain[row]:.3g}",
                "give the samples in a larger unit",
            )
        return wide

    def _of_level(self, rows: slice, spec: WelchSpec) -> NDArray[np.float64]:
        """What the levels of a few rows add to the power of x, (b, F)."""
        count = spec.segments_of(self.x.shape[1])
        cut = frames(self.x[rows], spec.nperseg, spec.hop, count)
        mean = np.add.reduce(cut, axis=1, dtype=np.float64) / count
        own = np.fft.rfft(mean * spec.window_array, spec.nfft)
        window = np.fft.rfft(spec.window_array, spec.nfft)
        level = self.level[rows, None]
        crossed = 2.0 * (window.conj() * own).real
        squared = level * np.abs(window) ** 2
        added: NDArray[np.float64] = tables(spec).weights * level * (crossed + squared)
        return added


def level_rows(x: NDArray[Any] | Digital) -> LevelRows:
    """Rows (B, T) of integers of at most 24 bits, exactly; an array stands for itself.

    The level is near the row's mean, and the difference of two integers of 24 bits is
    one that float32 holds.
    """
    own = x if isinstance(x, Digital) else Digital(x)
    level = np.rint(own.counts.mean(axis=1, dtype=np.float64))
    rows = np.empty(own.shape, np.float32)
    np.subtract(
        own.counts,
        level.astype(np.float32)[:, None],
        out=rows,
        dtype=np.float32,
        casting="unsafe",
    )
    return LevelRows(rows, level + own.offset, own.gain)
