"""The clock column of a table: its rate, or why it has none.

Owns the rule for "evenly spaced", and which unit is likely where a name tells none.
Names and units are in `clock_names`. Printed times are rounded, so the spacing is
judged to the last digit printed, and a rate that a whole number explains as well is
taken to be that number. A clock that gives no certain rate is measured all the same,
for a rate that the caller gives is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from rlxweb.errors import RecordingError
from rlxweb.io import bounds
from rlxweb.io.clock_names import ClockName, clock_name
from rlxweb.io.clock_text import text_times
from rlxweb.io.contents import SampleReader, Timing
from rlxweb.io.source import Source

_ROWS: Final = 4096
_MEDIAN_ROWS: Final = 1 << 18
_MOST_EXPONENT: Final = 300  # float64 holds no power of ten much beyond
_DATES_S: Final = (1e8, 5e9)
"""Seconds since 1970 of days from 1973 to 2128."""
_SECONDS_SINCE: Final = 5e8
"""Fewer seconds without a unit may as well be a count in milliseconds."""
_DAY_NUMBERS: Final = ((2e4, 1e5), (6.9e5, 7.8e5))
"""Days as spreadsheets count them, from 1900, and MATLAB, from the year 0."""
_FAST_HZ: Final = 2e4
_SLOW_S: Final = 100.0
_NO_DATE_S: Final = 1e11
"""Seconds since 1970 of the year 5138."""
_ABBREVIATED: Final = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns", 86_400.0: "days"}
_DECIMAL: Final = (1.0, 1e-3, 1e-6, 1e-9)
_GAP: Final = 0.5
"""A step that is longer than the usual one by such a share of it is a gap."""
_MOSTLY: Final = 0.9
"""The share of steps that go one way in times with faults; in noise half do."""
_RAMP_ROWS: Final = 32
_LEAST_RAMP: Final = 8


class Rows(SampleReader, Protocol):
    """What the clock needs of a table; its samples are float64."""

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Cells of one column as they are printed, with a decimal point."""
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """The rate a clock column gives, or the reason there is none.

    tolerance  relative error of `fs` from the rounding of the printed times
    problem    what is wrong with the times; "" where nothing is
    measured   rates that they speak for all the same, the likeliest first
    begun      time of day at the first row in seconds, where dates are printed
    """

    fs: float | None = None
    tolerance: float = 1e-9
    problem: str = ""
    measured: tuple[float, ...] = ()
    begun: float | None = None

    def timing(self, whose: str) -> Timing | None:
        """Return what the caller has to know, None of a sound clock.

        whose   the clock, "its column 'time'"
        """
        if not self.problem:
            return None
        return Timing(f"{whose} {self.problem}", self.measured)


def without_letters(rows: Rows, names: Sequence[str], n_rows: int) -> list[str]:
    """Return the names of a table's columns, "" for a "t" that holds no times."""
    told = list(names)
    for at, name in enumerate(names):
        said = clock_name(name)
        if said is not None and said.is_letter and not runs_one_way(rows, at, n_rows):
            told[at] = ""
    return told


def runs_one_way(rows: Rows, column: int, n_rows: int) -> bool:
    """Tell whether a column goes one way as times do, but for a few steps.

    It is looked at where it begins, in the middle and where it ends. True where that
    cannot be read as numbers: text is judged by whoever takes it for times.
    """
    if n_rows < 2:
        return True
    many = min(_ROWS, n_rows)
    parts = {0, (n_rows - many) // 2, n_rows - many}
    try:
        times = [
            np.asarray(rows.read((column,), at, at + many)[0], np.float64)
            for at in sorted(parts)
        ]
    except RecordingError:
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.concatenate([np.diff(one) for one in times])
    share = max((steps >= 0).mean(), (steps <= 0).mean())
    return bool(share >= _MOSTLY and np.any(steps))


def clock_of(
    rows: Rows, names: Sequence[str], n_rows: int, units: Sequence[float | None] = ()
) -> tuple[int, Clock]:
    """Return which column of a table is its clock, -1: none, and what it gives.

    Of several it is the first that gives a rate; but where the times of one leave gaps
    no other hides them.

    units   seconds per unit where the table itself tells, column by column
    """
    columns = [at for at, name in enumerate(names) if clock_name(name) is not None]
    first: tuple[int, Clock] | None = None
    sound: tuple[int, Clock] | None = None
    for at in columns:
        name = clock_name(names[at]) or ClockName(None)
        if units and units[at]:
            name = ClockName(units[at])
        clock = find_rate(rows, at, name, n_rows)
        if clock.problem and clock.measured and clock.fs is None:
            return at, clock
        first = first or (at, clock)
        if clock.fs is not None:
            sound = sound or (at, clock)
    return sound or first or (-1, Clock())


def ramps(rows: Rows, columns: Sequence[int], n_rows: int) -> dict[int, float]:
    """Return the columns that rise evenly as a clock does, and their steps.

    None where all do: beside no signal there is no clock.
    """
    if n_rows < _LEAST_RAMP or not columns:
        return {}
    many = min(_RAMP_ROWS, n_rows)
    found: dict[int, float] = {}
    try:
        head = np.asarray(rows.read(tuple(columns), 0, many), np.float64)
        last = np.asarray(rows.read(tuple(columns), n_rows - 1, n_rows), np.float64)
    except RecordingError:
        return found  # a broken cell is reported when its block is read
    with np.errstate(over="ignore", invalid="ignore"):
        for at, own, end in zip(columns, head, last[:, 0], strict=True):
            step = (end - own[0]) / (n_rows - 1)
            off = np.abs(own - own[0] - step * np.arange(many))
            if step > 0 and np.isfinite(step) and off.max() <= 0.3 * step:
                found[at] = float(step)
    return found if len(found) < len(columns) else {}


def ramp_doubt(name: str, step: float) -> str:
    """Return the warning about a channel that looks like a clock."""
    return (
        f"column {name!r} rises evenly by {step:.6g} a row, as a clock or row numbers "
        "do, and is taken as a channel: leave it out, or call it 'time_s' if it is the "
        "clock"
    )


def seconds_per_unit(name: ClockName, first: float, step: float) -> Clock:
    """Return a clock whose `measured` begins with the rate by the likeliest unit.

    Without a unit in its name, times since 1970 are told by their size: 1.7e12 seconds
    are no date, 1.7e12 milliseconds are. Where units are as likely as each other, the
    problem tells the rates of both.

    first, step   of the times, in their own unit
    """
    size = abs(first)
    by_size = next((u for u in _DECIMAL if _is_date(size * u)), None)
    if name.scale is not None:
        if size * name.scale < _NO_DATE_S:
            return Clock(measured=(1 / (step * name.scale),))
        scales = (name.scale, *([by_size] if by_size else []))
        unit = _ABBREVIATED.get(name.scale, f"units of {name.scale:g} s")
        problem = f"is in {unit} by its name, but {size:.3g} {unit} is no date"
        return _doubtful(problem, scales, step)
    if any(low <= size < high for low, high in _DAY_NUMBERS) and 1 / step > _FAST_HZ:
        return _doubtful("names no unit", (1.0, 86_400.0), step)
    if by_size is not None and (by_size < 1 or size >= _SECONDS_SINCE):
        clock = Clock(measured=(1 / (step * by_size),))
        finer = tuple(unit for unit in _DECIMAL if unit < by_size)
        if by_size == 1 or step * by_size < _SLOW_S or not finer:
            return clock
        # So slow a date may be a count of something finer since a device was started.
        told = _doubtful("names no unit", (by_size, *finer), step)
        return replace(told, fs=told.measured[0])
    if size >= _DATES_S[1]:
        return _doubtful(f"begins with {size:.6g} and names no unit", _DECIMAL, step)
    if name.is_date:
        problem = f"is a date by its name, but {first:.6g} s since 1970 is none"
        return _doubtful(problem, (), step)
    if step >= 1:
        clock = _doubtful("names no unit", (1.0, 1e-3), step)
        return replace(clock, fs=1 / step, measured=_any_unit(1 / step))
    return Clock(measured=(1 / step,))


def _is_date(seconds: float) -> bool:
    """Tell whether seconds since 1970 are a day on which somebody recorded."""
    return _DATES_S[0] <= seconds < _DATES_S[1]


def _any_unit(rate: float) -> tuple[float, ...]:
    """Return the rates by times in s, ms, us and ns."""
    return rate, 1e3 * rate, 1e6 * rate, 1e9 * rate


def _doubtful(problem: str, scales: Sequence[float], step: float) -> Clock:
    rates = tuple(1 / (step * scale) for scale in scales)
    told = ", ".join(
        f"{rate:.6g} Hz if it is in {_ABBREVIATED.get(scale, f'{scale:g} s')}"
        for rate, scale in zip(rates, scales, strict=True)
    )
    return Clock(problem=f"{problem}{': ' * bool(told)}{told}", measured=rates)


class HeldTimes:
    """An array of times in memory, as the Rows of a clock."""

    def __init__(self, times: npt.NDArray[Any]) -> None:
        flat = np.ravel(times)
        if flat.dtype.kind in "Mm":
            flat = (flat - flat[:1]) / np.timedelta64(1, "s")
        self._times = flat

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """See SampleReader; there is one column."""
        return np.asarray(self._times[start:stop], np.float64)[None]

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """See Rows: the shortest digits that say the number."""
        return [str(self._times[at]) for at in rows]


def agreed(
    source: Source, said: float | None, where: str, clock: Clock, whose: str
) -> tuple[float | None, float, Timing | None]:
    """Return the rate of a file that has a clock and may also say its rate.

    said, where   the rate, and what says it
    whose         the clock, "its array 'time'"
    → the rate, its tolerance, and what is wrong with the clock where it decides

    Errors   RecordingError where the two contradict each other
    Warns    of gaps in the times
    """
    if said is None:
        return clock.fs, clock.tolerance, clock.timing(whose)
    sure = () if clock.fs is None else (clock.fs,)
    near = 0.01 if clock.fs is None else max(clock.tolerance, 1e-6)
    rates = (*sure, *clock.measured)
    if rates and not any(math.isclose(said, one, rel_tol=near) for one in rates):
        raise source.error(
            "its rates contradict each other",
            f"{where}: {said:.10g} Hz, {whose}: {rates[0]:.10g} Hz",
            f"{whose} {clock.problem}" if clock.problem else "leave one",
        )
    if rates and clock.fs is None:
        source.warn(
            f"{whose} {clock.problem}: at {said:.6g} Hz, as its {where} says, the "
            "samples are read as if each followed the one before"
        )
    return said, 1e-9, None


def find_rate(rows: Rows, column: int, name: ClockName, n_rows: int) -> Clock:
    """Return the rate of a clock column, or why its times give none."""
    if n_rows < 2:
        return Clock(problem="has a single row")
    probe = [*range(min(32, n_rows)), n_rows - 1]
    digits = _resolution(rows.texts(probe, column))
    begun = None
    if digits is None:
        dated = text_times(rows.texts, column, n_rows)
        if dated is None:
            return Clock(problem=_not_understood(rows.texts(probe, column)))
        rows, column, name, digits = dated, 0, ClockName(1.0), dated.digit
        begun = dated.begun
    first = float(rows.read((column,), 0, 1)[0, 0])
    last = float(rows.read((column,), n_rows - 1, n_rows)[0, 0])
    if not (np.isfinite(first) and np.isfinite(last)):
        return _uneven(rows, column, n_rows, 0, digits, name.scale or 1.0)
    span = last - first
    step = span / (n_rows - 1)
    if not step > 0:
        step = _step_of_set_back(rows, column, n_rows)
        span = step * (n_rows - 1)  # as if they had gone on
    if not (np.isfinite(step) and step > 0):
        return Clock(problem="does not rise")
    unit = seconds_per_unit(name, first, step)
    if unit.problem and unit.fs is None:
        return unit
    scale = 1 / (step * unit.measured[0])
    if not 1 / bounds.MOST_HZ <= step * scale <= 1 / bounds.LEAST_HZ:
        return Clock(problem=f"rises by {step:.3g} a row, which is no rate")
    grain = float(8 * np.spacing(max(abs(first), abs(last))))
    fs = 1 / (step * scale)
    rounded = _whole(fs, max(digits, grain) / span)
    # The line through both ends may be tilted by their rounding, one through a whole
    # rate is not; a lost row shows as a jump of a whole step off either.
    lines = np.array([step, 1 / (rounded * scale)])
    room = np.minimum([2.02 * digits, 1.02 * digits], 0.75 * step)
    room = np.maximum(room, max(0.01 * step, grain))
    row, spread = _follow(rows, column, n_rows, lines, room)
    if row is not None:
        clock = _uneven(rows, column, n_rows, row, max(digits, grain), scale)
        rates = (clock.measured[0] * one / unit.measured[0] for one in unit.measured)
        return replace(clock, measured=tuple(rates))
    is_whole = spread[0] > grain and spread[1] <= room[1]
    error = float(spread[1]) / span if is_whole else max(float(spread[0]), grain) / span
    fs = rounded if is_whole else _whole(fs, error)
    return replace(unit, fs=fs, tolerance=max(error, 1e-9), begun=begun)


def _step_of_set_back(rows: Rows, column: int, n_rows: int) -> float:
    """Return the usual step of times that rise and begin anew; 0 for others."""
    if not runs_one_way(rows, column, n_rows):
        return 0.0
    head = rows.read((column,), 0, min(n_rows, _MEDIAN_ROWS))[0]
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.nanmedian(np.diff(head)))


def _not_understood(texts: list[str]) -> str:
    strange = [one.strip() for one in texts if _resolution([one]) is None]
    return f"is not understood as times ({(strange or texts)[0][:40]!r})"


def _uneven(
    rows: Rows, column: int, n_rows: int, row: int, digit: float, scale: float
) -> Clock:
    """Measure a clock that is not evenly spaced: its gaps, and the rate between."""
    some = rows.read((column,), 0, min(n_rows, _MEDIAN_ROWS))[0]
    with np.errstate(over="ignore", invalid="ignore"):
        usual = float(np.nanmedian(np.diff(some))) if np.isfinite(some).any() else 0.0
    where = "is not evenly spaced (about row {})"
    if not np.isfinite(usual):
        return Clock(problem=where.format(row + 1))
    if usual <= 0:
        rate = _rate_of_packets(rows, column, n_rows) / scale
        where = where.format(row + 1)
        return Clock(problem=f"{where}: {rate:.6g} Hz on average", measured=(rate,))
    gaps, lost, longest, total, count = 0, 0, 0.0, 0.0, 0
    at_row: int | None = None
    for at, steps in _steps(rows, column, n_rows):
        is_sound = np.isfinite(steps)
        is_gap = is_sound & (steps > usual + max(_GAP * usual, 0.99 * digit))
        is_back = is_sound & (steps < 0)
        gaps += int(is_gap.sum())
        lost += int((~is_sound).sum() + is_back.sum())
        longest = max(longest, float(steps[is_gap].max(initial=0.0)))
        is_usual = is_sound & ~is_gap & ~is_back
        if at_row is None and not is_usual.all():
            at_row = at + 1 + int(np.argmin(is_usual))
        own = steps[is_usual]
        total += float(own.sum())
        count += own.size
    rate = count / (total * scale) if total > 0 else 1 / (usual * scale)
    told = [f"{gaps} gap{'s' * (gaps != 1)}"]
    if gaps:
        told[0] += f" of up to {longest * scale:.6g} s"
    if lost:
        told.append(f"{lost} step{'s' * (lost != 1)} back or without a time")
    where = where.format((row if at_row is None else at_row) + 1)
    if not gaps and not lost:
        return Clock(problem=f"{where}: {rate:.6g} Hz on average", measured=(rate,))
    problem = f"{where}: {', '.join(told)}; {rate:.6g} Hz between them"
    return Clock(problem=problem, measured=(rate,))


def _rate_of_packets(rows: Rows, column: int, n_rows: int) -> float:
    """Return the rate of rows that come in packets, each with one time.

    It is measured from the begin of a packet to that of another: what the first and the
    last of them lack is unknown.
    """
    begins: list[int] = []
    seconds = first = 0.0
    for at, steps in _steps(rows, column, n_rows):
        own = np.flatnonzero(steps > 0)
        seconds += float(steps[own].sum())
        if own.size:
            begins = [begins[0] if begins else at + int(own[0]), at + int(own[-1])]
            first = float(steps[own[0]]) if begins[0] == at + own[0] else first
    count = begins[-1] - begins[0] if begins else 0
    return count / (seconds - first) if count else (n_rows - 1) / max(seconds, 1e-300)


def _steps(
    rows: Rows, column: int, n_rows: int
) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Yield the differences of the times, a block at a time, and where each begins."""
    for at in range(0, n_rows - 1, _ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            times = rows.read((column,), at, min(at + _ROWS + 1, n_rows))[0]
            yield at, np.diff(times)


def _follow(
    rows: Rows,
    column: int,
    n_rows: int,
    lines: npt.NDArray[np.float64],
    room: npt.NDArray[np.float64],
) -> tuple[int | None, npt.NDArray[np.float64]]:
    """The row at which no line of these steps holds the times, None when one does to
    the end; and how far the times spread about each line.
    """
    low = np.full(len(lines), np.inf)
    high = -low
    first = 0.0
    for at in range(0, n_rows, _ROWS):
        times = rows.read((column,), at, min(at + _ROWS, n_rows))[0]
        first = first if at else float(times[0])
        with np.errstate(over="ignore", invalid="ignore"):
            off = times - first - lines[:, None] * np.arange(at, at + len(times))
        lowest = np.minimum(low[:, None], np.minimum.accumulate(off, axis=1))
        highest = np.maximum(high[:, None], np.maximum.accumulate(off, axis=1))
        # NaN compares false and so ends the walk as well.
        holds = (highest - lowest <= room[:, None]).any(axis=0)
        if not holds.all():
            return at + int(np.argmin(holds)), high - low
        low, high = lowest[:, -1], highest[:, -1]
    return None, high - low


def _whole(fs: float, error: float) -> float:
    """The whole number that explains `fs` as well, or `fs`."""
    whole = round(fs)
    return float(whole) if whole and abs(fs - whole) <= fs * max(error, 1e-9) else fs


def _resolution(texts: list[str]) -> float | None:
    """Return the smallest last digit printed; None where one is no number."""
    try:
        there = [one for one in map(str.strip, texts) if np.isfinite(float(one))]
        last = min(_last_digit(text.lower()) for text in there)
    except (InvalidOperation, ValueError):
        return None
    if last > _MOST_EXPONENT:
        return None
    return float(10.0 ** max(last, -_MOST_EXPONENT))


def _last_digit(text: str) -> int:
    """The power of ten of the last digit. Errors: InvalidOperation, ValueError."""
    # taken apart first: where pointers have 32 bits, Decimal refuses "1e999999999"
    digits, mark, power = text.partition("e")
    exponent = Decimal(digits).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError
    return exponent + (int(power) if mark else 0)
