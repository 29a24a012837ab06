"""Result class of values over frequency, as `welch`, `multitaper`, `csd` and
`coherence` return them.
"""

from __future__ import annotations

import warnings
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import RlxWarning, ShapeError, UsageError
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.results.array_result import ArrayResult
from rlxweb.results.dataframes import import_optional
from rlxweb.results.labelled_arrays import (
    LabelledArrays,
    ResultAxis,
    ResultVariable,
    batch_axes,
)
from rlxweb.results.labels import NO_LABELS, Labels
from rlxweb.results.power_units import label_with_unit, power_to_decibels
from rlxweb.results.ran import UNKNOWN_RUN, Ran
from rlxweb.results.result_files import ResultState
from rlxweb.results.svg_charts import ChartLine, svg_line_chart
from rlxweb.signal.rounding_floor import RoundingFloor, RoundingShares

Array = NDArray[Any]

_QUANTITY_NAMES: Final = {
    "density": "power spectral density",
    "spectrum": "power",
    "squares": "mean of |X|²",
    "length": "power spectral density times the sampling rate",
    "csd": "cross power spectral density",
    "coherence": "magnitude squared coherence",
}
_FLOOR_KEYS: Final = ("floor_line", "floor_ripple", "floor_energy")
_VOLTS_BY_UNIT: Final = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6, "nV": 1e-9}


class _SpectrumArrays(NamedTuple):
    """Arrays that a Spectrum unpacks into."""

    f: NDArray[np.float64]
    power: Array


class Spectrum(_SpectrumArrays, ArrayResult):
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
        span = "no frequencies"
        if self.f.size:
            span = f"{self.f.min():g} … {self.f.max():g} Hz"
        unit = f", {self.unit}" if self.unit else ""
        return f"Spectrum({self.quantity}, {shape} {self.power.dtype}, {span}{unit})"

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Rows (…) that contain only rounding errors, such as those of a dead channel.

        Where no floor is known, rows without any power.
        """
        values = self._frequency_last()
        rows = values.reshape(-1, len(self.f))
        flat = flat_row_mask(rows, self.floor, slice(None))
        return flat.reshape(values.shape[:-1])

    def mean(self, dim: str = "epoch") -> Spectrum:
        average = super().mean(dim)
        if self.floor is not None:
            batch_shape = self._frequency_last().shape[:-1]
            axis = self.labels.fitted(batch_shape).dims.index(dim)
            energy = self.floor.energy.mean(axis=axis)
            average.__dict__["floor"] = self.floor._replace(energy=energy)
        return average

    def _to_state(self) -> ResultState:
        state = super()._to_state()
        if self.floor is None:
            return state
        shares = self.floor.shares
        values = shares.line, shares.ripple, self.floor.energy
        arrays = dict(zip(_FLOOR_KEYS, values, strict=True))
        return ResultState({**state.arrays, **arrays}, state.json_data)

    @classmethod
    def _from_state(cls, state: ResultState) -> Spectrum:
        spectrum = super()._from_state(state)
        spectrum.__dict__["floor"] = pop_stored_floor(dict(state.arrays))
        return spectrum

    def by_rows(self) -> tuple[tuple[str, ...], Array]:
        """Return the names of the rows, and their values (B, F)."""
        values = self._frequency_last()
        names = self.labels.fitted(values.shape[:-1]).rows(values.shape[:-1])
        return names, values.reshape(-1, len(self.f))

    def labelled(self) -> LabelledArrays:
        values = self._frequency_last()
        labels = self.labels.fitted(values.shape[:-1])
        description = _QUANTITY_NAMES[self.quantity]
        axes = (
            *batch_axes(labels, values.shape[:-1]),
            ResultAxis("frequency", self.f, "Hz", "frequency"),
        )
        dims = (*labels.dims, "frequency")
        name = self.quantity if self.quantity in ("csd", "coherence") else "power"
        variable = ResultVariable(name, values, dims, self.unit, description)
        return LabelledArrays(axes, (variable,), {"fs": self.fs, "engine": self.engine})

    def to_mne(self, info: Any = None) -> Any:
        """Return an mne.time_frequency.SpectrumArray, or EpochsSpectrumArray of epochs.

        info    an mne.Info of the channels; None: that of the mne object the samples
                came from, else one of EEG channels with the names that are known
        Units   V²/Hz, as MNE has them; samples without a unit are taken to be in V
        Errors  Unsupported where MNE is missing; UsageError for a spectrum of another
                kind or shape
        """
        context = "Spectrum.to_mne"
        if self.quantity != "density" or self.power.ndim not in (2, 3):
            message = (
                f"the Spectrum has quantity {self.quantity!r} and shape "
                f"{list(self.power.shape)}"
            )
            rule = (
                "expected quantity 'density' and shape (channel, frequency) or (epoch, "
                "channel, frequency)"
            )
            raise UsageError(context, message, rule)
        mne = import_optional("mne", context, "pip install 'rlxweb[mne]'")
        values = self._frequency_last()
        labels = self.labels.fitted(values.shape[:-1])
        factor = _volts_per_unit(labels.unit, context) ** 2
        if info is None:
            info = labels.origin
        if info is None:
            names = labels.along(len(labels.names) - 1, values.shape[-2])
            info = mne.create_info(list(names), self.fs, "eeg")
        has_epochs = values.ndim == 3
        array_class = mne.time_frequency.EpochsSpectrumArray if has_epochs else None
        array_class = array_class or mne.time_frequency.SpectrumArray
        return array_class(values * factor, info, self.f, verbose="error")

    def _frequency_last(self) -> Array:
        """Return the values with frequency as the last axis. Raises UsageError for an
        empty spectrum.
        """
        if self.f.ndim != 1 or not self.f.size:
            raise _empty_spectrum_error("a spectrum")
        return np.moveaxis(self.power, self.axis, -1)

    def _svg(self) -> str:
        if self.f.ndim != 1 or not self.power.size:
            return ""
        names, values = self.by_rows()
        values = np.abs(values)
        label = label_with_unit(self.quantity, self.unit)
        if self.quantity != "coherence":
            values = power_to_decibels(values)
            label = f"dB re 1 {self.unit}" if self.unit else "dB"
        order = np.argsort(self.f)
        lines = [
            ChartLine(name, self.f[order], row[order])
            for name, row in zip(names, values, strict=True)
        ]
        return svg_line_chart(lines, label)


def pop_stored_floor(arrays: dict[str, Any]) -> RoundingFloor | None:
    """Remove a spectrum's rounding floor from stored arrays and return it; None where
    they have none.
    """
    if not all(name in arrays for name in _FLOOR_KEYS):
        return None
    line, ripple, energy = (arrays.pop(name) for name in _FLOOR_KEYS)
    shares = RoundingShares(line, ripple, float(line.max(initial=0.0)))
    return RoundingFloor.from_energies(shares, energy, float(energy.max(initial=0.0)))


class PowerDensity(NamedTuple):
    """Frequencies (F,) and power (…, F) over them, with labels, run information and
    rounding floor where known.
    """

    f: Any
    power: Any
    labels: Labels = NO_LABELS
    ran: Ran = UNKNOWN_RUN
    floor: RoundingFloor | None = None
    fs: float = 0.0


def coerce_density(f: Any, psd: Any, context: str) -> PowerDensity:
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
            raise UsageError(
                context,
                f"the Spectrum has quantity {f.quantity!r}",
                "expected a power spectrum",
            )
        if f.f.ndim != 1 or not f.f.size:
            raise _empty_spectrum_error(context)
        density = PowerDensity(
            f.f, np.moveaxis(f.power, f.axis, -1), f.labels, f.ran, f.floor, f.fs
        )
    elif psd is None:
        message = "psd is missing"
        raise UsageError(context, message, "expected f and psd, or a Spectrum")
    else:
        density = PowerDensity(f, psd)
    hz = as_array(density.f, context).astype(np.float64)
    power = as_array(density.power, context)
    if hz.ndim != 1 or power.ndim < 1 or power.shape[-1] != len(hz):
        raise ShapeError(
            context,
            f"f has shape {list(hz.shape)} and psd {list(power.shape)}",
            "the last axis of psd must match f",
        )
    _check_rising(hz, context)
    return density._replace(f=hz, power=power)


def _check_rising(hz: NDArray[np.float64], context: str) -> None:
    """Raise UsageError unless there are at least two frequencies, in rising order."""
    if len(hz) < 2:
        raise UsageError(
            context,
            f"the spectrum has {len(hz)} frequenc{'y' if len(hz) == 1 else 'ies'}",
            "at least 2 are required",
            "use a longer signal, or longer segments",
        )
    if not (np.diff(hz) > 0).all():
        index = int((~(np.diff(hz) > 0)).argmax()) + 1
        message = (
            f"f[{index - 1}] is {hz[index - 1]:g} Hz, but f[{index}] is "
            f"{hz[index]:g} Hz"
        )
        raise UsageError(context, message, "frequencies must increase")


def _empty_spectrum_error(context: str) -> UsageError:
    """Return the error for a spectrum without samples or channels."""
    message = "the spectrum is empty, because its signal has no samples or no channels"
    return UsageError(context, message, hint="pass at least one channel and one sample")


def flat_row_mask(
    rows: Array, floor: RoundingFloor | None, bins: slice | Array
) -> NDArray[np.bool_]:
    """Return the mask (B,) of rows of power (B, F) that contain only rounding errors in
    some bins.

    floor   of these rows, its energies in any shape; None: rows without any power
    """
    part = rows[:, bins]
    if floor is None:
        is_zero: NDArray[np.bool_] = (part == 0).all(axis=1)
        return is_zero
    row_floor = floor._replace(energy=floor.energy.reshape(-1))
    return row_floor.select_bins(bins).is_flat(part)


def warn_flat_rows(
    context: str,
    flat: NDArray[np.bool_],
    nan_values: str,
    row_noun: str = "row",
    band_text: str = "",
) -> None:
    """Warn of rows that contain only rounding errors.

    nan_values  the values that are NaN for them
    row_noun  one of the rows, in a word
    band_text  the part of the spectrum that was looked at
    """
    count = int(flat.sum())
    if count:
        rows_text = (
            f"{count} of {flat.size} {row_noun}s"
            if flat.size > 1
            else f"the {row_noun}"
        )
        verb = "is" if count == 1 else "are"
        message = (
            f"{context}: {rows_text} {verb} flat{band_text} (only rounding errors)"
        )
        warnings.warn(
            RlxWarning(message, f"{nan_values} NaN for flat {row_noun}s"),
            stacklevel=caller_stacklevel(),
        )


def _volts_per_unit(unit: str, context: str) -> float:
    """Return the volts in one unit of the samples. Raises UsageError for a unit other
    than a voltage.
    """
    if unit and unit not in _VOLTS_BY_UNIT:
        raise UsageError(
            context,
            f"the samples are in {unit!r}",
            "MNE expects V",
            "use samples in V, mV, µV or nV, or without a unit (V is assumed)",
        )
    return _VOLTS_BY_UNIT.get(unit, 1.0)
