"""Exact centering of integer samples for engines that compute in float32.

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

from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import UsageError
from rlxweb.ops.welch.cpu.segment_fft_workspace import welch_tables
from rlxweb.ops.welch.cpu.spectrum import BLOCK_SAMPLES, segment_view
from rlxweb.ops.welch.spec import WelchSpec


@dataclass(frozen=True, slots=True, eq=False)
class CenteredIntegerRows:
    """Integer rows with their DC level removed; the samples they represent are gain ·
    (x + dc_level).

    x      (B, T) float32, whole numbers
    dc_level  (B,) in counts, the offset included
    gain   (B,) in physical units per count
    """

    x: NDArray[np.float32]
    dc_level: NDArray[np.float64]
    gain: NDArray[np.float64]

    def physical_power(
        self, centered_power: NDArray[Any], spec: WelchSpec
    ) -> NDArray[np.float64]:
        """Return the power (B, F) in physical units, given the float32 power of x.

        Errors   UsageError where float64 cannot hold it.
        """
        power = centered_power.astype(np.float64)
        if spec.detrend is None:
            rows = max(1, BLOCK_SAMPLES // spec.nfft)
            for start in range(0, len(power), rows):
                row_slice = slice(start, start + rows)
                power[row_slice] += self._dc_level_power(row_slice, spec)
            # Terms that cancel leave their rounding.
            np.maximum(power, 0.0, out=power)
        return self.to_physical_units(power)

    def to_physical_units(self, power: NDArray[Any]) -> NDArray[np.float64]:
        """Convert power (B, …) of counts to physical units. Raises UsageError where
        float64 cannot hold it.
        """
        with np.errstate(over="ignore"):
            physical: NDArray[np.float64] = power * self.gain[:, None] ** 2
        if not np.isfinite(physical).all():
            row = int((~np.isfinite(physical)).any(axis=1).argmax())
            raise UsageError(
                "welch",
                f"the power of channel {row} exceeds the range of float64",
                f"one digital step is {self.gain[row]:.3g} in physical units",
                "express the samples in a larger unit",
            )
        return physical

    def _dc_level_power(self, rows: slice, spec: WelchSpec) -> NDArray[np.float64]:
        """Return the power (b, F) that the DC levels of a few rows add to the power of
        x.
        """
        count = spec.segments_per_row(self.x.shape[1])
        segments = segment_view(self.x[rows], spec.nperseg, spec.hop, count)
        mean = np.add.reduce(segments, axis=1, dtype=np.float64) / count
        mean_spectrum = np.fft.rfft(mean * spec.window_array, spec.nfft)
        window_spectrum = np.fft.rfft(spec.window_array, spec.nfft)
        level = self.dc_level[rows, None]
        cross_term = 2.0 * (window_spectrum.conj() * mean_spectrum).real
        square_term = level * np.abs(window_spectrum) ** 2
        added_power: NDArray[np.float64] = (
            welch_tables(spec).weights * level * (cross_term + square_term)
        )
        return added_power


def center_integer_rows(x: NDArray[Any] | Digital) -> CenteredIntegerRows:
    """Center integer rows (B, T) of at most 24 bits exactly; an array is taken as
    counts with no scaling.

    The level is near the row's mean, and the difference of two integers of 24 bits is
    one that float32 holds.
    """
    digital = x if isinstance(x, Digital) else Digital(x)
    level = np.rint(digital.counts.mean(axis=1, dtype=np.float64))
    rows = np.empty(digital.shape, np.float32)
    np.subtract(
        digital.counts,
        level.astype(np.float32)[:, None],
        out=rows,
        dtype=np.float32,
        casting="unsafe",
    )
    return CenteredIntegerRows(rows, level + digital.offset, digital.gain)
