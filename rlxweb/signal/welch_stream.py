"""`WelchStream`: spectra and peaks of a signal that is still running.

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
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice
from rlxweb.arguments import helpful
from rlxweb.choose.chooser import Asked, a_device_is_named
from rlxweb.digital import Digital
from rlxweb.errors import NotFinite, UsageError, shown
from rlxweb.forked import ForkLock
from rlxweb.given import array_of
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.strongest import PeaksOfPower
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.recipes.welch_plan import samples_needed, segment_count
from rlxweb.signal.average_held import HeldAverage
from rlxweb.signal.averages import Average
from rlxweb.signal.precision import Precision, taken
from rlxweb.signal.request import OF_PRESET
from rlxweb.signal.rounding import RoundingFloor, rounding_shares
from rlxweb.signal.stream_frame import StreamFrame
from rlxweb.signal.stream_settings import DOING, Gaps, StreamSettings
from rlxweb.whole_file import WholeFiles

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.signal.windows import WindowLike

Array = NDArray[Any]

SCHEMA: Final = "rlxweb.stream/1"
_SETTINGS: Final = frozenset(one.name for one in fields(StreamSettings))
_MOST_VALUES = 1 << 22
"""Of the spectra of a chunk's segments that are held at once."""


class WelchStream:
    """Power spectra and their peaks while a signal runs.

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

    @helpful
    def __init__(
        self,
        fs: float,
        nperseg: int = 256,
        k: int = 16,
        n_channels: int = 1,
        *,
        noverlap: int | None = None,
        window: WindowLike | ArrayLike | None = None,
        detrend: str | bool | None = OF_PRESET,
        preset: str = "scipy",
        mode: Literal["bins", "peaks"] = "peaks",
        prominence: float | None = None,
        fmin: float = 0.0,
        fmax: float | None = None,
        average: Average = "all",
        last: int | None = None,
        half_life: float | None = None,
        nan: Gaps = "raise",
        precision: Precision | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _SETTINGS}
        self._begin(StreamSettings(**given), device, adapter)

    def _begin(
        self, settings: StreamSettings, device: DeviceLike | None, adapter: str
    ) -> None:
        self.settings = settings
        self.fs, self.n_channels = float(settings.fs), settings.n_channels
        spec = settings.spec("float64")
        self.nperseg, self.hop = spec.nperseg, spec.hop
        self._hz, self._band = settings.hz, settings.band
        self._nan, self._precision = settings.nan, settings.precision
        is_named = bool(device or adapter) or a_device_is_named()
        asked = Asked(device, adapter) if is_named else None
        self._average = HeldAverage(settings, asked)
        self._lock = ForkLock()
        self.reset()

    def __repr__(self) -> str:
        many = f"{self.n_channels} channel{'s' * (self.n_channels != 1)}"
        return (
            f"WelchStream({many} at {self.fs:g} Hz, "
            f"{self.n_segments} segments of {self.nperseg} so far)"
        )

    @property
    def f(self) -> NDArray[np.float64]:
        """(F,) frequencies of the band, in Hz."""
        return self._hz[self._band.bins]

    @property
    def n_segments(self) -> int:
        """Segments that are in the average."""
        return self._average.segments

    @property
    def seconds(self) -> float:
        """Of signal that was pushed."""
        return self._seen / self.fs

    @property
    def power(self) -> Array:
        """(C, F) the average so far; NaN before a channel's first segment."""
        with self._lock:
            mean, _ = self._average.mean(self._dtype or "float64")
            return mean.array()[:, self._band.bins]

    @property
    def peaks(self) -> PeaksOfPower:
        """The k strongest of the average so far."""
        with self._lock:
            mean, energy = self._average.mean(self._dtype or "float64")
            return self._searched(mean.array(), self._floor(energy))

    @property
    def flat(self) -> NDArray[np.bool_]:
        """(C,) channels with nothing but rounding in the average so far."""
        with self._lock:
            mean, energy = self._average.mean(self._dtype or "float64")
            band = self._band.bins
            return self._floor(energy).of_bins(band).is_flat(mean.array()[:, band])

    @property
    def lies_on(self) -> str:
        """The device on which the average lies, in words; "" in the host's memory."""
        return self._average.lies_on

    def reset(self) -> None:
        """As if nothing had been pushed, and no device lost."""
        with self._lock:
            self._seen = self._skip = 0
            self._dtype = ""
            self._tail: Array = np.empty((self.n_channels, 0))
            self._average.clear()

    def push(self, chunk: ArrayLike | Digital) -> list[StreamFrame]:
        """A frame for each segment that the next samples complete.

        chunk    (C, t), or (t,) of one channel, t ≥ 0
        Errors   UsageError for another number of channels; DTypeError for what holds no
        real numbers, or float64 in a stream of float32; NotFinite unless `nan` allows
        it; those of a device that was asked for: its samples are taken, and the next
        push, of none, tries again. DeviceLost where the average lay on the device: it
        is gone, and every call says so until `reset`.
        """
        return drive(self._pushed(chunk))

    async def push_async(self, chunk: ArrayLike | Digital) -> list[StreamFrame]:
        """`push` beside an event loop, which goes on meanwhile."""
        made = await awaited_here(lambda: self._pushed(chunk))
        for frame in made:
            await awaited_here(frame.read)
        return made

    async def over(
        self, chunks: AsyncIterable[ArrayLike] | Iterable[ArrayLike]
    ) -> AsyncIterator[StreamFrame]:
        """Frames while chunks come; the next is asked for when these are taken."""
        if isinstance(chunks, AsyncIterable):
            async for chunk in chunks:
                for frame in await self.push_async(chunk):
                    yield frame
        else:
            for chunk in chunks:
                for frame in await self.push_async(chunk):
                    yield frame

    async def _pushed(self, chunk: ArrayLike | Digital) -> list[StreamFrame]:
        given = self._checked(chunk)
        made: list[StreamFrame] = []
        with self._lock:
            self._average.check()
            self._settle(given)
            fresh = given.astype(self._dtype, copy=False)
            drop = min(self._skip, fresh.shape[1])
            self._skip -= drop
            rows = np.concatenate([self._tail, fresh[:, drop:]], axis=1)
            first = self._seen + drop - self._tail.shape[1]
            self._seen += given.shape[1]
            before = self.n_segments
            count = segment_count(rows.shape[1], self.nperseg, self.hop)
            step = max(1, _MOST_VALUES // (self.n_channels * len(self._hz)))
            try:
                for at in range(0, count, step):
                    some, start = min(step, count - at), at * self.hop
                    part = rows[:, start : start + self._needed(some)]
                    made += await self._framed(part, first + start, some)
            finally:  # what a device failed at is still there for the next push
                used = (self.n_segments - before) * self.hop
                self._skip += max(0, used - rows.shape[1])
                self._tail = rows[:, min(used, rows.shape[1]) :].copy()
        return made

    def _needed(self, segments: int) -> int:
        return samples_needed(segments, self.nperseg, self.hop)

    def _checked(self, chunk: ArrayLike | Digital) -> Array:
        array = (
            chunk.physical() if isinstance(chunk, Digital) else array_of(chunk, DOING)
        )
        if array.ndim == 1 and self.n_channels == 1:
            array = array[None]
        if array.ndim != 2 or array.shape[0] != self.n_channels:
            raise UsageError(
                DOING,
                f"a chunk of shape {list(array.shape)}",
                f"{self.n_channels} channels were announced",
                f"give ({self.n_channels}, samples)",
            )
        how = taken(array.dtype, self._precision, DOING)
        if how.kind.startswith("complex"):
            raise UsageError(DOING, f"samples of {array.dtype}", "real ones are wanted")
        if self._nan == "raise" and array.dtype.kind == "f":
            self._refuse_gaps(array)
        return array

    def _refuse_gaps(self, array: Array) -> None:
        finite = np.isfinite(array)
        if finite.all():
            return
        at = int(np.argmin(finite.all(axis=0)))
        row = int(np.argmin(finite[:, at]))
        sample = self._seen + at
        raise NotFinite(
            DOING,
            f"channel {row} is {float(array[row, at])} at sample {sample} "
            f"({sample / self.fs:.3f} s)",
            "nothing of the chunk was taken",
            Advice("repair it, or pass {} or 'propagate'", nan="skip"),
        )

    def _settle(self, array: Array) -> None:
        """The dtype of the stream, by its first chunk."""
        kind = taken(array.dtype, self._precision, DOING).kind
        kind = kind if kind == "float32" else "float64"
        if not self._dtype:
            self._dtype = kind
            self._tail = self._tail.astype(kind)
        elif kind == "float64" and self._dtype == "float32":
            raise UsageError(
                DOING,
                f"a chunk of {array.dtype} in a stream of float32",
                "nothing is narrowed unasked",
                Advice("pass {} to the stream", precision="f32"),
            )

    async def _framed(self, rows: Array, first: int, count: int) -> list[StreamFrame]:
        """Frames of the segments of rows, which begin at sample `first`."""
        before = self.n_segments
        found = await self._average.take(rows, first, count, self._dtype)
        made = []
        for at, (mean, energy) in enumerate(found):
            t = (first + at * self.hop + self.nperseg / 2) / self.fs
            floor = self._floor(energy)
            search = partial(self._searched, floor=floor)
            band = self._band.bins
            more = before + at + 1, floor.of_bins(band), mean, band, search
            made.append(StreamFrame(t, self.f, *more))
        return made

    def _floor(self, energy: NDArray[np.float64]) -> RoundingFloor:
        """Power that rounding may leave in averages of rows with these mean squares."""
        shares = rounding_shares(self.settings.spec(self._dtype or "float64"), "")
        return RoundingFloor.of(shares, energy, float(np.nanmax(energy, initial=0.0)))

    def _searched(self, power: Array, floor: RoundingFloor) -> PeaksOfPower:
        own = self.settings
        return self._band.peaks(
            power, self._hz, own.most, own.prominence, own.mode, floor
        )

    # --- kept in a file ---------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """Arrays from which `restored` goes on to the same bits."""
        with self._lock:
            drive(self._average.copied())
            about = {
                "schema": SCHEMA,
                "settings": self.settings.as_json(),
                "n_segments": self.n_segments,
                "seen": self._seen,
                "skip": self._skip,
                "dtype": self._dtype,
            }
            kept = self._average.state()
            held = {f"average_{name}": one for name, one in kept.items()}
            return {
                "about": np.array(json.dumps(about)),
                "window": self.settings.spec("float64").window_array.copy(),
                "tail": self._tail.copy(),
                **held,
            }

    @classmethod
    def restored(cls, state: dict[str, Array], **device: Any) -> Self:
        """A stream that goes on where `state` was taken.

        device   `device` and `adapter`, where it is not to be NumPy
        Errors   UsageError for what is no state of a stream.
        """
        try:
            about = json.loads(str(np.asarray(state["about"])[()]))
            if about.pop("schema") != SCHEMA:
                raise KeyError("schema")
            window = np.array(state["window"], np.float64)
            stream = cls(**about["settings"], window=window, **device)
            stream._seen = int(about["seen"])
            stream._skip, stream._dtype = int(about["skip"]), str(about["dtype"])
            stream._tail = np.array(state["tail"])
            held = {
                name.removeprefix("average_"): np.array(one)
                for name, one in state.items()
                if name.startswith("average_")
            }
            stream._average.restore(held, int(about["n_segments"]))
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(
                f"{DOING}.restored",
                f"it is no state of a stream ({type(error).__name__}: {error})",
                f"what `state` gave is wanted, schema {SCHEMA}",
            ) from error
        return stream

    def save(self, path: str | PathLike[str]) -> None:
        """The state as an NPZ file, written whole or not at all."""
        arrays: dict[str, Any] = self.state()
        with WholeFiles() as files:
            np.savez(files.open(str(path)), **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str], **device: Any) -> Self:
        """What `save` wrote. Errors  UsageError for another file."""
        try:
            state = read_npz_arrays(path)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{DOING}.load {shown(str(path))}",
                f"it cannot be read as a stream's file ({error})",
            ) from error
        return cls.restored(state, **device)
