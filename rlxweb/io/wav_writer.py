"""Writer for WAV files, block by block: floats of 32 or 64 bits, integers of 16 or 24.

Owns the header; beyond 4 GiB it is that of RF64. Integers stand for -1 up to 1, or for
what the caller says is full scale: nothing is clipped and nothing scaled unasked.
"""

from __future__ import annotations

import struct
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.preprocessing import nearest_integer_rate
from rlxweb.io.recording import Group
from rlxweb.io.wav_header import EXTENSIBLE, FLOAT, PCM, SUBFORMATS
from rlxweb.io.write_job import (
    WriteErrorTracker,
    WriteJob,
    WrittenChannel,
    WrittenGroup,
    check_full_scale,
    check_integers_finite,
)

FLOAT_BITS: Final = (32, 64)
INTEGER_BITS: Final = (16, 24)
_MAX_CHANNELS: Final = 65_535
_MAX_FS: Final = (1 << 32) - 1
_MAX_NBYTES: Final = (1 << 32) - 1


def write_wav(file: IO[bytes], job: WriteJob) -> tuple[WrittenGroup, ...]:
    """Write the group as a WAV file of float32, or of the requested number of bits.

    Raises
    ------
    UsageError
        The rate is not whole, or a sample is beyond the full scale of integers or the
        largest float32.
    NotFinite
        A sample of integers is NaN or infinite.
    """
    group, bits = job.group, job.bits or 32
    check_sound_limits(
        job, _MAX_CHANNELS, f"an integer rate from 1 to {_MAX_FS} Hz", _MAX_FS
    )
    n_channels = len(group.channels)
    file.write(_build_header(n_channels, round(group.fs), group.n_samples, bits))
    job.record_losses("names", "units", "begun", "date", "annotations")
    errors = WriteErrorTracker(n_channels)
    for start, data in job.blocks(group):
        if bits in FLOAT_BITS:
            with np.errstate(over="ignore"):
                values = data.astype(f"<f{bits // 8}")
            errors.update(data, values)
            file.write(np.ascontiguousarray(values.T).tobytes())
        else:
            counts = quantize_samples(data, start, bits, errors, job)
            file.write(_pack_integers(counts.T, bits))
    if not np.isfinite(errors.max_error).all():
        name = group.names[int(np.argmax(errors.max_error))]
        raise UsageError(
            job.context,
            f"channel {name!r} has samples outside the float32 range",
            f"the float32 maximum is {np.finfo(np.float32).max:.4g}",
            Advice("pass {}", bits=64),
        )
    if n_channels * bits // 8 * group.n_samples % 2:
        file.write(b"\0")
    return summarize_written_sound(job, bits, errors)


def summarize_written_sound(
    job: WriteJob, bits: int, errors: WriteErrorTracker
) -> tuple[WrittenGroup, ...]:
    """Return the contents of a sound file, and record what its integers do not
    preserve.
    """
    group, scale = job.group, job.full_scale or 1.0
    if errors.n_clipped:
        job.losses.append(
            f"{errors.n_clipped} of {group.n_samples * len(group.channels)} "
            "samples are clipped to the largest integer, which is one step below full "
            "scale"
        )
    step = 0.0 if bits in FLOAT_BITS else scale * 2.0 ** (1 - bits)
    if scale != 1.0 and step:
        job.losses.append(f"the file does not store the full scale, {scale:g}")
    channels = tuple(
        WrittenChannel(channel.name, "", "", step, float(error))
        for channel, error in zip(group.channels, errors.max_error, strict=True)
    )
    return (WrittenGroup(float(round(group.fs)), group.n_samples, channels),)


def quantize_samples(
    data: NDArray[Any], start: int, bits: int, errors: WriteErrorTracker, job: WriteJob
) -> NDArray[np.int32]:
    """Return samples (C, T) as integers.

    Raises
    ------
    NotFinite, UsageError
        A sample is NaN or infinite, or beyond full scale.
    """
    scale = job.full_scale or 1.0
    check_integers_finite(data, job.group, start, job)
    check_full_scale(data, job.group, start, scale, job.context)
    step = scale * 2.0 ** (1 - bits)
    # Full scale itself is one step beyond the largest integer.
    max_count = (1 << bits - 1) - 1
    unclipped = np.rint(np.asarray(data, np.float64) / step)
    errors.n_clipped += int(np.count_nonzero(unclipped > max_count))
    counts = np.minimum(unclipped, max_count).astype(np.int32)
    errors.update(data, counts * step)
    return counts


def _pack_integers(counts: NDArray[np.int32], bits: int) -> bytes:
    """Return integers as little-endian bytes of 16 or 24 bits each."""
    if bits == 16:
        return np.ascontiguousarray(counts, "<i2").tobytes()
    int32_bytes = np.ascontiguousarray(counts, "<i4").view(np.uint8)
    return int32_bytes.reshape(-1, 4)[:, :3].tobytes()


def check_sound_limits(
    job: WriteJob, max_channels: int, rule: str, max_fs: int, multiple: int = 1
) -> None:
    """Raise UsageError for a rate or a number of channels that a sound file cannot
    hold.

    rule      which rates it holds, in words
    multiple  what every rate up to `max_fs` is a multiple of
    """
    group, format_label = job.group, job.format_label
    if group.fs % multiple or not 1 <= group.fs <= max_fs:
        raise UsageError(
            job.context,
            f"the rate of {group.recording!r} is {group.fs:.10g} Hz",
            f"a {format_label} file must have {rule}",
            _rate_hint(group, max_fs, multiple),
        )
    if len(group.channels) > max_channels:
        raise UsageError(
            job.context,
            f"got {len(group.channels)} channels",
            f"{format_label} supports at most {max_channels}",
            Advice("select fewer channels: {}", channels=Blank("NAMES")),
        )


def _rate_hint(group: Group, max_fs: int, multiple: int) -> str:
    """Return a hint for an unsupported rate, limited to steps that solve the
    problem.
    """
    # The rate of a recording with gaps is not changed.
    nearest_rate = None
    if not group.gaps:
        nearest_rate = nearest_integer_rate(group.fs, group.fs, max_fs, multiple)
    if nearest_rate is None:
        return "write .npz or .parquet: resampling cannot reach a supported rate"
    return Advice(
        "resample to a supported rate: {}; or write .npz", resample=nearest_rate
    )


def _build_header(n_channels: int, fs: int, n_samples: int, bits: int) -> bytes:
    """Return the header of a WAV file, that of RF64 beyond 4 GiB."""
    frame_nbytes = n_channels * bits // 8
    nbytes = frame_nbytes * n_samples
    coding = FLOAT if bits in FLOAT_BITS else PCM
    # More than two channels, or more than 16 bits, is what the long form is for.
    is_extensible = n_channels > 2 or bits == 24
    format_tag = EXTENSIBLE if is_extensible else coding
    fields = (
        format_tag,
        n_channels,
        fs,
        min(fs * frame_nbytes, _MAX_NBYTES),
        frame_nbytes & 0xFFFF,
        bits,
    )
    format_body = struct.pack("<HHIIHH", *fields)
    if is_extensible:
        first, second, rest = SUBFORMATS[0]
        format_body += struct.pack(
            "<HHIIHH8s", 22, bits, 0, coding, first, second, rest
        )
    elif coding == FLOAT:
        format_body += struct.pack("<H", 0)
    fact_chunk = struct.pack("<4sII", b"fact", 4, min(n_samples, _MAX_NBYTES))
    chunks = struct.pack("<4sI", b"fmt ", len(format_body)) + format_body + fact_chunk
    riff_nbytes = 4 + len(chunks) + 8 + nbytes + nbytes % 2
    if riff_nbytes <= _MAX_NBYTES:
        head = struct.pack("<4sI4s", b"RIFF", riff_nbytes, b"WAVE")
        return head + chunks + struct.pack("<4sI", b"data", nbytes)
    ds64_chunk = struct.pack(
        "<4sIQQQI", b"ds64", 28, riff_nbytes + 36, nbytes, n_samples, 0
    )
    head = struct.pack("<4sI4s", b"RF64", _MAX_NBYTES, b"WAVE") + ds64_chunk
    return head + chunks + struct.pack("<4sI", b"data", _MAX_NBYTES)
