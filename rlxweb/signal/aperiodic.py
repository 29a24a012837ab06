"""Fit of the aperiodic (1/f) part of power spectra and of the peaks above it.

In log10 power a spectrum is a line (or a bent one, with a knee) and Gaussian peaks on
it. Owns the model and its fit: robust line, peaks one by one, all peaks together, line
again. After Donoghue et al. 2020, Parameterizing neural power spectra into periodic and
aperiodic components (the method of specparam, once FOOOF).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.core.argument_validation import (
    check_choice,
    coerce_float,
    coerce_integer,
    suggest_misspelled_options,
)
from rlxweb.core.errors import NotFinite, UsageError
from rlxweb.signal.aperiodic_result import AperiodicFit
from rlxweb.signal.frequency_bins import FrequencyLimit, bins_between
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.spectrum_result import (
    PowerDensity,
    Spectrum,
    coerce_density,
    flat_row_mask,
    warn_flat_rows,
)

Floats = NDArray[np.float64]
AperiodicMode = Literal["fixed", "knee"]

CONTEXT: Final = "aperiodic"
LOWEST_PERCENT: Final = 2.5
"""Percentage of the points, the furthest below a first line, that the robust line is
fitted to.
"""
_EDGE_DISTANCE, _OVERLAP_DISTANCE, _MAX_CENTRE_SHIFT = 1.0, 0.75, 1.5
_FWHM_PER_SD = 2.0 * np.sqrt(2.0 * np.log(2.0))
_MAX_ITERATIONS = 200
_ROUNDING_HEIGHT = 1e-9  # what a spectrum without noise has above its own line


@suggest_misspelled_options
def aperiodic(
    f: ArrayLike | Spectrum,
    psd: ArrayLike | None = None,
    *,
    fmin: float = 1.0,
    fmax: float | None = None,
    mode: AperiodicMode = "fixed",
    max_peaks: int = 6,
    peak_width: tuple[float, float] = (0.5, 12.0),
    min_height: float = 0.0,
    threshold: float = 2.0,
) -> AperiodicFit:
    """Split power spectra into their 1/f part and the peaks above it.

    Shapes     f (F,) rising, in Hz; psd (…, F), above 0 → fields (…), peaks (…, P); or
               the Spectrum that `welch` gave, alone
    fmin, fmax the part that is fitted, in Hz; 0 Hz never is. An fmax beyond the end of
               the spectrum is refused
    mode       "fixed": a line over log frequency; "knee": one that bends
    max_peaks  that are looked for
    peak_width least and most width of a peak, in Hz, two standard deviations
    min_height a peak has at least, log10 above the 1/f part
    threshold  and in standard deviations of what is left of the spectrum
    Flat rows  of a Spectrum, with nothing but rounding in that part (a dead channel),
               are NaN throughout, with a UserWarning
    Errors     UsageError, ShapeError; NotFinite for power that is 0, negative or not
               finite, naming the row and the frequency
    Source     Donoghue et al. 2020, doi 10.1038/s41593-020-00744-x
    """
    density = coerce_density(f, psd, CONTEXT)
    options = (mode, max_peaks, peak_width, min_height, threshold)
    fit = fit_density(density, None, fmin, fmax, *options)
    warn_flat_rows(CONTEXT, np.isnan(fit.offset), "all fitted values are")
    return fit


def fit_density(
    density: PowerDensity,
    excluded: NDArray[np.bool_] | None,
    fmin: float = 1.0,
    fmax: float | None = None,
    mode: AperiodicMode = "fixed",
    max_peaks: int = 6,
    peak_width: tuple[float, float] = (0.5, 12.0),
    min_height: float = 0.0,
    threshold: float = 2.0,
) -> AperiodicFit:
    """Fit the 1/f part and the peaks of a density, without a warning of flat rows.

    excluded   (B,) rows that are NaN in the result; None: those that are flat
    """
    criteria = _check_options(mode, max_peaks, peak_width, min_height, threshold)
    hz, power, floor = _select_frequencies(density, fmin, fmax)
    batch, rows = power.shape[:-1], power.reshape(-1, len(hz))
    if excluded is None:
        excluded = np.zeros(len(rows), np.bool_)
        if floor is not None:
            excluded = flat_row_mask(rows, floor, slice(None))
    _check_positive(hz, rows, excluded, batch)
    fits = [
        _nan_fit(len(hz)) if is_excluded else _fit_row(hz, np.log10(row), criteria)
        for row, is_excluded in zip(rows, excluded, strict=True)
    ]
    return replace(
        _gather_fits(hz, fits, batch), labels=density.labels, ran=density.ran
    )


def _check_options(
    mode: str,
    max_peaks: int,
    peak_width: tuple[float, float],
    min_height: float,
    threshold: float,
) -> _PeakCriteria:
    """Check the options of the fit and return them as criteria of a peak; raise
    UsageError.
    """
    check_choice("mode", mode, ("fixed", "knee"), CONTEXT)
    max_count = coerce_integer("max_peaks", max_peaks, CONTEXT)
    if max_count < 0:
        raise UsageError(CONTEXT, f"max_peaks is {max_count}", "must be 0 or more")
    low, high = (coerce_float("peak_width", width, CONTEXT) for width in peak_width)
    if not 0 < low <= high:
        raise UsageError(
            CONTEXT,
            f"peak_width is {low:g} to {high:g} Hz",
            "expected 0 < minimum ≤ maximum",
        )
    min_log_height = coerce_float("min_height", min_height, CONTEXT)
    return _PeakCriteria(
        mode,
        max_count,
        (low, high),
        min_log_height,
        coerce_float("threshold", threshold, CONTEXT),
    )


def _gather_fits(
    hz: Floats, fits: Sequence[_AperiodicRowFit], batch: tuple[int, ...]
) -> AperiodicFit:
    """Combine the fits of all rows in the shape of the batch."""
    max_peaks = max((len(fit.peaks) for fit in fits), default=0)
    peaks = np.full((len(fits), max_peaks, 3), np.nan)
    for row, fit in enumerate(fits):
        peaks[row, : len(fit.peaks)] = fit.peaks

    def to_batch_shape(values: Any) -> Any:
        """Return per-row values in the shape of the batch."""
        array = np.array(values)
        return array.reshape((*batch, *array.shape[1:]))

    lines = np.array([fit.line_params for fit in fits]).reshape(-1, 3)
    return AperiodicFit(
        f=hz,
        offset=to_batch_shape(lines[:, 0]),
        knee=to_batch_shape(lines[:, 1]),
        exponent=to_batch_shape(lines[:, 2]),
        peak_hz=to_batch_shape(peaks[..., 0]),
        peak_height=to_batch_shape(peaks[..., 1]),
        peak_width=to_batch_shape(peaks[..., 2]),
        count=to_batch_shape([len(fit.peaks) for fit in fits]),
        r_squared=to_batch_shape([fit.r_squared for fit in fits]),
        error=to_batch_shape([fit.error for fit in fits]),
        aperiodic=to_batch_shape([10.0**fit.aperiodic_level for fit in fits]),
        fitted=to_batch_shape([10.0**fit.model_level for fit in fits]),
    )


def _select_frequencies(
    density: PowerDensity, fmin: float, fmax: float | None
) -> tuple[Floats, Floats, RoundingFloor | None]:
    """Return the frequencies, the power and the rounding floor of the range that is
    fitted.
    """
    hz, power, floor = density.f, density.power.astype(np.float64), density.floor
    inside = bins_between(
        hz, fmin, fmax, CONTEXT, FrequencyLimit.from_bins(hz, density.fs)
    )
    inside = np.arange(len(hz)) if inside is None else inside
    if hz[inside[0]] == 0:
        inside = inside[1:]
    if len(inside) < 8:
        raise UsageError(
            CONTEXT,
            f"the band contains {len(inside)} bin{'s' * (len(inside) != 1)} above 0 Hz",
            "at least 8 are required",
            "widen the band",
        )
    floor = None if floor is None else floor.select_bins(inside)
    return hz[inside], power[..., inside], floor


def _check_positive(
    hz: Floats,
    rows: Floats,
    excluded: NDArray[np.bool_],
    batch: tuple[int, ...],
) -> None:
    """Raise NotFinite for a row to be fitted that has no logarithm."""
    bad = ~(np.isfinite(rows) & (rows > 0)) & ~excluded[:, None]
    if not bad.any():
        return
    row_index, bin_ = (int(i) for i in np.argwhere(bad)[0])
    batch_index = [int(i) for i in np.unravel_index(row_index, batch)] if batch else 0
    raise NotFinite(
        CONTEXT,
        f"the power of row {batch_index} is {rows[row_index, bin_]} at {hz[bin_]:g} Hz",
        "every value must be above 0, because its logarithm is fitted",
        "remove the row",
    )


@dataclass(frozen=True, slots=True)
class _PeakCriteria:
    """Checked options of the fit: the mode of the line, and when a maximum counts as a
    peak.
    """

    mode: str
    max_peaks: int
    width_range: tuple[float, float]
    min_height: float
    threshold: float


@dataclass(frozen=True, slots=True)
class _AperiodicRowFit:
    """Fit of one row: line, peaks, levels in log10 and goodness of fit."""

    line_params: Floats
    peaks: Floats
    aperiodic_level: Floats
    model_level: Floats
    r_squared: float
    error: float


def _nan_fit(n_freqs: int) -> _AperiodicRowFit:
    """Return the all-NaN fit of a row that is excluded."""
    nans = np.full(n_freqs, np.nan)
    return _AperiodicRowFit(
        np.full(3, np.nan), np.zeros((0, 3)), nans, nans, np.nan, np.nan
    )


def _fit_row(hz: Floats, level: Floats, criteria: _PeakCriteria) -> _AperiodicRowFit:
    """Fit one spectrum (F,) in log10."""
    residual = level - _line_level(hz, _fit_robust_line(hz, level, criteria.mode))
    peaks = _fit_peaks(hz, residual, criteria)
    peak_level = _sum_gaussians(hz, peaks)
    line_params = _fit_line(hz, level - peak_level, criteria.mode)
    aperiodic_level = _line_level(hz, line_params)
    model = aperiodic_level + peak_level
    peak_table = np.empty((len(peaks), 3))
    for index, (centre, _, sd) in enumerate(peaks):
        nearest = int(np.argmin(np.abs(hz - centre)))
        peak_table[index] = centre, model[nearest] - aperiodic_level[nearest], 2.0 * sd
    peak_table = peak_table[np.argsort(peak_table[:, 0])]
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.corrcoef(level, model)[0, 1]
    error = float(np.abs(level - model).mean())
    return _AperiodicRowFit(
        line_params, peak_table, aperiodic_level, model, float(r * r), error
    )


# --- the line ---------------------------------------------------------------------


def _line_level(hz: Floats, line_params: Floats) -> Floats:
    """Return the log10 power of a line (offset, knee, exponent) at each frequency."""
    offset, knee, exponent = line_params
    level: Floats = offset - np.log10(knee + hz**exponent)
    return level


def _fit_line(
    hz: Floats, level: Floats, mode: str, initial: Floats | None = None
) -> Floats:
    """Return (offset, knee, exponent) of the least-squares line."""
    x = np.log10(hz)
    slope, offset = np.polyfit(x, level, 1)
    if mode == "fixed":
        return np.array([offset, 0.0, -slope])
    if initial is None:
        initial = np.array([offset, 0.0, max(0.1, -slope)])

    def model(p: Floats) -> tuple[Floats, Floats]:
        power = hz ** p[2]
        denominator = p[1] + power
        knee_derivative = -1.0 / (denominator * np.log(10.0))
        exponent_derivative = -power * np.log(hz) / (denominator * np.log(10.0))
        jacobian = np.stack(
            [np.ones_like(hz), knee_derivative, exponent_derivative], axis=1
        )
        return p[0] - np.log10(denominator), jacobian

    # A knee of 0 has no slope of its own to leave by: some are tried.
    starts = [initial]
    for knee_hz in np.quantile(hz, [0.1, 0.3, 0.6]):
        starts.append(np.array([offset, knee_hz ** initial[2], initial[2]]))
    low, high = np.array([-np.inf, 0.0, 1e-3]), np.array([np.inf, np.inf, 20.0])
    fits = [_least_squares(model, level, start, low, high) for start in starts]
    return min(fits, key=lambda p: float(((model(p)[0] - level) ** 2).sum()))


def _fit_robust_line(hz: Floats, level: Floats, mode: str) -> Floats:
    """Fit the line to the lowest points, which peaks do not lift."""
    first_params = _fit_line(hz, level, mode)
    residual = np.maximum(level - _line_level(hz, first_params), 0.0)
    lowest = residual <= np.percentile(residual, LOWEST_PERCENT)
    if lowest.sum() < 3:
        return first_params
    return _fit_line(hz[lowest], level[lowest], mode, first_params)


# --- the peaks --------------------------------------------------------------------


def _sum_gaussians(hz: Floats, peaks: Floats) -> Floats:
    """Return the sum (F,) of peaks (P, 3): centre, height, standard deviation."""
    total = np.zeros_like(hz)
    for centre, height, sd in peaks:
        total += height * np.exp(-((hz - centre) ** 2) / (2.0 * sd**2))
    return total


def _fit_peaks(hz: Floats, residual: Floats, criteria: _PeakCriteria) -> Floats:
    """Fit peaks (P, 3) to a spectrum without its line."""
    guesses = _guess_peaks(hz, residual.copy(), criteria)
    guesses = _drop_edge_and_overlapping_peaks(hz, guesses)
    if not len(guesses):
        return np.zeros((0, 3))

    def model(p: Floats) -> tuple[Floats, Floats]:
        peaks = p.reshape(-1, 3)
        jacobian = np.empty((len(hz), 3 * len(peaks)))
        total = np.zeros_like(hz)
        for index, (centre, height, sd) in enumerate(peaks):
            distance = (hz - centre) / sd
            bell = np.exp(-0.5 * distance * distance)
            total += height * bell
            jacobian[:, 3 * index] = height * bell * distance / sd
            jacobian[:, 3 * index + 1] = bell
            jacobian[:, 3 * index + 2] = height * bell * distance * distance / sd
        return total, jacobian

    low, high = guesses.copy(), guesses.copy()
    low[:, 0] -= 2.0 * _MAX_CENTRE_SHIFT * guesses[:, 2]
    high[:, 0] += 2.0 * _MAX_CENTRE_SHIFT * guesses[:, 2]
    low[:, 0], high[:, 0] = np.maximum(low[:, 0], hz[0]), np.minimum(high[:, 0], hz[-1])
    low[:, 1], high[:, 1] = 0.0, np.inf
    low[:, 2], high[:, 2] = criteria.width_range[0] / 2.0, criteria.width_range[1] / 2.0
    fit = _least_squares(model, residual, guesses.ravel(), low.ravel(), high.ravel())
    return fit.reshape(-1, 3)


def _guess_peaks(hz: Floats, residual: Floats, criteria: _PeakCriteria) -> Floats:
    """Guess peaks: take the highest point as a peak as wide as its half height,
    subtract it, and repeat.
    """
    step = float(hz[1] - hz[0])
    min_sd, max_sd = (width / 2.0 for width in criteria.width_range)
    guesses: list[tuple[float, float, float]] = []
    while len(guesses) < criteria.max_peaks:
        top = int(np.argmax(residual))
        height = float(residual[top])
        min_height = max(
            criteria.threshold * float(residual.std()), criteria.min_height
        )
        if height <= max(min_height, _ROUNDING_HEIGHT):
            break
        below_half = np.flatnonzero(residual <= height / 2.0)
        left = below_half[(below_half < top) & (below_half > 0)]
        right = below_half[below_half > top]
        half_widths = [top - int(left[-1])] if left.size else []
        half_widths += [int(right[0]) - top] if right.size else []
        sd = (min_sd + max_sd) / 2.0
        if half_widths:
            sd = min(half_widths) * 2.0 * step / _FWHM_PER_SD
        sd = min(max(sd, min_sd), max_sd)
        guesses.append((float(hz[top]), height, sd))
        residual -= _sum_gaussians(hz, np.array(guesses[-1:]))
    return np.array(guesses).reshape(-1, 3)


def _drop_edge_and_overlapping_peaks(hz: Floats, peaks: Floats) -> Floats:
    """Drop peaks at the ends of the range, and the lower of two that overlap."""
    if not len(peaks):
        return peaks
    centre, sd = peaks[:, 0], peaks[:, 2]
    inner = (np.abs(centre - hz[0]) > _EDGE_DISTANCE * sd) & (
        np.abs(centre - hz[-1]) > _EDGE_DISTANCE * sd
    )
    peaks = peaks[inner]
    peaks = peaks[np.argsort(peaks[:, 0], kind="stable")]
    dropped = set()
    for index in range(len(peaks) - 1):
        peak, next_peak = peaks[index], peaks[index + 1]
        if (
            peak[0] + _OVERLAP_DISTANCE * peak[2]
            > next_peak[0] - _OVERLAP_DISTANCE * next_peak[2]
        ):
            dropped.add(index if peak[1] < next_peak[1] else index + 1)
    return peaks[[index for index in range(len(peaks)) if index not in dropped]]


def _least_squares(
    model: Callable[[Floats], tuple[Floats, Floats]],
    y: Floats,
    initial: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """Minimise the squared error within bounds by damped Levenberg-Marquardt steps."""
    p = np.clip(initial, low, high)
    values, jacobian = model(p)
    cost, damping = float(((y - values) ** 2).sum()), 1e-3
    for _ in range(_MAX_ITERATIONS):
        gradient = jacobian.T @ (y - values)
        # What a bound holds back takes no part in the step.
        is_at_bound = ((p <= low) & (gradient < 0)) | ((p >= high) & (gradient > 0))
        normal_matrix = jacobian.T @ jacobian
        normal_matrix[is_at_bound], normal_matrix[:, is_at_bound] = 0.0, 0.0
        gradient = np.where(is_at_bound, 0.0, gradient)
        scale = np.maximum(np.diag(normal_matrix), 1e-12)
        step = np.linalg.solve(
            normal_matrix + np.diag(damping * scale + is_at_bound), gradient
        )
        trial = np.clip(p + step, low, high)
        new_values, new_jacobian = model(trial)
        new_cost = float(((y - new_values) ** 2).sum())
        if np.isfinite(new_cost) and new_cost <= cost:
            gain = cost - new_cost
            p, values, jacobian, cost = trial, new_values, new_jacobian, new_cost
            damping = max(damping / 5.0, 1e-12)
            if gain <= 1e-14 * max(cost, 1e-30):
                break
        else:
            damping *= 4.0
            if damping > 1e12:
                break
    return p
