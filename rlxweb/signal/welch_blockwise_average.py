"""Welch average over a stream: blocks in, one average spectrum out, in bounded memory.

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

from rlxweb.core.adc_samples import Digital
from rlxweb.core.argument_validation import check_choice, coerce_bool, coerce_integer
from rlxweb.core.array_coercion import as_array, describe_type
from rlxweb.core.errors import UsageError, shown
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.message_text import Advice, Blank
from rlxweb.cost.decision import Attempt, Candidate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.welch.parameters import samples_needed, segment_count
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.device_loss_retry import DEVICE_LOST, retry_run
from rlxweb.signal.precision import resolve_precision
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.row_preparation import (
    NanPolicy,
    RowErrorContext,
    RowScaling,
    check_finite,
    prepare_rows,
)
from rlxweb.signal.welch_engine import (
    NUMPY_ENGINE,
    HostRows,
    Power,
    SampleRows,
    WelchEngine,
)

CONTEXT = "welch over a stream"


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
    context  what errors say was being done

    Threads take turns: one may look at the result while another feeds.
    """

    def __init__(
        self,
        spec: WelchSpec,
        n_rows: int,
        engine: WelchEngine = NUMPY_ENGINE,
        *,
        strict: bool = False,
        nan: NanPolicy = "raise",
        names: Sequence[str] = (),
        context: str = CONTEXT,
    ) -> None:
        if not isinstance(spec, WelchSpec):
            raise UsageError(
                CONTEXT,
                f"spec is {describe_type(spec)}",
                "expected a WelchSpec",
                "create one with rlxweb.signal.presets.spec_from_preset('scipy', "
                "None, fs=…)",
            )
        if spec.average != "mean":
            raise UsageError(
                CONTEXT,
                f"average is {spec.average!r}",
                "a stream supports only average='mean'",
                "read the whole recording and call welch",
            )
        n_rows = coerce_integer("n_rows", n_rows, CONTEXT)
        if n_rows < 1:
            raise UsageError(CONTEXT, f"n_rows is {n_rows}", "must be at least 1")
        check_choice("nan", nan, ("raise", "propagate"), CONTEXT)
        self.spec = spec
        self.engine = _check_engine(engine)
        self.strict = coerce_bool("strict", strict, CONTEXT)
        self.attempts: tuple[Attempt, ...] = ()
        self.nan: NanPolicy = nan
        self.n_segments = 0
        self._caller = RowErrorContext(
            context, (n_rows,), channel_names=_check_names(names, n_rows)
        )
        self._n_requested = spec.n_segments
        self._accumulator = _PowerAccumulator(n_rows, spec)
        self._tail = np.empty((n_rows, 0), np.int8 if spec.is_digital else spec.dtype)
        # Gain and offset of each channel of integers.
        self._gain_offset: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._tail_start = 0
        self._n_to_skip = 0
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        rows = len(self._tail)
        return f"WelchAverage({rows} channels, {self.n_segments} segments so far)"

    @property
    def is_full(self) -> bool:
        """True when all segments asked for (`nsegments`) are averaged."""
        return bool(self._n_requested) and self.n_segments >= self._n_requested

    def feed(self, block: ArrayLike | Digital) -> None:
        """Add the next samples [C, t] of every channel, t >= 0.

        What comes after the segments asked for is ignored.

        Errors   UsageError when the block has another number of channels, or digital
        samples another gain or offset than before; DTypeError for what holds no
        numbers, for complex samples in a stream of real ones, and for others than
        integers in a stream of these; NotFinite for NaN or infinity unless
        nan="propagate"; DeviceLost, GpuTimeout where the engine's device is lost twice.
        """
        samples = self._check_block(block)
        with self._lock:
            if not self.is_full:
                self._feed_samples(samples)

    def _feed_samples(self, samples: HostRows) -> None:
        """Average the segments that these samples complete, and keep the tail for the
        next block.
        """
        new_samples = self._convert_block(samples)
        # A hop longer than a segment leaves gaps: samples nobody will read.
        skipped = min(self._n_to_skip, new_samples.shape[1])
        with np.errstate(invalid="ignore"):  # whatever is no number is judged below
            rows = np.concatenate([self._tail, new_samples[:, skipped:]], axis=1)
        start = self._tail_start + skipped
        spec = self.spec
        count = segment_count(rows.shape[1], spec.nperseg, spec.hop)
        if self._n_requested:
            count = min(count, self._n_requested - self.n_segments)
        n_used = count * spec.hop
        tail = rows[:, min(n_used, rows.shape[1]) :]
        if self.nan == "raise" and tail.dtype.kind in "fc":
            tail_start = start + rows.shape[1] - tail.shape[1]
            check_finite(tail, self._caller._replace(first_sample=tail_start))
        if count > 0:
            self._add_segments(rows, count, start)
        self._n_to_skip += max(0, n_used - rows.shape[1]) - skipped
        self._tail_start = start + rows.shape[1] - tail.shape[1]
        # A copy, or the tail would keep the whole block alive.
        self._tail = tail.copy()

    def start_new_stretch(self, n_missing: int = 0) -> None:
        """Start a new stretch: no segment spans samples before and after this call.

        n_missing  samples between, that nobody recorded
        """
        with self._lock:
            self._tail_start += self._tail.shape[1] + n_missing
            self._tail = self._tail[:, :0].copy()
            self._n_to_skip = 0

    def _check_block(self, block: ArrayLike | Digital) -> HostRows:
        """Return the block as an array. Raises UsageError for another number of
        channels.
        """
        array = block if isinstance(block, Digital) else as_array(block, CONTEXT)
        n_rows = len(self._tail)
        if array.ndim != 2 or array.shape[0] != n_rows:
            raise UsageError(
                CONTEXT,
                f"got a block of shape {array.shape}",
                f"the average was created for {n_rows} channels",
                f"pass blocks of shape ({n_rows}, samples)",
            )
        return array

    def _convert_block(self, block: HostRows) -> NDArray[Any]:
        """Return the block in the spec's sample type; gain and offset of integers are
        stored separately.
        """
        if not self.spec.is_digital:
            samples = np.asarray(block)
            resolve_precision(samples.dtype, None, CONTEXT)  # refuses what nobody takes
            self.spec.check_dtype(samples.dtype, CONTEXT)
            return samples
        digital = block if isinstance(block, Digital) else Digital(block)
        gain_offset = digital.gain, digital.offset
        if self._gain_offset is None:
            self._gain_offset = gain_offset
        elif not all(map(np.array_equal, gain_offset, self._gain_offset)):
            raise UsageError(
                CONTEXT,
                "the gain or the offset of a channel changed",
                "all blocks must have the same gain and offset",
                "pass the physical values in float64",
            )
        return digital.counts

    def _add_segments(self, rows: NDArray[Any], count: int, start: int) -> None:
        """Add `count` segments of rows whose first sample is number `start`."""
        spec = replace(self.spec, n_segments=count)
        part: HostRows = np.ascontiguousarray(
            rows[:, : samples_needed(count, spec.nperseg, spec.hop)]
        )
        if self._gain_offset is not None:
            part = Digital(part, *self._gain_offset)
        caller = self._caller._replace(first_sample=start)
        prepared = prepare_rows(part, spec, caller, self.nan)
        power = run_blocking(self._compute_power(prepared.x, prepared.spec))
        row_scaling = prepared.scaling_on(self.engine.device)
        self._accumulator.add(power, row_scaling, count)
        self.n_segments += count

    async def _compute_power(self, x: SampleRows, spec: WelchSpec) -> Power:
        """Compute the mean power of rows, once more on the device if it was lost."""
        try:
            return await self.engine.power(x, spec)
        except DEVICE_LOST as error:
            if self.strict:
                raise

            async def rerun(candidate: Candidate) -> Power:
                return await self.engine.power(x, spec)

            device = self.engine.device
            candidate = Candidate(device, device.label)
            power, _, attempts = await retry_run(error, candidate, (), rerun)
            self.attempts += attempts
            return power

    def result(self) -> NDArray[Any]:
        """Return the average power [C, F] of all segments so far.

        Errors   UsageError when not even one segment was complete, or fewer than
        `nsegments`, and where the power's type cannot hold the answer.
        """
        with self._lock:
            return self._average_power()

    def _average_power(self) -> NDArray[Any]:
        """Return the average power; the caller holds the lock."""
        min_segments = max(1, self._n_requested)
        if self.n_segments < min_segments:
            spec = self.spec
            raise UsageError(
                CONTEXT,
                f"the signal contains {self.n_segments} "
                f"segment{'s' * (self.n_segments != 1)} of {spec.nperseg} samples",
                f"at least {min_segments} {'is' if min_segments == 1 else 'are'} "
                "required",
                Advice(
                    "use a smaller {} or a smaller {}",
                    nperseg=Blank("N"),
                    nsegments=Blank("N"),
                ),
            )
        power = self._accumulator.power / self.n_segments
        return self._row_scaling().restore(power, self._caller)

    def floor(self) -> RoundingFloor:
        """Return the power that rounding may leave in the result, for
        `peaks_of_power`.
        """
        with self._lock:
            return self._row_scaling().rounding_floor()

    def _row_scaling(self) -> RowScaling:
        """Return the row scaling of the average."""
        return self._accumulator.row_scaling(max(1, self.n_segments))


def _check_engine(engine: WelchEngine) -> WelchEngine:
    """Return the engine. Raises UsageError for an object without the interface of
    one.
    """
    if callable(getattr(engine, "power", None)) and hasattr(engine, "device"):
        return engine
    raise UsageError(
        CONTEXT,
        f"engine is {describe_type(engine)}",
        "expected a Welch engine, an object with a method `power` and an attribute "
        "`device`",
        "leave engine out to use NumPy, or create one for a GPU with "
        "rlxweb.signal.welch_engine.device_engine",
    )


def _check_names(names: Sequence[str], n_rows: int) -> Sequence[str]:
    """Return the channel names. Raises UsageError unless there is one string for each
    channel, or none.
    """
    is_list = isinstance(names, Sequence) and not isinstance(names, str | bytes)
    if is_list and len(names) in (0, n_rows) and all(isinstance(n, str) for n in names):
        return names
    rule = f"expected a list of strings, one for each of {n_rows} channels"
    raise UsageError(CONTEXT, f"names is {shown(names)}", rule)


class _PowerAccumulator:
    """Sums of the rows' powers, each row scaled by a power of two."""

    def __init__(self, n_rows: int, spec: WelchSpec) -> None:
        self.spec = spec
        self.arithmetic_dtype = ""
        self.power = np.zeros((n_rows, spec.n_freqs))
        self.energy = np.zeros(n_rows)
        self.shift = np.zeros(n_rows, np.int64)
        self.invalid_rows = np.zeros(n_rows, np.bool_)

    def add(self, mean: NDArray[Any], row_scaling: RowScaling, count: int) -> None:
        """Add the mean of `count` segments, as an engine gave it."""
        power = mean.astype(np.float64) * count
        energy = row_scaling.energy.astype(np.float64) * count
        if row_scaling.shift is not None or self.shift.any():
            power, energy = self._align_exponents(power, energy, row_scaling.shift)
        self.spec, self.arithmetic_dtype = (
            row_scaling.spec,
            row_scaling.arithmetic_dtype,
        )
        self.power += power
        self.energy += energy
        if row_scaling.invalid_rows is not None:
            self.invalid_rows |= row_scaling.invalid_rows

    def _align_exponents(
        self,
        power: NDArray[np.float64],
        energy: NDArray[np.float64],
        shift: NDArray[np.int64] | None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bring the sums and the new values to the larger of their powers of two; where
        one of them is 0, to the other's.
        """
        old = np.where(self.energy > 0, self.shift, _MIN_EXPONENT)
        new = np.where(energy > 0, 0 if shift is None else shift, _MIN_EXPONENT)
        top = np.maximum(old, new)
        old_change = np.maximum(old - top, _MIN_EXPONENT)
        new = np.maximum(new - top, _MIN_EXPONENT)
        self.power = np.ldexp(self.power, old_change[:, None])
        self.energy = np.ldexp(self.energy, old_change)
        self.shift = np.where(top == _MIN_EXPONENT, 0, top)
        return np.ldexp(power, new[:, None]), np.ldexp(energy, new)

    def row_scaling(self, n_segments: int) -> RowScaling:
        """Return the row scaling of power / n_segments."""
        shift = self.shift if self.shift.any() else None
        invalid_rows = self.invalid_rows if self.invalid_rows.any() else None
        energy = self.energy / n_segments
        max_energy = float(energy.max())
        return RowScaling(
            self.spec, energy, max_energy, shift, invalid_rows, self.arithmetic_dtype
        )


# Below any power of two that a sample may have.
_MIN_EXPONENT = -100_000
