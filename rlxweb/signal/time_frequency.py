"""What spectrograms and wavelets return: values over frequency and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError
from rlxweb.results.image import image
from rlxweb.results.labels import UNNAMED, Labels
from rlxweb.results.ran import Ran
from rlxweb.results.result import Result
from rlxweb.results.stored import State
from rlxweb.results.tables import Axis, Labelled, Variable, batch_axes
from rlxweb.results.units import power_unit
from rlxweb.signal.spectrum import decibels, of_plain, plain_of

if TYPE_CHECKING:
    from typing import Self


class _Triple(NamedTuple):
    f: NDArray[np.float64]
    t: NDArray[np.float64]
    values: NDArray[Any]


class TimeFrequency(_Triple, Result):
    """Values over frequency and time; unpacks as f, t, values.

    f        (F,) in Hz
    t        (S,) in s
    values   (…, F, …, S) with F in the place that time had, on `axis`, and S last
    quantity "density", "spectrum" or "energy" (power of wavelets), "complex",
             "magnitude", "phase"
    labels   names of the axes before, and the unit of the samples
    fs       of the samples, in Hz
    ran      engine, decision and wall time
    """

    quantity: str = "density"
    axis: int = -2
    fs: float = 0.0
    labels: Labels = UNNAMED
    ran: Ran = Ran()

    @classmethod
    def of(
        cls,
        f: NDArray[np.float64],
        t: NDArray[np.float64],
        values: NDArray[Any],
        **about: Any,
    ) -> Self:
        """With some of the attributes above."""
        own = cls(f, t, values)
        own.__dict__.update(about)
        return own

    def named(self, labels: Labels) -> Self:
        """The same with names for the axes of its batch."""
        return type(self).of(*self, **{**self.__dict__, "labels": labels})

    @property
    def unit(self) -> str:
        """Of the values; "" where the unit of the samples is not known."""
        return power_unit(self.labels.unit, self.quantity)

    @property
    def engine(self) -> str:
        """That computed it."""
        return self.ran.engine

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.values.shape))
        span = f"{self.f[0]:g} … {self.f[-1]:g} Hz" if len(self.f) else "no frequency"
        until = f"{self.t[0]:g} … {self.t[-1]:g} s" if len(self.t) else "no time"
        return f"TimeFrequency({shape} {self.values.dtype}, {span}, {until})"

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
            Axis("time", self.t, "s", "time from the first sample"),
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

    def _state(self) -> State:
        plain = {"quantity": self.quantity, "axis": self.axis, "fs": self.fs}
        return State(self._asdict(), {**plain, **plain_of(self.labels, self.ran)})

    @classmethod
    def _of_state(cls, state: State) -> Self:
        kept = {name: state.plain[name] for name in ("quantity", "axis", "fs")}
        labels, ran = of_plain(state.plain)
        f, t, values = (state.arrays[name] for name in cls._fields)
        return cls.of(f, t, values, **kept, labels=labels, ran=ran)

    def _picture(self) -> str:
        if not self.values.size or np.prod(self.values.shape[:-2], initial=1) < 1:
            return ""
        names, values = self.by_rows()
        level = values[0]
        if self.quantity in ("density", "spectrum", "energy", "complex", "magnitude"):
            level = decibels(np.abs(level))
        return image(level, self.t, self.f, names[0], ("s", "Hz"))
