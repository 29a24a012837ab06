"""FLAC files of 16 or 24 bits, packed by libsndfile block by block.

Integers stand for the same values as those of a WAV file.
"""

from __future__ import annotations

from typing import IO, Any, Final

import numpy as np

from rlxweb.errors import RecordingError
from rlxweb.io.audio import soundfile_library
from rlxweb.io.outgoing import Exactness, Outgoing, WrittenGroup
from rlxweb.io.wav_writer import check_sound, checked_integers, written_sound
from rlxweb.whole_file import reason

MOST_CHANNELS: Final = 8
MOST_FS: Final = 655_350
_ANY_FS: Final = 65_535
"""Up to here any whole rate; beyond it the header counts in tens of Hz."""
_TENS: Final = 10
_RATES: Final = f"a whole rate, 1 to {_ANY_FS} Hz, or whole tens of Hz to {MOST_FS}"
_BITS: Final = 24


class _Sink:
    """The output file as libsndfile uses it, which drops exceptions of callbacks."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.fault: Exception | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except Exception as error:
            self.fault = error
            return 0

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._file.seek(offset, whence)
        except Exception as error:
            self.fault = error
            return -1

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int) -> bytes:
        return self._file.read(size)


def write_flac(file: IO[bytes], going: Outgoing) -> tuple[WrittenGroup, ...]:
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
    group, bits = going.group, going.bits or _BITS
    able = (_ANY_FS,) if group.fs <= _ANY_FS else (MOST_FS, _TENS)
    check_sound(going, MOST_CHANNELS, _RATES, *able)
    library, sink = soundfile_library(going.doing), _Sink(file)
    n_channels, off = len(group.channels), Exactness(len(group.channels))
    going.loses("names", "units", "begun", "date", "annotations")
    try:
        with library.SoundFile(
            sink, "w", round(group.fs), n_channels, f"PCM_{bits}", format="FLAC"
        ) as packed:
            for start, data in going.blocks(group):
                counts = checked_integers(data, start, bits, off, going)
                # libsndfile takes 24 bits as the upper ones of 32.
                wide = counts.astype(np.int16) if bits == 16 else counts << 8
                packed.write(np.ascontiguousarray(wide.T))
    except (library.SoundFileError, AssertionError) as error:
        if sink.fault is None:
            said = f"libsndfile cannot write it ({reason(error)})"
            raise RecordingError(going.doing, said, hint="write .wav") from error
    if sink.fault is not None:
        raise sink.fault
    return written_sound(going, bits, off)
