"""Continuous analysis of a live signal: spectra, peaks, bands, arrival rate and
latency.

Owns what is told at a moment, and the loop that makes it: chunks into a `WelchStream`,
updates out, one each so often. Draws nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.live.source import SampleChunk, SourceListener, StreamInfo
from rlxweb.signal.band_power import BandPower, BandsLike, integrate_bands
from rlxweb.signal.spectrum_result import PowerDensity
from rlxweb.signal.stream_frame import StreamFrame
from rlxweb.signal.welch_stream import WelchStream

_POLL_INTERVAL_S: Final = 0.05
_RATE_WINDOW_S: Final = 10.0
_SILENT_UPDATE_S: Final = 0.5
_MAX_GAP_CHUNK: Final = 1 << 16
STALL_TIMEOUT_S: Final = 2.0
"""Time without a sample after which a signal counts as stalled."""


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """State of a live signal at one moment.

    frame       the newest average; None before the first segment is whole
    duration_s  of signal so far
    arrival_rate  Hz that came lately; NaN before that can be told
    latency_s   from the last sample's coming to its spectrum; NaN before the first
    n_lost      samples that never came
    silent_s    since the last sample
    bands       of the newest average, where they were asked for
    """

    stream_info: StreamInfo
    frame: StreamFrame | None
    duration_s: float
    arrival_rate: float
    latency_s: float
    n_lost: int
    silent_s: float
    bands: BandPower | None = None

    @property
    def is_stalled(self) -> bool:
        """True if no sample arrived for longer than `STALL_TIMEOUT_S`."""
        return self.silent_s > STALL_TIMEOUT_S

    def as_json(self, spectra: bool = False) -> dict[str, Any]:
        """Return plain data; None stands for unknown values.

        spectra   the powers too
        """
        data: dict[str, Any] = {
            "seconds": round(self.duration_s, 6),
            "rate_hz": finite_or_none(self.arrival_rate),
            "latency_ms": finite_or_none(self.latency_s * 1e3),
            "lost": self.n_lost,
            "stalled": self.is_stalled,
        }
        if self.frame is None:
            return data
        data["t"] = self.frame.t
        data["segments"] = self.frame.n_segments
        if spectra:
            data["f"] = self.frame.f.tolist()
        data["channels"] = [
            self._channel_json(channel, name, spectra)
            for channel, name in enumerate(self.stream_info.channels)
        ]
        return data

    def _channel_json(self, channel: int, name: str, spectra: bool) -> dict[str, Any]:
        """Return the peaks, band shares and powers of a channel as plain data."""
        assert self.frame is not None
        peaks = self.frame.peaks
        n_peaks = int(peaks.count[channel])
        data: dict[str, Any] = {
            "name": name,
            "peaks": [
                {"hz": float(hz), "power": float(power)}
                for hz, power in zip(
                    peaks.hz[channel, :n_peaks],
                    peaks.power[channel, :n_peaks],
                    strict=True,
                )
            ],
        }
        if self.bands is not None:
            shares = self.bands.relative[channel]
            data["bands"] = {
                band: finite_or_none(float(share))
                for band, share in zip(self.bands.names, shares, strict=True)
            }
        if spectra:
            data["power"] = [
                finite_or_none(float(bin_power))
                for bin_power in self.frame.power[channel]
            ]
        return data


def watch_signal(
    listener: SourceListener,
    stream: WelchStream,
    *,
    every_s: float = 0.25,
    bands: BandsLike | None = None,
    until_s: float | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Iterator[LiveUpdate]:
    """Yield an update at regular intervals while the signal runs, and one at its end.

    until_s   of signal, after which it ends
    Errors    those of the source and of `WelchStream.push`; UsageError for bands that
              the spectrum does not reach
    """
    stream_info = listener.source.stream_info
    arrivals = _ArrivalRate()
    frame: StreamFrame | None = None
    shown_frame: StreamFrame | None = None
    start = last_update = last_arrival = clock()
    latency, n_lost, is_over = np.nan, 0, False
    while not is_over:
        raise_if_cancelled()
        try:
            chunk = listener.next_chunk(min(_POLL_INTERVAL_S, every_s))
        except EOFError:
            chunk, is_over = None, True
        if chunk is not None:
            last_arrival = chunk.arrival_time
            n_lost += chunk.n_lost_before
            for rows in _samples_with_gaps(chunk, stream, until_s):
                frames = stream.push(rows)
                if frames:
                    frame, latency = frames[-1], clock() - last_arrival
            arrivals.add(last_arrival, stream.seconds * stream.fs - n_lost)
            is_over = until_s is not None and stream.seconds >= until_s
        now = clock()
        # The picture changes with a new average; a silence is told now and then.
        wait = every_s if frame is not shown_frame else max(every_s, _SILENT_UPDATE_S)
        if is_over or now - last_update >= wait:
            last_update, shown_frame = now, frame
            silent = now - max(last_arrival, start)
            band_power = (
                None if bands is None or frame is None else _band_power(frame, bands)
            )
            yield LiveUpdate(
                stream_info,
                frame,
                stream.seconds,
                arrivals.rate,
                latency,
                n_lost,
                silent,
                band_power,
            )


def _samples_with_gaps(
    chunk: SampleChunk, stream: WelchStream, until_s: float | None
) -> Iterator[NDArray[Any]]:
    """Yield a chunk's samples up to the end, preceded by NaN for those that were
    lost.
    """
    samples = chunk.samples
    samples = samples if samples.dtype.kind == "f" else samples.astype(np.float64)
    n_remaining = samples.shape[1] + chunk.n_lost_before
    if until_s is not None:
        n_until_end = round((until_s - stream.seconds) * stream.fs)
        n_remaining = min(n_remaining, max(0, n_until_end))
    n_lost = min(chunk.n_lost_before, n_remaining)
    for start in range(0, n_lost, _MAX_GAP_CHUNK):
        step = min(_MAX_GAP_CHUNK, n_lost - start)
        yield np.full((samples.shape[0], step), np.nan, samples.dtype)
    yield samples[:, : n_remaining - n_lost]


def _band_power(frame: StreamFrame, bands: BandsLike) -> BandPower:
    """Return the power in bands of the newest average."""
    return integrate_bands(PowerDensity(frame.f, frame.power, floor=frame.floor), bands)


class _ArrivalRate:
    """Samples per second over the last seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque()

    def add(self, time: float, samples: float) -> None:
        """Record the number of samples that had arrived at a time."""
        self._marks.append((time, samples))
        while time - self._marks[0][0] > _RATE_WINDOW_S and len(self._marks) > 2:
            self._marks.popleft()

    @property
    def rate(self) -> float:
        """Samples per second; NaN as long as it is unknown."""
        if len(self._marks) < 2:
            return float("nan")
        (start, start_count), (end, end_count) = self._marks[0], self._marks[-1]
        return (
            (end_count - start_count) / (end - start)
            if end - start > 0.5
            else float("nan")
        )
