"""What a picture of spectra needs to know before it is drawn: levels, axes, columns.

Pure functions on rows; no matplotlib here. The strong bin at 0 Hz that an offset makes
must not eat the scale, and one line of 30,000 bins must not hide a narrow peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError

Floats = NDArray[np.float64]
Way = Literal["overlaid", "offset", "panels", "heatmap"]
WAYS: Final[tuple[str, ...]] = get_args(Way)
LINES: Final = 10
"""More lines cannot be told apart; they are drawn as a heatmap."""
ON_ONE: Final = 4
"""Lines that are drawn over each other where nothing else is asked for."""
# More columns than the picture has pixels cannot be seen.
COLUMNS: Final = 1200
# Below the strongest level by more than this is noise of the arithmetic.
SPAN_DB: Final = 120.0
# A bin at 0 Hz this far above all others is an offset and left out of the scale.
OFFSET_DB: Final = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Spectra side by side, each with its name.

    names   as they are drawn
    f       (F,) Hz, rising, `step` apart
    level   (C, F) dB: NaN where nothing of a row is drawn, -inf where it has no power
    label   of the levels
    marks   of each row: frequencies and levels of its peaks, strongest first
    states  why a row has no level; "" where it has one
    skip    how many of the first bins an offset of the signal may fill
    noun    what is marked
    """

    names: tuple[str, ...]
    f: Floats
    level: Floats
    label: str
    step: float
    marks: tuple[tuple[Floats, Floats], ...] = ()
    states: tuple[str, ...] = ()
    skip: int = 0
    noun: str = "peak"

    def __len__(self) -> int:
        return len(self.names)

    def state(self, at: int) -> str:
        return self.states[at] if self.states else ""

    def named(self, at: int) -> str:
        """A row's name, with the reason where nothing is drawn of it."""
        state = self.state(at)
        return f"{self.names[at]} ({state})" if state else self.names[at]

    def peaks(self, at: int) -> tuple[Floats, Floats]:
        """Frequencies and levels of a row's peaks within the axis."""
        if not self.marks or self.state(at):
            return np.zeros(0), np.zeros(0)
        hz, level = self.marks[at]
        half = self.step / 2
        seen = (hz >= self.f[0] - half) & (hz <= self.f[-1] + half)
        return hz[seen], level[seen]

    def curve(self, at: int) -> tuple[Floats, Floats]:
        """A row's line. A peak between two bins is a point of it as well: that is
        where the estimate puts the top, and its mark lies on the line.
        """
        hz, level = self.peaks(at)
        near = np.abs(self.f[:, None] - hz[None]).min(axis=0, initial=np.inf)
        between = near > 1e-6 * self.step
        x = np.concatenate([self.f, hz[between]])
        y = np.concatenate([self.level[at], level[between]])
        order = np.argsort(x, kind="stable")
        return x[order], y[order]

    def within(
        self, low: float | None, high: float | None, log: bool, doing: str
    ) -> Rows:
        """What of them is shown; a logarithmic axis has no place for 0 Hz.

        Errors   UsageError where no frequency is left
        """
        shown = self.f > 0 if log else np.ones(len(self.f), bool)
        shown &= self.f >= (-np.inf if low is None else low)
        shown &= self.f <= (np.inf if high is None else high)
        if not shown.any():
            begin = f"from {low:g}" if low is not None else "above 0"
            end = f" to {high:g}" if high is not None else ""
            raise UsageError(
                doing,
                f"no frequency lies {begin}{end} Hz",
                f"there are {self.f[0]:g} to {self.f[-1]:g} Hz",
            )
        skip = max(0, self.skip - int(shown.argmax()))
        return replace(self, f=self.f[shown], level=self.level[:, shown], skip=skip)


def way_of(rows: int, asked: str | None) -> str:
    """How so many rows are drawn: as asked, but more than ten as a heatmap."""
    if rows > LINES:
        return "heatmap"
    if asked is None:
        return "overlaid" if rows <= ON_ONE else "panels"
    return asked


def level_range(level: Floats, skip: int) -> tuple[float, float]:
    """(low, high) dB that show the spectra (C, F); never empty, never inverted.

    The first `skip` bins count only where they do not tower over the rest.
    """
    rest = level[:, skip:]
    known = rest[np.isfinite(rest)]
    if not known.size:
        return 0.0, 1.0
    few = level.shape[0] <= LINES
    low, high = np.percentile(known, [0, 100] if few else [1, 99.7])
    first = level[:, :skip][np.isfinite(level[:, :skip])]
    if first.size and high < first.max() <= high + OFFSET_DB:
        high = first.max()
    low = max(low, high - SPAN_DB)
    return float(low), float(max(high, low + 1e-6))


def limits_of(rows: Rows, above: float = 0.16) -> tuple[float, float]:
    """The ends of the axis of levels, with room above for what is written at peaks."""
    low, high = level_range(rows.level, rows.skip)
    room = max(high - low, 1e-3)
    return low - 0.05 * room, high + above * room


def spacing(rows: Rows) -> float:
    """DB from one row to the next, so that no line covers another."""
    low, high = level_range(rows.level, rows.skip)
    known = [row for row in rows.level if np.isfinite(row).any()]
    if len(known) < 2:
        return max(5.0, high - low)
    level = np.clip(np.array(known)[:, rows.skip :], low, high)
    most = float(np.nanmax(level[1:] - level[:-1]))
    return 5.0 * float(np.ceil(max(most + 2.0, (high - low) / 8, 2.0) / 5.0))


def columns(level: Floats, f: Floats, step: float, log: bool) -> tuple[Floats, Floats]:
    """Levels (C, F) as at most COLUMNS columns, the highest of their bins, and edges.

    On a logarithmic axis the columns widen with frequency, and f must be above 0.
    """
    count = len(f)
    if log:
        ideal = np.geomspace(f[0], f[-1] + step, min(count, COLUMNS) + 1)
        wanted = (ideal - f[0]) / step
    else:
        wanted = np.linspace(0, count, min(count, COLUMNS) + 1)
    starts = np.unique(np.round(wanted).astype(np.intp))
    cells: Floats = np.fmax.reduceat(level, starts[:-1], axis=1)
    return cells, np.asarray(f[0] + (starts - 0.5) * step, np.float64)


def quantity_levels(power: NDArray[Any]) -> Floats:
    """10 log10; zero is infinitely far below, NaN and infinity are NaN."""
    wide = np.asarray(power, np.float64)
    out = np.where(wide == 0, -np.inf, np.nan)
    np.log10(wide, out=out, where=np.isfinite(wide) & (wide > 0))
    return out * 10
