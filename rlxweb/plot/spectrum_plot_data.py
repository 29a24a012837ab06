"""Data of spectrum plots prepared before drawing: levels, axis limits, merged columns.

Pure functions on rows; no matplotlib here. The strong bin at 0 Hz that an offset makes
must not eat the scale, and one line of 30,000 bins must not hide a narrow peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError

Floats = NDArray[np.float64]
LineLayout = Literal["overlaid", "offset", "panels", "heatmap"]
LINE_LAYOUTS: Final[tuple[str, ...]] = get_args(LineLayout)
MAX_LINES: Final = 10
"""Maximum number of lines that can be told apart; more rows are drawn as a heatmap."""
MAX_OVERLAID_LINES: Final = 4
"""Maximum number of lines that are overlaid by default."""
# More columns than the picture has pixels cannot be seen.
MAX_COLUMNS: Final = 1200
# Below the strongest level by more than this is noise of the arithmetic.
MAX_SPAN_DB: Final = 120.0
# A bin at 0 Hz this far above all others is an offset and left out of the scale.
MAX_OFFSET_DB: Final = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class SpectrumRows:
    """Named spectra to be drawn together, with a common frequency axis.

    names   as they are drawn
    f       (F,) Hz, rising, `step` apart
    level   (C, F) dB: NaN where nothing of a row is drawn, -inf where it has no power
    label   of the levels
    peak_marks  of each row: frequencies and levels of its peaks, strongest first
    missing_reasons  why a row has no level; "" where it has one
    n_offset_bins  how many of the first bins an offset of the signal may fill
    mark_noun  what is marked
    """

    names: tuple[str, ...]
    f: Floats
    level: Floats
    label: str
    step: float
    peak_marks: tuple[tuple[Floats, Floats], ...] = ()
    missing_reasons: tuple[str, ...] = ()
    n_offset_bins: int = 0
    mark_noun: str = "peak"

    def __len__(self) -> int:
        return len(self.names)

    def missing_reason(self, row: int) -> str:
        """Return why a row has no level; "" if it has one."""
        return self.missing_reasons[row] if self.missing_reasons else ""

    def display_name(self, row: int) -> str:
        """Return a row's name, followed by the reason if the row has no level."""
        state = self.missing_reason(row)
        return f"{self.names[row]} ({state})" if state else self.names[row]

    def visible_peaks(self, row: int) -> tuple[Floats, Floats]:
        """Return frequencies and levels of a row's peaks that lie within the axis."""
        if not self.peak_marks or self.missing_reason(row):
            return np.zeros(0), np.zeros(0)
        hz, level = self.peak_marks[row]
        half_step = self.step / 2
        is_visible = (hz >= self.f[0] - half_step) & (hz <= self.f[-1] + half_step)
        return hz[is_visible], level[is_visible]

    def curve_points(self, row: int) -> tuple[Floats, Floats]:
        """Return the points of a row's line, including peaks that lie between two bins
        so that their marks lie on the line.
        """
        hz, level = self.visible_peaks(row)
        bin_distance = np.abs(self.f[:, None] - hz[None]).min(axis=0, initial=np.inf)
        is_between_bins = bin_distance > 1e-6 * self.step
        x = np.concatenate([self.f, hz[is_between_bins]])
        y = np.concatenate([self.level[row], level[is_between_bins]])
        order = np.argsort(x, kind="stable")
        return x[order], y[order]

    def crop_frequencies(
        self, low: float | None, high: float | None, log: bool, context: str
    ) -> SpectrumRows:
        """Return the rows cropped to a frequency range; a logarithmic axis excludes 0
        Hz.

        Errors   UsageError where no frequency is left
        """
        is_shown = self.f > 0 if log else np.ones(len(self.f), bool)
        is_shown &= self.f >= (-np.inf if low is None else low)
        is_shown &= self.f <= (np.inf if high is None else high)
        if not is_shown.any():
            lower_text = f"at least {low:g} Hz" if low is not None else "above 0 Hz"
            upper_text = f" and at most {high:g} Hz" if high is not None else ""
            raise UsageError(
                context,
                f"the spectrum has no frequency that is {lower_text}{upper_text}",
                f"its frequencies range from {self.f[0]:g} to {self.f[-1]:g} Hz",
            )
        n_offset_bins = max(0, self.n_offset_bins - int(is_shown.argmax()))
        return replace(
            self,
            f=self.f[is_shown],
            level=self.level[:, is_shown],
            n_offset_bins=n_offset_bins,
        )


def choose_line_layout(n_rows: int, requested: str | None) -> str:
    """Return the layout for this many rows: the requested one, but a heatmap for more
    than ten.
    """
    if n_rows > MAX_LINES:
        return "heatmap"
    if requested is None:
        return "overlaid" if n_rows <= MAX_OVERLAID_LINES else "panels"
    return requested


def level_range(level: Floats, n_offset_bins: int) -> tuple[float, float]:
    """Return (low, high) in dB that show the spectra (C, F); never empty, never
    inverted.

    The first `n_offset_bins` bins count only where they do not tower over the rest.
    """
    rest = level[:, n_offset_bins:]
    finite = rest[np.isfinite(rest)]
    if not finite.size:
        return 0.0, 1.0
    is_line_plot = level.shape[0] <= MAX_LINES
    low, high = np.percentile(finite, [0, 100] if is_line_plot else [1, 99.7])
    offset_levels = level[:, :n_offset_bins][np.isfinite(level[:, :n_offset_bins])]
    if offset_levels.size and high < offset_levels.max() <= high + MAX_OFFSET_DB:
        high = offset_levels.max()
    low = max(low, high - MAX_SPAN_DB)
    return float(low), float(max(high, low + 1e-6))


def level_axis_limits(
    rows: SpectrumRows, margin_above: float = 0.16
) -> tuple[float, float]:
    """Return the limits of the level axis, with space above for peak labels."""
    low, high = level_range(rows.level, rows.n_offset_bins)
    height = max(high - low, 1e-3)
    return low - 0.05 * height, high + margin_above * height


def offset_spacing(rows: SpectrumRows) -> float:
    """Return the distance in dB between neighbouring rows at which no line covers
    another.
    """
    low, high = level_range(rows.level, rows.n_offset_bins)
    finite_rows = [row for row in rows.level if np.isfinite(row).any()]
    if len(finite_rows) < 2:
        return max(5.0, high - low)
    level = np.clip(np.array(finite_rows)[:, rows.n_offset_bins :], low, high)
    max_step = float(np.nanmax(level[1:] - level[:-1]))
    return 5.0 * float(np.ceil(max(max_step + 2.0, (high - low) / 8, 2.0) / 5.0))


def merge_into_columns(
    level: Floats, f: Floats, step: float, log: bool
) -> tuple[Floats, Floats]:
    """Merge levels (C, F) into at most MAX_COLUMNS columns, the maximum of their bins,
    and return them with their edges.

    On a logarithmic axis the columns widen with frequency, and f must be above 0.
    """
    count = len(f)
    if log:
        frequency_edges = np.geomspace(f[0], f[-1] + step, min(count, MAX_COLUMNS) + 1)
        bin_edges = (frequency_edges - f[0]) / step
    else:
        bin_edges = np.linspace(0, count, min(count, MAX_COLUMNS) + 1)
    starts = np.unique(np.round(bin_edges).astype(np.intp))
    cells: Floats = np.fmax.reduceat(level, starts[:-1], axis=1)
    return cells, np.asarray(f[0] + (starts - 0.5) * step, np.float64)


def power_levels(power: NDArray[Any]) -> Floats:
    """Return 10 log10 of the power; -inf for zero, NaN for NaN and infinity."""
    power_f64 = np.asarray(power, np.float64)
    out = np.where(power_f64 == 0, -np.inf, np.nan)
    np.log10(power_f64, out=out, where=np.isfinite(power_f64) & (power_f64 > 0))
    return out * 10
