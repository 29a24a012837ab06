"""The 1/f part of a power spectrum, and the peaks that stand above it.

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

from rlxweb.arguments import helpful, number, one_of, whole
from rlxweb.errors import NotFinite, UsageError
from rlxweb.signal.aperiodic_fit import AperiodicFit
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.rounding import RoundingFloor
from rlxweb.signal.spectrum import (
    Density,
    Spectrum,
    density_of,
    flat_rows,
    warn_flat,
)

Floats = NDArray[np.float64]
Mode = Literal["fixed", "knee"]

DOING: Final = "aperiodic"
LOWEST_SHARE: Final = 2.5
"""Per cent of the points, furthest below a first line, that a robust one is of."""
_EDGE, _OVERLAP, _REACH = 1.0, 0.75, 1.5
_WIDTH_OF_HALF = 2.0 * np.sqrt(2.0 * np.log(2.0))
_ROUNDS = 200
_ROUNDING = 1e-9  # what a spectrum without noise has above its own line


@helpful
def aperiodic(
    f: ArrayLike | Spectrum,
    psd: ArrayLike | None = None,
    *,
    fmin: float = 1.0,
    fmax: float | None = None,
    mode: Mode = "fixed",
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
    given = density_of(f, psd, DOING)
    options = (mode, max_peaks, peak_width, min_height, threshold)
    found = fitted(given, None, fmin, fmax, *options)
    warn_flat(DOING, np.isnan(found.offset), "all that is fitted is")
    return found


def fitted(
    given: Density,
    left_out: NDArray[np.bool_] | None,
    fmin: float = 1.0,
    fmax: float | None = None,
    mode: Mode = "fixed",
    max_peaks: int = 6,
    peak_width: tuple[float, float] = (0.5, 12.0),
    min_height: float = 0.0,
    threshold: float = 2.0,
) -> AperiodicFit:
    """`aperiodic` of a density, without a warning of flat rows.

    left_out   (B,) rows that are NaN in the result; None: those that are flat
    """
    rules = _rules(mode, max_peaks, peak_width, min_height, threshold)
    hz, power, floor = _part(given, fmin, fmax)
    batch, rows = power.shape[:-1], power.reshape(-1, len(hz))
    if left_out is None:
        left_out = np.zeros(len(rows), np.bool_)
        if floor is not None:
            left_out = flat_rows(rows, floor, slice(None))
    _check_positive(hz, rows, left_out, batch)
    fits = [
        _unknown(len(hz)) if is_out else _fit(hz, np.log10(row), rules)
        for row, is_out in zip(rows, left_out, strict=True)
    ]
    return replace(_gathered(hz, fits, batch), labels=given.labels, ran=given.ran)


def _rules(
    mode: str,
    max_peaks: int,
    peak_width: tuple[float, float],
    min_height: float,
    threshold: float,
) -> _Rules:
    """What makes a peak. Errors  UsageError."""
    one_of("mode", mode, ("fixed", "knee"), DOING)
    most = whole("max_peaks", max_peaks, DOING)
    if most < 0:
        raise UsageError(DOING, f"max_peaks is {most}", "0 or more")
    low, high = (number("peak_width", one, DOING) for one in peak_width)
    if not 0 < low <= high:
        raise UsageError(
            DOING, f"peak_width is {low:g} to {high:g} Hz", "0 < least ≤ most"
        )
    least = number("min_height", min_height, DOING)
    return _Rules(mode, most, (low, high), least, number("threshold", threshold, DOING))


def _gathered(
    hz: Floats, found: Sequence[_Found], batch: tuple[int, ...]
) -> AperiodicFit:
    """The fits of all rows, in the shape of the batch."""
    wide = max((len(one.peaks) for one in found), default=0)
    peaks = np.full((len(found), wide, 3), np.nan)
    for at, one in enumerate(found):
        peaks[at, : len(one.peaks)] = one.peaks

    def shaped(values: Any) -> Any:
        array = np.array(values)
        return array.reshape((*batch, *array.shape[1:]))

    lines = np.array([one.line for one in found]).reshape(-1, 3)
    return AperiodicFit(
        f=hz,
        offset=shaped(lines[:, 0]),
        knee=shaped(lines[:, 1]),
        exponent=shaped(lines[:, 2]),
        peak_hz=shaped(peaks[..., 0]),
        peak_height=shaped(peaks[..., 1]),
        peak_width=shaped(peaks[..., 2]),
        count=shaped([len(one.peaks) for one in found]),
        r_squared=shaped([one.r_squared for one in found]),
        error=shaped([one.error for one in found]),
        aperiodic=shaped([10.0**one.below for one in found]),
        fitted=shaped([10.0**one.model for one in found]),
    )


def _part(
    given: Density, fmin: float, fmax: float | None
) -> tuple[Floats, Floats, RoundingFloor | None]:
    """Frequencies, power and floor of the part that is fitted."""
    hz, power, floor = given.f, given.power.astype(np.float64), given.floor
    inside = bins_between(hz, fmin, fmax, DOING, Reach.of_bins(hz, given.fs))
    inside = np.arange(len(hz)) if inside is None else inside
    if hz[inside[0]] == 0:
        inside = inside[1:]
    if len(inside) < 8:
        raise UsageError(
            DOING, f"{len(inside)} frequencies are left", "at least 8", "widen the band"
        )
    floor = None if floor is None else floor.of_bins(inside)
    return hz[inside], power[..., inside], floor


def _check_positive(
    hz: Floats,
    rows: Floats,
    left_out: NDArray[np.bool_],
    batch: tuple[int, ...],
) -> None:
    """Raise NotFinite for a row without a logarithm that is to be fitted."""
    bad = ~(np.isfinite(rows) & (rows > 0)) & ~left_out[:, None]
    if not bad.any():
        return
    at, bin_ = (int(i) for i in np.argwhere(bad)[0])
    row = [int(i) for i in np.unravel_index(at, batch)] if batch else 0
    raise NotFinite(
        DOING,
        f"the power of row {row} is {rows[at, bin_]} at {hz[bin_]:g} Hz",
        "its logarithm is fitted: all of it must be above 0",
        "leave the row out",
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    mode: str
    max_peaks: int
    width: tuple[float, float]
    min_height: float
    threshold: float


@dataclass(frozen=True, slots=True)
class _Found:
    line: Floats
    peaks: Floats
    below: Floats
    model: Floats
    r_squared: float
    error: float


def _unknown(n_freqs: int) -> _Found:
    """Stand-in for the fit of a row that is left out."""
    none = np.full(n_freqs, np.nan)
    return _Found(np.full(3, np.nan), np.zeros((0, 3)), none, none, np.nan, np.nan)


def _fit(hz: Floats, level: Floats, rules: _Rules) -> _Found:
    """One spectrum (F,) in log10."""
    flat = level - _line(hz, _robust_line(hz, level, rules.mode))
    peaks = _peaks(hz, flat, rules)
    above = _gaussians(hz, peaks)
    line = _line_fit(hz, level - above, rules.mode)
    below = _line(hz, line)
    model = below + above
    told = np.empty((len(peaks), 3))
    for at, (centre, _, sd) in enumerate(peaks):
        nearest = int(np.argmin(np.abs(hz - centre)))
        told[at] = centre, model[nearest] - below[nearest], 2.0 * sd
    told = told[np.argsort(told[:, 0])]
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.corrcoef(level, model)[0, 1]
    error = float(np.abs(level - model).mean())
    return _Found(line, told, below, model, float(r * r), error)


# --- the line ---------------------------------------------------------------------


def _line(hz: Floats, line: Floats) -> Floats:
    offset, knee, exponent = line
    found: Floats = offset - np.log10(knee + hz**exponent)
    return found


def _line_fit(
    hz: Floats, level: Floats, mode: str, begin: Floats | None = None
) -> Floats:
    """(offset, knee, exponent) of the least squares."""
    x = np.log10(hz)
    slope, offset = np.polyfit(x, level, 1)
    if mode == "fixed":
        return np.array([offset, 0.0, -slope])
    if begin is None:
        begin = np.array([offset, 0.0, max(0.1, -slope)])

    def model(p: Floats) -> tuple[Floats, Floats]:
        power = hz ** p[2]
        whole = p[1] + power
        by_knee = -1.0 / (whole * np.log(10.0))
        by_exponent = -power * np.log(hz) / (whole * np.log(10.0))
        jacobian = np.stack([np.ones_like(hz), by_knee, by_exponent], axis=1)
        return p[0] - np.log10(whole), jacobian

    # A knee of 0 has no slope of its own to leave by: some are tried.
    starts = [begin]
    for at in np.quantile(hz, [0.1, 0.3, 0.6]):
        starts.append(np.array([offset, at ** begin[2], begin[2]]))
    low, high = np.array([-np.inf, 0.0, 1e-3]), np.array([np.inf, np.inf, 20.0])
    fits = [_least_squares(model, level, start, low, high) for start in starts]
    return min(fits, key=lambda p: float(((model(p)[0] - level) ** 2).sum()))


def _robust_line(hz: Floats, level: Floats, mode: str) -> Floats:
    """Of the lowest points, which peaks do not lift."""
    first = _line_fit(hz, level, mode)
    flat = np.maximum(level - _line(hz, first), 0.0)
    lowest = flat <= np.percentile(flat, LOWEST_SHARE)
    if lowest.sum() < 3:
        return first
    return _line_fit(hz[lowest], level[lowest], mode, first)


# --- the peaks --------------------------------------------------------------------


def _gaussians(hz: Floats, peaks: Floats) -> Floats:
    """(F,) the sum of peaks (P, 3): centre, height, standard deviation."""
    total = np.zeros_like(hz)
    for centre, height, sd in peaks:
        total += height * np.exp(-((hz - centre) ** 2) / (2.0 * sd**2))
    return total


def _peaks(hz: Floats, flat: Floats, rules: _Rules) -> Floats:
    """Peaks (P, 3) of a spectrum without its line."""
    guesses = _guessed(hz, flat.copy(), rules)
    guesses = _kept(hz, guesses)
    if not len(guesses):
        return np.zeros((0, 3))

    def model(p: Floats) -> tuple[Floats, Floats]:
        every = p.reshape(-1, 3)
        jacobian = np.empty((len(hz), 3 * len(every)))
        total = np.zeros_like(hz)
        for at, (centre, height, sd) in enumerate(every):
            off = (hz - centre) / sd
            bell = np.exp(-0.5 * off * off)
            total += height * bell
            jacobian[:, 3 * at] = height * bell * off / sd
            jacobian[:, 3 * at + 1] = bell
            jacobian[:, 3 * at + 2] = height * bell * off * off / sd
        return total, jacobian

    low, high = guesses.copy(), guesses.copy()
    low[:, 0] -= 2.0 * _REACH * guesses[:, 2]
    high[:, 0] += 2.0 * _REACH * guesses[:, 2]
    low[:, 0], high[:, 0] = np.maximum(low[:, 0], hz[0]), np.minimum(high[:, 0], hz[-1])
    low[:, 1], high[:, 1] = 0.0, np.inf
    low[:, 2], high[:, 2] = rules.width[0] / 2.0, rules.width[1] / 2.0
    fit = _least_squares(model, flat, guesses.ravel(), low.ravel(), high.ravel())
    return fit.reshape(-1, 3)


def _guessed(hz: Floats, flat: Floats, rules: _Rules) -> Floats:
    """The highest point, taken for a peak as wide as its half height, and again."""
    step = float(hz[1] - hz[0])
    least, most = (one / 2.0 for one in rules.width)
    found: list[tuple[float, float, float]] = []
    while len(found) < rules.max_peaks:
        top = int(np.argmax(flat))
        height = float(flat[top])
        least_height = max(rules.threshold * float(flat.std()), rules.min_height)
        if height <= max(least_height, _ROUNDING):
            break
        half = np.flatnonzero(flat <= height / 2.0)
        left, right = half[(half < top) & (half > 0)], half[half > top]
        sides = [top - int(left[-1])] if left.size else []
        sides += [int(right[0]) - top] if right.size else []
        sd = (least + most) / 2.0
        if sides:
            sd = min(sides) * 2.0 * step / _WIDTH_OF_HALF
        sd = min(max(sd, least), most)
        found.append((float(hz[top]), height, sd))
        flat -= _gaussians(hz, np.array(found[-1:]))
    return np.array(found).reshape(-1, 3)


def _kept(hz: Floats, peaks: Floats) -> Floats:
    """Without those at the ends, and without the lower of two that overlap."""
    if not len(peaks):
        return peaks
    centre, sd = peaks[:, 0], peaks[:, 2]
    inner = (np.abs(centre - hz[0]) > _EDGE * sd) & (
        np.abs(centre - hz[-1]) > _EDGE * sd
    )
    peaks = peaks[inner]
    peaks = peaks[np.argsort(peaks[:, 0], kind="stable")]
    gone = set()
    for at in range(len(peaks) - 1):
        one, other = peaks[at], peaks[at + 1]
        if one[0] + _OVERLAP * one[2] > other[0] - _OVERLAP * other[2]:
            gone.add(at if one[1] < other[1] else at + 1)
    return peaks[[at for at in range(len(peaks)) if at not in gone]]


def _least_squares(
    model: Callable[[Floats], tuple[Floats, Floats]],
    y: Floats,
    begin: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """Parameters within bounds, by Levenberg's and Marquardt's damped steps."""
    p = np.clip(begin, low, high)
    values, jacobian = model(p)
    cost, damping = float(((y - values) ** 2).sum()), 1e-3
    for _ in range(_ROUNDS):
        left = jacobian.T @ (y - values)
        # What a bound holds back takes no part in the step.
        held = ((p <= low) & (left < 0)) | ((p >= high) & (left > 0))
        square = jacobian.T @ jacobian
        square[held], square[:, held] = 0.0, 0.0
        left = np.where(held, 0.0, left)
        scale = np.maximum(np.diag(square), 1e-12)
        step = np.linalg.solve(square + np.diag(damping * scale + held), left)
        trial = np.clip(p + step, low, high)
        new_values, new_jacobian = model(trial)
        new = float(((y - new_values) ** 2).sum())
        if np.isfinite(new) and new <= cost:
            gain = cost - new
            p, values, jacobian, cost = trial, new_values, new_jacobian, new
            damping = max(damping / 5.0, 1e-12)
            if gain <= 1e-14 * max(cost, 1e-30):
                break
        else:
            damping *= 4.0
            if damping > 1e12:
                break
    return p
