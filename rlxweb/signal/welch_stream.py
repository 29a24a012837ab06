"""Streaming Welch estimate: spectra and peaks of a signal that arrives in chunks.

Chunks of any length go in; every segment that they complete gives a spectrum, averaged
as asked for. Owns the tail between two chunks, the averages and what is kept of them in
a file. Where a recording's whole average is wanted in blocks, `stream.WelchAverage`
does that.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import fields
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.adc_samples import Digital
from rlxweb.core.argument_validation import suggest_misspelled_options
from rlxweb.core.array_coercion import as_array
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.errors import NotFinite, UsageError, shown
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.message_text import Advice
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.ops.welch.parameters import samples_needed, segment_count
from rlxweb.select.chooser import PlaceRequest, is_device_named_by_env
from rlxweb.signal.precision import Precision, resolve_precision
from rlxweb.signal.rounding_floor import RoundingFloor, rounding_shares
from rlxweb.signal.running_averages import AverageKind
from rlxweb.signal.stream_average import StreamAverage
from rlxweb.signal.stream_frame import StreamFrame
from rlxweb.signal.stream_settings import CONTEXT, StreamNanPolicy, StreamSettings
from rlxweb.signal.welch_request import DETREND_FROM_PRESET

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.windows import WindowLike

Array = NDArray[Any]

SCHEMA: Final = "rlxweb.stream/1"
_SETTING_NAMES: Final = frozenset(one.name for one in fields(StreamSettings))
_MAX_POWER_VALUES = 1 << 22
"""Largest number of power values of a chunk's segments held at once."""


class WelchStream:
    """Power spectra and their peaks of a running signal.

    fs, nperseg  rate in Hz; samples per segment
    k            peaks that a frame tells of each channel, at most
    n_channels   rows of a chunk
    noverlap, window, detrend, preset, mode, prominence, fmin, fmax   as `welch_peaks`
                 has them, but for the defaults: the peaks of scipy's density
    average      "all": the mean of all segments, as the offline call has it; "last": of
                 the last `last`; "exponential": older ones count half after `half_life`
                 seconds; "none": each segment by itself
    nan          "raise" refuses a chunk with NaN or infinity, and nothing of it is
                 taken; "propagate" makes NaN of every average it goes into; "skip"
                 leaves segments that it touches out of the channel's average
    device       where segments are transformed; None: NumPy, which answers a few
                 segments sooner than a device is asked, where no variable names one. On
                 a device that is named the average and the samples that segments share
                 stay there, and a frame is read back when it is looked at
    Shapes       chunks (n_channels, t) → frames with power (n_channels, F)
    Units        samples in U → f in Hz, power as the preset scales it (scipy: U²/Hz)
    Numerics     as `welch`; the first chunk's dtype settles that of the stream
    Source       Welch 1967
    Errors       UsageError for arguments outside their domain

    Threads take turns. `push` returns when its segments are done, so whoever pushes
    faster than that waits: nothing piles up.
    """

    @suggest_misspelled_options
    def __init__(
        self,
        fs: float,
        nperseg: int = 256,
        k: int = 16,
        n_channels: int = 1,
        *,
        noverlap: int | None = None,
        window: WindowLike | ArrayLike | None = None,
        detrend: str | bool | None = DETREND_FROM_PRESET,
        preset: str = "scipy",
        mode: Literal["bins", "peaks"] = "peaks",
        prominence: float | None = None,
        fmin: float = 0.0,
        fmax: float | None = None,
        average: AverageKind = "all",
        last: int | None = None,
        half_life: float | None = None,
        nan: StreamNanPolicy = "raise",
        precision: Precision | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> None:
        arguments = {
            name: value for name, value in locals().items() if name in _SETTING_NAMES
        }
        self._initialize(StreamSettings(**arguments), device, adapter)

    def _initialize(
        self, settings: StreamSettings, device: DeviceLike | None, adapter: str
    ) -> None:
        """Set the stream up by its settings."""
        self.settings = settings
        self.fs, self.n_channels = float(settings.fs), settings.n_channels
        spec = settings.spec("float64")
        self.nperseg, self.hop = spec.nperseg, spec.hop
        self._hz, self._band = settings.hz, settings.band
        self._nan_policy, self._precision = settings.nan, settings.precision
        is_named = bool(device or adapter) or is_device_named_by_env()
        request = PlaceRequest(device, adapter) if is_named else None
        self._average = StreamAverage(settings, request)
        self._lock = ForkSafeLock()
        self.reset()

    def __repr__(self) -> str:
        channels_text = f"{self.n_channels} channel{'s' * (self.n_channels != 1)}"
        return (
            f"WelchStream({channels_text} at {self.fs:g} Hz, "
            f"{self.n_segments} segments of {self.nperseg} samples so far)"
        )

    @property
    def f(self) -> NDArray[np.float64]:
        """Frequencies (F,) of the band, in Hz."""
        return self._hz[self._band.bins]

    @property
    def n_segments(self) -> int:
        """Number of segments in the average."""
        return self._average.segments

    @property
    def seconds(self) -> float:
        """Seconds of signal that were pushed."""
        return self._n_pushed / self.fs

    @property
    def power(self) -> Array:
        """Average power (C, F) so far; NaN before a channel's first segment."""
        with self._lock:
            mean, _ = self._average.mean(self._dtype or "float64")
            return mean.host_array()[:, self._band.bins]

    @property
    def peaks(self) -> PeaksOfPower:
        """The k strongest peaks of the average so far."""
        with self._lock:
            mean, energy = self._average.mean(self._dtype or "float64")
            return self._search_peaks(mean.host_array(), self._floor(energy))

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Channels (C,) with only rounding errors in the average so far."""
        with self._lock:
            mean, energy = self._average.mean(self._dtype or "float64")
            band = self._band.bins
            return (
                self._floor(energy)
                .select_bins(band)
                .is_flat(mean.host_array()[:, band])
            )

    @property
    def lies_on(self) -> str:
        """Name of the device that holds the average; "" when it is in host memory."""
        return self._average.device_name

    def reset(self) -> None:
        """Return to the initial state: nothing pushed, no device lost."""
        with self._lock:
            self._n_pushed = self._n_to_skip = 0
            self._dtype = ""
            self._tail: Array = np.empty((self.n_channels, 0))
            self._average.clear()

    def push(self, chunk: ArrayLike | Digital) -> list[StreamFrame]:
        """Push the next samples; return a frame for each segment that they complete.

        chunk    (C, t), or (t,) of one channel, t ≥ 0
        Errors   UsageError for another number of channels; DTypeError for what holds no
        real numbers, or float64 in a stream of float32; NotFinite unless `nan` allows
        it; those of a device that was asked for: its samples are taken, and the next
        push, of none, tries again. DeviceLost where the average lay on the device: it
        is gone, and every call says so until `reset`.
        """
        return run_blocking(self._push_chunk(chunk))

    async def push_async(self, chunk: ArrayLike | Digital) -> list[StreamFrame]:
        """Push the next samples without blocking the event loop."""
        frames = await await_or_offload(lambda: self._push_chunk(chunk))
        for frame in frames:
            await await_or_offload(frame.read)
        return frames

    async def over(
        self, chunks: AsyncIterable[ArrayLike] | Iterable[ArrayLike]
    ) -> AsyncIterator[StreamFrame]:
        """Yield frames while chunks arrive; the next chunk is requested when these
        frames are consumed.
        """
        if isinstance(chunks, AsyncIterable):
            async for chunk in chunks:
                for frame in await self.push_async(chunk):
                    yield frame
        else:
            for chunk in chunks:
                for frame in await self.push_async(chunk):
                    yield frame

    async def _push_chunk(self, chunk: ArrayLike | Digital) -> list[StreamFrame]:
        """Average the segments that a chunk completes; return their frames."""
        samples = self._check_chunk(chunk)
        frames: list[StreamFrame] = []
        with self._lock:
            self._average.raise_if_lost()
            self._settle_dtype(samples)
            new_samples = samples.astype(self._dtype, copy=False)
            n_dropped = min(self._n_to_skip, new_samples.shape[1])
            self._n_to_skip -= n_dropped
            rows = np.concatenate([self._tail, new_samples[:, n_dropped:]], axis=1)
            first_sample = self._n_pushed + n_dropped - self._tail.shape[1]
            self._n_pushed += samples.shape[1]
            segments_before = self.n_segments
            count = segment_count(rows.shape[1], self.nperseg, self.hop)
            step = max(1, _MAX_POWER_VALUES // (self.n_channels * len(self._hz)))
            try:
                for segment in range(0, count, step):
                    n_segments, start = min(step, count - segment), segment * self.hop
                    part = rows[:, start : start + self._samples_needed(n_segments)]
                    frames += await self._make_frames(
                        part, first_sample + start, n_segments
                    )
            finally:  # what a device failed at is still there for the next push
                n_used = (self.n_segments - segments_before) * self.hop
                self._n_to_skip += max(0, n_used - rows.shape[1])
                self._tail = rows[:, min(n_used, rows.shape[1]) :].copy()
        return frames

    def _samples_needed(self, segments: int) -> int:
        """Return the number of samples that so many segments span."""
        return samples_needed(segments, self.nperseg, self.hop)

    def _check_chunk(self, chunk: ArrayLike | Digital) -> Array:
        """Return the chunk as an array (C, t). Raises UsageError, DTypeError or
        NotFinite.
        """
        array = (
            chunk.physical() if isinstance(chunk, Digital) else as_array(chunk, CONTEXT)
        )
        if array.ndim == 1 and self.n_channels == 1:
            array = array[None]
        if array.ndim != 2 or array.shape[0] != self.n_channels:
            raise UsageError(
                CONTEXT,
                f"got a chunk of shape {list(array.shape)}",
                f"the stream has {self.n_channels} channels",
                f"pass chunks of shape ({self.n_channels}, samples)",
            )
        sample_type = resolve_precision(array.dtype, self._precision, CONTEXT)
        if sample_type.compute_dtype.startswith("complex"):
            raise UsageError(CONTEXT, f"the samples are {array.dtype}", "must be real")
        if self._nan_policy == "raise" and array.dtype.kind == "f":
            self._refuse_gaps(array)
        return array

    def _refuse_gaps(self, array: Array) -> None:
        """Raise NotFinite for the first sample that is not finite."""
        finite = np.isfinite(array)
        if finite.all():
            return
        index = int(np.argmin(finite.all(axis=0)))
        row = int(np.argmin(finite[:, index]))
        sample = self._n_pushed + index
        raise NotFinite(
            CONTEXT,
            f"channel {row} is {float(array[row, index])} at sample {sample} "
            f"({sample / self.fs:.3f} s)",
            "the whole chunk was rejected",
            Advice("repair the chunk, or pass {} or 'propagate'", nan="skip"),
        )

    def _settle_dtype(self, array: Array) -> None:
        """Set the dtype of the stream by its first chunk, and check later chunks
        against it.
        """
        kind = resolve_precision(array.dtype, self._precision, CONTEXT).compute_dtype
        kind = kind if kind == "float32" else "float64"
        if not self._dtype:
            self._dtype = kind
            self._tail = self._tail.astype(kind)
        elif kind == "float64" and self._dtype == "float32":
            raise UsageError(
                CONTEXT,
                f"the chunk is {array.dtype}, but the stream computes in float32",
                "samples are never converted to float32 automatically",
                Advice(
                    "to convert the samples, create the stream with {}", precision="f32"
                ),
            )

    async def _make_frames(
        self, rows: Array, first_sample: int, count: int
    ) -> list[StreamFrame]:
        """Return the frames of the segments of rows, which begin at sample
        `first_sample`.
        """
        segments_before = self.n_segments
        means = await self._average.add_segments(rows, first_sample, count, self._dtype)
        frames = []
        for segment, (mean, energy) in enumerate(means):
            t = (first_sample + segment * self.hop + self.nperseg / 2) / self.fs
            floor = self._floor(energy)
            search_peaks = partial(self._search_peaks, floor=floor)
            band = self._band.bins
            frame_fields = (
                segments_before + segment + 1,
                floor.select_bins(band),
                mean,
                band,
                search_peaks,
            )
            frames.append(StreamFrame(t, self.f, *frame_fields))
        return frames

    def _floor(self, energy: NDArray[np.float64]) -> RoundingFloor:
        """Return the power that rounding may leave in averages of rows with these mean
        squares.
        """
        shares = rounding_shares(self.settings.spec(self._dtype or "float64"), "")
        return RoundingFloor.from_energies(
            shares, energy, float(np.nanmax(energy, initial=0.0))
        )

    def _search_peaks(self, power: Array, floor: RoundingFloor) -> PeaksOfPower:
        """Return the peaks of the power within the band."""
        return self._band.find_peaks(power, self._hz, self.settings.peak_search, floor)

    # --- kept in a file ---------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """Return the arrays from which `restored` continues bit for bit."""
        with self._lock:
            run_blocking(self._average.copy_to_host())
            metadata = {
                "schema": SCHEMA,
                "settings": self.settings.as_json(),
                "n_segments": self.n_segments,
                "seen": self._n_pushed,
                "skip": self._n_to_skip,
                "dtype": self._dtype,
            }
            average_state = self._average.state()
            average_arrays = {
                f"average_{name}": array for name, array in average_state.items()
            }
            return {
                "about": np.array(json.dumps(metadata)),
                "window": self.settings.spec("float64").window_array.copy(),
                "tail": self._tail.copy(),
                **average_arrays,
            }

    @classmethod
    def restored(cls, state: dict[str, Array], **device: Any) -> Self:
        """Return a stream that continues where `state` was taken.

        device   `device` and `adapter`, where it is not to be NumPy
        Errors   UsageError for what is no state of a stream.
        """
        try:
            metadata = json.loads(str(np.asarray(state["about"])[()]))
            if metadata.pop("schema") != SCHEMA:
                raise KeyError("schema")
            window = np.array(state["window"], np.float64)
            stream = cls(**metadata["settings"], window=window, **device)
            stream._n_pushed = int(metadata["seen"])
            stream._n_to_skip, stream._dtype = (
                int(metadata["skip"]),
                str(metadata["dtype"]),
            )
            stream._tail = np.array(state["tail"])
            average_arrays = {
                name.removeprefix("average_"): np.array(array)
                for name, array in state.items()
                if name.startswith("average_")
            }
            stream._average.restore(average_arrays, int(metadata["n_segments"]))
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(
                f"{CONTEXT}.restored",
                "the value is not the state of a stream "
                f"({type(error).__name__}: {error})",
                f"expected a result of `state()` with schema {SCHEMA}",
            ) from error
        return stream

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to an NPZ file, atomically."""
        _check_path(path, "save")
        arrays: dict[str, Any] = self.state()
        with AtomicFiles() as files:
            np.savez(files.open(str(path)), **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str], **device: Any) -> Self:
        """Read a stream that `save` wrote. Raises UsageError for another file."""
        _check_path(path, "load")
        try:
            state = read_npz_arrays(path)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{CONTEXT}.load {shown(str(path))}",
                f"the file cannot be read as a saved stream ({error})",
            ) from error
        return cls.restored(state, **device)


def _check_path(path: object, method: str) -> None:
    """Raise UsageError for what is no path."""
    if not isinstance(path, str | PathLike):
        context = f"{CONTEXT}.{method}"
        raise UsageError(context, f"got {shown(path)}", "expected a path")
