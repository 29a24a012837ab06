"""Checks of a file before it is handed to MNE, and the other files that it leads to.

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

from rlxweb.errors import RecordingError, shown
from rlxweb.io import bounds
from rlxweb.io.mat_tags import check_matlab
from rlxweb.io.source import ByteSource, open_source
from rlxweb.named_files import check_named, file_beside
from rlxweb.whole_file import reason

_TAG: Final = struct.Struct(">iIii")  # kind, type, bytes, place of the next
_BLOCK_START, _BLOCK_END = 104, 105
_DIR_POINTER: Final = 101
_SAMPLES, _COMPLEX = 300, (20, 21)
_REF_ROLE, _REF_NUMBER, _REF_NAME = 115, 117, 118
_LAST_FILE, _NEXT_FILE = 1, 2
_RECORDED: Final = frozenset({102, 112, 119})
_OTHERS: Final = {
    373: "epochs",
    104: "averages",
    355: "a covariance matrix",
    352: "a forward solution",
    357: "a source space",
}
_MOST_TAGS: Final = 20_000_000
_CUT = "copy the file again from where it came"
_N_CHANNELS: Final = re.compile(rb"^\s*NumberOfChannels\s*=\s*(\d+)", re.MULTILINE)


def fif_files(source: ByteSource) -> tuple[str, ...]:
    """Check a FIF file and the files it goes on in; return the paths of the latter.

    Raises
    ------
    RecordingError
        For a file that is cut, broken or no recording, for a part that is named outside
        the folder, and for parts that lead back to one another.
    """
    found: dict[str, None] = {}
    seen = {os.path.realpath(source.path)}
    ahead = [*_check_fif(source, source.path).items()]
    while ahead:
        path, is_next = ahead.pop(0)
        real = os.path.realpath(path)
        if real in seen and is_next:
            raise source.error(
                f"it goes on in {shown(os.path.basename(path))}, a file before it",
                "each part is read once",
                _CUT,
            )
        if real in seen or not os.path.exists(path):
            continue
        source.at_most("parts", len(found) + 2, bounds.ARRAYS)
        seen.add(real)
        found[path] = None
        part = open_source(path)
        try:
            if part.head(2) == b"\x1f\x8b":
                raise part.error("it is packed with gzip", hint="unpack all its parts")
            ahead += _check_fif(part, path).items()
        finally:
            part.close()
    return tuple(found)


def _check_fif(source: ByteSource, path: str) -> dict[str, bool]:
    """Check one FIF file; return the paths it refers to, and which it goes on in."""
    blocks: set[int] = set()
    place, count, directory = 0, 0, -1
    parts = _References(source, path)
    while 0 <= place <= source.nbytes - _TAG.size:
        kind, type_, nbytes, after = _TAG.unpack(source.read(place, _TAG.size))
        _check_samples(source, kind, type_)
        end = place + _TAG.size + nbytes
        if nbytes < 0 or end > source.nbytes:
            raise source.error(
                "the file is cut short or damaged",
                f"a tag ends at byte {end}, the file at {source.nbytes}",
                _CUT,
            )
        if kind == _BLOCK_START and nbytes == 4:
            blocks.add(_whole(source, place))
        if kind == _DIR_POINTER and nbytes == 4:
            directory = _whole(source, place) if directory < 0 else directory
        parts.see(kind, place, nbytes)
        if after < 0:
            break
        if 0 < after <= place:
            raise source.error("it is damaged: its tags lead back", hint=_CUT)
        place, count = after or end, count + 1
        source.at_most("tags", count, _MOST_TAGS)
    if directory > 0:  # MNE follows it, and not the chain of tags
        parts.restart()
        for kind, listed, place in _listed_tags(source, directory):
            _, type_, nbytes, _ = _TAG.unpack(source.read(place, _TAG.size))
            _check_samples(source, kind, type_)
            _check_samples(source, kind, listed)
            if nbytes < 0 or place + _TAG.size + nbytes > source.nbytes:
                raise source.error("its directory leads out of the file", hint=_CUT)
            parts.see(kind, place, nbytes)
    _check_recorded(source, blocks)
    return parts.paths


def _check_samples(source: ByteSource, kind: int, type_: int) -> None:
    """Refuse complex samples, of which MNE would drop the imaginary part."""
    if kind == _SAMPLES and type_ in _COMPLEX:
        raise source.error(
            "its samples are complex",
            "a recording holds real numbers",
            "save real and imaginary part as channels",
        )


def _whole(source: ByteSource, place: int) -> int:
    """Return the number that the tag at a place holds."""
    return int.from_bytes(source.read(place + _TAG.size, 4), "big", signed=True)


def _listed_tags(source: ByteSource, directory: int) -> Iterator[tuple[int, int, int]]:
    """Yield kind, type and place of each tag in the directory of a FIF file."""
    raw = source.peek(directory, _TAG.size)
    if len(raw) < _TAG.size:
        return
    nbytes = _TAG.unpack(raw)[2]
    begin, step = directory + _TAG.size, _TAG.size * 4096
    for at in range(begin, begin + max(0, nbytes) // _TAG.size * _TAG.size, step):
        piece = source.read(at, min(step, begin + nbytes - at))
        for kind, type_, _, place in _TAG.iter_unpack(
            piece[: len(piece) // _TAG.size * _TAG.size]
        ):
            if not 0 <= place <= source.nbytes - _TAG.size:
                raise source.error("its directory leads out of the file", hint=_CUT)
            yield kind, type_, place


class _References:
    """References of a FIF file to others: names, and numbers that stand for names.

    MNE may understand a damaged file otherwise than this does, so all count but those
    to the file before, of which MNE writes the whole path and which it never follows.

    paths  by which is told whether the file goes on there
    """

    def __init__(self, source: ByteSource, path: str) -> None:
        self._source = source
        self._folder, self._name = os.path.split(path)
        self._is_next = self._is_known = True
        self.paths: dict[str, bool] = {}

    def restart(self) -> None:
        """Begin another list of the tags."""
        self._is_next = self._is_known = True

    def see(self, kind: int, place: int, nbytes: int) -> None:
        """Take the next tag into account."""
        if kind in (_BLOCK_START, _BLOCK_END):
            self._is_next = self._is_known = True
        elif kind == _REF_ROLE and nbytes == 4:
            role = _whole(self._source, place)
            self._is_next, self._is_known = role == _NEXT_FILE, role != _LAST_FILE
        elif kind == _REF_NAME and self._is_known:
            self._source.at_most("bytes in a file's name", nbytes, bounds.LINE_NBYTES)
            raw = self._source.read(place + _TAG.size, nbytes)
            self._take(raw.decode("latin-1").rstrip("\0"))
        elif kind == _REF_NUMBER and nbytes == 4:
            name = self._numbered(_whole(self._source, place))
            # Beside a name the number says nothing.
            self._take(name, is_next=not any(self.paths.values()))

    def _numbered(self, number: int) -> str:
        """Return the name of a part that is referred to by its number."""
        stem, dot, rest = self._name.partition(".")
        head, dash, own = stem.rpartition("-")
        return f"{head if dash and own.isdigit() else stem}-{number}{dot}{rest}"

    def _take(self, name: str, *, is_next: bool = True) -> None:
        path = file_beside(
            self._folder, name, "next samples", self._source.doing, RecordingError
        )
        is_next = is_next and self._is_next
        self.paths[path] = self.paths.get(path, False) or is_next


def _check_recorded(source: ByteSource, blocks: set[int]) -> None:
    if blocks & _RECORDED:
        return
    what = next((what for kind, what in _OTHERS.items() if kind in blocks), "")
    hint = "open the file with the raw data"
    if what == "epochs":
        hint = "rlxweb.welch_peaks(mne.read_epochs(…)) takes them as they are"
    raise source.error(
        f"it holds {what or 'something else'}, no continuous recording",
        "pieces of a recording are not strung together" if what == "epochs" else "",
        hint,
    )


def brainvision_files(source: ByteSource) -> tuple[str, ...]:
    """Check the header of a BrainVision recording; return its samples and markers.

    The header is parsed as MNE parses it, by the same library, so that both find the
    same names.

    Raises
    ------
    RecordingError
        For more channels than are read, and for a file that is named outside the
        folder or is a pipe or a device.
    """
    source.at_most("bytes of header", source.nbytes, bounds.HEADER_NBYTES)
    raw = source.head(source.nbytes)
    for match in _N_CHANNELS.finditer(raw):
        source.at_most("channels", int(match[1][:12]), bounds.CHANNELS)
    text = _brainvision_text(raw.partition(b"\n")[2])
    found = configparser.ConfigParser(interpolation=None)
    try:
        found.read_string(text)
    except (configparser.Error, ValueError) as error:
        raise source.error(
            f"its header cannot be read ({reason(error)})", hint=_CUT
        ) from error
    folder, own = os.path.split(source.path)
    files = []
    for section in ("Common Infos", "Common infos"):
        for option, what in (("DataFile", "samples"), ("MarkerFile", "markers")):
            name = found.get(section, option, fallback="")
            if name:
                files.append(
                    file_beside(folder, name, what, source.doing, RecordingError)
                )
    markers = os.path.join(folder, os.path.splitext(own)[0] + ".vmrk")
    check_named(markers, "markers", source.doing, RecordingError)
    return tuple(dict.fromkeys([*files, markers]))


def _brainvision_text(raw: bytes) -> str:
    """Return what MNE parses of a header: decoded as it says, up to the comment."""
    said = re.search("Codepage=(.+)", raw.decode("ascii", "ignore"))
    page = said[1].strip() if said else "utf-8"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that a codec does not know
            text = raw.decode("cp1252" if page == "ANSI" else page)
    except (ValueError, LookupError):  # the former for bytes, and for a page's name
        text = raw.decode("latin-1")
    return text.partition("[Comment]")[0]


def eeglab_files(source: ByteSource) -> tuple[str, ...]:
    """Check a set of EEGLAB before MNE reads it; return the files of its samples.

    Raises
    ------
    RecordingError
        For a set that is cut, damaged or claims too much, and for samples that are
        named outside the folder or in a pipe or a device.
    """
    if source.head(10) == b"MATLAB 5.0":
        names = check_matlab(source)
    else:
        from rlxweb.io.hdf5 import check_eeglab

        names = check_eeglab(source)
    folder = os.path.dirname(source.path)
    usual = os.path.splitext(source.path)[0] + ".fdt"
    check_named(usual, "samples", source.doing, RecordingError)
    files = [
        file_beside(folder, name, "samples", source.doing, RecordingError)
        for name in names
    ]
    return tuple(dict.fromkeys([*files, usual]))


def gdf_units(source: ByteSource) -> dict[int, str]:
    """The units of the channels of a GDF file, by their places.

    Errors   RecordingError for a header that is cut, and more channels than are read
    Source   Schlögl, "GDF: a general dataformat for biosignals", 2.51, table 3
    """
    head = source.read(0, 256)
    is_first = head[4:5] == b"1"
    width = 4 if is_first else 2
    many = int.from_bytes(head[252 : 252 + width], "little")
    source.at_most("channels", many, bounds.CHANNELS)
    if source.nbytes < 256 * (1 + many):
        raise source.error(
            "the header is cut short",
            f"{many} channels take {256 * (1 + many)} bytes, {source.nbytes} are there",
            _CUT,
        )
    _check_gdf(source, head, many, is_first=is_first)
    raw = source.read(256 + 96 * many, 8 * many)
    if is_first:
        texts = [raw[8 * at : 8 * at + 8] for at in range(many)]
        return {at: _ascii(text) for at, text in enumerate(texts)}
    codes = struct.unpack_from(f"<{many}H", raw, 6 * many)
    return {at: _CODES.get(code, f"unit {code}") for at, code in enumerate(codes)}


def _check_gdf(source: ByteSource, head: bytes, many: int, *, is_first: bool) -> None:
    """One rate, and no more events than there are.

    MNE makes room for as many as the table behind the samples claims.
    """
    fields = struct.unpack(f"<{2 * many}I", source.read(256 + 216 * many, 8 * many))
    rates = sorted({*fields[:many]})
    if len(rates) > 1:
        raise source.error(
            f"its channels have {len(rates)} rates, {rates[0]} to {rates[-1]} samples "
            "a record",
            "MNE would make samples up to bring them to one",
            "save it as EDF, of which each rate is read as it is",
        )
    unknown = sorted({*fields[many:]} - {*_NBYTES})
    if unknown:
        raise source.error(
            f"its samples are of type {unknown[0]}",
            f"GDF's types of numbers are {', '.join(map(str, _NBYTES))}",
            _CUT,
        )
    (n_records,) = struct.unpack_from("<q", head, 236)
    if n_records < 0:
        raise source.error(
            f"it has {n_records} records",
            "a recording that was closed says how many",
            "open it with the program that wrote it, and save it again",
        )
    sizes = zip(fields[:many], fields[many:], strict=True)
    record = sum(n * _NBYTES[kind] for n, kind in sizes)
    nbytes = int.from_bytes(head[184:192], "little") if is_first else 256 * (1 + many)
    place = nbytes + n_records * record
    if place >= source.nbytes:
        return
    raw = source.peek(place, 8).ljust(8, b"\0")
    # Versions up to 1.93 count in 32 bits, behind the rate of the events.
    is_old = float(_version(head) or 0) < 1.94
    count = int.from_bytes(raw[4:8] if is_old else raw[1:4], "little")
    each = 12 if raw[0] == 3 else 6
    if count * each > source.nbytes - place:
        raise source.error(
            "its table of events is cut short or damaged",
            f"{count} events take {count * each} bytes, {source.nbytes - place} are "
            "there",
            _CUT,
        )


def _version(head: bytes) -> str:
    found = re.match(rb"GDF (\d\.\d+)", head)
    return found[1].decode("ascii") if found else ""


def _ascii(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("latin-1").strip()


# Of GDF's types of samples.
_NBYTES: Final = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 8, 8: 8, 16: 4, 17: 8, 279: 3}
# Of ISO 11073-10101, as GDF has them.
_CODES: Final = {
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
