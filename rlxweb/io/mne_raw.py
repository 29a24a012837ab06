"""FIF, BrainVision, GDF and EEGLAB files through MNE, never loaded whole by us.

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

from rlxweb.errors import RlxError, not_installed, shown
from rlxweb.forked import ForkLock
from rlxweb.io import bounds
from rlxweb.io.annotations import MOST, Annotation
from rlxweb.io.before_mne import (
    brainvision_files,
    eeglab_files,
    fif_files,
    gdf_units,
)
from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.contents import Contents, Found, Samples, Span, Stream
from rlxweb.io.days import DAY_S, moved
from rlxweb.io.si_units import usual
from rlxweb.io.source import ByteSource
from rlxweb.io.unpacking import check_room, store
from rlxweb.whole_file import reason

_EXTRA = "pip install 'rlxweb[mne]'"
_SUFFIX: Final = {
    "FIF": (".fif",),
    "BrainVision": (".vhdr",),
    "GDF": (".gdf",),
    "EEGLAB": (".set",),
}
_STATE: Final = "holds the state of the system, not a signal"
_BAD: Final = "is marked bad in the file"
_SKIP: Final = "BAD_ACQ_SKIP"  # MNE's word for what FIF never recorded
_JOINED: Final = re.compile(r"(.*\b)?boundary|New Segment/.*", re.IGNORECASE)
_COMMENT: Final = "Comment/"  # MNE puts the type of a marker before its words
# Advice of MNE that is not about the samples, or that is said here in other words.
_IDLE: Final = re.compile(
    r"naming conventions|(high|low)pass filters|boundary|montage|head radius|Data will "
    r"be preloaded|sample index of -1|fiducial|Unknown types|physical dimension",
    re.IGNORECASE,
)
_MOST_WARNINGS: Final = 8
_AT_BEGIN_S: Final = 0.01  # a piece that begins there is the first
# What MNE leaves as the header's unit says; in µS it hands siemens.
_VOLTS: Final = re.compile(r"|n/a|[munµμ]?V")
_MICRO: Final = re.compile(r"[uµμ](S)")
_NAMES: Final = {1: "m", 3: "s", 4: "A", 5: "K", 6: "mol", 7: "rad", 10: "mol/m3"} | {
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


def read_by_mne(source: ByteSource, kind: str) -> Contents:
    """What a file of that kind holds.

    Errors   RecordingError for what MNE cannot read, for epochs, and for a file behind
             a URL; Unsupported where MNE is missing
    """
    units: Mapping[int, str] = {}
    others: tuple[str, ...] = ()
    if not source.path:
        raise source.error(
            f"it is a {kind} file, which MNE reads from this machine alone",
            hint="download it first, with all that lies beside it",
        )
    if kind == "FIF":
        if source.head(2) == b"\x1f\x8b":
            _unpack(source)
        others = fif_files(source)
    elif kind == "BrainVision":
        others = brainvision_files(source)
    elif kind == "GDF":
        units = gdf_units(source)
    else:
        others = eeglab_files(source)
    suffix = os.path.splitext(source.path)[1].lower()
    if suffix == ".mat":
        raise source.error(
            "it is a MATLAB file of version 7 or older",
            "those of 7.3 are read, and sets of EEGLAB that end in .set",
            "save it with -v7.3, or rename it where it is a set",
        )
    if suffix not in _SUFFIX[kind]:
        raise source.error(
            f"it is a {kind} file named {suffix or 'without a suffix'}",
            f"MNE reads those that end in {_SUFFIX[kind][0]}",
            "rename it",
        )
    raw = _opened(source, kind)
    source.at_end.append(raw.close)
    _check_files(source, raw, others)
    if kind == "EEGLAB" and raw.filenames[0].suffix.lower() == _SUFFIX[kind][0]:
        _load(source, raw)
    return _contents(source, kind, raw, units)


def _check_files(source: ByteSource, raw: Any, others: tuple[str, ...]) -> None:
    """Refuse samples from another file than the header was seen to name."""
    known = {os.path.realpath(one) for one in (source.path, *others)}
    for name in map(str, raw.filenames):
        if os.path.realpath(name) not in known:
            raise source.error(
                f"MNE reads its samples from {shown(name)}",
                "its header does not name that file plainly",
                "write the file again with a plain name in its header",
            )


def _opened(source: ByteSource, kind: str) -> Any:
    try:
        import mne
    except ImportError as error:
        raise not_installed(source.doing, "mne", _EXTRA) from error
    readers: dict[str, Callable[..., Any]] = {
        "FIF": mne.io.read_raw_fif,
        "BrainVision": mne.io.read_raw_brainvision,
        "GDF": mne.io.read_raw_gdf,
        "EEGLAB": mne.io.read_raw_eeglab,
    }
    with _faults(source, kind), _told(source):
        return readers[kind](source.path, preload=False, verbose="WARNING")


def _load(source: ByteSource, raw: Any) -> None:
    """Hold the samples of a set that are in the .set: MNE reads all of it per block."""
    source.at_most(
        "bytes of samples in the .set",
        8 * len(raw.ch_names) * int(raw.n_times),
        bounds.UNPACKED_NBYTES,
        "let EEGLAB save two files: those of a .fdt are read in blocks",
    )
    with _faults(source, "EEGLAB"), _told(source):
        raw.load_data(verbose="WARNING")


@contextmanager
def _faults(source: ByteSource, kind: str) -> Iterator[None]:
    """Whatever MNE raises over a file is a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    except ImportError as error:
        raise not_installed(source.doing, str(error.name), _EXTRA) from error
    except Exception as error:
        if "number of trials" in str(error):
            raise source.error(
                "it holds epochs, no continuous recording",
                "pieces of a recording are not strung together",
                "rlxweb.welch_peaks(mne.read_epochs_eeglab(…)) takes them as they are",
            ) from error
        raise source.error(
            f"MNE cannot read it as {kind} ({_reason(error)})",
            hint="copy it again from where it came, with all that lies beside it",
        ) from error


def _reason(error: Exception) -> str:
    # A key that is not there tells no more than its name.
    return f"no {error}" if isinstance(error, KeyError) else reason(error)


@contextmanager
def _told(source: ByteSource) -> Iterator[None]:
    """What MNE warns of is a warning of the file, but for what is not about it."""
    # MNE logs to stdout, where results may go.
    with warnings.catch_warnings(record=True) as said, redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        yield
    texts = [
        " ".join(str(one.message).split())
        for one in said
        if one.category is RuntimeWarning
    ]
    told = [text for text in dict.fromkeys(texts) if not _IDLE.search(text)]
    for text in told[:_MOST_WARNINGS]:
        source.warn(f"MNE says: {text[:300]}")


def _contents(
    source: ByteSource, kind: str, raw: Any, units: Mapping[int, str]
) -> Contents:
    with _faults(source, kind):
        own = dict(getattr(raw, "_orig_units", None) or {})
        bads = {*raw.info["bads"]}
        source.at_most("channels", len(raw.ch_names), bounds.CHANNELS)
        meanings = [
            _meaning(chan, units.get(at, own.get(chan["ch_name"], "")))
            for at, chan in enumerate(raw.info["chs"])
        ]
        found = tuple(
            Found(name, unit, _why_not(name, type_, name in bads))
            for name, type_, (_, unit) in zip(
                raw.ch_names, raw.get_channel_types(), meanings, strict=True
            )
        )
        fs, n_samples = float(raw.info["sfreq"]), int(raw.n_times)
        notes, gaps = _notes(source, raw)
        date = raw.info["meas_date"]
    begun = day = None
    if date is not None:
        of_day = 3600 * date.hour + 60 * date.minute + date.second
        since = of_day + date.microsecond * 1e-6 + raw.first_time
        begun, day = since % DAY_S, moved(date.date(), since)
    scales = np.array([scale for scale, _ in meanings])
    stream = Stream(
        tuple(range(len(found))),
        fs,
        n_samples,
        np.dtype(np.float64),
        _MneReader(source, kind, raw, scales),
        gaps=gaps,
    )
    return Contents(kind, found, (stream,), begun=begun, notes=lambda: notes, date=day)


def _meaning(channel: Any, own: str) -> tuple[float, str]:
    """By what MNE's numbers of a channel are multiplied, and the unit they are in then.

    own  the unit in the file's header, "" where MNE keeps none
    """
    own = own.strip()
    micro = _MICRO.fullmatch(own)
    if micro:
        return 1e6, f"u{micro[1]}"
    if not _VOLTS.fullmatch(own):
        return 1.0, own
    scale, unit = usual(_NAMES.get(int(channel["unit"]), ""))
    return scale * 10.0 ** int(channel["unit_mul"]), unit


def _why_not(name: str, type_: str, is_bad: bool) -> str:
    if type_ == "stim" or is_trigger(name):
        return TRIGGER_REASON
    if type_ in ("syst", "exci", "ias"):
        return _STATE
    return _BAD if is_bad else ""


def _notes(
    source: ByteSource, raw: Any
) -> tuple[tuple[Annotation, ...], tuple[Span, ...]]:
    """The annotations by their onsets from the first sample, and what is missing."""
    source.at_most("annotations", len(raw.annotations), MOST)
    found = [
        Annotation(
            float(onset) - raw.first_time,
            float(duration),
            str(text).removeprefix(_COMMENT),
        )
        for onset, duration, text in zip(
            raw.annotations.onset,
            raw.annotations.duration,
            raw.annotations.description,
            strict=True,
        )
        if text != _SKIP
    ]
    _tell_of_joins(source, found)
    gaps = _between(source, [*_skips(raw)], int(raw.n_times), float(raw.info["sfreq"]))
    return tuple(sorted(found)), gaps


def _skips(raw: Any) -> Iterator[Span]:
    """What a FIF file says was not recorded, which MNE fills with zeros.

    MNE's annotations of it lie elsewhere where the file tells no date.
    """
    begin = 0
    for extra in getattr(raw, "_raw_extras", ()):
        if not {"ent", "bounds"} <= {*extra}:
            continue
        first = int(extra["bounds"][0])
        edges = [begin + int(edge) - first for edge in extra["bounds"]]
        for at, entry in enumerate(extra["ent"]):
            if entry is None:
                yield edges[at], edges[at + 1]
        begin = edges[-1]


def _tell_of_joins(source: ByteSource, notes: list[Annotation]) -> None:
    joins = (one.onset for one in notes if _JOINED.fullmatch(one.text))
    at = {round(onset, 4) for onset in joins if onset > _AT_BEGIN_S}
    if at:
        many = "" if len(at) == 1 else f" and {len(at) - 1} more places"
        source.warn(
            f"it was strung together from pieces: a segment that reaches over "
            f"{min(at):.6g} s{many} sees two of them"
        )


def _between(
    source: ByteSource, gaps: list[Span], n_samples: int, fs: float
) -> tuple[Span, ...]:
    """The gaps but for those at an end, of which there is nothing to tell."""
    inside = tuple((a, b) for a, b in gaps if 0 < a < b < n_samples)
    if inside:
        lost = sum(b - a for a, b in inside)
        many = "a gap" if len(inside) == 1 else f"{len(inside)} gaps,"
        source.warn(
            f"the recording has {many} of {lost / fs:.6g} s after "
            f"{inside[0][0] / fs:.6g} s: what was not recorded is NaN, and no segment "
            "reaches over it"
        )
    return inside


class _MneReader:
    """Samples of one of MNE's recordings, in the units of `scales`; a SampleReader."""

    def __init__(
        self, source: ByteSource, kind: str, raw: Any, scales: npt.NDArray[np.float64]
    ) -> None:
        self._source, self._kind, self._raw = source, kind, raw
        self._scales = scales
        self._lock = ForkLock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        if self._source.file.closed:
            raise self._source.error("the recording is closed", hint="open it again")
        # Damaged numbers may be infinite, or none: the finite check is for those.
        quietly = np.errstate(all="ignore")
        with self._lock, _faults(self._source, self._kind), quietly:
            samples = self._raw[list(channels), start:stop][0]
        if samples.shape != (len(channels), stop - start):
            raise self._source.error(
                "the file ends early",
                f"samples {start} to {stop} wanted, {samples.shape[1]} are there",
                "copy the file again from where it came",
            )
        return np.asarray(samples * self._scales[list(channels), None])


def _unpack(source: ByteSource) -> None:
    """Put what gzip packed in its place: MNE would unpack it anew for every block."""
    folder = tempfile.TemporaryDirectory()
    source.at_end.append(folder.cleanup)
    name = "unpacked.fif"
    unpack, nbytes = zlib.decompressobj(31), 0
    out = Path(folder.name, name).open("w+b")
    try:
        for place in range(0, source.nbytes, bounds.PIECE_NBYTES):
            packed = source.peek(place, bounds.PIECE_NBYTES)
            while packed:
                piece = unpack.decompress(packed, bounds.PIECE_NBYTES)
                packed = unpack.unconsumed_tail
                nbytes += len(piece)
                source.at_most("bytes unpacked", nbytes, bounds.UNPACKED_NBYTES)
                check_room(source, len(piece), "make room there")
                store(source, out, piece)
        store(source, out, b"")
        if not unpack.eof:
            raise zlib.error("it ends early")
    except zlib.error as error:
        out.close()
        raise source.error(
            f"it cannot be unpacked ({error})", hint="copy it again from where it came"
        ) from error
    except BaseException:
        out.close()
        raise
    out.close()
    source.become(Path(folder.name, name).open("rb"), nbytes)
