"""Choice of the scale of an EDF channel to be written: physical and digital limits of
eight characters each.

Owns the choice of the four limits: those of the file that the integers came from, where
its scale can be told from gain and offset; else the range of the data, rounded outward
so that no sample lies outside.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError
from rlxweb.io.recording import Channel

_FIELD_WIDTH: Final = 8
_SCALE_TOLERANCE: Final = 1e-12
"""Relative difference below which two scales give the same values up to rounding."""
_MAX_RELATIVE_ERROR: Final = Decimal("0.05")
_DECIMAL_PRECISION: Final = 400
"""Decimal precision: more digits than float64 has before its point."""
_MAX_DECIMALS: Final = 7


class EdfScale(NamedTuple):
    """Four limits of a channel; physical = (count + offset) · gain · 1 / factor.

    physical_min, physical_max  in the file's words
    factor        samples are multiplied by it, for a unit of another size
    is_copied     the counts are those of the recording it came from
    """

    digital_min: int
    digital_max: int
    physical_min: str
    physical_max: str
    factor: float = 1.0
    is_copied: bool = False

    @property
    def gain(self) -> float:
        """Return the gain as readers compute it from the limits."""
        return (float(self.physical_max) - float(self.physical_min)) / (
            self.digital_max - self.digital_min
        )

    @property
    def offset(self) -> float:
        """Return the offset in counts as readers compute it from the limits."""
        return float(self.physical_max) / self.gain - self.digital_max


def finest_scale(
    min_value: float,
    max_value: float,
    digital_min: int,
    digital_max: int,
    context: str,
    factor: float = 1.0,
) -> EdfScale:
    """Return the finest scale whose integers reach from `min_value` to `max_value`.

    Errors   UsageError for a range that no eight characters tell
    """
    min_value, max_value = min_value * factor, max_value * factor
    if min_value == max_value:
        # One value: the lowest integer stands for it, exactly where it is short.
        max_value = min_value + max(1.0, abs(min_value))
    size = max(abs(min_value), abs(max_value))
    if not np.isfinite(size):
        raise UsageError(
            context,
            f"the largest absolute value of the samples is {size:g}",
            "EDF supports only finite numbers",
        )
    physical_min = _format_limit(min_value, ROUND_FLOOR)
    physical_max = _format_limit(max_value, ROUND_CEILING)
    scale = EdfScale(digital_min, digital_max, physical_min, physical_max, factor)
    if not (
        scale.gain > 0
        and np.isfinite([scale.gain, float(physical_min), float(physical_max)]).all()
    ):
        raise UsageError(
            context,
            f"the samples range from {min_value:.10g} to {max_value:.10g}",
            f"EDF stores minimum and maximum in {_FIELD_WIDTH} characters each, too "
            "few to distinguish these two values",
            "remove the offset (highpass), or write .npz",
        )
    return scale


def copied_scale(
    channel: Channel, counts: tuple[int, int], digital_min: int, digital_max: int
) -> EdfScale | None:
    """Return the scale of stored integers, so that they can be written unchanged.

    counts   the least and the largest there are
    → None where eight characters do not tell it

    A file's own limits are not kept, but some integers low … high stand for values of
    eight characters: those that were its limits, at the least.
    """
    if counts[0] < digital_min or counts[1] > digital_max:
        return None
    scale = _recover_scale(channel.gain, channel.offset, digital_min, digital_max)
    covers_counts = (
        scale is not None
        and scale.digital_min <= counts[0]
        and counts[1] <= scale.digital_max
    )
    return scale if covers_counts else None


@lru_cache(maxsize=64)
def _recover_scale(
    gain: float, offset: float, digital_min: int, digital_max: int
) -> EdfScale | None:
    """Return the widest limits that eight characters express; cached, as channels often
    share a scale.
    """
    numbers = _candidate_limits(digital_min, digital_max)
    values = (numbers + offset) * gain
    hits = np.flatnonzero(_fits_in_field(values))
    if len(hits) < 2:
        return None
    first, last = int(hits[0]), int(hits[-1])
    ends = _format_short(values[first]), _format_short(values[last])
    scale = EdfScale(int(numbers[first]), int(numbers[last]), *ends, is_copied=True)
    is_same = abs(scale.gain - gain) <= _SCALE_TOLERANCE * abs(gain) and abs(
        scale.offset - offset
    ) <= _SCALE_TOLERANCE * (digital_max - digital_min)
    return scale if is_same else None


def _candidate_limits(digital_min: int, digital_max: int) -> NDArray[np.float64]:
    """Return every 16-bit integer; for 24 bits only the limits of each bit width."""
    if digital_max < 1 << 15:
        return np.arange(digital_min, digital_max + 1, dtype=np.float64)
    powers = 1 << np.arange(digital_max.bit_length() + 1)
    ends = np.concatenate([-powers, 1 - powers, powers - 1, powers])
    return np.unique(ends[(ends >= digital_min) & (ends <= digital_max)]).astype(
        np.float64
    )


def _fits_in_field(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which of the values eight characters express, up to rounding."""
    tolerance = _SCALE_TOLERANCE * float(np.abs(values).max())
    is_short = np.zeros(len(values), np.bool_)
    for decimals in range(_MAX_DECIMALS):
        # A sign, a point and a digit before it leave so much less.
        limit = 10.0 ** (_FIELD_WIDTH - (decimals + 1 if decimals else 0))
        fits = (values < limit) & (values > -limit / 10)
        rounded = np.round(values, decimals)
        is_short |= fits & (np.abs(rounded - values) <= tolerance)
    return is_short


def _format_short(value: float) -> str:
    """Return the text of a value that fits in eight characters."""
    for decimals in range(_MAX_DECIMALS):
        text = _strip_zeros(f"{value:.{decimals}f}")
        if len(text) <= _FIELD_WIDTH and abs(
            float(text) - value
        ) <= _SCALE_TOLERANCE * max(1.0, abs(value)):
            return text
    return _format_limit(value, ROUND_FLOOR)


def _format_limit(value: float, rounding: str) -> str:
    """Return the nearest text of at most eight characters that is not inside the value.

    With an exponent only where that is nearer: not every reader takes one.
    """
    exact, texts = Decimal(value), []
    for decimals in reversed(range(_MAX_DECIMALS)):
        text = _strip_zeros(f"{_round_decimal(exact, -decimals, rounding):f}")
        if len(text) <= _FIELD_WIDTH:
            texts.append(text)
            break
    for digits in (4, 3, 2, 1):
        text = f"{_round_decimal(exact, exact.adjusted() - digits + 1, rounding):E}"
        text = text.replace("E+", "E")
        if len(text) <= _FIELD_WIDTH:
            texts.append(text)
            break
    errors = [abs(Decimal(text) - exact) for text in texts]
    prefers_plain = len(errors) < 2 or errors[0] <= max(
        errors[1], _MAX_RELATIVE_ERROR * abs(exact)
    )
    return texts[0 if prefers_plain else 1]


def _round_decimal(exact: Decimal, power: int, rounding: str) -> Decimal:
    """Round to a multiple of a power of ten."""
    return exact.quantize(
        Decimal(1).scaleb(power), rounding, Context(prec=_DECIMAL_PRECISION)
    )


def _strip_zeros(text: str) -> str:
    """Return the text of a number without trailing zeros."""
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if short in ("-0", "") else short
