"""Read FIF, BrainVision, GDF and EEGLAB files through MNE in blocks.

The one place where MNE is loaded, and not before such a file is opened. Owns what its
channels, units, annotations and times are in a recording. MNE hands volts, and
voltages are given in uV, so that a recording is the same numbers in every format.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RlxError, not_installed, shown
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.io import file_limits
from rlxweb.io.annotations import MAX_ANNOTATIONS, Annotation
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.calendar_dates import SECONDS_PER_DAY, shift_date
from rlxweb.io.channel_selection import TRIGGER_REASON, is_trigger
from rlxweb.io.conventional_units import conventional_unit
from rlxweb.io.decompression_storage import check_free_space, write_chunk
from rlxweb.io.format_reader_interface import (
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
    Span,
)
from rlxweb.io.mne_file_validation import (
    check_brainvision_files,
    check_eeglab_files,
    check_fif_files,
    read_gdf_units,
)

_INSTALL_HINT = "pip install 'rlxweb[mne]'"
_SUFFIXES: Final = {
    "FIF": (".fif",),
    "BrainVision": (".vhdr",),
    "GDF": (".gdf",),
    "EEGLAB": (".set",),
}
_STATE_CHANNEL_REASON: Final = "contains the system status, not a signal"
_BAD_CHANNEL_REASON: Final = "is marked bad in the file"
_SKIP_DESCRIPTION: Final = "BAD_ACQ_SKIP"  # MNE's word for what FIF never recorded
_BOUNDARY_DESCRIPTION: Final = re.compile(
    r"(.*\b)?boundary|New Segment/.*", re.IGNORECASE
)
_COMMENT_PREFIX: Final = "Comment/"  # MNE puts the type of a marker before its words
# Advice of MNE that is not about the samples, or that is said here in other words.
_IGNORED_WARNINGS: Final = re.compile(
    r"naming conventions|(high|low)pass filters|boundary|montage|head radius|Data will "
    r"be preloaded|sample index of -1|fiducial|Unknown types|physical dimension",
    re.IGNORECASE,
)
_MAX_WARNINGS: Final = 8
_START_TOLERANCE_S: Final = 0.01  # a piece that begins there is the first
# What MNE leaves as the header's unit says; in µS it hands siemens.
_VOLT_UNIT: Final = re.compile(r"|n/a|[munµμ]?V")
_MICROSIEMENS_UNIT: Final = re.compile(r"[uµμ](S)")
_UNIT_NAMES: Final = {
    1: "m",
    3: "s",
    4: "A",
    5: "K",
    6: "mol",
    7: "rad",
    10: "mol/m3",
} | {
    101: "Hz",
    103: "Pa",
    107: "V",
    109: "ohm",
    110: "S",
    112: "T",
    114: "degC",
    117: "V/m2",
    201: "T/m",
    202: "Am",
}


def read_with_mne(source: ByteSource, kind: str) -> FileContents:
    """Read a file of the given format through MNE.

    Errors   RecordingError for what MNE cannot read, for epochs, and for a file behind
             a URL; Unsupported where MNE is missing
    """
    units: Mapping[int, str] = {}
    companions: tuple[str, ...] = ()
    if not source.path:
        raise source.error(
            f"{kind} files are read by MNE, which supports only local files",
            hint="download the file first, with all its companion files",
        )
    if kind == "FIF":
        if source.read_head(2) == b"\x1f\x8b":
            _gunzip_source(source)
        companions = check_fif_files(source)
    elif kind == "BrainVision":
        companions = check_brainvision_files(source)
    elif kind == "GDF":
        units = read_gdf_units(source)
    else:
        companions = check_eeglab_files(source)
    suffix = os.path.splitext(source.path)[1].lower()
    if suffix == ".mat":
        raise source.error(
            "the MATLAB file has format version 7 or older",
            "only MATLAB 7.3 files and EEGLAB .set files are supported",
            "save the file with -v7.3, or rename it to .set if it is an EEGLAB set",
        )
    if suffix not in _SUFFIXES[kind]:
        raise source.error(
            f"the file is {kind} but its suffix is {suffix or 'missing'}",
            f"MNE requires the suffix {_SUFFIXES[kind][0]}",
            "rename the file",
        )
    raw = _open_raw(source, kind)
    source.close_callbacks.append(raw.close)
    _check_sample_files(source, raw, companions)
    if kind == "EEGLAB" and raw.filenames[0].suffix.lower() == _SUFFIXES[kind][0]:
        _preload_samples(source, raw)
    return _build_contents(source, kind, raw, units)


def _check_sample_files(
    source: ByteSource, raw: Any, companions: tuple[str, ...]
) -> None:
    """Refuse samples from a file that the header does not plainly name."""
    known = {os.path.realpath(path) for path in (source.path, *companions)}
    for name in map(str, raw.filenames):
        if os.path.realpath(name) not in known:
            raise source.error(
                f"MNE would read the samples from {shown(name)}, which the header does "
                "not clearly name",
                "the header must unambiguously name every file that contains samples",
                "write the recording again with simple file names in the header",
            )


def _open_raw(source: ByteSource, kind: str) -> Any:
    """Open a file with the MNE reader of its format."""
    try:
        import mne
    except ImportError as error:
        raise not_installed(source.context, "mne", _INSTALL_HINT) from error
    readers: dict[str, Callable[..., Any]] = {
        "FIF": mne.io.read_raw_fif,
        "BrainVision": mne.io.read_raw_brainvision,
        "GDF": mne.io.read_raw_gdf,
        "EEGLAB": mne.io.read_raw_eeglab,
    }
    with _translate_mne_errors(source, kind), _forward_mne_warnings(source):
        return readers[kind](source.path, preload=False, verbose="WARNING")


def _preload_samples(source: ByteSource, raw: Any) -> None:
    """Load samples that lie in the .set file itself, because MNE would read all of it
    per block.
    """
    source.check_limit(
        "bytes of samples in the .set file",
        8 * len(raw.ch_names) * int(raw.n_times),
        file_limits.UNPACKED_NBYTES,
        "in EEGLAB, save the samples to a separate .fdt file, which is read in blocks",
    )
    with _translate_mne_errors(source, "EEGLAB"), _forward_mne_warnings(source):
        raw.load_data(verbose="WARNING")


@contextmanager
def _translate_mne_errors(source: ByteSource, kind: str) -> Iterator[None]:
    """Turn whatever MNE raises over a file into a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    except ImportError as error:
        raise not_installed(source.context, str(error.name), _INSTALL_HINT) from error
    except Exception as error:
        if "number of trials" in str(error):
            raise source.error(
                "expected a continuous recording, got epochs",
                "epochs are not joined into a recording",
                "pass epochs directly: rlxweb.welch_peaks(mne.read_epochs_eeglab(…))",
            ) from error
        raise source.error(
            f"MNE cannot read the file as {kind} ({_mne_error_reason(error)})",
            hint="copy the file again from its source, with all its companion files",
        ) from error


def _mne_error_reason(error: Exception) -> str:
    """Return the text of an error; a KeyError gives only the missing key."""
    # A key that is not there tells no more than its name.
    return f"missing {error}" if isinstance(error, KeyError) else error_reason(error)


@contextmanager
def _forward_mne_warnings(source: ByteSource) -> Iterator[None]:
    """Forward MNE's warnings about the file as warnings of the source, except
    irrelevant ones.
    """
    # MNE logs to stdout, where results may go.
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        yield
    texts = [
        " ".join(str(entry.message).split())
        for entry in caught
        if entry.category is RuntimeWarning
    ]
    relevant = [
        text for text in dict.fromkeys(texts) if not _IGNORED_WARNINGS.search(text)
    ]
    for text in relevant[:_MAX_WARNINGS]:
        source.warn(f"MNE warning: {text[:300]}")


def _build_contents(
    source: ByteSource, kind: str, raw: Any, units: Mapping[int, str]
) -> FileContents:
    """Build the contents from an open MNE recording."""
    with _translate_mne_errors(source, kind):
        file_units = dict(getattr(raw, "_orig_units", None) or {})
        bads = {*raw.info["bads"]}
        source.check_limit("channels", len(raw.ch_names), file_limits.CHANNELS)
        conversions = [
            _unit_conversion(
                chan, units.get(index, file_units.get(chan["ch_name"], ""))
            )
            for index, chan in enumerate(raw.info["chs"])
        ]
        channels = tuple(
            FileChannel(name, unit, _exclusion_reason(name, type_, name in bads))
            for name, type_, (_, unit) in zip(
                raw.ch_names, raw.get_channel_types(), conversions, strict=True
            )
        )
        fs, n_samples = float(raw.info["sfreq"]), int(raw.n_times)
        notes, gaps = _read_annotations(source, raw)
        date = raw.info["meas_date"]
    begun = day = None
    if date is not None:
        second_of_day = 3600 * date.hour + 60 * date.minute + date.second
        start_s = second_of_day + date.microsecond * 1e-6 + raw.first_time
        begun, day = start_s % SECONDS_PER_DAY, shift_date(date.date(), start_s)
    scales = np.array([scale for scale, _ in conversions])
    stream = ChannelStream(
        tuple(range(len(channels))),
        fs,
        n_samples,
        np.dtype(np.float64),
        _MneReader(source, kind, raw, scales),
        gaps=gaps,
    )
    return FileContents(
        kind, channels, (stream,), begun=begun, read_annotations=lambda: notes, date=day
    )


def _unit_conversion(channel: Any, header_unit: str) -> tuple[float, str]:
    """Return the factor for MNE's numbers of a channel, and the unit of the product.

    header_unit  the unit in the file's header, "" where MNE keeps none
    """
    header_unit = header_unit.strip()
    micro = _MICROSIEMENS_UNIT.fullmatch(header_unit)
    if micro:
        return 1e6, f"u{micro[1]}"
    if not _VOLT_UNIT.fullmatch(header_unit):
        return 1.0, header_unit
    scale, unit = conventional_unit(_UNIT_NAMES.get(int(channel["unit"]), ""))
    return scale * 10.0 ** int(channel["unit_mul"]), unit


def _exclusion_reason(name: str, type_: str, is_bad: bool) -> str:
    """Return the reason why a channel is no signal; "" if it is one."""
    if type_ == "stim" or is_trigger(name):
        return TRIGGER_REASON
    if type_ in ("syst", "exci", "ias"):
        return _STATE_CHANNEL_REASON
    return _BAD_CHANNEL_REASON if is_bad else ""


def _read_annotations(
    source: ByteSource, raw: Any
) -> tuple[tuple[Annotation, ...], tuple[Span, ...]]:
    """Return the annotations, with onsets from the first sample, and the gaps."""
    source.check_limit("annotations", len(raw.annotations), MAX_ANNOTATIONS)
    annotations = [
        Annotation(
            float(onset) - raw.first_time,
            float(duration),
            str(text).removeprefix(_COMMENT_PREFIX),
        )
        for onset, duration, text in zip(
            raw.annotations.onset,
            raw.annotations.duration,
            raw.annotations.description,
            strict=True,
        )
        if text != _SKIP_DESCRIPTION
    ]
    _warn_of_boundaries(source, annotations)
    gaps = _inner_gaps(
        source, [*_skipped_spans(raw)], int(raw.n_times), float(raw.info["sfreq"])
    )
    return tuple(sorted(annotations)), gaps


def _skipped_spans(raw: Any) -> Iterator[Span]:
    """Yield the spans that a FIF file marks as not recorded, which MNE fills with
    zeros.

    MNE's annotations of it lie elsewhere where the file tells no date.
    """
    file_start = 0
    for extra in getattr(raw, "_raw_extras", ()):
        if not {"ent", "bounds"} <= {*extra}:
            continue
        first = int(extra["bounds"][0])
        edges = [file_start + int(edge) - first for edge in extra["bounds"]]
        for index, entry in enumerate(extra["ent"]):
            if entry is None:
                yield edges[index], edges[index + 1]
        file_start = edges[-1]


def _warn_of_boundaries(source: ByteSource, notes: list[Annotation]) -> None:
    """Warn if the recording was concatenated from several pieces."""
    onsets = (
        note.onset for note in notes if _BOUNDARY_DESCRIPTION.fullmatch(note.text)
    )
    times = {round(onset, 4) for onset in onsets if onset > _START_TOLERANCE_S}
    if times:
        boundary = (
            f"the boundary at {min(times):.6g} s"
            if len(times) == 1
            else f"one of {len(times)} boundaries (the first at {min(times):.6g} s)"
        )
        source.warn(
            "the recording was joined from several pieces: a segment that spans "
            f"{boundary} mixes samples of two pieces"
        )


def _inner_gaps(
    source: ByteSource, gaps: list[Span], n_samples: int, fs: float
) -> tuple[Span, ...]:
    """Return the gaps except those at either end, and warn of them."""
    inner = tuple((a, b) for a, b in gaps if 0 < a < b < n_samples)
    if inner:
        n_missing = sum(b - a for a, b in inner)
        gaps_text = (
            f"a gap of {n_missing / fs:.6g} s"
            if len(inner) == 1
            else f"{len(inner)} gaps, {n_missing / fs:.6g} s in total, the first"
        )
        source.warn(
            f"the recording has {gaps_text} at {inner[0][0] / fs:.6g} s: missing "
            "samples are NaN, and no segment spans a gap"
        )
    return inner


class _MneReader:
    """Reader of the samples of an MNE recording, in the units of `scales`; a
    SampleReader.
    """

    def __init__(
        self, source: ByteSource, kind: str, raw: Any, scales: npt.NDArray[np.float64]
    ) -> None:
        self._source, self._kind, self._raw = source, kind, raw
        self._scales = scales
        self._lock = ForkSafeLock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels, (C, T)."""
        if self._source.file.closed:
            raise self._source.error(
                "the recording is closed", hint="open the recording again"
            )
        # Damaged numbers may be infinite, or none: the finite check is for those.
        ignore_float_errors = np.errstate(all="ignore")
        with (
            self._lock,
            _translate_mne_errors(self._source, self._kind),
            ignore_float_errors,
        ):
            samples = self._raw[list(channels), start:stop][0]
        if samples.shape != (len(channels), stop - start):
            raise self._source.error(
                "the file ends early",
                f"expected samples {start} to {stop}, got {samples.shape[1]} samples",
                "copy the file again from its source",
            )
        return np.asarray(samples * self._scales[list(channels), None])


def _gunzip_source(source: ByteSource) -> None:
    """Replace a gzip source by its unpacked copy; MNE would unpack it again for every
    block.
    """
    folder = tempfile.TemporaryDirectory()
    source.close_callbacks.append(folder.cleanup)
    name = "unpacked.fif"
    decompressor, nbytes = zlib.decompressobj(31), 0
    out = Path(folder.name, name).open("w+b")
    try:
        for offset in range(0, source.nbytes, file_limits.CHUNK_NBYTES):
            packed = source.peek(offset, file_limits.CHUNK_NBYTES)
            while packed:
                chunk = decompressor.decompress(packed, file_limits.CHUNK_NBYTES)
                packed = decompressor.unconsumed_tail
                nbytes += len(chunk)
                source.check_limit(
                    "decompressed bytes", nbytes, file_limits.UNPACKED_NBYTES
                )
                check_free_space(
                    source, len(chunk), "make space in the temporary folder"
                )
                write_chunk(source, out, chunk)
        write_chunk(source, out, b"")
        if not decompressor.eof:
            raise zlib.error("the data ends early")
    except zlib.error as error:
        out.close()
        raise source.error(
            f"the file cannot be decompressed ({error})",
            hint="copy the file again from its source",
        ) from error
    except BaseException:
        out.close()
        raise
    out.close()
    source.replace_file(Path(folder.name, name).open("rb"), nbytes)
