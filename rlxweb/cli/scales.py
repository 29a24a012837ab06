"""What a picture of spectra needs to know before it is drawn: levels, axes, columns.

Pure functions on the results; no matplotlib here. The strong bin at 0 Hz that an offset
makes must not eat the scale, one line of 30,000 bins must not hide a narrow peak, and
rhythms in the lowest twentieth of the axis need a logarithmic one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.jobs.results import GroupResult

# More columns than the picture has pixels cannot be seen.
COLUMNS = 1200
# Below the strongest level by more than this is noise of the arithmetic.
SPAN_DB = 120.0
# A bin at 0 Hz this far above all others is an offset and left out of the scale.
OFFSET_DB = 6.0
LOG_FROM_BINS = 400
# How many peaks have their frequency written beside them, and how weak they may be.
NAMED = 8
NAMED_DB = 25.0
# Parts of the axes: closer than this two peaks are one, or their labels overlap.
_SAME, _WIDE, _TALL = 0.015, 0.055, 0.045


def decibels(power: NDArray[Any]) -> NDArray[np.float64]:
    """10 log10; zero is infinitely far below, NaN and infinity are NaN."""
    wide = np.asarray(power, np.float64)
    out = np.where(wide == 0, -np.inf, np.nan)
    np.log10(wide, out=out, where=np.isfinite(wide) & (wide > 0))
    return out * 10


def levels_of(group: GroupResult) -> NDArray[np.float64]:
    """Decibels (C, F) of the spectra; NaN where nothing of a row is drawn."""
    level = decibels(group.power)
    level[[bool(state) for state in group.states]] = np.nan
    return level


def offset_bins(group: GroupResult) -> int:
    """How many bins from 0 Hz up an offset of the signal fills.

    Removed by detrending, it leaves bin 0 with nothing to say; left in, the window's
    main lobe carries it into bin 1.
    """
    wanted = max(0, (1 if group.spec.detrend else 2) - group.first_bin)
    return wanted if len(group.hz) > 4 * wanted else 0


def level_range(level: NDArray[np.float64], skip: int) -> tuple[float, float]:
    """(low, high) dB that show the spectra (C, F); never empty, never inverted.

    The first `skip` bins count only where they do not tower over the rest.
    """
    rest = level[:, skip:]
    known = rest[np.isfinite(rest)]
    if not known.size:
        return 0.0, 1.0
    few = level.shape[0] <= 10
    low, high = np.percentile(known, [0, 100] if few else [1, 99.7])
    first = level[:, :skip][np.isfinite(level[:, :skip])]
    if first.size and high < first.max() <= high + OFFSET_DB:
        high = first.max()
    low = max(low, high - SPAN_DB)
    return float(low), float(max(high, low + 1.0))


def wants_log(group: GroupResult) -> bool:
    """True where half of the strongest peaks lie in the lowest twentieth of the axis.

    Only for spectra fine enough that the lowest decade is more than a few wide bars,
    and not for a band that was asked for.
    """
    n_freqs, skip = len(group.hz), offset_bins(group)
    if n_freqs < LOG_FROM_BINS or group.first_bin:
        return False
    power = group.power[:, skip:]
    strongest = skip + np.argmax(np.where(np.isfinite(power), power, -1.0), axis=1)
    return bool(np.median(strongest) < n_freqs / 20)


def columns(
    level: NDArray[np.float64], step: float, is_log: bool, first_bin: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Levels (C, F) as at most COLUMNS columns, the highest of their bins, and edges.

    On a logarithmic axis the columns widen with frequency and the bin at 0 Hz is left
    out, having no place there.

    first_bin   the number of the first of the F bins
    """
    n_freqs, first = level.shape[1], max(first_bin, 1 if is_log else 0)
    spaced = np.geomspace if is_log else np.linspace
    wanted = spaced(first, first_bin + n_freqs, min(n_freqs, COLUMNS) + 1)
    starts = np.unique(np.round(wanted).astype(np.int64))
    cells: NDArray[np.float64] = np.fmax.reduceat(
        level, starts[:-1] - first_bin, axis=1
    )
    return cells, np.asarray((starts - 0.5) * step, np.float64)


@dataclass(frozen=True, slots=True)
class Named:
    """A peak whose frequency is written out: where on the axes it lies, 0 to 1."""

    hz: float
    level: float
    across: float
    up: float


def peaks_to_name(
    group: GroupResult, is_log: bool, limits: tuple[float, float]
) -> list[Named]:
    """The strongest peaks, each frequency once, no label upon another.

    limits   of the level axis, in dB; what lies outside is not named
    """
    peaks, (low, high) = group.peaks, limits
    taken = np.arange(peaks.bins.shape[1]) < peaks.count[:, None]
    hz, level = peaks.hz[taken], decibels(peaks.power[taken])
    named: list[Named] = []
    for at in np.argsort(-level, kind="stable"):
        if not (low <= level[at] <= high and hz[at] > 0) or len(named) == NAMED:
            continue
        one = Named(
            float(hz[at]),
            float(level[at]),
            _across(float(hz[at]), group, is_log),
            float((level[at] - low) / (high - low)),
        )
        if named and one.level < named[0].level - NAMED_DB:
            break
        if not any(_overlap(one, other) for other in named):
            named.append(one)
    return named


def _across(hz: float, group: GroupResult, is_log: bool) -> float:
    top, step = float(group.hz[-1]), group.resolution
    if is_log:
        return float(np.log(hz / step) / np.log(top / step))
    low = float(group.hz[0])
    return (hz - low) / max(top - low, step)


def _overlap(one: Named, other: Named) -> bool:
    across, up = abs(one.across - other.across), abs(one.up - other.up)
    return across < _SAME or (across < _WIDE and up < _TALL)
