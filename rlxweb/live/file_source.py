"""A recording that another program is still writing, or a whole one at its own pace."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any, Final

import numpy as np

from rlxweb.errors import RecordingError, RecordingWarning, UsageError, shown
from rlxweb.io.dispatch import open_recording
from rlxweb.io.recording import Group, Recording
from rlxweb.live.source import Chunk, Stream, arrived

_LOOK_S: Final = 0.1
_CHUNK_S: Final = 0.05
"""Of signal that a replay hands on at a time."""


class GrowingFile:
    """The samples that a recording gets while it is written.

    since_begin   those it had before are told as well
    idle_s        seconds without growth after which it counts as ended; None: never
    options       of `rlxweb.read`
    Errors        RecordingError; UsageError for a recording of several rates
    """

    can_wait = True

    def __init__(
        self,
        path: str,
        *,
        since_begin: bool = False,
        idle_s: float | None = None,
        **options: Any,
    ) -> None:
        self._path, self._options, self._idle_s = path, options, idle_s
        with self._opened() as recording:
            group = one_group(recording)
            self.stream = stream_of(group)
            self._done = 0 if since_begin else group.n_samples
        self._state = self._now()
        self._grew = time.monotonic()
        self._is_fresh = since_begin

    def read(self, timeout_s: float) -> Chunk | None:
        """See `Source`. Errors  RecordingError where it became another recording."""
        until = time.monotonic() + timeout_s
        while True:
            state = self._now()
            if state != self._state or self._is_fresh:
                self._state, self._is_fresh = state, False
                found = self._more()
                if found is not None:
                    self._grew = time.monotonic()
                    return found
            still = time.monotonic() - self._grew
            if self._idle_s is not None and still > self._idle_s:
                raise EOFError
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK_S)

    def _more(self) -> Chunk | None:
        with self._opened() as recording:
            group = one_group(recording)
            if stream_of(group) != self.stream:
                raise RecordingError(
                    f"watching {shown(self._path)}",
                    f"it has {len(group.channels)} channels at {group.fs:g} Hz now",
                    f"{len(self.stream.channels)} at {self.stream.fs:g} Hz before",
                    "begin anew",
                )
            if group.n_samples < self._done:
                raise RecordingError(
                    f"watching {shown(self._path)}",
                    f"it shrank to {group.n_samples} samples",
                    f"{self._done} were there before",
                    "begin anew",
                )
            if group.n_samples == self._done:
                return None
            samples = group.read(self._done, group.n_samples)
            self._done = group.n_samples
        return Chunk(np.asarray(samples), arrived())

    def _opened(self) -> Recording:
        with warnings.catch_warnings():
            # Of an end that is missing, as it must be while it is written.
            warnings.simplefilter("ignore", RecordingWarning)
            return open_recording(self._path, **self._options)

    def _now(self) -> tuple[int, int]:
        try:
            about = os.stat(self._path)
        except OSError as error:
            raise RecordingError(
                f"watching {shown(self._path)}", f"it is gone ({error.strerror})"
            ) from error
        return about.st_size, about.st_mtime_ns

    def close(self) -> None:
        """Nothing is held open."""


class Replay:
    """A whole recording, played at its own rate or so many times faster."""

    can_wait = True

    def __init__(self, path: str, speed: float = 1.0, **options: Any) -> None:
        if not speed > 0:
            raise UsageError("replaying", f"the speed is {speed:g}", "above 0")
        self._recording = open_recording(path, **options)
        try:
            self._group = one_group(self._recording)
        except BaseException:
            self._recording.close()
            raise
        self.stream = stream_of(self._group)
        self._speed, self._at, self._begun = speed, 0, 0.0

    def read(self, timeout_s: float) -> Chunk | None:
        """See `Source`."""
        group = self._group
        if self._at == group.n_samples:
            raise EOFError
        self._begun = self._begun or time.monotonic()
        stop = min(group.n_samples, self._at + max(1, round(_CHUNK_S * group.fs)))
        due = self._begun + stop / group.fs / self._speed
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        samples = group.read(self._at, stop)
        self._at = stop
        return Chunk(np.asarray(samples), arrived())

    def close(self) -> None:
        self._recording.close()


def one_group(recording: Recording) -> Group:
    """Its channels. Errors  UsageError where they have several rates."""
    if len(recording.signals) != 1:
        rates = ", ".join(f"{group.fs:g}" for group in recording.groups)
        raise UsageError(
            f"watching {shown(recording.path)}",
            f"its channels have {len(recording.groups)} rates: {rates} Hz",
            "one is watched at a time",
            "name the channels of one of them: -c NAMES",
        )
    return recording.groups[0]


def stream_of(group: Group) -> Stream:
    """What a group says of itself."""
    units = {channel.unit for channel in group.channels}
    unit = units.pop() if len(units) == 1 else ""
    return Stream(group.recording, group.fs, group.names, unit)
