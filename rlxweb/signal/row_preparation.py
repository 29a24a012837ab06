"""Preparation of rows for an engine: finite samples whose power neither overflows nor
underflows.

One pass over the samples, a sum of squares per row, tells all there is to know of
ordinary data. Rows it does not clear are looked into: those with samples that are not
finite are refused or set aside, and those whose squares leave the range of their type
are brought into its middle by powers of two, which change no digit. The answer is then
the one that exact arithmetic would round to, or a refusal where the type cannot hold
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.adc_samples import Digital
from rlxweb.core.argument_validation import check_choice
from rlxweb.core.device import Device
from rlxweb.core.errors import NotFinite, UsageError
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.core.message_text import Advice
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.ops.welch.cpu.spectrum import segment_view
from rlxweb.ops.welch.parameters import samples_needed
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.device_resident_rows import (
    DeviceRows,
    compute_row_energies,
    read_row,
    row_error,
)
from rlxweb.signal.error_row_numbers import batch_row_index
from rlxweb.signal.rounding_floor import RoundingFloor, RoundingShares, rounding_shares
from rlxweb.signal.welch_engine import HostRows, SampleRows, device_batch_rows

NanPolicy = Literal["raise", "propagate"]
# A window's energy, and what it makes of a power, so near to 1 leave the range of the
# type to the samples.
_MAX_GAIN = 2.0**40
# The largest count of 24 bits, and values whose squares are far from any end.
_MAX_COUNT = 2.0**23
_MAX_SAFE_MAGNITUDE = 2.0**300
_SMALL_BATCH_ROWS = 8
# Samples whose squares are summed up at once, within milliseconds.
_CHUNK_SAMPLES = 1 << 20


class RowErrorContext(NamedTuple):
    """Context of error messages about rows.

    context  the function that was called
    batch_shape  the shape that the rows have for the caller
    first_sample  the caller's number of the first sample
    channel_names  of the rows, where they have any
    """

    context: str
    batch_shape: tuple[int, ...]
    first_sample: int = 0
    channel_names: Sequence[str] = ()

    def channel(self, row: int) -> str:
        """Return the name of a row for error messages: its channel name, or its indices
        in the batch.
        """
        if self.channel_names:
            return f"channel {self.channel_names[row]!r}"
        indices = [int(i) for i in np.unravel_index(row, self.batch_shape or (1,))]
        indices = batch_row_index(indices)
        return f"channel {indices[0] if len(indices) == 1 else indices}"


class RowScaling(NamedTuple):
    """Scaling of an engine's output for some rows, and the energies that its rounding
    depends on.

    spec     the estimate that the engine was given
    energy   (B,) mean |x|² of the samples that it read
    max_energy  the largest of these
    shift    (B,) the rows' own power is the answer times 2**shift; None: as it is
    invalid_rows  (B,) rows with a sample that is not finite: NaN throughout; None: no
                  row
    arithmetic_dtype  the dtype that rounds, where it is not that of the answer
    """

    spec: WelchSpec
    energy: NDArray[Any]
    max_energy: float
    shift: NDArray[np.int64] | None = None
    invalid_rows: NDArray[np.bool_] | None = None
    arithmetic_dtype: str = ""

    @property
    def rounding_shares(self) -> RoundingShares:
        """Rounding shares of the estimate."""
        return rounding_shares(self.spec, self.arithmetic_dtype)

    def rounding_floor(self) -> RoundingFloor:
        """Return the power that rounding may leave in the rows' own units."""
        if self.shift is None and self.invalid_rows is None:
            return RoundingFloor.from_energies(
                self.rounding_shares, self.energy, self.max_energy
            )
        energy = self.energy.astype(np.float64)
        if self.shift is not None:
            # The power of a bin may be a number where that of all bins is none.
            with np.errstate(over="ignore"):
                energy = np.ldexp(energy, self.shift)
            energy = np.minimum(energy, np.finfo(np.float64).max)
        if self.invalid_rows is not None:
            energy[self.invalid_rows] = np.nan
        return RoundingFloor.from_energies(
            self.rounding_shares, energy, float(energy.max(initial=0.0))
        )

    def restore(self, output: NDArray[Any], caller: RowErrorContext) -> NDArray[Any]:
        """Return the rows' own power (B, …), of the spec's type. May be `output`,
        modified in place.

        Errors   UsageError where the type cannot hold a row's strongest power.
        """
        power = output.astype(self.spec.power_dtype, copy=False)
        if self.shift is not None:
            power = self._restore_shift(output, caller)
        if self.invalid_rows is not None:
            power[self.invalid_rows] = np.nan
        return power

    def _restore_shift(
        self, output: NDArray[Any], caller: RowErrorContext
    ) -> NDArray[Any]:
        """Return the output times 2**shift. Raises UsageError where the type cannot
        hold a row's strongest power.
        """
        assert self.shift is not None
        finfo = np.finfo(self.spec.power_dtype)
        with np.errstate(over="ignore"):
            power = np.ldexp(output.astype(np.float64), self.shift[:, None])
        scaled_max, power_max = output.max(axis=1), power.max(axis=1)
        # What rounding alone may leave is no loss.
        is_above_rounding = scaled_max > self.energy * self.rounding_shares.max_line
        outside = (power_max > finfo.max) | (
            is_above_rounding & (power_max < finfo.tiny)
        )
        if outside.any():
            row = int(outside.argmax())
            decades = np.log10(float(scaled_max[row])) + self.shift[row] * np.log10(2.0)
            raise _out_of_range_error(caller, row, float(decades), finfo)
        return power.astype(finfo.dtype)


class PreparedRows(NamedTuple):
    """Rows x (B, T) as an engine takes them, and the scaling of its output."""

    x: SampleRows
    scaling: RowScaling

    @property
    def spec(self) -> WelchSpec:
        return self.scaling.spec

    def with_floor_of(self, original: PreparedRows) -> PreparedRows:
        """Return the same rows with the rounding floor of the rows that a detrend
        function made them from.
        """
        energy = original.scaling.rounding_floor().energy.astype(np.float64)
        if self.scaling.shift is not None:
            energy = np.ldexp(energy, -self.scaling.shift)
        max_energy = float(np.nanmax(energy, initial=0.0))
        scaling = self.scaling._replace(energy=energy, max_energy=max_energy)
        return self._replace(scaling=scaling)

    def scaling_on(self, device: Device) -> RowScaling:
        """Return the scaling of the output of an engine of this kind.

        A device computes integers about their level, in float32.
        """
        if device is Device.CPU or not self.spec.is_digital:
            return self.scaling
        assert not isinstance(self.x, DeviceRows)  # those are of float32
        energy = _energy_about_mean(self.x)
        max_energy = float(energy.max(initial=0.0))
        scaling = self.scaling._replace(energy=energy, max_energy=max_energy)
        return scaling._replace(arithmetic_dtype="float32")


async def prepare_device_rows(
    rows: DeviceRows, spec: WelchSpec, caller: RowErrorContext, nan: NanPolicy
) -> PreparedRows:
    """Check rows on their device and prepare them for an engine, as `prepare_rows` does
    on the host.

    Errors   as `prepare_rows`; Unsupported for rows that only the host can prepare.
    """
    check_choice("nan", nan, ("raise", "propagate"), caller.context)
    limits = energy_limits(spec, rows.shape[1])
    squares, absolute = await compute_row_energies(
        rows, limits.n_used, device_batch_rows(spec, rows.shape[1])
    )
    out_of_limits = ~(
        (squares >= limits.min_sum)
        & (squares <= limits.max_sum)
        & np.isfinite(absolute)
    )
    for row in np.flatnonzero(out_of_limits & (absolute != 0)):
        x = await read_row(rows, int(row))
        if (error := row_error(x, int(row), limits.n_used, caller, nan)) is not None:
            raise error
    max_sum = float(np.maximum.reduce(squares, initial=0.0))
    n_used = limits.n_used
    return PreparedRows(rows, RowScaling(spec, squares / n_used, max_sum / n_used))


def prepare_rows(
    x: HostRows, spec: WelchSpec, caller: RowErrorContext, nan: NanPolicy = "raise"
) -> PreparedRows:
    """Prepare rows x (B, T), of any real or complex type, for an engine that computes
    the spec.

    Errors   NotFinite naming row and sample of the first NaN or infinity, on "raise";
             UsageError for a policy there is not.
    """
    if not isinstance(nan, str) or nan != "raise":
        check_choice("nan", nan, ("raise", "propagate"), caller.context)
    limits = energy_limits(spec, x.shape[1])
    if spec.is_digital:
        return _prepare_integers(x, limits)
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        rows = x.astype(spec.dtype, copy=False)
        used_samples, unused_sum = rows, 0.0
        if limits.n_used < rows.shape[1]:
            used_samples = rows[:, : limits.n_used]
            unused_sum = np.add.reduce(rows[:, limits.n_used :], None)
        squares = sums_of_squares(used_samples)
    if not len(rows):
        return PreparedRows(rows, RowScaling(spec, squares, 0.0))
    # A small batch feels every call of NumPy's.
    if len(rows) <= _SMALL_BATCH_ROWS and rows.dtype.kind == "f":
        row_sums = squares.tolist()
        # Of a NaN Python's own comparisons may not tell, but their sum is one then.
        max_sum = max(row_sums)
        min_sum = min(row_sums)
        unused_sum = float(unused_sum) + sum(row_sums)
    else:
        max_sum, min_sum = float(np.maximum.reduce(squares)), np.minimum.reduce(squares)
    if (
        max_sum <= limits.max_sum
        and min_sum >= limits.min_sum
        and isfinite(abs(unused_sum))
    ):
        n_used = limits.n_used
        return PreparedRows(rows, RowScaling(spec, squares / n_used, max_sum / n_used))
    with np.errstate(invalid="ignore"):  # a NaN may be one that signals
        return _scale_rows(x, spec, limits, squares, caller, nan)


@dataclass(frozen=True, slots=True)
class EnergyLimits:
    """Limits within which the sum of squares of a row's first `n_used` samples needs no
    scaling.

    spec   the same with its window and its factor near 1; its power times 2**shift is
           the caller's
    """

    min_sum: float
    max_sum: float
    n_used: int
    spec: WelchSpec
    shift: int


@lru_cache_if_small(128, lambda spec, n_samples: spec.nperseg <= SMALL_TABLE_SAMPLES)
def energy_limits(spec: WelchSpec, n_samples: int) -> EnergyLimits:
    """Return the energy limits of rows of n_samples."""
    segments = spec.segments_per_row(n_samples)
    n_used = samples_needed(segments, spec.nperseg, spec.hop)
    normalized, shift = _normalize_spec(spec)
    window = normalized.window_array
    gain = max(float(window @ window), 1.0 / _MAX_GAIN)
    finfo = np.finfo(spec.power_dtype)
    # By Cauchy and Schwarz no |X|² of a segment is above gain · its sum of squares, and
    # a sample is in so many segments; a mean |X|² is gain · the mean square.
    overlaps = -(-spec.nperseg // spec.hop)
    max_sum = float(finfo.max) / 16 / (gain * overlaps * max(1.0, 2 * normalized.scale))
    # Powers at the floor of rounding are normal numbers still.
    min_power = float(finfo.tiny) / float(finfo.eps) ** 2
    min_sum = min_power * n_used / (gain * min(1.0, normalized.scale))
    if shift:
        min_sum, max_sum = np.inf, 0.0
    return EnergyLimits(min_sum, max_sum, n_used, normalized, shift)


def _normalize_spec(spec: WelchSpec) -> tuple[WelchSpec, int]:
    """Return the estimate with a window and a factor near 1, and log2 of what that
    divides the power by.
    """
    with np.errstate(over="ignore"):
        gain = float(spec.window_array @ spec.window_array)
    if (
        1 / _MAX_GAIN < gain < _MAX_GAIN
        and 1 / _MAX_GAIN < gain * spec.scale < _MAX_GAIN
    ):
        return spec, 0
    exponent = int(np.frexp(np.abs(spec.window_array).max())[1])
    window = np.ldexp(spec.window_array, -exponent)
    factor, factor_exponent = np.frexp(spec.scale)
    normalized = replace(spec, window=window.tobytes(), scale=float(factor))
    return normalized, 2 * exponent + int(factor_exponent)


def _scale_rows(
    x: NDArray[Any],
    spec: WelchSpec,
    limits: EnergyLimits,
    squares: NDArray[Any],
    caller: RowErrorContext,
    nan: NanPolicy,
) -> PreparedRows:
    """Prepare rows of which some are not finite or out of the limits: mask or refuse
    the former, scale the latter.
    """
    largest, invalid_rows = max_magnitudes(x), None
    non_finite = ~np.isfinite(largest)
    if non_finite.any():
        if nan == "raise":
            raise _not_finite_error(x, non_finite, caller)
        x, invalid_rows = _mask_non_finite(x, spec, limits.n_used, non_finite)
        squares = np.where(non_finite, 0.0, squares)
    used_samples = x[:, : limits.n_used]
    largest = max_magnitudes(used_samples)
    # 0 is 0 in any range.
    out_of_limits = (largest > 0) & ~(
        (squares >= limits.min_sum) & (squares <= limits.max_sum)
    )
    if not (out_of_limits.any() or limits.shift):
        rows = x.astype(spec.dtype, copy=False)
        return _with_max_energy(
            rows, RowScaling(spec, squares / limits.n_used, 0.0, None, invalid_rows)
        )
    exponents = np.where(out_of_limits, np.frexp(largest)[1], 0).astype(np.int64)
    rows = divide_by_powers_of_two(used_samples, exponents, spec.dtype)
    energy = sums_of_squares(rows) / limits.n_used
    return _with_max_energy(
        rows,
        RowScaling(
            limits.spec, energy, 0.0, 2 * exponents + limits.shift, invalid_rows
        ),
    )


def _prepare_integers(x: HostRows, limits: EnergyLimits) -> PreparedRows:
    """Prepare integer samples, scaled by the largest magnitude they may have."""
    if not isinstance(x, Digital):
        if not limits.shift:
            energy = np.full(len(x), _MAX_COUNT**2)
            return PreparedRows(x, RowScaling(limits.spec, energy, _MAX_COUNT**2))
        x = Digital(x)
    largest = np.abs(x.gain) * (_MAX_COUNT + np.abs(x.offset))
    out_of_range = (largest > 0) & ~(
        (largest > 1 / _MAX_SAFE_MAGNITUDE) & (largest < _MAX_SAFE_MAGNITUDE)
    )
    if not out_of_range.any() and not limits.shift:
        return _with_max_energy(x, RowScaling(limits.spec, largest**2, 0.0))
    exponents = np.where(out_of_range, np.frexp(largest)[1], 0).astype(np.int64)
    x = Digital(x.counts, np.ldexp(x.gain, -exponents), x.offset)
    energy = np.ldexp(largest, -exponents) ** 2
    return _with_max_energy(
        x, RowScaling(limits.spec, energy, 0.0, 2 * exponents + limits.shift)
    )


def sums_of_squares(x: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of squares (B,) of rows (B, T), in chunks: NumPy lets no other
    thread run during one.
    """
    if x.size <= _CHUNK_SAMPLES:
        total: NDArray[Any] = np.vecdot(x, x).real
        return total
    chunk_samples = min(x.shape[1], _CHUNK_SAMPLES)
    chunk_rows = max(1, _CHUNK_SAMPLES // chunk_samples)
    sums = np.zeros(len(x), x.real.dtype)
    for row in range(0, len(x), chunk_rows):
        for start in range(0, x.shape[1], chunk_samples):
            raise_if_cancelled()
            part = x[row : row + chunk_rows, start : start + chunk_samples]
            sums[row : row + chunk_rows] += np.vecdot(part, part).real
    return sums


def _energy_about_mean(x: HostRows) -> NDArray[np.float64]:
    """Return the mean squares (B,) of integers about their mean, in physical units."""
    digital = x if isinstance(x, Digital) else Digital(x)
    energy = np.empty(len(digital.counts))
    for row, counts in enumerate(digital.counts):
        energy[row] = counts.var(dtype=np.float64)
    return energy * digital.gain**2


def _with_max_energy(rows: SampleRows, scaling: RowScaling) -> PreparedRows:
    """Return prepared rows whose scaling has the maximum of its energies filled in."""
    return PreparedRows(
        rows, scaling._replace(max_energy=float(scaling.energy.max(initial=0.0)))
    )


def check_finite(x: NDArray[Any], caller: RowErrorContext) -> None:
    """Raise NotFinite naming row and sample of the first NaN or infinity in x (B,
    T).
    """
    if x.size:
        with np.errstate(invalid="ignore"):
            non_finite = ~np.isfinite(max_magnitudes(x))
            if non_finite.any():
                raise _not_finite_error(x, non_finite, caller)


def max_magnitudes(x: NDArray[Any]) -> NDArray[np.float64]:
    """Return the largest |sample| (B,) of each row, taking real and imaginary parts
    separately.
    """
    if x.dtype.kind == "c":
        return np.maximum(max_magnitudes(x.real), max_magnitudes(x.imag))
    high, low = x.max(axis=1).astype(np.float64), x.min(axis=1).astype(np.float64)
    largest: NDArray[np.float64] = np.maximum(np.abs(high), np.abs(low))
    return largest


def divide_by_powers_of_two(
    x: NDArray[Any], exponents: NDArray[np.int64], dtype: str
) -> NDArray[Any]:
    """Return each row (B, T) divided by 2**exponents (B,), then rounded to the
    dtype.
    """
    rows = np.empty(x.shape, dtype)
    parts = [(x, rows)]
    if rows.dtype.kind == "c":
        parts = [(x.real, rows.real), (x.imag, rows.imag)]
    for part, out in parts:
        values = part.astype(np.float64 if part.dtype.kind != "f" else part.dtype)
        out[...] = np.ldexp(values, -exponents[:, None])
    return rows


def _mask_non_finite(
    x: NDArray[Any], spec: WelchSpec, n_used: int, non_finite: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the rows with 0 in place of samples that are not finite, and which rows
    have such samples in a segment.
    """
    x, invalid_rows = x.copy(), non_finite.copy()
    for row in np.flatnonzero(non_finite):
        finite = np.isfinite(x[row])
        count = spec.segments_per_row(x.shape[1])
        segments = segment_view(finite[None], spec.nperseg, spec.hop, count)
        invalid_rows[row] = not segments.all()
        x[row] = np.where(finite, x[row], 0) if not invalid_rows[row] else 0
    return x, invalid_rows


def _not_finite_error(
    x: NDArray[Any], non_finite: NDArray[np.bool_], caller: RowErrorContext
) -> NotFinite:
    """Return the error that names the first sample that is not finite."""
    row = int(non_finite.argmax())
    sample = int((~np.isfinite(x[row])).argmax())
    bad_count = sum(int((~np.isfinite(x[r])).sum()) for r in np.flatnonzero(non_finite))
    sample_number = caller.first_sample + sample
    return NotFinite(
        caller.context,
        f"{caller.channel(row)} is {x[row, sample]} at sample {sample_number}",
        f"{bad_count} of {x.size} samples are not finite",
        Advice("repair the data, or pass {}", nan="propagate"),
    )


def _out_of_range_error(
    caller: RowErrorContext, row: int, decades: float, finfo: np.finfo[Any]
) -> UsageError:
    """Return the error for a power that the type cannot hold."""
    limit = (
        f"the largest {finfo.dtype} is {finfo.max:.2g}"
        if decades > 0
        else f"the smallest normal {finfo.dtype} is {finfo.tiny:.2g}"
    )
    precision = {"precision": "f64"} if finfo.dtype == np.float32 else {}
    wider_hint = "pass {}, or " if precision else ""
    return UsageError(
        caller.context,
        f"the power of {caller.channel(row)} is about 1e{decades:+.0f}",
        limit,
        Advice(f"{wider_hint}scale the samples", **precision),
    )
