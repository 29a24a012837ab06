"""Protocol of live signal sources, and the thread that reads from one.

A source blocks until samples come; a thread of its own waits for them, so that whoever
watches can draw, notice a silence, and stop. What may wait (a pipe, a file) waits when
nobody takes; what cannot (a microphone, a network) loses samples, which are counted.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Protocol

from numpy.typing import NDArray

_MAX_QUEUED_CHUNKS: Final = 64


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """Description of a source's signal.

    name      for people: "microphone 'USB Audio'", "stdin"
    fs        Hz
    channels  their names
    unit      of the samples, "" unknown
    """

    name: str
    fs: float
    channels: tuple[str, ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class SampleChunk:
    """Samples (C, t) that arrived together.

    arrival_time  when the last of them was there, by time.perf_counter
    n_lost_before  samples that are missing before these
    """

    samples: NDArray[Any]
    arrival_time: float
    n_lost_before: int = 0


class SignalSource(Protocol):
    """Protocol of a source of live samples.

    can_wait   samples that nobody takes are still there later
    """

    can_wait: bool

    @property
    def stream_info(self) -> StreamInfo: ...

    def read(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples; None if none arrived in time.

        Errors   EOFError at the end; RlxError for a signal that is no longer itself.
        """

    def close(self) -> None: ...


class SourceListener:
    """Thread that reads a source while the `with` block is open."""

    def __init__(self, source: SignalSource) -> None:
        self.source = source
        self._chunks: queue.Queue[SampleChunk | BaseException] = queue.Queue(
            _MAX_QUEUED_CHUNKS
        )
        self._stop_event = threading.Event()
        self._n_dropped = 0
        self._thread = threading.Thread(target=self._read_source, daemon=True)

    def __enter__(self) -> SourceListener:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop_event.set()
        self._thread.join(timeout=1.0)
        self.source.close()

    def next_chunk(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples; None if none arrived in time.

        Errors   EOFError at the end; those of the source.
        """
        try:
            received = self._chunks.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(received, BaseException):
            raise received
        return received

    def _read_source(self) -> None:
        """Read chunks into the queue until stopped, and pass on the error that ends
        it.
        """
        try:
            while not self._stop_event.is_set():
                chunk = self.source.read(0.2)
                if chunk is not None:
                    self._enqueue(chunk)
        except BaseException as error:  # handed over: it belongs to who listens
            self._enqueue(error)

    def _enqueue(self, entry: SampleChunk | BaseException) -> None:
        """Queue a chunk or an error; drop and count chunks of a source that cannot
        wait.
        """
        may_block = self.source.can_wait or isinstance(entry, BaseException)
        if isinstance(entry, SampleChunk) and self._n_dropped:
            entry = SampleChunk(
                entry.samples, entry.arrival_time, entry.n_lost_before + self._n_dropped
            )
        while not self._stop_event.is_set():
            try:
                self._chunks.put(entry, timeout=0.2 if may_block else 0.0)
            except queue.Full:
                if not may_block:
                    assert isinstance(entry, SampleChunk)
                    self._n_dropped += entry.samples.shape[1]
                    return
                continue
            if isinstance(entry, SampleChunk):
                self._n_dropped = 0
            return


def arrival_clock() -> float:
    """Return the current time on the clock of `SampleChunk.arrival_time`."""
    return perf_counter()
