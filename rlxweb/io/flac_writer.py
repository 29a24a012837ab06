"""Write FLAC files of 16 or 24 bits, encoded by libsndfile block by block.

Integers stand for the same values as those of a WAV file.
"""

from __future__ import annotations

from typing import IO, Any, Final

import numpy as np

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError
from rlxweb.io.libsndfile_reader import soundfile_library
from rlxweb.io.wav_writer import (
    check_sound_limits,
    quantize_samples,
    summarize_written_sound,
)
from rlxweb.io.write_job import WriteErrorTracker, WriteJob, WrittenGroup

MAX_CHANNELS: Final = 8
MAX_FS: Final = 655_350
_MAX_UNRESTRICTED_FS: Final = 65_535
"""Highest rate that may be any whole number; above it the header counts in tens of Hz.
"""
_HIGH_FS_STEP: Final = 10
_RATE_RULE: Final = (
    f"an integer rate from 1 to {_MAX_UNRESTRICTED_FS} Hz, or a multiple of 10 Hz up "
    f"to {MAX_FS} Hz"
)
_DEFAULT_BITS: Final = 24


class _FlacSink:
    """Output file for libsndfile, which drops exceptions of callbacks; keeps the last
    one.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: Exception | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except Exception as error:
            self.error = error
            return 0

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._file.seek(offset, whence)
        except Exception as error:
            self.error = error
            return -1

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int) -> bytes:
        return self._file.read(size)


def write_flac(file: IO[bytes], job: WriteJob) -> tuple[WrittenGroup, ...]:
    """Write the group as a FLAC file of 24 bits, or of 16.

    Raises
    ------
    UsageError
        The rate is not whole, there are too many channels, or a sample is beyond full
        scale.
    NotFinite
        A sample is NaN or infinite.
    Unsupported
        soundfile is not installed.
    """
    group, bits = job.group, job.bits or _DEFAULT_BITS
    rate_limits = (
        (_MAX_UNRESTRICTED_FS,)
        if group.fs <= _MAX_UNRESTRICTED_FS
        else (MAX_FS, _HIGH_FS_STEP)
    )
    check_sound_limits(job, MAX_CHANNELS, _RATE_RULE, *rate_limits)
    library, sink = soundfile_library(job.context), _FlacSink(file)
    n_channels, errors = len(group.channels), WriteErrorTracker(len(group.channels))
    job.record_losses("names", "units", "begun", "date", "annotations")
    try:
        with library.SoundFile(
            sink, "w", round(group.fs), n_channels, f"PCM_{bits}", format="FLAC"
        ) as encoder:
            for start, data in job.blocks(group):
                counts = quantize_samples(data, start, bits, errors, job)
                # libsndfile takes 24 bits as the upper ones of 32.
                left_justified = counts.astype(np.int16) if bits == 16 else counts << 8
                encoder.write(np.ascontiguousarray(left_justified.T))
    except (library.SoundFileError, AssertionError) as error:
        if sink.error is None:
            message = f"libsndfile cannot write the file ({error_reason(error)})"
            raise RecordingError(job.context, message, hint="write .wav") from error
    if sink.error is not None:
        raise sink.error
    return summarize_written_sound(job, bits, errors)
