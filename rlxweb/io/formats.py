"""The formats of recordings: names, first bytes, readers and writers.

Owns that table and the choice of a reader by a file's first bytes; a name only helps to
say what is wrong. Another format is another row here, a reader and perhaps a writer of
its own; they are loaded when they are needed, and so are the libraries.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from rlxweb.io.companions import pointed_to
from rlxweb.io.contents import Contents, Layout
from rlxweb.io.opening import Opened
from rlxweb.io.source import ByteSource
from rlxweb.io.urls import suffix_of


class Asked(NamedTuple):
    """What the caller says of an array in the file."""

    array: str | None
    layout: Layout


Reader = Callable[[Any, Asked], Contents]
_INTEGERS: Final = (16, 24)


@dataclass(frozen=True, slots=True)
class Writer:
    """How a format is written.

    Attributes
    ----------
    function : str
        Module below `rlxweb.io` and function.
    library, extra : str
        The package that it needs beside NumPy, and the extra of rlxweb that installs
        it; "" for none.
    bits : tuple of int
        Sample widths, the default first; none where samples are written as they are.
    several_rates : bool
        Whether one file holds channels of several rates.
    annotations : bool
        Whether a file holds annotations, the time of day and the date.
    """

    function: str
    library: str = ""
    extra: str = ""
    bits: tuple[int, ...] = ()
    several_rates: bool = False
    annotations: bool = True

    def has_integers(self, bits: int | None) -> bool:
        """Whether samples of so many bits, or of the default, are integers."""
        return (bits or next(iter(self.bits), 0)) in _INTEGERS


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    begins    a pattern of its first bytes; "" where the bytes do not tell it
    suffixes  files of it are named so
    takes     which of `array` and `layout` it has a use for
    writer    None where it is read only
    """

    name: str
    read: Reader
    begins: bytes = b""
    suffixes: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    writer: Writer | None = None


def _edf(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.edf import read_edf

    return read_edf(source)


def _wav(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.wav import read_wav

    return read_wav(source)


def _npy(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.npy import read_npy

    return read_npy(source, asked.layout)


def _npz(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.npz import read_npz

    return read_npz(source, *asked)


def _csv(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.csv_table import read_csv

    return read_csv(source)


def _zarr(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.zarr_store import read_zarr

    return read_zarr(source, *asked)


def _parquet(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.parquet_table import read_parquet

    return read_parquet(source)


def _hdf5(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.hdf5 import read_hdf5

    return read_hdf5(source, *asked)


def _audio(source: Any, asked: Asked) -> Contents:
    from rlxweb.io.audio import read_audio

    return read_audio(source)


def _by_mne(kind: str) -> Reader:
    def read(source: Any, asked: Asked) -> Contents:
        from rlxweb.io.mne_raw import read_by_mne

        return read_by_mne(source, kind)

    return read


def _edf_of(bits: int) -> Writer:
    return Writer("edf_writer:write_edf", bits=(bits,), several_rates=True)


_LAYOUT, _BOTH = frozenset({"layout"}), frozenset({"array", "layout"})
CSV: Final = Format("CSV", _csv, suffixes=(".csv", ".tsv"))
ZARR: Final = Format("Zarr", _zarr, suffixes=(".zarr",), takes=_BOTH)
_FIF: Final = Format(
    "FIF",
    _by_mne("FIF"),
    rb"\0\0\0\x64\0\0\0\x1f\0\0\0\x14",
    (".fif", ".fif.gz"),
)
FORMATS: Final = (
    Format("EDF", _edf, rb"0(       |\0{7})", (".edf",), writer=_edf_of(16)),
    Format("BDF", _edf, rb"\xffBIOSEMI", (".bdf",), writer=_edf_of(24)),
    Format(
        "WAV",
        _wav,
        b"RIFF|RF64|BW64|RIFX",
        (".wav",),
        writer=Writer("wav_writer:write_wav", bits=(32, 64, 16, 24), annotations=False),
    ),
    Format("NPY", _npy, rb"\x93NUMPY", (".npy",), _LAYOUT),
    Format(
        "NPZ",
        _npz,
        rb"PK(\x03\x04|\x05\x06)",
        (".npz",),
        _BOTH,
        Writer("npz_writer:write_samples"),
    ),
    CSV,
    ZARR,
    Format(
        "Parquet",
        _parquet,
        b"PAR1",
        (".parquet",),
        writer=Writer("parquet_writer:write_columns", "pyarrow", "parquet"),
    ),
    Format("HDF5", _hdf5, rb"\x89HDF\r\n\x1a\n", (".h5", ".hdf5", ".nwb"), _BOTH),
    Format("MATLAB", _hdf5, rb"MATLAB 7\.3 MAT-file", (), _BOTH),
    _FIF,
    Format(
        "BrainVision",
        _by_mne("BrainVision"),
        rb"(\xef\xbb\xbf)?Brain ?Vision Data Exchange Header",
        (".vhdr",),
    ),
    Format("GDF", _by_mne("GDF"), b"GDF ", (".gdf",)),
    Format("EEGLAB", _by_mne("EEGLAB"), rb"MATLAB 5\.0 MAT-file", (".set",)),
    Format(
        "FLAC",
        _audio,
        b"fLaC",
        (".flac",),
        writer=Writer(
            "flac_writer:write_flac",
            "soundfile",
            "audio",
            (24, 16),
            annotations=False,
        ),
    ),
    Format("Ogg", _audio, b"OggS", (".ogg", ".oga", ".opus")),
    Format("MP3", _audio, rb"ID3|\xff[\xfa\xfb\xf2\xf3\xe2\xe3]", (".mp3",)),
    Format("AIFF", _audio, b"FORM....(AIF[FC]|8SVX|16SV)", (".aif", ".aiff", ".aifc")),
    Format(
        "other audio",
        _audio,
        rb"\.snd|dns\.|caff|riff\x2e\x91\xcf\x11|Creative Voice File\x1a|NIST_1A"
        rb"|fap | paf|PVF1\n|2BIT|ALawSoundFile",
        (".au", ".caf", ".w64", ".voc"),
    ),
)
"""The table: the first whose pattern fits is it."""
SUFFIXES = frozenset(suffix for one in FORMATS for suffix in one.suffixes)
"""By which a recording is told from other files of its folder."""
WRITERS: Final = {
    one.suffixes[0].removeprefix("."): one.writer
    for one in FORMATS
    if one.writer is not None
}
"""The formats that are written, by their suffix without the point."""


def is_named_so(name: str) -> bool:
    """True for a file that has the suffix of a recording."""
    return name.lower().endswith(tuple(SUFFIXES)) and bool(Path(name).suffix)


# Files people do try; the value completes "it is …".
_FOREIGN = (
    (
        rb"(\xef\xbb\xbf)?Brain ?Vision Data Exchange Marker",
        "the markers of BrainVision",
    ),
    (rb"\x1f\x8b", "packed with gzip"),
    (rb"\xfd7zXZ\x00", "packed with xz"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text"),
)
_SNIFF_NBYTES = 4096
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f")


def format_of(source: Opened) -> Format:
    """The format of what is open, by its first bytes; text is taken for a table.

    Errors   RecordingError for what is none that is read
    """
    if not isinstance(source, ByteSource):
        return ZARR
    head = source.head(_SNIFF_NBYTES)
    for one in FORMATS:
        if one.begins and _fits(one.begins, head):
            return one
    if _fits(_FIF.begins, _unpacked(head)):
        return _FIF
    wrong = _problem(source, head)
    if wrong is None:
        return CSV
    problem, hint = wrong
    *most, last = [one.name for one in FORMATS]
    raise source.error(problem, f"rlxweb reads {', '.join(most)} and {last}", hint)


def _fits(pattern: bytes, head: bytes) -> bool:
    return re.match(pattern, head, re.DOTALL) is not None


def _unpacked(head: bytes) -> bytes:
    """The first bytes of what gzip packed; none where it did not."""
    try:
        return zlib.decompressobj(31).decompress(head, 64)
    except zlib.error:
        return b""


def _problem(source: ByteSource, head: bytes) -> tuple[str, str] | None:
    """What keeps a file of no known beginning from being a table, and what to do."""
    suffix = suffix_of(source.name)
    begins = f"(first bytes {head[:8]!r})"
    named = next((one for one in FORMATS if suffix in one.suffixes), CSV)
    header = pointed_to(source.name)
    foreign = [what for pattern, what in _FOREIGN if _fits(pattern, head)]
    if header:
        what, path = header
        return f"it is {what}, which its header leads to", f"open {path!r} instead"
    if foreign:
        problem = f"it is {foreign[0]}"
    elif named is not CSV:
        problem = f"it is named {suffix} but does not begin like {named.name} {begins}"
    elif not _CONTROL.isdisjoint(head):
        problem = f"it is no format rlxweb reads {begins}"
    else:
        return None
    return problem, "convert it first"
