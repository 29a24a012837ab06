"""Watching a running signal: spectra, peaks, bands, and how well it keeps up.

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

from rlxweb.io.writers import finite
from rlxweb.live.source import Chunk, Listener, Stream
from rlxweb.signal.bands import BandPower, Bands, bands_in
from rlxweb.signal.spectrum import Density
from rlxweb.signal.stream_frame import StreamFrame
from rlxweb.signal.welch_stream import WelchStream
from rlxweb.stopping import check_stopped

_LOOK_S: Final = 0.05
_RATE_OVER_S: Final = 10.0
_QUIET_S: Final = 0.5
_GAP_STEP: Final = 1 << 16
STALL_S: Final = 2.0
"""Without a sample for so long, a signal counts as stalled."""


@dataclass(frozen=True, slots=True)
class Update:
    """What is known now.

    frame       the newest average; None before the first segment is whole
    seconds     of signal so far
    rate        Hz that came lately; NaN before that can be told
    latency_s   from the last sample's coming to its spectrum; NaN before the first
    lost        samples that never came
    silent_s    since the last sample
    bands       of the newest average, where they were asked for
    """

    stream: Stream
    frame: StreamFrame | None
    seconds: float
    rate: float
    latency_s: float
    lost: int
    silent_s: float
    bands: BandPower | None = None

    @property
    def is_stalled(self) -> bool:
        return self.silent_s > STALL_S

    def as_json(self, spectra: bool = False) -> dict[str, Any]:
        """Plain data; None for what is not known.

        spectra   the powers too
        """
        told: dict[str, Any] = {
            "seconds": round(self.seconds, 6),
            "rate_hz": finite(self.rate),
            "latency_ms": finite(self.latency_s * 1e3),
            "lost": self.lost,
            "stalled": self.is_stalled,
        }
        if self.frame is None:
            return told
        told["t"] = self.frame.t
        told["segments"] = self.frame.n_segments
        if spectra:
            told["f"] = self.frame.f.tolist()
        told["channels"] = [
            self._channel(at, name, spectra)
            for at, name in enumerate(self.stream.channels)
        ]
        return told

    def _channel(self, at: int, name: str, spectra: bool) -> dict[str, Any]:
        assert self.frame is not None
        peaks = self.frame.peaks
        n = int(peaks.count[at])
        own: dict[str, Any] = {
            "name": name,
            "peaks": [
                {"hz": float(hz), "power": float(power)}
                for hz, power in zip(peaks.hz[at, :n], peaks.power[at, :n], strict=True)
            ],
        }
        if self.bands is not None:
            shares = self.bands.relative[at]
            own["bands"] = {
                band: finite(float(share))
                for band, share in zip(self.bands.names, shares, strict=True)
            }
        if spectra:
            own["power"] = [finite(float(one)) for one in self.frame.power[at]]
        return own


def watch(
    listener: Listener,
    stream: WelchStream,
    *,
    every_s: float = 0.25,
    bands: Bands | None = None,
    until_s: float | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Iterator[Update]:
    """An update every so often while the signal runs, and one at its end.

    until_s   of signal, after which it ends
    Errors    those of the source and of `WelchStream.push`; UsageError for bands that
              the spectrum does not reach
    """
    about = listener.source.stream
    pace = _Pace()
    frame: StreamFrame | None = None
    told_of: StreamFrame | None = None
    begun = last = came = clock()
    latency, lost, is_over = np.nan, 0, False
    while not is_over:
        check_stopped()
        try:
            chunk = listener.next(min(_LOOK_S, every_s))
        except EOFError:
            chunk, is_over = None, True
        if chunk is not None:
            came = chunk.came
            lost += chunk.lost
            for rows in _rows(chunk, stream, until_s):
                made = stream.push(rows)
                if made:
                    frame, latency = made[-1], clock() - came
            pace.add(came, stream.seconds * stream.fs - lost)
            is_over = until_s is not None and stream.seconds >= until_s
        now = clock()
        # The picture changes with a new average; a silence is told now and then.
        wait = every_s if frame is not told_of else max(every_s, _QUIET_S)
        if is_over or now - last >= wait:
            last, told_of = now, frame
            silent = now - max(came, begun)
            told = None if bands is None or frame is None else _bands(frame, bands)
            yield Update(
                about, frame, stream.seconds, pace.rate, latency, lost, silent, told
            )


def _rows(
    chunk: Chunk, stream: WelchStream, until_s: float | None
) -> Iterator[NDArray[Any]]:
    """A chunk's samples, those it lost as NaN before them, none beyond the end."""
    fresh = chunk.samples
    fresh = fresh if fresh.dtype.kind == "f" else fresh.astype(np.float64)
    left = fresh.shape[1] + chunk.lost
    if until_s is not None:
        still = round((until_s - stream.seconds) * stream.fs)
        left = min(left, max(0, still))
    lost = min(chunk.lost, left)
    for at in range(0, lost, _GAP_STEP):
        step = min(_GAP_STEP, lost - at)
        yield np.full((fresh.shape[0], step), np.nan, fresh.dtype)
    yield fresh[:, : left - lost]


def _bands(frame: StreamFrame, bands: Bands) -> BandPower:
    return bands_in(Density(frame.f, frame.power, floor=frame.floor), bands)


class _Pace:
    """Samples per second, over the last seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque()

    def add(self, at: float, samples: float) -> None:
        self._marks.append((at, samples))
        while at - self._marks[0][0] > _RATE_OVER_S and len(self._marks) > 2:
            self._marks.popleft()

    @property
    def rate(self) -> float:
        if len(self._marks) < 2:
            return float("nan")
        (begin, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - begin) if end - begin > 0.5 else float("nan")
