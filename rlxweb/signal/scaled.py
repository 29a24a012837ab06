"""Rows ready for an engine: finite, their power neither overflowing nor vanishing.

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

from rlxweb.advice import Advice
from rlxweb.arguments import one_of
from rlxweb.device import Device
from rlxweb.digital import Digital
from rlxweb.errors import NotFinite, UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.recipes.welch_plan import samples_needed
from rlxweb.signal.engine import HostRows, Rows, batch_rows
from rlxweb.signal.numbering import numbered
from rlxweb.signal.rounding import RoundingFloor, Shares, rounding_shares
from rlxweb.signal.rows_there import RowsThere, energies, refused_row, row_of
from rlxweb.stopping import check_stopped

NanPolicy = Literal["raise", "propagate"]
# A window's energy, and what it makes of a power, so near to 1 leave the range of the
# type to the samples.
_PLAIN = 2.0**40
# The largest count of 24 bits, and values whose squares are far from any end.
_COUNTS = 2.0**23
_MODEST = 2.0**300
_FEW = 8
# Samples whose squares are summed up at once, within milliseconds.
_STEP = 1 << 20


class Caller(NamedTuple):
    """How errors speak of rows.

    doing  the function that was called
    batch  the shape that the rows have for the caller
    first  the caller's number of the first sample
    names  of the rows, where they have any
    """

    doing: str
    batch: tuple[int, ...]
    first: int = 0
    names: Sequence[str] = ()

    def channel(self, row: int) -> str:
        if self.names:
            return f"channel {self.names[row]!r}"
        where = [int(i) for i in np.unravel_index(row, self.batch or (1,))]
        where = numbered(where)
        return f"channel {where[0] if len(where) == 1 else where}"


class Reading(NamedTuple):
    """How an engine's answer for some rows is to be read.

    spec     the estimate that the engine was given
    energy   (B,) mean |x|² of the samples that it read
    loudest  the largest of these
    shift    (B,) the rows' own power is the answer times 2**shift; None: as it is
    lost     (B,) rows with a sample that is not finite: NaN throughout; None: no row
    arithmetic  the dtype that rounds, where it is not that of the answer
    """

    spec: WelchSpec
    energy: NDArray[Any]
    loudest: float
    shift: NDArray[np.int64] | None = None
    lost: NDArray[np.bool_] | None = None
    arithmetic: str = ""

    @property
    def shares(self) -> Shares:
        """Of the rounding."""
        return rounding_shares(self.spec, self.arithmetic)

    def floor(self) -> RoundingFloor:
        """What rounding may leave in the rows' own power."""
        if self.shift is None and self.lost is None:
            return RoundingFloor.of(self.shares, self.energy, self.loudest)
        energy = self.energy.astype(np.float64)
        if self.shift is not None:
            # The power of a bin may be a number where that of all bins is none.
            with np.errstate(over="ignore"):
                energy = np.ldexp(energy, self.shift)
            energy = np.minimum(energy, np.finfo(np.float64).max)
        if self.lost is not None:
            energy[self.lost] = np.nan
        return RoundingFloor.of(self.shares, energy, float(energy.max(initial=0.0)))

    def restored(self, answer: NDArray[Any], caller: Caller) -> NDArray[Any]:
        """The rows' own power (B, …), of the spec's type. May be `answer`, changed.

        Errors   UsageError where the type cannot hold a row's strongest power.
        """
        power = answer.astype(self.spec.power_dtype, copy=False)
        if self.shift is not None:
            power = self._shifted(answer, caller)
        if self.lost is not None:
            power[self.lost] = np.nan
        return power

    def _shifted(self, answer: NDArray[Any], caller: Caller) -> NDArray[Any]:
        assert self.shift is not None
        range_ = np.finfo(self.spec.power_dtype)
        with np.errstate(over="ignore"):
            wide = np.ldexp(answer.astype(np.float64), self.shift[:, None])
        most, strongest = answer.max(axis=1), wide.max(axis=1)
        # What rounding alone may leave is no loss.
        is_real = most > self.energy * self.shares.highest
        outside = (strongest > range_.max) | (is_real & (strongest < range_.tiny))
        if outside.any():
            row = int(outside.argmax())
            decades = np.log10(float(most[row])) + self.shift[row] * np.log10(2.0)
            raise _not_held(caller, row, float(decades), range_)
        return wide.astype(range_.dtype)


class ReadyRows(NamedTuple):
    """Rows x (B, T) as an engine takes them, and how to read its answer."""

    x: Rows
    reading: Reading

    @property
    def spec(self) -> WelchSpec:
        return self.reading.spec

    def detrended_from(self, before: ReadyRows) -> ReadyRows:
        """The same rows with the rounding floor of those a detrend made them from."""
        energy = before.reading.floor().energy.astype(np.float64)
        if self.reading.shift is not None:
            energy = np.ldexp(energy, -self.reading.shift)
        loudest = float(np.nanmax(energy, initial=0.0))
        reading = self.reading._replace(energy=energy, loudest=loudest)
        return self._replace(reading=reading)

    def by(self, device: Device) -> Reading:
        """How the answer of an engine of this kind is to be read.

        A device computes integers about their level, in float32.
        """
        if device is Device.CPU or not self.spec.is_digital:
            return self.reading
        assert not isinstance(self.x, RowsThere)  # those are of float32
        energy = _about_level(self.x)
        loudest = float(energy.max(initial=0.0))
        own = self.reading._replace(energy=energy, loudest=loudest)
        return own._replace(arithmetic="float32")


async def looked_at(
    rows: RowsThere, spec: WelchSpec, caller: Caller, nan: NanPolicy
) -> ReadyRows:
    """`ready_rows` of rows on a device, looked at there.

    Errors   as `ready_rows`; Unsupported for rows that only the host can prepare.
    """
    one_of("nan", nan, ("raise", "propagate"), caller.doing)
    plan = cleared(spec, rows.shape[1])
    squares, absolute = await energies(rows, plan.used, batch_rows(spec, rows.shape[1]))
    odd = ~((squares >= plan.least) & (squares <= plan.most) & np.isfinite(absolute))
    for row in np.flatnonzero(odd & (absolute != 0)):
        x = await row_of(rows, int(row))
        if (error := refused_row(x, int(row), plan.used, caller, nan)) is not None:
            raise error
    loudest = float(np.maximum.reduce(squares, initial=0.0))
    used = plan.used
    return ReadyRows(rows, Reading(spec, squares / used, loudest / used))


def ready_rows(
    x: HostRows, spec: WelchSpec, caller: Caller, nan: NanPolicy = "raise"
) -> ReadyRows:
    """Rows x (B, T), of any real or complex type, as an engine of the spec takes them.

    Errors   NotFinite naming row and sample of the first NaN or infinity, on "raise";
             UsageError for a policy there is not.
    """
    if not isinstance(nan, str) or nan != "raise":
        one_of("nan", nan, ("raise", "propagate"), caller.doing)
    plan = cleared(spec, x.shape[1])
    if spec.is_digital:
        return _ready_integers(x, plan)
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        rows = x.astype(spec.dtype, copy=False)
        read, rest = rows, 0.0
        if plan.used < rows.shape[1]:
            read, rest = rows[:, : plan.used], np.add.reduce(rows[:, plan.used :], None)
        squares = sums_of_squares(read)
    if not len(rows):
        return ReadyRows(rows, Reading(spec, squares, 0.0))
    # A small batch feels every call of NumPy's.
    if len(rows) <= _FEW and rows.dtype.kind == "f":
        each = squares.tolist()
        # Of a NaN Python's own comparisons may not tell, but their sum is one then.
        loudest, softest, rest = max(each), min(each), float(rest) + sum(each)
    else:
        loudest, softest = float(np.maximum.reduce(squares)), np.minimum.reduce(squares)
    if loudest <= plan.most and softest >= plan.least and isfinite(abs(rest)):
        used = plan.used
        return ReadyRows(rows, Reading(spec, squares / used, loudest / used))
    with np.errstate(invalid="ignore"):  # a NaN may be one that signals
        return _looked_into(x, spec, plan, squares, caller, nan)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Sums of squares that need no second look, of the first `used` samples of a row.

    spec   the same with its window and its factor near 1; its power times 2**shift is
           the caller's
    """

    least: float
    most: float
    used: int
    spec: WelchSpec
    shift: int


@lru_of_small(128, lambda spec, n_samples: spec.nperseg <= SMALL)
def cleared(spec: WelchSpec, n_samples: int) -> Cleared:
    """Of rows of so many samples."""
    segments = spec.segments_of(n_samples)
    used = samples_needed(segments, spec.nperseg, spec.hop)
    plain, shift = _plain(spec)
    window = plain.window_array
    gain = max(float(window @ window), 1.0 / _PLAIN)
    range_ = np.finfo(spec.power_dtype)
    # By Cauchy and Schwarz no |X|² of a segment is above gain · its sum of squares, and
    # a sample is in so many segments; a mean |X|² is gain · the mean square.
    overlap = -(-spec.nperseg // spec.hop)
    most = float(range_.max) / 16 / (gain * overlap * max(1.0, 2 * plain.scale))
    # Powers at the floor of rounding are normal numbers still.
    lowest = float(range_.tiny) / float(range_.eps) ** 2
    least = lowest * used / (gain * min(1.0, plain.scale))
    if shift:
        least, most = np.inf, 0.0
    return Cleared(least, most, used, plain, shift)


def _plain(spec: WelchSpec) -> tuple[WelchSpec, int]:
    """The estimate with a window and a factor near 1, and log2 of what that divides."""
    with np.errstate(over="ignore"):
        gain = float(spec.window_array @ spec.window_array)
    if 1 / _PLAIN < gain < _PLAIN and 1 / _PLAIN < gain * spec.scale < _PLAIN:
        return spec, 0
    up = int(np.frexp(np.abs(spec.window_array).max())[1])
    window = np.ldexp(spec.window_array, -up)
    factor, raised = np.frexp(spec.scale)
    plain = replace(spec, window=window.tobytes(), scale=float(factor))
    return plain, 2 * up + int(raised)


def _looked_into(
    x: NDArray[Any],
    spec: WelchSpec,
    plan: Cleared,
    squares: NDArray[Any],
    caller: Caller,
    nan: NanPolicy,
) -> ReadyRows:
    largest, lost = largest_of(x), None
    bad = ~np.isfinite(largest)
    if bad.any():
        if nan == "raise":
            raise _not_finite(x, bad, caller)
        x, lost = _set_aside(x, spec, plan.used, bad)
        squares = np.where(bad, 0.0, squares)
    read = x[:, : plan.used]
    largest = largest_of(read)
    # 0 is 0 in any range.
    outside = (largest > 0) & ~((squares >= plan.least) & (squares <= plan.most))
    if not (outside.any() or plan.shift):
        rows = x.astype(spec.dtype, copy=False)
        return _ready(rows, Reading(spec, squares / plan.used, 0.0, None, lost))
    up = np.where(outside, np.frexp(largest)[1], 0).astype(np.int64)
    rows = divided(read, up, spec.dtype)
    energy = sums_of_squares(rows) / plan.used
    return _ready(rows, Reading(plan.spec, energy, 0.0, 2 * up + plan.shift, lost))


def _ready_integers(x: HostRows, plan: Cleared) -> ReadyRows:
    """Integers: the largest they may be tells enough of them."""
    if not isinstance(x, Digital):
        if not plan.shift:
            energy = np.full(len(x), _COUNTS**2)
            return ReadyRows(x, Reading(plan.spec, energy, _COUNTS**2))
        x = Digital(x)
    largest = np.abs(x.gain) * (_COUNTS + np.abs(x.offset))
    far = (largest > 0) & ~((largest > 1 / _MODEST) & (largest < _MODEST))
    if not far.any() and not plan.shift:
        return _ready(x, Reading(plan.spec, largest**2, 0.0))
    up = np.where(far, np.frexp(largest)[1], 0).astype(np.int64)
    x = Digital(x.counts, np.ldexp(x.gain, -up), x.offset)
    energy = np.ldexp(largest, -up) ** 2
    return _ready(x, Reading(plan.spec, energy, 0.0, 2 * up + plan.shift))


def sums_of_squares(x: NDArray[Any]) -> NDArray[Any]:
    """(B,) of rows (B, T), in steps: NumPy lets no other thread run during one."""
    if x.size <= _STEP:
        whole: NDArray[Any] = np.vecdot(x, x).real
        return whole
    wide = min(x.shape[1], _STEP)
    tall = max(1, _STEP // wide)
    sums = np.zeros(len(x), x.real.dtype)
    for at in range(0, len(x), tall):
        for since in range(0, x.shape[1], wide):
            check_stopped()
            part = x[at : at + tall, since : since + wide]
            sums[at : at + tall] += np.vecdot(part, part).real
    return sums


def _about_level(x: HostRows) -> NDArray[np.float64]:
    """(B,) mean square of integers about their mean, in physical units."""
    own = x if isinstance(x, Digital) else Digital(x)
    energy = np.empty(len(own.counts))
    for row, counts in enumerate(own.counts):
        energy[row] = counts.var(dtype=np.float64)
    return energy * own.gain**2


def _ready(rows: Rows, reading: Reading) -> ReadyRows:
    return ReadyRows(
        rows, reading._replace(loudest=float(reading.energy.max(initial=0.0)))
    )


def check_finite(x: NDArray[Any], caller: Caller) -> None:
    """NotFinite naming row and sample of the first NaN or infinity in x (B, T)."""
    if x.size:
        with np.errstate(invalid="ignore"):
            bad = ~np.isfinite(largest_of(x))
            if bad.any():
                raise _not_finite(x, bad, caller)


def largest_of(x: NDArray[Any]) -> NDArray[np.float64]:
    """(B,) the largest |sample| of each row, real and imaginary parts by themselves."""
    if x.dtype.kind == "c":
        return np.maximum(largest_of(x.real), largest_of(x.imag))
    high, low = x.max(axis=1).astype(np.float64), x.min(axis=1).astype(np.float64)
    largest: NDArray[np.float64] = np.maximum(np.abs(high), np.abs(low))
    return largest


def divided(x: NDArray[Any], up: NDArray[np.int64], dtype: str) -> NDArray[Any]:
    """Each row (B, T) over 2**up (B,), then rounded to the dtype."""
    rows = np.empty(x.shape, dtype)
    parts = [(x, rows)]
    if rows.dtype.kind == "c":
        parts = [(x.real, rows.real), (x.imag, rows.imag)]
    for own, out in parts:
        wide = own.astype(np.float64 if own.dtype.kind != "f" else own.dtype)
        out[...] = np.ldexp(wide, -up[:, None])
    return rows


def _set_aside(
    x: NDArray[Any], spec: WelchSpec, used: int, bad: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The rows with 0 for what is not finite, and which have such in a segment."""
    x, lost = x.copy(), bad.copy()
    for row in np.flatnonzero(bad):
        finite = np.isfinite(x[row])
        count = spec.segments_of(x.shape[1])
        cut = frames(finite[None], spec.nperseg, spec.hop, count)
        lost[row] = not cut.all()
        x[row] = np.where(finite, x[row], 0) if not lost[row] else 0
    return x, lost


def _not_finite(x: NDArray[Any], bad: NDArray[np.bool_], caller: Caller) -> NotFinite:
    row = int(bad.argmax())
    sample = int((~np.isfinite(x[row])).argmax())
    wrong = sum(int((~np.isfinite(x[r])).sum()) for r in np.flatnonzero(bad))
    at = caller.first + sample
    return NotFinite(
        caller.doing,
        f"{caller.channel(row)} is {x[row, sample]} at sample {at}",
        f"{wrong} of {x.size} samples are not finite",
        Advice("repair the data, or pass {}", nan="propagate"),
    )


def _not_held(
    caller: Caller, row: int, decades: float, range_: np.finfo[Any]
) -> UsageError:
    end = f"ends at {range_.max:.2g}" if decades > 0 else f"begins at {range_.tiny:.2g}"
    precision = {"precision": "f64"} if range_.dtype == np.float32 else {}
    wider = "pass {}, or " if precision else ""
    return UsageError(
        caller.doing,
        f"the power of {caller.channel(row)} is about 1e{decades:+.0f}",
        f"{range_.dtype} {end}",
        Advice(f"{wider}scale the samples", **precision),
    )
