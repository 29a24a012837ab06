"""What is looked at before a file is handed to MNE: headers that cannot be right.

MNE believes what a header says. One that claims a billion channels, or whose tags lead
back to where they come from, would cost all memory or never end; and a FIF file may
hold something else than a recording.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from rlxweb.io import bounds
from rlxweb.io.source import ByteSource

_TAG: Final = struct.Struct(">iIii")  # kind, type, bytes, place of the next
_BLOCK_START: Final = 104
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


def check_fif(source: ByteSource) -> None:
    """Errors  RecordingError for a FIF file that is cut, broken or no recording."""
    blocks: set[int] = set()
    place, count = 0, 0
    while 0 <= place <= source.nbytes - _TAG.size:
        kind, _, nbytes, after = _TAG.unpack(source.read(place, _TAG.size))
        end = place + _TAG.size + nbytes
        if nbytes < 0 or end > source.nbytes:
            raise source.error(
                "the file is cut short or damaged",
                f"a tag ends at byte {end}, the file at {source.nbytes}",
                _CUT,
            )
        if kind == _BLOCK_START and nbytes == 4:
            raw = source.read(place + _TAG.size, 4)
            blocks.add(int.from_bytes(raw, "big"))
        if after < 0:
            break
        if 0 < after <= place:
            raise source.error("it is damaged: its tags lead back", hint=_CUT)
        place, count = after or end, count + 1
        source.at_most("tags", count, _MOST_TAGS)
    _check_recorded(source, blocks)


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


def check_brainvision(source: ByteSource) -> None:
    """Errors  RecordingError for more channels than are read."""
    for match in _N_CHANNELS.finditer(source.head(bounds.LINE_NBYTES)):
        source.at_most("channels", int(match[1][:12]), bounds.CHANNELS)


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
    sizes = [_NBYTES.get(kind, 0) for kind in fields[many:]]
    record = sum(n * size for n, size in zip(fields[:many], sizes, strict=True))
    (n_records,) = struct.unpack_from("<q", head, 236)
    nbytes = int.from_bytes(head[184:192], "little") if is_first else 256 * (1 + many)
    place = nbytes + n_records * record
    if n_records < 0 or not all(sizes) or not 0 <= place <= source.nbytes - 8:
        return
    raw = source.read(place, 8)
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
