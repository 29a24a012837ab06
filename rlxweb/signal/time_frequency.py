"""What spectrograms and wavelets return: values over frequency and time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError
from rlxweb.results.described import Described
from rlxweb.results.image import image
from rlxweb.results.labels import Labels
from rlxweb.results.tables import Axis, Labelled, Variable, batch_axes
from rlxweb.results.units import decibels
from rlxweb.signal.rounding import RoundingFloor

_SINCE = ("time from the first sample", "time from the event")


class _Triple(NamedTuple):
    f: NDArray[np.float64]
    t: NDArray[np.float64]
    values: NDArray[Any]


class TimeFrequency(_Triple, Described):
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
        span = f"{self.f[0]:g} … {self.f[-1]:g} Hz" if len(self.f) else "no frequency"
        until = f"{self.t[0]:g} … {self.t[-1]:g} s" if len(self.t) else "no time"
        return f"TimeFrequency({shape} {self.values.dtype}, {span}, {until})"

    def named(self, labels: Labels) -> TimeFrequency:
        """The same with names for the axes of its batch, and times as they say."""
        later = labels.begins - self.labels.begins
        own = {**self.__dict__, "labels": labels}
        return type(self).of(self.f, self.t + later, self.values, **own)

    def by_rows(self) -> tuple[tuple[str, ...], NDArray[Any]]:
        """Names of the rows, and their values (B, F, S)."""
        values = self._ordered()
        batch = values.shape[:-2]
        names = self.labels.fitted(batch).rows(batch)
        return names, values.reshape(-1, *values.shape[-2:])

    def labelled(self) -> Labelled:
        values = self._ordered()
        labels = self.labels.fitted(values.shape[:-2])
        axes = (
            *batch_axes(labels, values.shape[:-2]),
            Axis("frequency", self.f, "Hz", "frequency"),
            Axis("time", self.t, "s", _SINCE[labels.event]),
        )
        name = "power" if self.quantity in ("density", "spectrum", "energy") else ""
        own = Variable(
            name or self.quantity,
            values,
            (*labels.dims, "frequency", "time"),
            self.unit,
            self.quantity,
        )
        return Labelled(axes, (own,), {"fs": self.fs, "engine": self.engine})

    def _ordered(self) -> NDArray[Any]:
        """(…, F, S)."""
        if not self.values.size:
            raise UsageError("a spectrogram", "it holds nothing", "give samples")
        return np.moveaxis(self.values, self.axis, -2)

    def _picture(self) -> str:
        if not self.values.size or np.prod(self.values.shape[:-2], initial=1) < 1:
            return ""
        names, values = self.by_rows()
        level = values[0]
        if self.quantity in ("density", "spectrum", "energy", "complex", "magnitude"):
            level = decibels(np.abs(level))
        return image(level, self.t, self.f, names[0], ("s", "Hz"))
