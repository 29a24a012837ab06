"""Welch over a stream: blocks in, one average spectrum out, memory bounded.

Feeds any engine with whole segments and keeps the tail that the next block's first
segment needs. The average is weighted by segments, so the answer is that of the whole
array at once (up to the order of summation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import one_of, switch, whole
from rlxweb.choose.again import LOST, done_again
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate
from rlxweb.digital import Digital
from rlxweb.errors import UsageError, shown
from rlxweb.forked import ForkLock
from rlxweb.given import array_of, named
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.recipes.welch_plan import samples_needed, segment_count
from rlxweb.signal.engine import NUMPY, Engine, HostRows, Power, Rows
from rlxweb.signal.precision import taken
from rlxweb.signal.rounding import RoundingFloor
from rlxweb.signal.scaled import (
    Caller,
    NanPolicy,
    Reading,
    check_finite,
    ready_rows,
)

DOING = "welch over a stream"


class WelchAverage:
    """Average power of C channels over blocks of any length, fed in order.

    spec     made for a stream (`WelchRequest.spec(None)`); average="median" needs all
             segments at once and is refused
    engine   where blocks are transformed; NumPy by default
    strict   a block that is lost with its device raises, and nothing of it is taken.
             Else it is done again there, once; `attempts` says so
    nan      "raise" refuses a block with NaN or infinity, and nothing of it is taken;
             "propagate" makes NaN of a channel that had one in a segment
    names    of the channels, for errors; without them their numbers are told
    doing    what errors say was being done

    Threads take turns: one may look at the result while another feeds.
    """

    def __init__(
        self,
        spec: WelchSpec,
        n_rows: int,
        engine: Engine = NUMPY,
        *,
        strict: bool = False,
        nan: NanPolicy = "raise",
        names: Sequence[str] = (),
        doing: str = DOING,
    ) -> None:
        if not isinstance(spec, WelchSpec):
            raise UsageError(
                DOING,
                f"{named(spec)} was given for the estimate",
                "a WelchSpec is wanted",
                "make one: rlxweb.signal.presets.from_preset('scipy', None, fs=…)",
            )
        if spec.average != "mean":
            raise UsageError(
                DOING,
                f"average='{spec.average}'",
                "a stream can only be averaged by its mean",
                "read the recording whole and call welch",
            )
        n_rows = whole("n_rows", n_rows, DOING)
        if n_rows < 1:
            raise UsageError(DOING, f"{n_rows} channels", "at least 1")
        one_of("nan", nan, ("raise", "propagate"), DOING)
        self.spec = spec
        self.engine = _checked_engine(engine)
        self.strict = switch("strict", strict, DOING)
        self.attempts: tuple[Attempt, ...] = ()
        self.nan: NanPolicy = nan
        self.n_segments = 0
        self._caller = Caller(doing, (n_rows,), names=_checked_names(names, n_rows))
        self._wanted = spec.n_segments
        self._sum = _Sum(n_rows, spec)
        self._tail = np.empty((n_rows, 0), np.int8 if spec.is_digital else spec.dtype)
        # Gain and offset of each channel of integers.
        self._scale: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._at = 0
        self._skip = 0
        self._lock = ForkLock()

    def __repr__(self) -> str:
        rows = len(self._tail)
        return f"WelchAverage({rows} channels, {self.n_segments} segments so far)"

    @property
    def is_full(self) -> bool:
        """The segments asked for (`nsegments`) have all been seen."""
        return bool(self._wanted) and self.n_segments >= self._wanted

    def feed(self, block: ArrayLike | Digital) -> None:
        """The next samples [C, t] of every channel, t >= 0.

        What comes after the segments asked for is ignored.

        Errors   UsageError when the block has another number of channels, or digital
        samples another gain or offset than before; DTypeError for what holds no
        numbers, for complex samples in a stream of real ones, and for others than
        integers in a stream of these; NotFinite for NaN or infinity unless
        nan="propagate"; DeviceLost, GpuTimeout where the engine's device is lost twice.
        """
        given = self._checked(block)
        with self._lock:
            if not self.is_full:
                self._feed(given)

    def _feed(self, given: HostRows) -> None:
        fresh = self._taken(given)
        # A hop longer than a segment leaves gaps: samples nobody will read.
        skipped = min(self._skip, fresh.shape[1])
        with np.errstate(invalid="ignore"):  # whatever is no number is judged below
            rows = np.concatenate([self._tail, fresh[:, skipped:]], axis=1)
        start = self._at + skipped
        spec = self.spec
        count = segment_count(rows.shape[1], spec.nperseg, spec.hop)
        if self._wanted:
            count = min(count, self._wanted - self.n_segments)
        used = count * spec.hop
        tail = rows[:, min(used, rows.shape[1]) :]
        if self.nan == "raise" and tail.dtype.kind in "fc":
            at = start + rows.shape[1] - tail.shape[1]
            check_finite(tail, self._caller._replace(first=at))
        if count > 0:
            self._add(rows, count, start)
        self._skip += max(0, used - rows.shape[1]) - skipped
        self._at = start + rows.shape[1] - tail.shape[1]
        # A copy, or the tail would keep the whole block alive.
        self._tail = tail.copy()

    def cut(self, missing: int = 0) -> None:
        """What comes next does not follow what came: no segment reaches over both.

        missing  samples between, that nobody recorded
        """
        with self._lock:
            self._at += self._tail.shape[1] + missing
            self._tail = self._tail[:, :0].copy()
            self._skip = 0

    def _checked(self, block: ArrayLike | Digital) -> HostRows:
        array = block if isinstance(block, Digital) else array_of(block, DOING)
        n_rows = len(self._tail)
        if array.ndim != 2 or array.shape[0] != n_rows:
            raise UsageError(
                DOING,
                f"a block of shape {array.shape}",
                f"{n_rows} channels were announced",
                f"give ({n_rows}, samples)",
            )
        return array

    def _taken(self, block: HostRows) -> NDArray[Any]:
        """The block as the spec takes it; what its integers stand for is kept apart."""
        if not self.spec.is_digital:
            samples = np.asarray(block)
            taken(samples.dtype, None, DOING)  # refuses what nobody takes
            self.spec.must_cover(samples.dtype, DOING)
            return samples
        own = block if isinstance(block, Digital) else Digital(block)
        scale = own.gain, own.offset
        if self._scale is None:
            self._scale = scale
        elif not all(map(np.array_equal, scale, self._scale)):
            raise UsageError(
                DOING,
                "the gain or the offset of a channel changed",
                "an average is of one scale",
                "feed the physical values, in float64",
            )
        return own.counts

    def _add(self, rows: NDArray[Any], count: int, start: int) -> None:
        spec = replace(self.spec, n_segments=count)
        part: HostRows = np.ascontiguousarray(
            rows[:, : samples_needed(count, spec.nperseg, spec.hop)]
        )
        if self._scale is not None:
            part = Digital(part, *self._scale)
        caller = self._caller._replace(first=start)
        ready = ready_rows(part, spec, caller, self.nan)
        power = drive(self._power(ready.x, ready.spec))
        reading = ready.by(self.engine.device)
        self._sum.add(power, reading, count)
        self.n_segments += count

    async def _power(self, x: Rows, spec: WelchSpec) -> Power:
        try:
            return await self.engine.power(x, spec)
        except LOST as error:
            if self.strict:
                raise

            async def again(way: Candidate) -> Power:
                return await self.engine.power(x, spec)

            device = self.engine.device
            way = Candidate(device, device.label)
            power, _, tries = await done_again(error, way, (), again)
            self.attempts += tries
            return power

    def result(self) -> NDArray[Any]:
        """Average power [C, F] of all segments so far.

        Errors   UsageError when not even one segment was complete, or fewer than
        `nsegments`, and where the power's type cannot hold the answer.
        """
        with self._lock:
            return self._result()

    def _result(self) -> NDArray[Any]:
        need = max(1, self._wanted)
        if self.n_segments < need:
            spec = self.spec
            raise UsageError(
                DOING,
                f"{need} segments of {spec.nperseg} samples were asked for",
                f"the signal gave {self.n_segments}",
                Advice(
                    "use a smaller {} or a smaller {}",
                    nperseg=Blank("N"),
                    nsegments=Blank("N"),
                ),
            )
        power = self._sum.power / self.n_segments
        return self._reading().restored(power, self._caller)

    def floor(self) -> RoundingFloor:
        """What rounding may leave in the result; for `peaks_of_power`."""
        with self._lock:
            return self._reading().floor()

    def _reading(self) -> Reading:
        return self._sum.reading(max(1, self.n_segments))


def _checked_engine(engine: Engine) -> Engine:
    if callable(getattr(engine, "power", None)) and hasattr(engine, "device"):
        return engine
    raise UsageError(
        DOING,
        f"{named(engine)} was given for the engine",
        "what transforms the blocks is wanted",
        "leave it out for NumPy; rlxweb.signal.engine.device_engine makes a GPU's",
    )


def _checked_names(names: Sequence[str], n_rows: int) -> Sequence[str]:
    is_list = isinstance(names, Sequence) and not isinstance(names, str | bytes)
    if is_list and len(names) in (0, n_rows) and all(isinstance(n, str) for n in names):
        return names
    rule = f"a list of texts is wanted, one for each of {n_rows} channels"
    raise UsageError(DOING, f"names are {shown(names)}", rule)


class _Sum:
    """Powers of rows added up, each row's times a power of two of its own."""

    def __init__(self, n_rows: int, spec: WelchSpec) -> None:
        self.spec = spec
        self.arithmetic = ""
        self.power = np.zeros((n_rows, spec.n_freqs))
        self.energy = np.zeros(n_rows)
        self.shift = np.zeros(n_rows, np.int64)
        self.lost = np.zeros(n_rows, np.bool_)

    def add(self, mean: NDArray[Any], reading: Reading, count: int) -> None:
        """The mean of `count` segments, as an engine gave it."""
        power = mean.astype(np.float64) * count
        energy = reading.energy.astype(np.float64) * count
        if reading.shift is not None or self.shift.any():
            power, energy = self._aligned(power, energy, reading.shift)
        self.spec, self.arithmetic = reading.spec, reading.arithmetic
        self.power += power
        self.energy += energy
        if reading.lost is not None:
            self.lost |= reading.lost

    def _aligned(
        self,
        power: NDArray[np.float64],
        energy: NDArray[np.float64],
        shift: NDArray[np.int64] | None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both at the larger of two powers of two; where nothing is, at the other's."""
        own = np.where(self.energy > 0, self.shift, _NONE)
        new = np.where(energy > 0, 0 if shift is None else shift, _NONE)
        top = np.maximum(own, new)
        down, new = np.maximum(own - top, _NONE), np.maximum(new - top, _NONE)
        self.power = np.ldexp(self.power, down[:, None])
        self.energy = np.ldexp(self.energy, down)
        self.shift = np.where(top == _NONE, 0, top)
        return np.ldexp(power, new[:, None]), np.ldexp(energy, new)

    def reading(self, n_segments: int) -> Reading:
        """How power / n_segments is to be read."""
        shift = self.shift if self.shift.any() else None
        lost = self.lost if self.lost.any() else None
        energy = self.energy / n_segments
        loudest = float(energy.max())
        return Reading(self.spec, energy, loudest, shift, lost, self.arithmetic)


# Below any power of two that a sample may have.
_NONE = -100_000
