"""Result class of values over frequency and time, as spectrograms and wavelets return
them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError
from rlxweb.results.array_result import ArrayResult
from rlxweb.results.labelled_arrays import (
    LabelledArrays,
    ResultAxis,
    ResultVariable,
    batch_axes,
)
from rlxweb.results.labels import Labels
from rlxweb.results.power_units import power_to_decibels
from rlxweb.results.svg_time_frequency import svg_image
from rlxweb.signal.rounding_floor import RoundingFloor

_TIME_DESCRIPTIONS = ("time from the first sample", "time from the event")


class _TimeFrequencyArrays(NamedTuple):
    """Arrays that a TimeFrequency unpacks into."""

    f: NDArray[np.float64]
    t: NDArray[np.float64]
    values: NDArray[Any]


class TimeFrequency(_TimeFrequencyArrays, ArrayResult):
    """Values over frequency and time; unpacks as f, t, values.

    f        (F,) in Hz
    t        (S,) in s; of epochs, from what they are around; of a stretch of a file,
             from the file's first sample, as onsets of annotations
    values   (…, F, …, S) with F in the place that time had, on `axis`, and S last
    quantity "density", "spectrum" or "energy" (power of wavelets), "complex",
             "magnitude", "phase"
    labels   names of the axes before, and the unit of the samples
    fs       of the samples, in Hz
    ran      engine, decision and wall time
    floor    of the power of segments: what rounding alone may leave in it; None where
             it is not known
    """

    axis = -2
    floor: RoundingFloor | None = None

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.values.shape))
        span = f"{self.f[0]:g} … {self.f[-1]:g} Hz" if len(self.f) else "no frequencies"
        time_span = f"{self.t[0]:g} … {self.t[-1]:g} s" if len(self.t) else "no times"
        return f"TimeFrequency({shape} {self.values.dtype}, {span}, {time_span})"

    def named(self, labels: Labels) -> TimeFrequency:
        """Return the same values with names for the batch's axes, and times shifted by
        the labels' start.
        """
        delay = labels.begins - self.labels.begins
        attributes = {**self.__dict__, "labels": labels}
        return type(self).of(self.f, self.t + delay, self.values, **attributes)

    def by_rows(self) -> tuple[tuple[str, ...], NDArray[Any]]:
        """Return the names of the rows, and their values (B, F, S)."""
        values = self._frequency_time_last()
        batch_shape = values.shape[:-2]
        names = self.labels.fitted(batch_shape).rows(batch_shape)
        return names, values.reshape(-1, *values.shape[-2:])

    def labelled(self) -> LabelledArrays:
        values = self._frequency_time_last()
        labels = self.labels.fitted(values.shape[:-2])
        axes = (
            *batch_axes(labels, values.shape[:-2]),
            ResultAxis("frequency", self.f, "Hz", "frequency"),
            ResultAxis("time", self.t, "s", _TIME_DESCRIPTIONS[labels.event]),
        )
        name = "power" if self.quantity in ("density", "spectrum", "energy") else ""
        variable = ResultVariable(
            name or self.quantity,
            values,
            (*labels.dims, "frequency", "time"),
            self.unit,
            self.quantity,
        )
        return LabelledArrays(axes, (variable,), {"fs": self.fs, "engine": self.engine})

    def _frequency_time_last(self) -> NDArray[Any]:
        """Return the values as (…, F, S)."""
        if not self.values.size:
            raise UsageError(
                "spectrogram",
                "the result is empty",
                "pass at least one channel and one sample",
            )
        return np.moveaxis(self.values, self.axis, -2)

    def _svg(self) -> str:
        if not self.values.size or np.prod(self.values.shape[:-2], initial=1) < 1:
            return ""
        names, values = self.by_rows()
        level = values[0]
        if self.quantity in ("density", "spectrum", "energy", "complex", "magnitude"):
            level = power_to_decibels(np.abs(level))
        return svg_image(level, self.t, self.f, names[0], ("s", "Hz"))
