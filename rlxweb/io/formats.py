"""Table of recording formats: names, magic bytes, readers and writers.

Owns that table and the choice of a reader by a file's first bytes; a name only helps to
say what is wrong. Another format is another row here, a reader and perhaps a writer of
its own; they are loaded when they are needed, and so are the libraries.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from rlxweb.io.byte_source import ByteSource
from rlxweb.io.companion_files import find_header
from rlxweb.io.format_reader_interface import ArrayLayout, FileContents
from rlxweb.io.source_opener import OpenSource
from rlxweb.io.url_parsing_and_redaction import file_suffix


class ArraySelection(NamedTuple):
    """Array of the file that the caller asks for, and its layout."""

    array: str | None
    layout: ArrayLayout


_INTEGER_BITS: Final = (16, 24)


@dataclass(frozen=True, slots=True)
class FormatWriter:
    """Writer of a format: its function, the library it needs and its abilities.

    Attributes
    ----------
    import_path : str
        Module below `rlxweb.io` and function.
    library, extra : str
        The package that it needs beside NumPy, and the extra of rlxweb that installs
        it; "" for none.
    bits : tuple of int
        Sample widths, the default first; none where samples are written as they are.
    supports_mixed_rates : bool
        Whether one file holds channels of several rates.
    stores_annotations : bool
        Whether a file holds annotations, the time of day and the date.
    """

    import_path: str
    library: str = ""
    extra: str = ""
    bits: tuple[int, ...] = ()
    supports_mixed_rates: bool = False
    stores_annotations: bool = True

    def has_integers(self, bits: int | None) -> bool:
        """Return whether samples of that many bits, or of the default width, are stored
        as integers.
        """
        return (bits or next(iter(self.bits), 0)) in _INTEGER_BITS


@dataclass(frozen=True, slots=True)
class RecordingFormat:
    """Recording format: its name, magic bytes, suffixes, reader and writer.

    import_path  module below `rlxweb.io` and function of the reader: (source, *its
              arguments, **the accepted options) → contents
    magic_pattern  a pattern of its first bytes; "" where the bytes do not tell it
    suffixes  files of it are named so
    accepted_options  which of `array` and `layout` it has a use for
    writer    None where it is read only
    reader_arguments  after the source, for a reader of several formats
    """

    name: str
    import_path: str
    magic_pattern: bytes = b""
    suffixes: tuple[str, ...] = ()
    accepted_options: frozenset[str] = frozenset()
    writer: FormatWriter | None = None
    reader_arguments: tuple[str, ...] = ()

    def read(self, source: OpenSource, selection: ArraySelection) -> FileContents:
        """Read the layout of a file of the format."""
        module, _, function = self.import_path.partition(":")
        reader: Callable[..., FileContents] = getattr(
            import_module(f"rlxweb.io.{module}"), function
        )
        options = {name: getattr(selection, name) for name in self.accepted_options}
        return reader(source, *self.reader_arguments, **options)


def _edf_writer(bits: int) -> FormatWriter:
    """Return the writer of EDF (16 bits) or BDF (24 bits)."""
    return FormatWriter("edf_writer:write_edf", bits=(bits,), supports_mixed_rates=True)


_LAYOUT_ONLY, _ARRAY_AND_LAYOUT = frozenset({"layout"}), frozenset({"array", "layout"})
CSV: Final = RecordingFormat("CSV", "csv_reader:read_csv", suffixes=(".csv", ".tsv"))
ZARR: Final = RecordingFormat(
    "Zarr",
    "zarr_recording:read_zarr",
    suffixes=(".zarr",),
    accepted_options=_ARRAY_AND_LAYOUT,
)
_FIF: Final = RecordingFormat(
    "FIF",
    "mne_reader:read_with_mne",
    rb"\0\0\0\x64\0\0\0\x1f\0\0\0\x14",
    (".fif", ".fif.gz"),
    reader_arguments=("FIF",),
)
FORMATS: Final = (
    RecordingFormat(
        "EDF",
        "edf_reader:read_edf",
        rb"0(       |\0{7})",
        (".edf",),
        writer=_edf_writer(16),
    ),
    RecordingFormat(
        "BDF", "edf_reader:read_edf", rb"\xffBIOSEMI", (".bdf",), writer=_edf_writer(24)
    ),
    RecordingFormat(
        "WAV",
        "wav_reader:read_wav",
        b"RIFF|RF64|BW64|RIFX",
        (".wav",),
        writer=FormatWriter(
            "wav_writer:write_wav", bits=(32, 64, 16, 24), stores_annotations=False
        ),
    ),
    RecordingFormat(
        "NPY", "npy_reader:read_npy", rb"\x93NUMPY", (".npy",), _LAYOUT_ONLY
    ),
    RecordingFormat(
        "NPZ",
        "npz_reader:read_npz",
        rb"PK(\x03\x04|\x05\x06)",
        (".npz",),
        _ARRAY_AND_LAYOUT,
        FormatWriter("npz_writer:write_samples"),
    ),
    CSV,
    ZARR,
    RecordingFormat(
        "Parquet",
        "parquet_reader:read_parquet",
        b"PAR1",
        (".parquet",),
        writer=FormatWriter("parquet_writer:write_columns", "pyarrow", "parquet"),
    ),
    RecordingFormat(
        "HDF5",
        "hdf5_reader:read_hdf5",
        rb"\x89HDF\r\n\x1a\n",
        (".h5", ".hdf5", ".nwb"),
        _ARRAY_AND_LAYOUT,
    ),
    RecordingFormat(
        "MATLAB",
        "hdf5_reader:read_hdf5",
        rb"MATLAB 7\.3 MAT-file",
        (),
        _ARRAY_AND_LAYOUT,
    ),
    _FIF,
    RecordingFormat(
        "BrainVision",
        "mne_reader:read_with_mne",
        rb"(\xef\xbb\xbf)?Brain ?Vision Data Exchange Header",
        (".vhdr",),
        reader_arguments=("BrainVision",),
    ),
    RecordingFormat(
        "GDF", "mne_reader:read_with_mne", b"GDF ", (".gdf",), reader_arguments=("GDF",)
    ),
    RecordingFormat(
        "EEGLAB",
        "mne_reader:read_with_mne",
        rb"MATLAB 5\.0 MAT-file",
        (".set",),
        reader_arguments=("EEGLAB",),
    ),
    RecordingFormat(
        "FLAC",
        "libsndfile_reader:read_audio",
        b"fLaC",
        (".flac",),
        writer=FormatWriter(
            "flac_writer:write_flac",
            "soundfile",
            "audio",
            (24, 16),
            stores_annotations=False,
        ),
    ),
    RecordingFormat(
        "Ogg", "libsndfile_reader:read_audio", b"OggS", (".ogg", ".oga", ".opus")
    ),
    RecordingFormat(
        "MP3",
        "libsndfile_reader:read_audio",
        rb"ID3|\xff[\xfa\xfb\xf2\xf3\xe2\xe3]",
        (".mp3",),
    ),
    RecordingFormat(
        "AIFF",
        "libsndfile_reader:read_audio",
        b"FORM....(AIF[FC]|8SVX|16SV)",
        (".aif", ".aiff", ".aifc"),
    ),
    RecordingFormat(
        "other audio",
        "libsndfile_reader:read_audio",
        rb"\.snd|dns\.|caff|riff\x2e\x91\xcf\x11|Creative Voice File\x1a|NIST_1A"
        rb"|fap | paf|PVF1\n|2BIT|ALawSoundFile",
        (".au", ".caf", ".w64", ".voc"),
    ),
)
"""Formats in the order of detection: the first whose pattern matches is taken."""
SUFFIXES = frozenset(suffix for entry in FORMATS for suffix in entry.suffixes)
"""Suffixes by which recordings are told from the other files of a folder."""
WRITERS: Final = {
    entry.suffixes[0].removeprefix("."): entry.writer
    for entry in FORMATS
    if entry.writer is not None
}
"""Writers of the formats that can be written, by suffix without the dot."""


def has_recording_suffix(name: str) -> bool:
    """Return whether a file has the suffix of a recording."""
    return name.lower().endswith(tuple(SUFFIXES)) and bool(Path(name).suffix)


# Files people do try; the value completes "it is …".
_UNSUPPORTED_TYPES = (
    (
        rb"(\xef\xbb\xbf)?Brain ?Vision Data Exchange Marker",
        "a BrainVision marker file",
    ),
    (rb"\x1f\x8b", "compressed with gzip"),
    (rb"\xfd7zXZ\x00", "compressed with xz"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text"),
)
_SNIFF_NBYTES = 4096
_CONTROL_BYTES = frozenset(range(32)) - frozenset(b"\t\n\r\f")


def detect_format(source: OpenSource) -> RecordingFormat:
    """Detect the format of an open source by its first bytes; other text is taken for
    CSV.

    Errors   RecordingError for what is none that is read
    """
    if not isinstance(source, ByteSource):
        return ZARR
    head = source.read_head(_SNIFF_NBYTES)
    for entry in FORMATS:
        if entry.magic_pattern and _matches_pattern(entry.magic_pattern, head):
            return entry
    if _matches_pattern(_FIF.magic_pattern, _gunzip_head(head)):
        return _FIF
    refusal = _unrecognized_reason(source, head)
    if refusal is None:
        return CSV
    problem, hint = refusal
    *other_names, last_name = [entry.name for entry in FORMATS]
    raise source.error(
        problem, f"rlxweb reads {', '.join(other_names)} and {last_name}", hint
    )


def _matches_pattern(pattern: bytes, head: bytes) -> bool:
    """Return whether bytes begin with a pattern."""
    return re.match(pattern, head, re.DOTALL) is not None


def _gunzip_head(head: bytes) -> bytes:
    """Return the first decompressed bytes of gzip data; empty for anything else."""
    try:
        return zlib.decompressobj(31).decompress(head, 64)
    except zlib.error:
        return b""


def _unrecognized_reason(source: ByteSource, head: bytes) -> tuple[str, str] | None:
    """Return the reason why a file of unknown type is no table, and a hint; None if it
    may be one.
    """
    suffix = file_suffix(source.name)
    first_bytes = f"(first bytes {head[:8]!r})"
    expected = next((entry for entry in FORMATS if suffix in entry.suffixes), CSV)
    companion = find_header(source.name)
    detected = [
        description
        for pattern, description in _UNSUPPORTED_TYPES
        if _matches_pattern(pattern, head)
    ]
    if companion:
        description, path = companion
        return (
            f"the file contains {description} and needs its header file",
            f"open {path!r} instead",
        )
    if detected:
        problem = f"the file is {detected[0]}"
    elif expected is not CSV:
        problem = (
            f"the suffix is {suffix} but the content is not {expected.name} "
            f"{first_bytes}"
        )
    elif not _CONTROL_BYTES.isdisjoint(head):
        problem = f"the file format is not supported {first_bytes}"
    else:
        return None
    return problem, "convert the file to a supported format"
