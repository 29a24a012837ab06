"""Sources of live signals from files: a growing recording, or the replay of a complete
one.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any, Final

import numpy as np

from rlxweb.core.errors import RecordingError, RecordingWarning, UsageError, shown
from rlxweb.io.recording import Group, Recording
from rlxweb.io.recording_reader import open_recording
from rlxweb.live.source import SampleChunk, StreamInfo, arrival_clock

_POLL_INTERVAL_S: Final = 0.1
_REPLAY_CHUNK_S: Final = 0.05
"""Duration of the chunks of a replay."""


class GrowingFile:
    """Source of the samples that are appended to a recording while it is written.

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
        with self._open_recording() as recording:
            group = single_rate_group(recording)
            self.stream_info = group_stream_info(group)
            self._n_read = 0 if since_begin else group.n_samples
        self._state = self._file_state()
        self._last_growth = time.monotonic()
        self._has_unread_start = since_begin

    def read(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples, see `SignalSource`; raise RecordingError if the file
        became another recording.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            state = self._file_state()
            if state != self._state or self._has_unread_start:
                self._state, self._has_unread_start = state, False
                chunk = self._read_new_samples()
                if chunk is not None:
                    self._last_growth = time.monotonic()
                    return chunk
            idle = time.monotonic() - self._last_growth
            if self._idle_s is not None and idle > self._idle_s:
                raise EOFError
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_INTERVAL_S)

    def _read_new_samples(self) -> SampleChunk | None:
        """Return the samples appended since the last read, or None."""
        with self._open_recording() as recording:
            group = single_rate_group(recording)
            if group_stream_info(group) != self.stream_info:
                size = f"{len(group.channels)} channels at {group.fs:g} Hz"
                previous_size = (
                    f"{len(self.stream_info.channels)} channels at "
                    f"{self.stream_info.fs:g} Hz"
                )
                if size == previous_size:
                    problem = "the names or units of the channels changed"
                    rule = (
                        "channel names and units must stay the same while the file is "
                        "watched"
                    )
                else:
                    problem = f"the file now has {size}"
                    rule = f"expected {previous_size}, as before"
                raise RecordingError(
                    f"watching {shown(self._path)}",
                    problem,
                    rule,
                    "start watching again",
                )
            if group.n_samples < self._n_read:
                raise RecordingError(
                    f"watching {shown(self._path)}",
                    f"the file shrank to {group.n_samples} samples",
                    f"{self._n_read} samples were already read",
                    "start watching again",
                )
            if group.n_samples == self._n_read:
                return None
            samples = group.read(self._n_read, group.n_samples)
            self._n_read = group.n_samples
        return SampleChunk(np.asarray(samples), arrival_clock())

    def _open_recording(self) -> Recording:
        """Open the recording without warnings about its missing end."""
        with warnings.catch_warnings():
            # Of an end that is missing, as it must be while it is written.
            warnings.simplefilter("ignore", RecordingWarning)
            return open_recording(self._path, **self._options)

    def _file_state(self) -> tuple[int, int]:
        """Return size and modification time of the file; raise RecordingError if it is
        gone.
        """
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise RecordingError(
                f"watching {shown(self._path)}",
                f"the file is not accessible ({error.strerror})",
            ) from error
        return status.st_size, status.st_mtime_ns

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class RecordingReplay:
    """Replay of a complete recording at its own rate or a multiple of it."""

    can_wait = True

    def __init__(self, path: str, speed: float = 1.0, **options: Any) -> None:
        if not speed > 0:
            raise UsageError("replaying", f"the speed is {speed:g}", "must be above 0")
        self._recording = open_recording(path, **options)
        try:
            self._group = single_rate_group(self._recording)
        except BaseException:
            self._recording.close()
            raise
        self.stream_info = group_stream_info(self._group)
        self._speed, self._position, self._start_time = speed, 0, 0.0

    def read(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples, see `SignalSource`."""
        group = self._group
        if self._position == group.n_samples:
            raise EOFError
        self._start_time = self._start_time or time.monotonic()
        stop = min(
            group.n_samples, self._position + max(1, round(_REPLAY_CHUNK_S * group.fs))
        )
        due_time = self._start_time + stop / group.fs / self._speed
        wait = due_time - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        samples = group.read(self._position, stop)
        self._position = stop
        return SampleChunk(np.asarray(samples), arrival_clock())

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()


def single_rate_group(recording: Recording) -> Group:
    """Return the channels of a recording; raise UsageError if they have several
    rates.
    """
    if len(recording.signals) != 1:
        rates = ", ".join(f"{group.fs:g}" for group in recording.groups)
        raise UsageError(
            f"watching {shown(recording.path)}",
            f"the channels have {len(recording.groups)} different sampling "
            f"rates: {rates} Hz",
            "all watched channels must have the same sampling rate",
            "select channels of one sampling rate: -c NAME (repeatable)",
        )
    return recording.groups[0]


def group_stream_info(group: Group) -> StreamInfo:
    """Return the description of a group of channels."""
    units = {channel.unit for channel in group.channels}
    unit = units.pop() if len(units) == 1 else ""
    return StreamInfo(group.recording, group.fs, group.names, unit)
