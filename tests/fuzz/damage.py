"""Damage that knows a format: its header fields, counts, sizes, chunks and cells.

One function per format, of the same form as those of `mutate`. A file that has lost its
form already is damaged like any other.
"""

from __future__ import annotations

import io
import math
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.fuzz import damage_libraries as libraries
from tests.fuzz.damage_graphs import damage_rlxg
from tests.fuzz.mutate import ANY, Mutation, number, set_number

# (offset, width) of the fields of an EDF header, and of a signal's, each per signal.
_EDF_FIELDS = (
    (0, 8),
    (8, 80),
    (168, 8),
    (184, 8),
    (192, 44),
    (236, 8),
    (244, 8),
    (252, 4),
)
_SIGNAL_FIELDS = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)
_EDF_TEXTS = (
    b"", b"0", b"-0", b"-1", b"1", b"2", b"9", b"99999999", b"-9999999", b"1e9",
    b"1e-9", b"1e99", b"9e999", b"nan", b"inf", b"-inf", b"0,5", b"1.5", b"+,5",
    b"1_0", b"0x10", b"\0\0\0", b"\xb2\xb3", b"EDF+C", b"EDF+D", b"BDF+D",
    b"EDF Annotations", b"BDF Annotations", b"Status", b"\xff\xfe", b"uV", b"768",
    b"1024", b"\x1b[31m",
)  # fmt: skip
_CELLS = (
    "", " ", "nan", "-inf", "1e999999999", "-1e-999999999", "1_0", "0x10", "1,5", "1.5",
    '"', '""', '"a', 'a"b', "\0", "\r", "\t", ";", "|", "#", "=1+1", "\x1b[2J",
    "\ufeff", "\u0662", "9" * 400, "9" * 5000, "x" * 140_000, "time", "t[us]",
    "Time (ms)", "-0", "1e308", "-1e308", "5e-324", "2020-01-01 10:00", "٣", "1 2",
)  # fmt: skip
_SHAPES = (
    "()", "(0,)", "(1,)", "(3, 0)", "(0, 3)", "(1000000000, 0)", "(2000000, 1)",
    "(-1, 3)", "(3, 3, 3)", "(1152921504606846975, 9)", "(True, 2)", "(1.0, 2)", "3",
    "(3L, 200L)", "[3, 200]", "('a',)", "(" * 500, "(" + "9," * 2000 + ")", "None",
)  # fmt: skip
_DESCRS = (
    "'|O'", "'<c16'", "'|b1'", "'<U5'", "'<M8[D]'", "'|V8'", "'<f2'", "'>i8'", "'f16'",
    "[('a', '<f8')]", "'<f8,<f8'", "('<f8', (2,))", "{}", "1", "''", "'|S0'",
)  # fmt: skip
# Beside the array of an NPZ file.
_NOTES: tuple[Any, ...] = (
    0, -1.0, math.nan, math.inf, 1e300, 1e-300, 2**63, 64, 64 + 0j, True, "64",
    b"64", [64.0], [[64.0]], [64.0, 32.0], [], ["a"], ["a", "b", "c"], ["a"] * 5000,
    [["a", "b"]], [b"a", b"\xff", b"\xc3"], ["\ud800", "\0", "\x1b[2J"], "uV",
    [1, 2, 3], ["x" * 2000] * 3, ["", "", ""], np.array([None] * 3),
    np.zeros(3, "M8[s]"), np.zeros(3, [("a", "U2")]),
)  # fmt: skip


def damage_edf(raw: bytearray, chance: random.Random) -> None:
    """Other text in one to three fields, or another number of signals."""
    try:
        signals = int(bytes(raw[252:256]).decode("latin-1"))
    except ValueError:
        signals = 0
    for _ in range(chance.randint(1, 3)):
        if signals > 0 and chance.random() < 0.6:
            column = chance.randrange(len(_SIGNAL_FIELDS))
            before, width = sum(_SIGNAL_FIELDS[:column]), _SIGNAL_FIELDS[column]
            at = 256 + signals * before + chance.randrange(signals) * width
        else:
            at, width = chance.choice(_EDF_FIELDS)
        text = chance.choice(_EDF_TEXTS)
        if chance.random() < 0.3:
            text = str(number(chance)).encode()
        raw[at : at + width] = text[:width].ljust(width)


def damage_wav(raw: bytearray, chance: random.Random) -> None:
    """Change the size of a chunk or a field of a format; move, add or turn chunks."""
    order = ">" if raw[:4] == b"RIFX" else "<"
    chunks = _chunks(raw, order)
    if not chunks:
        set_number(raw, chance)
        return
    name, at, nbytes = chance.choice(chunks)
    kind = chance.randrange(5)
    if kind == 0:
        raw[at + 4 : at + 8] = struct.pack(f"{order}I", number(chance) & 0xFFFFFFFF)
    elif kind == 1:
        piece = raw[at : at + 8 + nbytes]
        del raw[at : at + 8 + nbytes]
        raw[chance.choice((12, at, len(raw))) :][:0] = piece
    elif kind == 2:
        raw[at:at] = b"junk" + struct.pack(f"{order}I", number(chance) & 0xFFFF)
        raw[at:at] = bytes(chance.randrange(9))
    elif kind == 3:
        raw[:4] = chance.choice((b"RIFF", b"RIFX", b"RF64", b"BW64"))
    else:
        _damage_format(raw, order, chance)
    if name == b"data" and chance.random() < 0.3:
        del raw[at + 8 + chance.randrange(nbytes + 1) :]


def _damage_format(raw: bytearray, order: str, chance: random.Random) -> None:
    at = raw.find(b"fmt ") + 8
    offset, code = chance.choice(
        (
            (0, "H"),
            (2, "H"),
            (4, "I"),
            (12, "H"),
            (14, "H"),
            (16, "H"),
            (18, "H"),
            (24, "H"),
        )
    )
    tags = (0, 1, 2, 3, 6, 7, 17, 85, 0xFFFE)
    value = (
        chance.choice(tags) if code == "H" and chance.random() < 0.4 else number(chance)
    )
    if chance.random() < 0.3:
        value = chance.randint(1, 70)
    value &= 0xFFFF if code == "H" else 0xFFFFFFFF
    raw[at + offset : at + offset + struct.calcsize(code)] = struct.pack(
        order + code, value
    )


def _chunks(raw: bytearray, order: str) -> list[tuple[bytes, int, int]]:
    found, at = [], 12
    while at + 8 <= len(raw) and len(found) < 20:
        name, nbytes = struct.unpack(f"{order}4sI", raw[at : at + 8])
        nbytes = min(nbytes, len(raw) - at - 8)
        found.append((name, at, nbytes))
        at += 8 + nbytes + nbytes % 2
    return found


def damage_npy(raw: bytearray, chance: random.Random) -> None:
    """Change shape, type, order or length in the header; leave the data."""
    if raw[:6] != b"\x93NUMPY" or len(raw) < 12:
        set_number(raw, chance)
        return
    begin = 10 if raw[6] == 1 else 12
    end = begin + int.from_bytes(raw[8:begin], "little")
    text = bytes(raw[begin:end]).decode("latin-1")
    kind = chance.randrange(5)
    if kind == 0:
        shape = chance.choice(_SHAPES)
        if chance.random() < 0.4:
            shape = f"({number(chance)}, {number(chance)})"
        text = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {shape}", text)
    elif kind == 1:
        descr = chance.choice(_DESCRS)
        text = re.sub(r"'descr': [^,]*", lambda _: f"'descr': {descr}", text)
    elif kind == 2:
        order = chance.choice(("True", "None", "1", "'x'"))
        text = text.replace("False", order)
    elif kind == 3:
        text = text.replace("'", chance.choice(('"', "", "\0"))) + "," * chance.randint(
            0, 9
        )
    else:
        raw[chance.choice((6, 7))] = chance.randrange(4)
    body = text.encode("latin-1", "replace")
    length = number(chance) if chance.random() < 0.1 else len(body)
    raw[begin:end] = body
    raw[8:begin] = (length & (256 ** (begin - 8) - 1)).to_bytes(begin - 8, "little")


def damage_npz(raw: bytearray, chance: random.Random) -> None:
    """Damage inside a member, packed anew; or in the list of members."""
    try:
        with zipfile.ZipFile(io.BytesIO(bytes(raw))) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:  # whatever zipfile makes of a file that is damaged already
        members = {}
    if not members or chance.random() < 0.4:
        _damage_list(raw, chance)
        return
    if chance.random() < 0.3:
        name = chance.choice(("fs", "channels", "units"))
        members[f"{name}.npy"] = _saved(chance.choice(_NOTES))
    buffer = io.BytesIO()
    method = chance.choice((0, 8, 8, zipfile.ZIP_BZIP2))
    doomed = chance.choice([*members])
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            piece = bytearray(content)
            if name == doomed and chance.random() < 0.8:
                chance.choice((damage_npy, damage_npy, *ANY))(piece, chance)
                name = chance.choice((name, name, name, "fs.npy", "units.npy", "x.txt"))
            info = zipfile.ZipInfo(name)  # by a name alone it would hold today's time
            info.compress_type = method
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # two members of one name
                archive.writestr(info, bytes(piece))
    raw[:] = buffer.getvalue()
    if chance.random() < 0.2:
        _damage_list(raw, chance)


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(value), allow_pickle=True)
    return buffer.getvalue()


def _damage_list(raw: bytearray, chance: random.Random) -> None:
    """A field of a member's entry, of its local header, or of the end of the list."""
    mark, fields = chance.choice(
        (
            (b"PK\1\2", ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4))),
            (b"PK\3\4", ((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))),
            (b"PK\5\6", ((4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))),
        )
    )
    places = [found.start() for found in re.finditer(re.escape(mark), bytes(raw))]
    if not places:
        set_number(raw, chance)
        return
    at, (offset, width) = chance.choice(places), chance.choice(fields)
    value = number(chance) & (256**width - 1)
    raw[at + offset : at + offset + width] = value.to_bytes(width, "little")


def damage_csv(raw: bytearray, chance: random.Random) -> None:
    """Other cells, lines lost or doubled, another delimiter or encoding."""
    text = bytes(raw).decode("utf-8", "replace")
    lines = text.split("\n")
    at = chance.choice((0, 1, chance.randrange(len(lines))))
    at = min(at, len(lines) - 1)
    kind = chance.randrange(7)
    if kind <= 2:
        cells = re.split(r"([,;\t| ])", lines[at])
        cells[2 * chance.randrange((len(cells) + 1) // 2)] = chance.choice(_CELLS)
        lines[at] = "".join(cells)
    elif kind == 3:
        lines[at : at + chance.randint(1, 3)] = [lines[at]] * chance.choice((0, 2, 500))
    elif kind == 4:
        old, new = (
            chance.choice(",;\t| .\n"),
            chance.choice((",", ";", "\t", "|", " ", "\r")),
        )
        lines = text.replace(old, new).split("\n")
    elif kind == 5:
        lines.insert(
            at, chance.choice(("", "#", "# a,b", ",,,", '"', "a b", "," * 70_000))
        )
    text = "\n".join(lines)
    encoding = "utf-8"
    if kind == 6:
        encoding = chance.choice(
            ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1")
        )
    raw[:] = text.encode(encoding, "replace")


DAMAGE: Mapping[str, Mutation] = {
    "edf": damage_edf,
    "bdf": damage_edf,
    "wav": damage_wav,
    "npy": damage_npy,
    "npz": damage_npz,
    "csv": damage_csv,
    "rlxg": damage_rlxg,
    "fif": libraries.damage_fif,
    "vhdr": libraries.damage_vhdr,
    "gdf": libraries.damage_gdf,
    "set": libraries.damage_set,
    "mat": libraries.damage_hdf5,
    "h5": libraries.damage_hdf5,
    "nwb": libraries.damage_hdf5,
    "zip": libraries.damage_zarr,
    "parquet": libraries.damage_parquet,
    "flac": libraries.damage_chunks,
    "ogg": libraries.damage_ogg,
    "mp3": libraries.damage_chunks,
    "aiff": libraries.damage_chunks,
    "onnx": libraries.damage_onnx,
    "rlxl": libraries.damage_rlxl,
}
