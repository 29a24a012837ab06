"""Checks of a file before it is passed to MNE, and the other files that it refers to.

MNE believes what a header says. One that claims a billion channels, or whose tags lead
back to where they come from, would cost all memory or never end; one that names a file
elsewhere would show that file as samples; and a FIF file may hold something else than a
recording.
"""

from __future__ import annotations

import configparser
import os
import re
import struct
import warnings
from collections.abc import Iterator
from typing import Final

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError, shown
from rlxweb.core.safe_file_opening import check_referenced_file, referenced_path
from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource, open_source
from rlxweb.io.mat5_validation import check_matlab5

_TAG: Final = struct.Struct(">iIii")  # kind, type, bytes, place of the next
_BLOCK_START, _BLOCK_END = 104, 105
_DIR_POINTER: Final = 101
_SAMPLES_KIND, _COMPLEX_TYPES = 300, (20, 21)
_REF_ROLE, _REF_NUMBER, _REF_NAME = 115, 117, 118
_PREVIOUS_FILE_ROLE, _NEXT_FILE_ROLE = 1, 2
_RAW_DATA_BLOCKS: Final = frozenset({102, 112, 119})
_OTHER_BLOCKS: Final = {
    373: "epochs",
    104: "averages",
    355: "a covariance matrix",
    352: "a forward solution",
    357: "a source space",
}
_MAX_TAGS: Final = 20_000_000
_COPY_AGAIN_HINT = "copy the file again from its source"
_N_CHANNELS: Final = re.compile(rb"^\s*NumberOfChannels\s*=\s*(\d+)", re.MULTILINE)


def check_fif_files(source: ByteSource) -> tuple[str, ...]:
    """Check a FIF file and the files in which it continues; return the paths of the
    latter.

    Raises
    ------
    RecordingError
        For a file that is cut, broken or no recording, for a part that is named outside
        the folder, and for parts that lead back to one another.
    """
    part_paths: dict[str, None] = {}
    visited = {os.path.realpath(source.path)}
    pending = [*_check_fif(source, source.path).items()]
    while pending:
        path, is_next = pending.pop(0)
        real_path = os.path.realpath(path)
        if real_path in visited and is_next:
            raise source.error(
                f"the next part is {shown(os.path.basename(path))}, which was "
                "already read",
                "each part must occur only once",
                _COPY_AGAIN_HINT,
            )
        if real_path in visited or not os.path.exists(path):
            continue
        source.check_limit("parts", len(part_paths) + 2, file_limits.ARRAYS)
        visited.add(real_path)
        part_paths[path] = None
        part = open_source(path)
        try:
            if part.read_head(2) == b"\x1f\x8b":
                raise part.error(
                    "this part of the split recording is compressed with gzip",
                    hint="decompress all parts of the recording",
                )
            pending += _check_fif(part, path).items()
        finally:
            part.close()
    return tuple(part_paths)


def _check_fif(source: ByteSource, path: str) -> dict[str, bool]:
    """Check one FIF file; return the paths it refers to, each with whether the
    recording continues there.
    """
    blocks: set[int] = set()
    offset, count, directory = 0, 0, -1
    references = _FifReferences(source, path)
    while 0 <= offset <= source.nbytes - _TAG.size:
        kind, type_, nbytes, next_offset = _TAG.unpack(source.read(offset, _TAG.size))
        _check_samples(source, kind, type_)
        end = offset + _TAG.size + nbytes
        if nbytes < 0 or end > source.nbytes:
            raise source.error(
                "the file is truncated or damaged",
                f"a tag ends at byte {end}, the file at byte {source.nbytes}",
                _COPY_AGAIN_HINT,
            )
        if kind == _BLOCK_START and nbytes == 4:
            blocks.add(_read_tag_int(source, offset))
        if kind == _DIR_POINTER and nbytes == 4:
            directory = _read_tag_int(source, offset) if directory < 0 else directory
        references.process_tag(kind, offset, nbytes)
        if next_offset < 0:
            break
        if 0 < next_offset <= offset:
            raise source.error(
                "the file is damaged: a tag points backwards", hint=_COPY_AGAIN_HINT
            )
        offset, count = next_offset or end, count + 1
        source.check_limit("tags", count, _MAX_TAGS)
    if directory > 0:  # MNE follows it, and not the chain of tags
        references.restart()
        for kind, listed_type, offset in _directory_tags(source, directory):
            _, type_, nbytes, _ = _TAG.unpack(source.read(offset, _TAG.size))
            _check_samples(source, kind, type_)
            _check_samples(source, kind, listed_type)
            if nbytes < 0 or offset + _TAG.size + nbytes > source.nbytes:
                raise source.error(
                    "the tag directory points outside the file", hint=_COPY_AGAIN_HINT
                )
            references.process_tag(kind, offset, nbytes)
    _check_holds_raw_data(source, blocks)
    return references.paths


def _check_samples(source: ByteSource, kind: int, type_: int) -> None:
    """Raise RecordingError for complex samples, of which MNE would drop the imaginary
    part.
    """
    if kind == _SAMPLES_KIND and type_ in _COMPLEX_TYPES:
        raise source.error(
            "the samples are complex",
            "a recording must contain real numbers",
            "save the real and imaginary parts as channels",
        )


def _read_tag_int(source: ByteSource, offset: int) -> int:
    """Return the integer that the tag at an offset holds."""
    return int.from_bytes(source.read(offset + _TAG.size, 4), "big", signed=True)


def _directory_tags(
    source: ByteSource, directory: int
) -> Iterator[tuple[int, int, int]]:
    """Yield kind, type and offset of each tag in the directory of a FIF file."""
    raw = source.peek(directory, _TAG.size)
    if len(raw) < _TAG.size:
        return
    nbytes = _TAG.unpack(raw)[2]
    begin, step = directory + _TAG.size, _TAG.size * 4096
    for chunk_offset in range(
        begin, begin + max(0, nbytes) // _TAG.size * _TAG.size, step
    ):
        chunk = source.read(chunk_offset, min(step, begin + nbytes - chunk_offset))
        for kind, type_, _, offset in _TAG.iter_unpack(
            chunk[: len(chunk) // _TAG.size * _TAG.size]
        ):
            if not 0 <= offset <= source.nbytes - _TAG.size:
                raise source.error(
                    "the tag directory points outside the file", hint=_COPY_AGAIN_HINT
                )
            yield kind, type_, offset


class _FifReferences:
    """References of a FIF file to other files: names, and part numbers that stand for
    names.

    MNE may understand a damaged file otherwise than this does, so all count but those
    to the file before, of which MNE writes the whole path and which it never follows.

    paths  by which is told whether the file goes on there
    """

    def __init__(self, source: ByteSource, path: str) -> None:
        self._source = source
        self._folder, self._name = os.path.split(path)
        self._is_next = self._is_followed = True
        self.paths: dict[str, bool] = {}

    def restart(self) -> None:
        """Begin another list of tags."""
        self._is_next = self._is_followed = True

    def process_tag(self, kind: int, offset: int, nbytes: int) -> None:
        """Process the next tag."""
        if kind in (_BLOCK_START, _BLOCK_END):
            self._is_next = self._is_followed = True
        elif kind == _REF_ROLE and nbytes == 4:
            role = _read_tag_int(self._source, offset)
            self._is_next, self._is_followed = (
                role == _NEXT_FILE_ROLE,
                role != _PREVIOUS_FILE_ROLE,
            )
        elif kind == _REF_NAME and self._is_followed:
            self._source.check_limit(
                "bytes in a file name", nbytes, file_limits.LINE_NBYTES
            )
            raw = self._source.read(offset + _TAG.size, nbytes)
            self._add_path(raw.decode("latin-1").rstrip("\0"))
        elif kind == _REF_NUMBER and nbytes == 4:
            name = self._part_name(_read_tag_int(self._source, offset))
            # Beside a name the number says nothing.
            self._add_path(name, is_next=not any(self.paths.values()))

    def _part_name(self, number: int) -> str:
        """Return the name of a part that is referred to by its number."""
        stem, dot, suffix = self._name.partition(".")
        head, dash, part_number = stem.rpartition("-")
        return (
            f"{head if dash and part_number.isdigit() else stem}-{number}{dot}{suffix}"
        )

    def _add_path(self, name: str, *, is_next: bool = True) -> None:
        """Add a referenced file; `is_next` if the recording continues there."""
        path = referenced_path(
            self._folder, name, "next samples", self._source.context, RecordingError
        )
        is_next = is_next and self._is_next
        self.paths[path] = self.paths.get(path, False) or is_next


def _check_holds_raw_data(source: ByteSource, blocks: set[int]) -> None:
    """Raise RecordingError if none of the blocks of a FIF file holds raw data."""
    if blocks & _RAW_DATA_BLOCKS:
        return
    content = next(
        (content for kind, content in _OTHER_BLOCKS.items() if kind in blocks), ""
    )
    hint = "open the file that contains the raw data"
    if content == "epochs":
        hint = "pass epochs directly: rlxweb.welch_peaks(mne.read_epochs(…))"
    raise source.error(
        f"expected a continuous recording, got {content or 'other data'}",
        "epochs are not joined into a recording" if content == "epochs" else "",
        hint,
    )


def check_brainvision_files(source: ByteSource) -> tuple[str, ...]:
    """Check the header of a BrainVision recording; return the paths of its samples and
    markers.

    The header is parsed as MNE parses it, by the same library, so that both find the
    same names.

    Raises
    ------
    RecordingError
        For more channels than are read, and for a file that is named outside the
        folder or is a pipe or a device.
    """
    source.check_limit("bytes in the header", source.nbytes, file_limits.HEADER_NBYTES)
    raw = source.read_head(source.nbytes)
    for match in _N_CHANNELS.finditer(raw):
        source.check_limit("channels", int(match[1][:12]), file_limits.CHANNELS)
    text = _brainvision_text(raw.partition(b"\n")[2])
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError) as error:
        raise source.error(
            f"the header cannot be read ({error_reason(error)})", hint=_COPY_AGAIN_HINT
        ) from error
    folder, file_name = os.path.split(source.path)
    files = []
    for section in ("Common Infos", "Common infos"):
        for option, content in (("DataFile", "samples"), ("MarkerFile", "markers")):
            name = parser.get(section, option, fallback="")
            if name:
                files.append(
                    referenced_path(
                        folder, name, content, source.context, RecordingError
                    )
                )
    markers = os.path.join(folder, os.path.splitext(file_name)[0] + ".vmrk")
    check_referenced_file(markers, "markers", source.context, RecordingError)
    return tuple(dict.fromkeys([*files, markers]))


def _brainvision_text(raw: bytes) -> str:
    """Return the part of a header that MNE parses: decoded with its code page, up to
    the comment.
    """
    match = re.search("Codepage=(.+)", raw.decode("ascii", "ignore"))
    codepage = match[1].strip() if match else "utf-8"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that a codec does not know
            text = raw.decode("cp1252" if codepage == "ANSI" else codepage)
    except (ValueError, LookupError):  # the former for bytes, and for a page's name
        text = raw.decode("latin-1")
    return text.partition("[Comment]")[0]


def check_eeglab_files(source: ByteSource) -> tuple[str, ...]:
    """Check an EEGLAB set before MNE reads it; return the files of its samples.

    Raises
    ------
    RecordingError
        For a set that is cut, damaged or claims too much, and for samples that are
        named outside the folder or in a pipe or a device.
    """
    if source.read_head(10) == b"MATLAB 5.0":
        names = check_matlab5(source)
    else:
        from rlxweb.io.hdf5_reader import check_eeglab_hdf5

        names = check_eeglab_hdf5(source)
    folder = os.path.dirname(source.path)
    default_path = os.path.splitext(source.path)[0] + ".fdt"
    check_referenced_file(default_path, "samples", source.context, RecordingError)
    files = [
        referenced_path(folder, name, "samples", source.context, RecordingError)
        for name in names
    ]
    return tuple(dict.fromkeys([*files, default_path]))


def read_gdf_units(source: ByteSource) -> dict[int, str]:
    """Return the units of the channels of a GDF file, by channel index.

    Errors   RecordingError for a header that is cut, and more channels than are read
    Source   Schlögl, "GDF: a general dataformat for biosignals", 2.51, table 3
    """
    head = source.read(0, 256)
    is_version_1 = head[4:5] == b"1"
    width = 4 if is_version_1 else 2
    n_channels = int.from_bytes(head[252 : 252 + width], "little")
    source.check_limit("channels", n_channels, file_limits.CHANNELS)
    if source.nbytes < 256 * (1 + n_channels):
        raise source.error(
            "the header is truncated",
            f"{n_channels} channels need {256 * (1 + n_channels)} bytes, the file "
            f"has {source.nbytes}",
            _COPY_AGAIN_HINT,
        )
    _check_gdf(source, head, n_channels, is_version_1=is_version_1)
    raw = source.read(256 + 96 * n_channels, 8 * n_channels)
    if is_version_1:
        texts = [raw[8 * index : 8 * index + 8] for index in range(n_channels)]
        return {index: _field_text(text) for index, text in enumerate(texts)}
    codes = struct.unpack_from(f"<{n_channels}H", raw, 6 * n_channels)
    return {
        index: _GDF_UNITS.get(code, f"unit {code}") for index, code in enumerate(codes)
    }


def _check_gdf(
    source: ByteSource, head: bytes, n_channels: int, *, is_version_1: bool
) -> None:
    """Require a single rate, known sample types and an event table that fits in the
    file.

    MNE makes room for as many as the table behind the samples claims.
    """
    fields = struct.unpack(
        f"<{2 * n_channels}I", source.read(256 + 216 * n_channels, 8 * n_channels)
    )
    rates = sorted({*fields[:n_channels]})
    if len(rates) > 1:
        raise source.error(
            f"the channels have {len(rates)} rates, {rates[0]} to {rates[-1]} "
            "samples per record",
            "all channels must have the same rate, otherwise MNE interpolates samples",
            "save the recording as EDF, where every rate is read unchanged",
        )
    unknown = sorted({*fields[n_channels:]} - {*_GDF_TYPE_NBYTES})
    if unknown:
        raise source.error(
            f"the sample type is {unknown[0]}",
            f"GDF sample types are {', '.join(map(str, _GDF_TYPE_NBYTES))}",
            _COPY_AGAIN_HINT,
        )
    (n_records,) = struct.unpack_from("<q", head, 236)
    if n_records < 0:
        raise source.error(
            f"the header declares {n_records} records",
            "the header of a closed recording must declare the number of records",
            "open the file in the program that wrote it, and save it again",
        )
    sizes = zip(fields[:n_channels], fields[n_channels:], strict=True)
    record_nbytes = sum(n * _GDF_TYPE_NBYTES[kind] for n, kind in sizes)
    header_nbytes = (
        int.from_bytes(head[184:192], "little")
        if is_version_1
        else 256 * (1 + n_channels)
    )
    events_offset = header_nbytes + n_records * record_nbytes
    if events_offset >= source.nbytes:
        return
    raw = source.peek(events_offset, 8).ljust(8, b"\0")
    # Versions up to 1.93 count in 32 bits, behind the rate of the events.
    has_32_bit_count = float(_gdf_version(head) or 0) < 1.94
    count = int.from_bytes(raw[4:8] if has_32_bit_count else raw[1:4], "little")
    event_nbytes = 12 if raw[0] == 3 else 6
    if count * event_nbytes > source.nbytes - events_offset:
        raise source.error(
            "the event table is truncated or damaged",
            f"{count} events need {count * event_nbytes} bytes, the table has "
            f"{source.nbytes - events_offset}",
            _COPY_AGAIN_HINT,
        )


def _gdf_version(head: bytes) -> str:
    """Return the version in a GDF header; "" if there is none."""
    match = re.match(rb"GDF (\d\.\d+)", head)
    return match[1].decode("ascii") if match else ""


def _field_text(raw: bytes) -> str:
    """Return the text of a NUL-terminated header field."""
    return raw.split(b"\0")[0].decode("latin-1").strip()


# Of GDF's types of samples.
_GDF_TYPE_NBYTES: Final = {
    1: 1,
    2: 1,
    3: 2,
    4: 2,
    5: 4,
    6: 4,
    7: 8,
    8: 8,
    16: 4,
    17: 8,
    279: 3,
}
# Of ISO 11073-10101, as GDF has them.
_GDF_UNITS: Final = {
    0: "",
    512: "",
    544: "%",
    736: "deg",
    3872: "mmHg",
    4256: "V",
    4274: "mV",
    4275: "uV",
    4276: "nV",
    6048: "degC",
}
