"""WAV files, written block by block: floats of 32 or 64 bits, integers of 16 or 24.

Owns the header; beyond 4 GiB it is that of RF64. Integers stand for -1 up to 1, or for
what the caller says is full scale: nothing is clipped and nothing scaled unasked.
"""

from __future__ import annotations

import struct
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.errors import UsageError
from rlxweb.io.outgoing import (
    Exactness,
    Outgoing,
    WrittenChannel,
    WrittenGroup,
    check_numbers,
    check_scale,
)
from rlxweb.io.preparing import nearest_whole_rate
from rlxweb.io.recording import Group
from rlxweb.io.wav_header import EXTENSIBLE, FLOAT, PCM, SUBFORMATS

FLOAT_BITS: Final = (32, 64)
INTEGER_BITS: Final = (16, 24)
_MOST_CHANNELS: Final = 65_535
_MOST_FS: Final = (1 << 32) - 1
_MOST_NBYTES: Final = (1 << 32) - 1


def write_wav(file: IO[bytes], going: Outgoing) -> tuple[WrittenGroup, ...]:
    """Write the group as a WAV file of float32, or of so many bits.

    Raises
    ------
    UsageError
        The rate is not whole, or a sample is beyond the full scale of integers or the
        largest float32.
    NotFinite
        A sample of integers is NaN or infinite.
    """
    group, bits = going.group, going.bits or 32
    check_sound(going, _MOST_CHANNELS, f"a whole rate, 1 to {_MOST_FS} Hz", _MOST_FS)
    n_channels = len(group.channels)
    file.write(_header(n_channels, round(group.fs), group.n_samples, bits))
    going.loses("names", "units", "begun", "date", "annotations")
    off = Exactness(n_channels)
    for start, data in going.blocks(group):
        if bits in FLOAT_BITS:
            with np.errstate(over="ignore"):
                values = data.astype(f"<f{bits // 8}")
            off.note(data, values)
            file.write(np.ascontiguousarray(values.T).tobytes())
        else:
            counts = checked_integers(data, start, bits, off, going)
            file.write(_bytes(counts.T, bits))
    if not np.isfinite(off.error).all():
        name = group.names[int(np.argmax(off.error))]
        raise UsageError(
            going.doing,
            f"channel {name!r} has samples that float32 cannot hold",
            f"it ends at {np.finfo(np.float32).max:.4g}",
            Advice("give {}", bits=64),
        )
    if n_channels * bits // 8 * group.n_samples % 2:
        file.write(b"\0")
    return written_sound(going, bits, off)


def written_sound(
    going: Outgoing, bits: int, off: Exactness
) -> tuple[WrittenGroup, ...]:
    """Return what a sound file holds, and note what its integers do not tell."""
    group, scale = going.group, going.full_scale or 1.0
    if off.n_clipped:
        going.lost.append(
            f"samples at full scale are one step less, as the largest integer is: "
            f"{off.n_clipped} of {group.n_samples * len(group.channels)}"
        )
    step = 0.0 if bits in FLOAT_BITS else scale * 2.0 ** (1 - bits)
    if scale != 1.0 and step:
        going.lost.append(f"full scale of the file is {scale:g}, which it does not say")
    channels = tuple(
        WrittenChannel(own.name, "", "", step, float(error))
        for own, error in zip(group.channels, off.error, strict=True)
    )
    return (WrittenGroup(float(round(group.fs)), group.n_samples, channels),)


def checked_integers(
    data: NDArray[Any], start: int, bits: int, off: Exactness, going: Outgoing
) -> NDArray[np.int32]:
    """Return samples (C, T) as integers.

    Raises
    ------
    NotFinite, UsageError
        A sample is NaN or infinite, or beyond full scale.
    """
    scale = going.full_scale or 1.0
    check_numbers(data, going.group, start, going)
    check_scale(data, going.group, start, scale, going.doing)
    step = scale * 2.0 ** (1 - bits)
    # Full scale itself is one step beyond the largest integer.
    most = (1 << bits - 1) - 1
    numbers = np.rint(np.asarray(data, np.float64) / step)
    off.n_clipped += int(np.count_nonzero(numbers > most))
    counts = np.minimum(numbers, most).astype(np.int32)
    off.note(data, counts * step)
    return counts


def _bytes(counts: NDArray[np.int32], bits: int) -> bytes:
    if bits == 16:
        return np.ascontiguousarray(counts, "<i2").tobytes()
    wide = np.ascontiguousarray(counts, "<i4").view(np.uint8)
    return wide.reshape(-1, 4)[:, :3].tobytes()


def check_sound(
    going: Outgoing, most_channels: int, rule: str, most_fs: int, multiple: int = 1
) -> None:
    """Raise UsageError for a rate or channels that a sound file cannot hold.

    rule      which rates it holds, in words
    multiple  what every rate up to `most_fs` is a multiple of
    """
    group, kind = going.group, going.title
    if group.fs % multiple or not 1 <= group.fs <= most_fs:
        raise UsageError(
            going.doing,
            f"{group.recording!r} has {group.fs:.10g} Hz",
            f"a {kind} file has {rule}",
            _other_rate(group, most_fs, multiple),
        )
    if len(group.channels) > most_channels:
        raise UsageError(
            going.doing,
            f"{len(group.channels)} channels",
            f"a {kind} file has at most {most_channels}",
            Advice("take fewer: {}", channels=Blank("NAMES")),
        )


def _other_rate(group: Group, most_fs: int, multiple: int) -> str:
    """Return what to do about a rate, and only what leads somewhere."""
    # The rate of a recording with gaps is not changed.
    near = None
    if not group.gaps:
        near = nearest_whole_rate(group.fs, group.fs, most_fs, multiple)
    if near is None:
        return "write .npz or .parquet: no such rate can be made of it by resampling"
    return Advice("bring it to one: {}; or write .npz", resample=near)


def _header(n_channels: int, fs: int, n_samples: int, bits: int) -> bytes:
    frame = n_channels * bits // 8
    nbytes = frame * n_samples
    tag = FLOAT if bits in FLOAT_BITS else PCM
    # More than two channels, or more than 16 bits, is what the long form is for.
    is_long = n_channels > 2 or bits == 24
    shown = EXTENSIBLE if is_long else tag
    fields = shown, n_channels, fs, min(fs * frame, _MOST_NBYTES), frame & 0xFFFF, bits
    form = struct.pack("<HHIIHH", *fields)
    if is_long:
        first, second, rest = SUBFORMATS[0]
        form += struct.pack("<HHIIHH8s", 22, bits, 0, tag, first, second, rest)
    elif tag == FLOAT:
        form += struct.pack("<H", 0)
    fact = struct.pack("<4sII", b"fact", 4, min(n_samples, _MOST_NBYTES))
    chunks = struct.pack("<4sI", b"fmt ", len(form)) + form + fact
    whole = 4 + len(chunks) + 8 + nbytes + nbytes % 2
    if whole <= _MOST_NBYTES:
        head = struct.pack("<4sI4s", b"RIFF", whole, b"WAVE")
        return head + chunks + struct.pack("<4sI", b"data", nbytes)
    long = struct.pack("<4sIQQQI", b"ds64", 28, whole + 36, nbytes, n_samples, 0)
    head = struct.pack("<4sI4s", b"RF64", _MOST_NBYTES, b"WAVE") + long
    return head + chunks + struct.pack("<4sI", b"data", _MOST_NBYTES)
