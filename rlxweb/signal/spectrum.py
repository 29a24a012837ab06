"""What `welch`, `multitaper`, `csd` and `coherence` return: values over frequency."""

from __future__ import annotations

import warnings
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.callers import outside
from rlxweb.errors import RlxWarning, ShapeError, UsageError
from rlxweb.given import array_of
from rlxweb.results.described import Described
from rlxweb.results.frames import library
from rlxweb.results.labels import UNNAMED, Labels
from rlxweb.results.ran import UNTOLD, Ran
from rlxweb.results.stored import State
from rlxweb.results.svg import Line, chart
from rlxweb.results.tables import Axis, Labelled, Variable, batch_axes
from rlxweb.results.units import beside, decibels
from rlxweb.signal.rounding import RoundingFloor, Shares

Array = NDArray[Any]

_NAMES: Final = {
    "density": "power spectral density",
    "spectrum": "power",
    "squares": "mean of |X|²",
    "length": "power spectral density times the rate",
    "csd": "cross power spectral density",
    "coherence": "magnitude squared coherence",
}
_OF_FLOOR: Final = ("floor_line", "floor_ripple", "floor_energy")
_VOLTS: Final = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6, "nV": 1e-9}


class _Pair(NamedTuple):
    f: NDArray[np.float64]
    power: Array


class Spectrum(_Pair, Described):
    """Values over frequency; unpacks as f, power.

    f        (F,) in Hz
    power    (…, F, …) with F in the place that time had, on `axis`
    quantity "density", "spectrum", "length" (density times fs), "squares" (|X|²),
             "csd" or "coherence"
    labels   names of the axes before, and the unit of the samples
    fs       of the samples, in Hz
    ran      engine, decision and wall time
    floor    power that rounding alone may leave, with the mean squares of the rows in
             the shape of the batch; None where it is not known
    """

    axis = -1
    floor: RoundingFloor | None = None

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.power.shape))
        # A two-sided spectrum has its negative frequencies behind the others.
        span = "no frequency"
        if self.f.size:
            span = f"{self.f.min():g} … {self.f.max():g} Hz"
        unit = f", {self.unit}" if self.unit else ""
        return f"Spectrum({self.quantity}, {shape} {self.power.dtype}, {span}{unit})"

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Rows (…) that hold nothing but rounding, such as those of a dead channel.

        Where no floor is known, rows without any power.
        """
        values = self._frequency_last()
        rows = values.reshape(-1, len(self.f))
        found = flat_rows(rows, self.floor, slice(None))
        return found.reshape(values.shape[:-1])

    def mean(self, dim: str = "epoch") -> Spectrum:
        found = super().mean(dim)
        if self.floor is not None:
            batch = self._frequency_last().shape[:-1]
            at = self.labels.fitted(batch).dims.index(dim)
            energy = self.floor.energy.mean(axis=at)
            found.__dict__["floor"] = self.floor._replace(energy=energy)
        return found

    def _state(self) -> State:
        state = super()._state()
        if self.floor is None:
            return state
        shares = self.floor.shares
        own = shares.line, shares.ripple, self.floor.energy
        arrays = dict(zip(_OF_FLOOR, own, strict=True))
        return State({**state.arrays, **arrays}, state.plain)

    @classmethod
    def _of_state(cls, state: State) -> Spectrum:
        found = super()._of_state(state)
        found.__dict__["floor"] = floor_of_state(dict(state.arrays))
        return found

    def by_rows(self) -> tuple[tuple[str, ...], Array]:
        """Names of the rows, and their values (B, F)."""
        values = self._frequency_last()
        names = self.labels.fitted(values.shape[:-1]).rows(values.shape[:-1])
        return names, values.reshape(-1, len(self.f))

    def labelled(self) -> Labelled:
        values = self._frequency_last()
        labels = self.labels.fitted(values.shape[:-1])
        about = _NAMES[self.quantity]
        axes = (
            *batch_axes(labels, values.shape[:-1]),
            Axis("frequency", self.f, "Hz", "frequency"),
        )
        dims = (*labels.dims, "frequency")
        name = self.quantity if self.quantity in ("csd", "coherence") else "power"
        own = Variable(name, values, dims, self.unit, about)
        return Labelled(axes, (own,), {"fs": self.fs, "engine": self.engine})

    def to_mne(self, info: Any = None) -> Any:
        """An mne.time_frequency.SpectrumArray, or EpochsSpectrumArray of epochs.

        info    an mne.Info of the channels; None: that of the mne object the samples
                came from, else one of EEG channels with the names that are known
        Units   V²/Hz, as MNE has them; samples without a unit are taken to be in V
        Errors  Unsupported where MNE is missing; UsageError for a spectrum of another
                kind or shape
        """
        doing = "Spectrum.to_mne"
        if self.quantity != "density" or self.power.ndim not in (2, 3):
            said = f"a {self.quantity} of shape {list(self.power.shape)}"
            rule = "a density of (channel, frequency) or (epoch, channel, frequency)"
            raise UsageError(doing, said, rule)
        mne = library("mne", doing, "pip install 'rlxweb[mne]'")
        values = self._frequency_last()
        labels = self.labels.fitted(values.shape[:-1])
        factor = _volts(labels.unit, doing) ** 2
        if info is None:
            info = labels.origin
        if info is None:
            names = labels.along(len(labels.names) - 1, values.shape[-2])
            info = mne.create_info(list(names), self.fs, "eeg")
        many = values.ndim == 3
        kind = mne.time_frequency.EpochsSpectrumArray if many else None
        kind = kind or mne.time_frequency.SpectrumArray
        return kind(values * factor, info, self.f, verbose="error")

    def _frequency_last(self) -> Array:
        if self.f.ndim != 1 or not self.f.size:
            raise _nothing("a spectrum")
        return np.moveaxis(self.power, self.axis, -1)

    def _picture(self) -> str:
        if self.f.ndim != 1 or not self.power.size:
            return ""
        names, values = self.by_rows()
        values = np.abs(values)
        label = beside(self.quantity, self.unit)
        if self.quantity != "coherence":
            values = decibels(values)
            label = f"dB re 1 {self.unit}" if self.unit else "dB"
        order = np.argsort(self.f)
        lines = [
            Line(name, self.f[order], row[order])
            for name, row in zip(names, values, strict=True)
        ]
        return chart(lines, label)


def floor_of_state(arrays: dict[str, Any]) -> RoundingFloor | None:
    """Take a spectrum's floor out of stored arrays; None where they have none."""
    if not all(name in arrays for name in _OF_FLOOR):
        return None
    line, ripple, energy = (arrays.pop(name) for name in _OF_FLOOR)
    shares = Shares(line, ripple, float(line.max(initial=0.0)))
    return RoundingFloor.of(shares, energy, float(energy.max(initial=0.0)))


class Density(NamedTuple):
    """Frequencies (F,) and power (…, F) over them, with what is known of both."""

    f: Any
    power: Any
    labels: Labels = UNNAMED
    ran: Ran = UNTOLD
    floor: RoundingFloor | None = None
    fs: float = 0.0


def density_of(f: Any, psd: Any, doing: str) -> Density:
    """Return the density that a caller gave, as a Spectrum or as two arrays.

    Raises
    ------
    UsageError
        Where one of both is missing, the quantity is no power, or the frequencies do
        not rise.
    ShapeError
        Where the last axis of the power is not that of the frequencies.
    """
    if isinstance(f, Spectrum) and psd is None:
        if f.quantity not in ("density", "spectrum", "length", "squares"):
            raise UsageError(doing, f"a {f.quantity} was given", "power is wanted")
        if f.f.ndim != 1 or not f.f.size:
            raise _nothing(doing)
        given = Density(
            f.f, np.moveaxis(f.power, f.axis, -1), f.labels, f.ran, f.floor, f.fs
        )
    elif psd is None:
        said = "frequencies alone were given"
        raise UsageError(doing, said, "f and psd, or a Spectrum")
    else:
        given = Density(f, psd)
    hz = array_of(given.f, doing).astype(np.float64)
    power = array_of(given.power, doing)
    if hz.ndim != 1 or power.ndim < 1 or power.shape[-1] != len(hz):
        raise ShapeError(
            doing,
            f"frequencies {list(hz.shape)} and power {list(power.shape)}",
            "the last axis of the power is that of the frequencies",
        )
    _check_rising(hz, doing)
    return given._replace(f=hz, power=power)


def _check_rising(hz: NDArray[np.float64], doing: str) -> None:
    """Raise UsageError unless these are two frequencies or more, rising."""
    if len(hz) < 2:
        raise UsageError(
            doing,
            f"the spectrum has {len(hz)} frequenc{'y' if len(hz) == 1 else 'ies'}",
            "at least 2 are wanted",
            "give a longer signal, or longer segments",
        )
    if not (np.diff(hz) > 0).all():
        at = int((~(np.diff(hz) > 0)).argmax()) + 1
        said = f"frequency {at} is {hz[at]:g} Hz after {hz[at - 1]:g} Hz"
        raise UsageError(doing, said, "frequencies rise")


def _nothing(doing: str) -> UsageError:
    said = "the spectrum holds nothing: it is of no samples or no channels"
    return UsageError(doing, said, hint="give at least one channel and one sample")


def flat_rows(
    rows: Array, floor: RoundingFloor | None, bins: slice | Array
) -> NDArray[np.bool_]:
    """Rows (B,) of power (B, F) with nothing but rounding in some bins.

    floor   of these rows, its energies in any shape; None: rows without any power
    """
    part = rows[:, bins]
    if floor is None:
        none: NDArray[np.bool_] = (part == 0).all(axis=1)
        return none
    own = floor._replace(energy=floor.energy.reshape(-1))
    return own.of_bins(bins).is_flat(part)


def warn_flat(
    doing: str, flat: NDArray[np.bool_], lost: str, rows: str = "row", where: str = ""
) -> None:
    """Warn of rows that hold nothing but rounding.

    lost   the values that are NaN for them
    rows   one of the rows, in a word
    where  the part of the spectrum that was looked at
    """
    count = int(flat.sum())
    if count:
        some = f"{count} of {flat.size} {rows}s" if flat.size > 1 else f"the {rows}"
        be = "is" if count == 1 else "are"
        said = f"{doing}: {some} {be} flat{where} (nothing but rounding)"
        warnings.warn(RlxWarning(said, f"{lost} NaN there"), stacklevel=outside())


def _volts(unit: str, doing: str) -> float:
    if unit and unit not in _VOLTS:
        raise UsageError(
            doing, f"the samples are in {unit!r}", "MNE has V", "scale them first"
        )
    return _VOLTS.get(unit, 1.0)
