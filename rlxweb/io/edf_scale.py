"""How the integers of an EDF channel are scaled, in the eight characters of a limit.

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

from rlxweb.errors import UsageError
from rlxweb.io.recording import Channel

_WIDTH: Final = 8
_CLOSE: Final = 1e-12
"""Relative: two scales that differ by less give the same values but for rounding."""
_COARSE: Final = Decimal("0.05")
_DIGITS: Final = 400
"""More than float64 has before its point."""
_MOST_DECIMALS: Final = 7


class Scale(NamedTuple):
    """Four limits of a channel; physical = (count + offset) · gain · 1 / factor.

    bottom, top   in the file's words
    factor        samples are multiplied by it, for a unit of another size
    is_copied     the counts are those of the recording it came from
    """

    low: int
    high: int
    bottom: str
    top: str
    factor: float = 1.0
    is_copied: bool = False

    @property
    def gain(self) -> float:
        """As readers compute it from the limits."""
        return (float(self.top) - float(self.bottom)) / (self.high - self.low)

    @property
    def offset(self) -> float:
        return float(self.top) / self.gain - self.high


def scale_of(
    least: float, most: float, low: int, high: int, doing: str, factor: float = 1.0
) -> Scale:
    """The finest scale whose integers low … high reach from `least` to `most`.

    Errors   UsageError for a range that no eight characters tell
    """
    least, most = least * factor, most * factor
    if least == most:
        # One value: the lowest integer stands for it, exactly where it is short.
        most = least + max(1.0, abs(least))
    size = max(abs(least), abs(most))
    if not np.isfinite(size):
        raise UsageError(doing, f"samples reach {size:g}", "EDF holds finite numbers")
    bottom = _limit(least, ROUND_FLOOR)
    top = _limit(most, ROUND_CEILING)
    made = Scale(low, high, bottom, top, factor)
    if not (
        made.gain > 0 and np.isfinite([made.gain, float(bottom), float(top)]).all()
    ):
        raise UsageError(
            doing,
            f"samples lie between {least:.10g} and {most:.10g}",
            f"a limit has {_WIDTH} characters, which do not tell these apart",
            "take the offset out (highpass), or write .npz",
        )
    return made


def copied_scale(
    channel: Channel, counts: tuple[int, int], low: int, high: int
) -> Scale | None:
    """The scale of stored integers, so that they can be written as they are.

    counts   the least and the largest there are
    → None where eight characters do not tell it

    A file's own limits are not kept, but some integers low … high stand for values of
    eight characters: those that were its limits, at the least.
    """
    if counts[0] < low or counts[1] > high:
        return None
    made = _told_again(channel.gain, channel.offset, low, high)
    is_wide = made is not None and made.low <= counts[0] and counts[1] <= made.high
    return made if is_wide else None


@lru_cache(maxsize=64)
def _told_again(gain: float, offset: float, low: int, high: int) -> Scale | None:
    """The widest limits that eight characters tell; channels often share a scale."""
    numbers = _limits_there_are(low, high)
    values = (numbers + offset) * gain
    hits = np.flatnonzero(_is_short(values))
    if len(hits) < 2:
        return None
    first, last = int(hits[0]), int(hits[-1])
    ends = _short(values[first]), _short(values[last])
    made = Scale(int(numbers[first]), int(numbers[last]), *ends, is_copied=True)
    is_same = abs(made.gain - gain) <= _CLOSE * abs(gain) and abs(
        made.offset - offset
    ) <= _CLOSE * (high - low)
    return made if is_same else None


def _limits_there_are(low: int, high: int) -> NDArray[np.float64]:
    """Every integer of 16 bits; of 24 those that are the ends of some width."""
    if high < 1 << 15:
        return np.arange(low, high + 1, dtype=np.float64)
    powers = 1 << np.arange(high.bit_length() + 1)
    ends = np.concatenate([-powers, 1 - powers, powers - 1, powers])
    return np.unique(ends[(ends >= low) & (ends <= high)]).astype(np.float64)


def _is_short(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of the values eight characters tell, but for rounding."""
    slack = _CLOSE * float(np.abs(values).max())
    found = np.zeros(len(values), np.bool_)
    for decimals in range(_MOST_DECIMALS):
        # A sign, a point and a digit before it leave so much less.
        room = 10.0 ** (_WIDTH - (decimals + 1 if decimals else 0))
        fits = (values < room) & (values > -room / 10)
        rounded = np.round(values, decimals)
        found |= fits & (np.abs(rounded - values) <= slack)
    return found


def _short(value: float) -> str:
    """The text of a value that has one."""
    for decimals in range(_MOST_DECIMALS):
        text = _plain(f"{value:.{decimals}f}")
        if len(text) <= _WIDTH and abs(float(text) - value) <= _CLOSE * max(
            1.0, abs(value)
        ):
            return text
    return _limit(value, ROUND_FLOOR)


def _limit(value: float, how: str) -> str:
    """The nearest text of at most eight characters that is not inside of the value.

    With an exponent only where that is nearer: not every reader takes one.
    """
    exact, texts = Decimal(value), []
    for decimals in reversed(range(_MOST_DECIMALS)):
        text = _plain(f"{_rounded(exact, -decimals, how):f}")
        if len(text) <= _WIDTH:
            texts.append(text)
            break
    for digits in (4, 3, 2, 1):
        text = f"{_rounded(exact, exact.adjusted() - digits + 1, how):E}"
        text = text.replace("E+", "E")
        if len(text) <= _WIDTH:
            texts.append(text)
            break
    off = [abs(Decimal(text) - exact) for text in texts]
    is_fine = len(off) < 2 or off[0] <= max(off[1], _COARSE * abs(exact))
    return texts[0 if is_fine else 1]


def _rounded(exact: Decimal, power: int, how: str) -> Decimal:
    """To a multiple of a power of ten."""
    return exact.quantize(Decimal(1).scaleb(power), how, Context(prec=_DIGITS))


def _plain(text: str) -> str:
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if short in ("-0", "") else short
