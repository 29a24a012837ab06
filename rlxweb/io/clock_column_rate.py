"""Sampling rate of a clock column, or the reason why it gives none.

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

from rlxweb.core.errors import RecordingError
from rlxweb.io import file_limits
from rlxweb.io.byte_source import RecordingSource
from rlxweb.io.clock_column_names import ClockName, parse_clock_name
from rlxweb.io.format_reader_interface import SampleReader, UncertainTiming
from rlxweb.io.time_parsing import parse_time_column

_BLOCK_ROWS: Final = 4096
_MEDIAN_ROWS: Final = 1 << 18
_MAX_EXPONENT: Final = 300  # float64 holds no power of ten much beyond
_DATE_RANGE_S: Final = (1e8, 5e9)
"""Range of plausible Unix times in seconds: the years 1973 to 2128."""
_MIN_UNIX_SECONDS: Final = 5e8
"""Smallest Unix time in seconds that is accepted without a unit; less may be a count of
milliseconds.
"""
_DAY_NUMBER_RANGES: Final = ((2e4, 1e5), (6.9e5, 7.8e5))
"""Ranges of day numbers: of spreadsheets, from 1900, and of MATLAB, from the year 0."""
_FAST_HZ: Final = 2e4
_SLOW_S: Final = 100.0
_MAX_DATE_S: Final = 1e11
"""Largest Unix time that is accepted as a date: the year 5138."""
_UNIT_NAMES: Final = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns", 86_400.0: "days"}
_DECIMAL_UNITS: Final = (1.0, 1e-3, 1e-6, 1e-9)
_GAP_SHARE: Final = 0.5
"""Share of the usual step by which a longer step must exceed it to be a gap."""
_MONOTONIC_SHARE: Final = 0.9
"""Share of steps that go one way in times with faults; in noise it is half."""
_RAMP_ROWS: Final = 32
_MIN_RAMP_ROWS: Final = 8


class ClockTable(SampleReader, Protocol):
    """Table as a clock sees it: a SampleReader of float64 whose cells can also be read
    as text.
    """

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return cells of one column as they are printed, with a decimal point."""
        ...


@dataclass(frozen=True, slots=True)
class ClockRate:
    """Rate that a clock column gives, or the reason why there is none.

    tolerance  relative error of `fs` from the rounding of the printed times
    problem    what is wrong with the times; "" where nothing is
    measured_rates  rates that they speak for all the same, the likeliest first
    begun      time of day at the first row in seconds, where dates are printed
    """

    fs: float | None = None
    tolerance: float = 1e-9
    problem: str = ""
    measured_rates: tuple[float, ...] = ()
    begun: float | None = None

    def uncertain_timing(self, subject: str) -> UncertainTiming | None:
        """Return the doubt that the caller must know of; None for a sound clock.

        subject  the clock, "its column 'time'"
        """
        if not self.problem:
            return None
        return UncertainTiming(f"{subject} {self.problem}", self.measured_rates)


def clear_false_clock_names(
    table: ClockTable, names: Sequence[str], n_rows: int
) -> list[str]:
    """Return the names of a table's columns, with "" for a column "t" that holds no
    times.
    """
    clock_names = list(names)
    for column_index, name in enumerate(names):
        parsed_name = parse_clock_name(name)
        if (
            parsed_name is not None
            and parsed_name.is_letter
            and not is_mostly_monotonic(table, column_index, n_rows)
        ):
            clock_names[column_index] = ""
    return clock_names


def is_mostly_monotonic(table: ClockTable, column: int, n_rows: int) -> bool:
    """Tell whether a column rises or falls as times do, except for a few steps.

    It is looked at where it begins, in the middle and where it ends. True where that
    cannot be read as numbers: text is judged by whoever takes it for times.
    """
    if n_rows < 2:
        return True
    count = min(_BLOCK_ROWS, n_rows)
    block_starts = {0, (n_rows - count) // 2, n_rows - count}
    try:
        times = [
            np.asarray(
                table.read((column,), column_index, column_index + count)[0], np.float64
            )
            for column_index in sorted(block_starts)
        ]
    except RecordingError:
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.concatenate([np.diff(block) for block in times])
    share = max((steps >= 0).mean(), (steps <= 0).mean())
    return bool(share >= _MONOTONIC_SHARE and np.any(steps))


def find_clock(
    table: ClockTable,
    names: Sequence[str],
    n_rows: int,
    units: Sequence[float | None] = (),
) -> tuple[int, ClockRate]:
    """Return the index of a table's clock column, -1 for none, and the rate that it
    gives.

    Of several it is the first that gives a rate; but where the times of one leave gaps
    no other hides them.

    units   seconds per unit where the table itself tells, column by column
    """
    columns = [
        column_index
        for column_index, name in enumerate(names)
        if parse_clock_name(name) is not None
    ]
    first_clock: tuple[int, ClockRate] | None = None
    usable_clock: tuple[int, ClockRate] | None = None
    for column_index in columns:
        name = parse_clock_name(names[column_index]) or ClockName(None)
        if units and units[column_index]:
            name = ClockName(units[column_index])
        clock = find_rate(table, column_index, name, n_rows)
        if clock.problem and clock.measured_rates and clock.fs is None:
            return column_index, clock
        first_clock = first_clock or (column_index, clock)
        if clock.fs is not None:
            usable_clock = usable_clock or (column_index, clock)
    return usable_clock or first_clock or (-1, ClockRate())


def find_ramps(
    table: ClockTable, columns: Sequence[int], n_rows: int
) -> dict[int, float]:
    """Return the steps of the columns that rise evenly as a clock does, by column.

    None where all do: beside no signal there is no clock.
    """
    if n_rows < _MIN_RAMP_ROWS or not columns:
        return {}
    count = min(_RAMP_ROWS, n_rows)
    steps_by_column: dict[int, float] = {}
    try:
        head = np.asarray(table.read(tuple(columns), 0, count), np.float64)
        last = np.asarray(table.read(tuple(columns), n_rows - 1, n_rows), np.float64)
    except RecordingError:
        return steps_by_column  # a broken cell is reported when its block is read
    with np.errstate(over="ignore", invalid="ignore"):
        for column_index, values, last_value in zip(
            columns, head, last[:, 0], strict=True
        ):
            step = (last_value - values[0]) / (n_rows - 1)
            deviations = np.abs(values - values[0] - step * np.arange(count))
            if step > 0 and np.isfinite(step) and deviations.max() <= 0.3 * step:
                steps_by_column[column_index] = float(step)
    return steps_by_column if len(steps_by_column) < len(columns) else {}


def ramp_warning(name: str, step: float) -> str:
    """Return the warning about a channel that looks like a clock."""
    return (
        f"column {name!r} increases by {step:.6g} in every row, like a clock or "
        "row numbers, but is read as a channel: exclude the column, or rename it "
        "to 'time_s' if it contains the sample times in seconds"
    )


def rate_in_likely_unit(name: ClockName, first: float, step: float) -> ClockRate:
    """Return a clock rate whose `measured_rates` begins with the rate in the likeliest
    unit.

    Without a unit in its name, times since 1970 are told by their size: 1.7e12 seconds
    are no date, 1.7e12 milliseconds are. Where units are as likely as each other, the
    problem tells the rates of both.

    first, step   of the times, in their own unit
    """
    size = abs(first)
    likely_unit = next((unit for unit in _DECIMAL_UNITS if _is_date(size * unit)), None)
    if name.seconds_per_unit is not None:
        if size * name.seconds_per_unit < _MAX_DATE_S:
            return ClockRate(measured_rates=(1 / (step * name.seconds_per_unit),))
        scales = (name.seconds_per_unit, *([likely_unit] if likely_unit else []))
        unit_name = _UNIT_NAMES.get(
            name.seconds_per_unit, f"units of {name.seconds_per_unit:g} s"
        )
        problem = (
            f"is in {unit_name} according to its name, but its first value, "
            f"{first:.3g} {unit_name} since 1970, is not a valid date"
        )
        return _doubtful_rate(problem, scales, step)
    if (
        any(low <= size < high for low, high in _DAY_NUMBER_RANGES)
        and 1 / step > _FAST_HZ
    ):
        return _doubtful_rate("has no time unit", (1.0, 86_400.0), step)
    if likely_unit is not None and (likely_unit < 1 or size >= _MIN_UNIX_SECONDS):
        clock = ClockRate(measured_rates=(1 / (step * likely_unit),))
        finer_units = tuple(
            unit_name for unit_name in _DECIMAL_UNITS if unit_name < likely_unit
        )
        if likely_unit == 1 or step * likely_unit < _SLOW_S or not finer_units:
            return clock
        # So slow a date may be a count of something finer since a device was started.
        doubtful = _doubtful_rate("has no time unit", (likely_unit, *finer_units), step)
        return replace(doubtful, fs=doubtful.measured_rates[0])
    if size >= _DATE_RANGE_S[1]:
        return _doubtful_rate(
            f"starts at {size:.6g} and has no time unit", _DECIMAL_UNITS, step
        )
    if name.is_date:
        problem = (
            f"is a date according to its name, but its first value, {first:.6g} s "
            "since 1970, is not a valid date"
        )
        return _doubtful_rate(problem, (), step)
    if step >= 1:
        clock = _doubtful_rate("has no time unit", (1.0, 1e-3), step)
        return replace(clock, fs=1 / step, measured_rates=_rates_in_all_units(1 / step))
    return ClockRate(measured_rates=(1 / step,))


def _is_date(seconds: float) -> bool:
    """Tell whether seconds since 1970 are a plausible date of a recording."""
    return _DATE_RANGE_S[0] <= seconds < _DATE_RANGE_S[1]


def _rates_in_all_units(rate: float) -> tuple[float, ...]:
    """Return the rates if the times are in s, ms, us or ns."""
    return rate, 1e3 * rate, 1e6 * rate, 1e9 * rate


def _doubtful_rate(problem: str, scales: Sequence[float], step: float) -> ClockRate:
    """Return a clock rate with a problem that lists the rate for each possible unit."""
    rates = tuple(1 / (step * scale) for scale in scales)
    alternatives = ", ".join(
        f"{rate:.6g} Hz if the unit is {_UNIT_NAMES.get(scale, f'{scale:g} s')}"
        for rate, scale in zip(rates, scales, strict=True)
    )
    return ClockRate(
        problem=f"{problem}{': ' * bool(alternatives)}{alternatives}",
        measured_rates=rates,
    )


class TimeArray:
    """ClockTable of an array of times in memory."""

    def __init__(self, times: npt.NDArray[Any]) -> None:
        flat = np.ravel(times)
        if flat.dtype.kind in "Mm":
            flat = (flat - flat[:1]) / np.timedelta64(1, "s")
        self._times = flat

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """Return times [start, stop) as the only column; see SampleReader."""
        return np.asarray(self._times[start:stop], np.float64)[None]

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return the shortest decimal text of each time; see ClockTable."""
        return [str(self._times[row]) for row in rows]


def reconcile_rates(
    source: RecordingSource,
    stated_rate: float | None,
    stated_by: str,
    clock: ClockRate,
    subject: str,
) -> tuple[float | None, float, UncertainTiming | None]:
    """Return the rate of a file that has a clock and may also state its rate.

    stated_rate, stated_by  the rate, and what says it
    subject       the clock, "its array 'time'"
    → the rate, its tolerance, and what is wrong with the clock where it decides

    Errors   RecordingError where the two contradict each other
    Warns    of gaps in the times
    """
    if stated_rate is None:
        return clock.fs, clock.tolerance, clock.uncertain_timing(subject)
    certain_rates = () if clock.fs is None else (clock.fs,)
    tolerance = 0.01 if clock.fs is None else max(clock.tolerance, 1e-6)
    rates = (*certain_rates, *clock.measured_rates)
    if rates and not any(
        math.isclose(stated_rate, rate, rel_tol=tolerance) for rate in rates
    ):
        raise source.error(
            "the file declares conflicting sampling rates",
            f"{stated_by}: {stated_rate:.10g} Hz, {subject}: {rates[0]:.10g} Hz",
            f"{subject} {clock.problem}" if clock.problem else "remove the wrong one",
        )
    if rates and clock.fs is None:
        source.warn(
            f"{subject} {clock.problem}; samples are read without gaps at "
            f"{stated_rate:.6g} Hz, the rate declared by {stated_by}"
        )
    return stated_rate, 1e-9, None


def find_rate(
    table: ClockTable, column: int, name: ClockName, n_rows: int
) -> ClockRate:
    """Return the rate of a clock column, or the reason why its times give none."""
    if n_rows < 2:
        return ClockRate(problem="has only one row")
    probe_rows = [*range(min(32, n_rows)), n_rows - 1]
    resolution = _printed_resolution(table.texts(probe_rows, column))
    begun = None
    if resolution is None:
        parsed_times = parse_time_column(table.texts, column, n_rows)
        if parsed_times is None:
            return ClockRate(problem=_unparsed_problem(table.texts(probe_rows, column)))
        table = parsed_times
        column = 0
        name = ClockName(1.0)
        resolution = parsed_times.resolution
        begun = parsed_times.begun
    first = float(table.read((column,), 0, 1)[0, 0])
    last = float(table.read((column,), n_rows - 1, n_rows)[0, 0])
    if not (np.isfinite(first) and np.isfinite(last)):
        return _measure_uneven_clock(
            table, column, n_rows, 0, resolution, name.seconds_per_unit or 1.0
        )
    span = last - first
    step = span / (n_rows - 1)
    if not step > 0:
        step = _usual_step_with_resets(table, column, n_rows)
        span = step * (n_rows - 1)  # as if they had gone on
    if not (np.isfinite(step) and step > 0):
        return ClockRate(problem="does not increase")
    unit_clock = rate_in_likely_unit(name, first, step)
    if unit_clock.problem and unit_clock.fs is None:
        return unit_clock
    scale = 1 / (step * unit_clock.measured_rates[0])
    if not 1 / file_limits.MAX_HZ <= step * scale <= 1 / file_limits.MIN_HZ:
        return ClockRate(
            problem=f"increases by {step:.3g} per row; the sampling rate would be "
            f"outside {file_limits.MIN_HZ:g} to {file_limits.MAX_HZ:g} Hz"
        )
    float_spacing = float(8 * np.spacing(max(abs(first), abs(last))))
    fs = 1 / (step * scale)
    rounded = _snap_to_integer(fs, max(resolution, float_spacing) / span)
    # The line through both ends may be tilted by their rounding, one through a whole
    # rate is not; a lost row shows as a jump of a whole step off either.
    line_steps = np.array([step, 1 / (rounded * scale)])
    tolerances = np.minimum([2.02 * resolution, 1.02 * resolution], 0.75 * step)
    tolerances = np.maximum(tolerances, max(0.01 * step, float_spacing))
    row, spreads = _first_row_off_lines(table, column, n_rows, line_steps, tolerances)
    if row is not None:
        clock = _measure_uneven_clock(
            table, column, n_rows, row, max(resolution, float_spacing), scale
        )
        rates = (
            clock.measured_rates[0] * rate / unit_clock.measured_rates[0]
            for rate in unit_clock.measured_rates
        )
        return replace(clock, measured_rates=tuple(rates))
    is_integer_rate = spreads[0] > float_spacing and spreads[1] <= tolerances[1]
    error = (
        float(spreads[1]) / span
        if is_integer_rate
        else max(float(spreads[0]), float_spacing) / span
    )
    fs = rounded if is_integer_rate else _snap_to_integer(fs, error)
    return replace(unit_clock, fs=fs, tolerance=max(error, 1e-9), begun=begun)


def _usual_step_with_resets(table: ClockTable, column: int, n_rows: int) -> float:
    """Return the usual step of times that rise and restart; 0 for others."""
    if not is_mostly_monotonic(table, column, n_rows):
        return 0.0
    head = table.read((column,), 0, min(n_rows, _MEDIAN_ROWS))[0]
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.nanmedian(np.diff(head)))


def _unparsed_problem(texts: list[str]) -> str:
    """Return the problem of a column with a cell that is no time."""
    unparsed = [text.strip() for text in texts if _printed_resolution([text]) is None]
    return f"cannot be parsed as times ({(unparsed or texts)[0][:40]!r})"


def _measure_uneven_clock(
    table: ClockTable,
    column: int,
    n_rows: int,
    row: int,
    resolution: float,
    scale: float,
) -> ClockRate:
    """Measure a clock that is not evenly spaced: its gaps and the rate between them."""
    head = table.read((column,), 0, min(n_rows, _MEDIAN_ROWS))[0]
    with np.errstate(over="ignore", invalid="ignore"):
        usual_step = (
            float(np.nanmedian(np.diff(head))) if np.isfinite(head).any() else 0.0
        )
    location = "is not evenly spaced (near row {})"
    if not np.isfinite(usual_step):
        return ClockRate(problem=location.format(row + 1))
    if usual_step <= 0:
        rate = _packet_rate(table, column, n_rows) / scale
        location = location.format(row + 1)
        return ClockRate(
            problem=f"{location}: {rate:.6g} Hz on average", measured_rates=(rate,)
        )
    gaps, bad_steps, longest_gap, total, count = 0, 0, 0.0, 0.0, 0
    first_bad_row: int | None = None
    for start, steps in _iterate_steps(table, column, n_rows):
        is_valid = np.isfinite(steps)
        is_gap = is_valid & (
            steps > usual_step + max(_GAP_SHARE * usual_step, 0.99 * resolution)
        )
        is_back = is_valid & (steps < 0)
        gaps += int(is_gap.sum())
        bad_steps += int((~is_valid).sum() + is_back.sum())
        longest_gap = max(longest_gap, float(steps[is_gap].max(initial=0.0)))
        is_usual = is_valid & ~is_gap & ~is_back
        if first_bad_row is None and not is_usual.all():
            first_bad_row = start + 1 + int(np.argmin(is_usual))
        usual_steps = steps[is_usual]
        total += float(usual_steps.sum())
        count += usual_steps.size
    rate = count / (total * scale) if total > 0 else 1 / (usual_step * scale)
    findings = []
    if gaps:
        findings.append(
            f"{gaps} gap{'s' * (gaps != 1)} of up to {longest_gap * scale:.6g} s"
        )
    if bad_steps:
        findings.append(
            f"{bad_steps} negative or missing time step{'s' * (bad_steps != 1)}"
        )
    location = location.format((row if first_bad_row is None else first_bad_row) + 1)
    if not gaps and not bad_steps:
        return ClockRate(
            problem=f"{location}: {rate:.6g} Hz on average", measured_rates=(rate,)
        )
    problem = f"{location}: {', '.join(findings)}; {rate:.6g} Hz elsewhere"
    return ClockRate(problem=problem, measured_rates=(rate,))


def _packet_rate(table: ClockTable, column: int, n_rows: int) -> float:
    """Return the rate of rows that arrive in packets, each with one time.

    It is measured from the begin of a packet to that of another: what the first and the
    last of them lack is unknown.
    """
    packet_bounds: list[int] = []
    seconds = first_step = 0.0
    for start, steps in _iterate_steps(table, column, n_rows):
        new_packets = np.flatnonzero(steps > 0)
        seconds += float(steps[new_packets].sum())
        if new_packets.size:
            packet_bounds = [
                packet_bounds[0] if packet_bounds else start + int(new_packets[0]),
                start + int(new_packets[-1]),
            ]
            first_step = (
                float(steps[new_packets[0]])
                if packet_bounds[0] == start + new_packets[0]
                else first_step
            )
    count = packet_bounds[-1] - packet_bounds[0] if packet_bounds else 0
    return (
        count / (seconds - first_step) if count else (n_rows - 1) / max(seconds, 1e-300)
    )


def _iterate_steps(
    table: ClockTable, column: int, n_rows: int
) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Yield the start of each block and the differences of its times."""
    for start in range(0, n_rows - 1, _BLOCK_ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            times = table.read((column,), start, min(start + _BLOCK_ROWS + 1, n_rows))[
                0
            ]
            yield start, np.diff(times)


def _first_row_off_lines(
    table: ClockTable,
    column: int,
    n_rows: int,
    line_steps: npt.NDArray[np.float64],
    tolerances: npt.NDArray[np.float64],
) -> tuple[int | None, npt.NDArray[np.float64]]:
    """Return the first row at which no line of the given steps fits the times, or None,
    and the spread of the times about each line.
    """
    lows = np.full(len(line_steps), np.inf)
    highs = -lows
    first_time = 0.0
    for start in range(0, n_rows, _BLOCK_ROWS):
        times = table.read((column,), start, min(start + _BLOCK_ROWS, n_rows))[0]
        first_time = first_time if start else float(times[0])
        with np.errstate(over="ignore", invalid="ignore"):
            deviations = (
                times
                - first_time
                - line_steps[:, None] * np.arange(start, start + len(times))
            )
        running_lows = np.minimum(
            lows[:, None], np.minimum.accumulate(deviations, axis=1)
        )
        running_highs = np.maximum(
            highs[:, None], np.maximum.accumulate(deviations, axis=1)
        )
        # NaN compares false and so ends the walk as well.
        is_within = (running_highs - running_lows <= tolerances[:, None]).any(axis=0)
        if not is_within.all():
            return start + int(np.argmin(is_within)), highs - lows
        lows, highs = running_lows[:, -1], running_highs[:, -1]
    return None, highs - lows


def _snap_to_integer(fs: float, error: float) -> float:
    """Return the integer rate that explains `fs` within the error, or `fs`."""
    nearest = round(fs)
    return (
        float(nearest) if nearest and abs(fs - nearest) <= fs * max(error, 1e-9) else fs
    )


def _printed_resolution(texts: list[str]) -> float | None:
    """Return the smallest last digit printed; None if a text is no number."""
    try:
        finite_texts = [
            cell for cell in map(str.strip, texts) if np.isfinite(float(cell))
        ]
        exponent = min(_last_digit_exponent(text.lower()) for text in finite_texts)
    except (InvalidOperation, ValueError):
        return None
    if exponent > _MAX_EXPONENT:
        return None
    return float(10.0 ** max(exponent, -_MAX_EXPONENT))


def _last_digit_exponent(text: str) -> int:
    """Return the power of ten of a number's last digit; raise InvalidOperation or
    ValueError for other text.
    """
    # taken apart first: where pointers have 32 bits, Decimal refuses "1e999999999"
    digits, separator, power = text.partition("e")
    exponent = Decimal(digits).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError
    return exponent + (int(power) if separator else 0)
