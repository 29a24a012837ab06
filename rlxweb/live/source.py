"""What a running signal is, wherever it comes from, and the thread that listens to it.

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

_MOST_CHUNKS: Final = 64


@dataclass(frozen=True, slots=True)
class Stream:
    """What a source says of itself.

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
class Chunk:
    """Samples (C, t) that came together.

    came   when the last of them was there, by time.perf_counter
    lost   samples that are missing before these
    """

    samples: NDArray[Any]
    came: float
    lost: int = 0


class Source(Protocol):
    """A running signal.

    can_wait   samples that nobody takes are still there later
    """

    can_wait: bool

    @property
    def stream(self) -> Stream: ...

    def read(self, timeout_s: float) -> Chunk | None:
        """The next samples; None where none came in time.

        Errors   EOFError at the end; RlxError for a signal that is no longer itself.
        """

    def close(self) -> None: ...


class Listener:
    """Reads a source on a thread; open as long as the `with` block."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._chunks: queue.Queue[Chunk | BaseException] = queue.Queue(_MOST_CHUNKS)
        self._stop = threading.Event()
        self._missed = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._thread.join(timeout=1.0)
        self.source.close()

    def next(self, timeout_s: float) -> Chunk | None:
        """The next samples; None where none came in time.

        Errors   EOFError at the end; those of the source.
        """
        try:
            found = self._chunks.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def _listen(self) -> None:
        try:
            while not self._stop.is_set():
                chunk = self.source.read(0.2)
                if chunk is not None:
                    self._put(chunk)
        except BaseException as error:  # handed over: it belongs to who listens
            self._put(error)

    def _put(self, one: Chunk | BaseException) -> None:
        must = self.source.can_wait or isinstance(one, BaseException)
        if isinstance(one, Chunk) and self._missed:
            one = Chunk(one.samples, one.came, one.lost + self._missed)
        while not self._stop.is_set():
            try:
                self._chunks.put(one, timeout=0.2 if must else 0.0)
            except queue.Full:
                if not must:
                    assert isinstance(one, Chunk)
                    self._missed += one.samples.shape[1]
                    return
                continue
            if isinstance(one, Chunk):
                self._missed = 0
            return


def arrived() -> float:
    """Now, as `Chunk.came` has it."""
    return perf_counter()
