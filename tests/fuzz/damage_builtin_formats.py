"""Format-aware damage to EDF, WAV, NPY, NPZ and CSV files: header fields, counts,
sizes, chunks and cells.

One function per format, of the same form as those of `mutate_bytes`. A file that has
lost its form already is damaged like any other.
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

from tests.fuzz import damage_library_formats as libraries
from tests.fuzz.damage_graph_files import damage_rlxg
from tests.fuzz.mutate_bytes import GENERAL_MUTATIONS, Mutation, edge_number, set_number

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
_CSV_CELLS = (
    "", " ", "nan", "-inf", "1e999999999", "-1e-999999999", "1_0", "0x10", "1,5", "1.5",
    '"', '""', '"a', 'a"b', "\0", "\r", "\t", ";", "|", "#", "=1+1", "\x1b[2J",
    "\ufeff", "\u0662", "9" * 400, "9" * 5000, "x" * 140_000, "time", "t[us]",
    "Time (ms)", "-0", "1e308", "-1e308", "5e-324", "2020-01-01 10:00", "٣", "1 2",
)  # fmt: skip
_NPY_SHAPES = (
    "()", "(0,)", "(1,)", "(3, 0)", "(0, 3)", "(1000000000, 0)", "(2000000, 1)",
    "(-1, 3)", "(3, 3, 3)", "(1152921504606846975, 9)", "(True, 2)", "(1.0, 2)", "3",
    "(3L, 200L)", "[3, 200]", "('a',)", "(" * 500, "(" + "9," * 2000 + ")", "None",
)  # fmt: skip
_NPY_DESCRS = (
    "'|O'", "'<c16'", "'|b1'", "'<U5'", "'<M8[D]'", "'|V8'", "'<f2'", "'>i8'", "'f16'",
    "[('a', '<f8')]", "'<f8,<f8'", "('<f8', (2,))", "{}", "1", "''", "'|S0'",
)  # fmt: skip
# Beside the array of an NPZ file.
_NPZ_METADATA: tuple[Any, ...] = (
    0, -1.0, math.nan, math.inf, 1e300, 1e-300, 2**63, 64, 64 + 0j, True, "64",
    b"64", [64.0], [[64.0]], [64.0, 32.0], [], ["a"], ["a", "b", "c"], ["a"] * 5000,
    [["a", "b"]], [b"a", b"\xff", b"\xc3"], ["\ud800", "\0", "\x1b[2J"], "uV",
    [1, 2, 3], ["x" * 2000] * 3, ["", "", ""], np.array([None] * 3),
    np.zeros(3, "M8[s]"), np.zeros(3, [("a", "U2")]),
)  # fmt: skip


def damage_edf(raw: bytearray, rng: random.Random) -> None:
    """Put other text in one to three fields, or another number of signals."""
    try:
        signals = int(bytes(raw[252:256]).decode("latin-1"))
    except ValueError:
        signals = 0
    for _ in range(rng.randint(1, 3)):
        if signals > 0 and rng.random() < 0.6:
            column = rng.randrange(len(_SIGNAL_FIELDS))
            column_offset, width = sum(_SIGNAL_FIELDS[:column]), _SIGNAL_FIELDS[column]
            at = 256 + signals * column_offset + rng.randrange(signals) * width
        else:
            at, width = rng.choice(_EDF_FIELDS)
        text = rng.choice(_EDF_TEXTS)
        if rng.random() < 0.3:
            text = str(edge_number(rng)).encode()
        raw[at : at + width] = text[:width].ljust(width)


def damage_wav(raw: bytearray, rng: random.Random) -> None:
    """Change the size of a chunk or a field of a format; move, add or turn chunks."""
    order = ">" if raw[:4] == b"RIFX" else "<"
    chunks = _wav_chunks(raw, order)
    if not chunks:
        set_number(raw, rng)
        return
    name, at, nbytes = rng.choice(chunks)
    kind = rng.randrange(5)
    if kind == 0:
        raw[at + 4 : at + 8] = struct.pack(f"{order}I", edge_number(rng) & 0xFFFFFFFF)
    elif kind == 1:
        piece = raw[at : at + 8 + nbytes]
        del raw[at : at + 8 + nbytes]
        raw[rng.choice((12, at, len(raw))) :][:0] = piece
    elif kind == 2:
        raw[at:at] = b"junk" + struct.pack(f"{order}I", edge_number(rng) & 0xFFFF)
        raw[at:at] = bytes(rng.randrange(9))
    elif kind == 3:
        raw[:4] = rng.choice((b"RIFF", b"RIFX", b"RF64", b"BW64"))
    else:
        _damage_wav_format(raw, order, rng)
    if name == b"data" and rng.random() < 0.3:
        del raw[at + 8 + rng.randrange(nbytes + 1) :]


def _damage_wav_format(raw: bytearray, order: str, rng: random.Random) -> None:
    at = raw.find(b"fmt ") + 8
    offset, code = rng.choice(
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
    value = rng.choice(tags) if code == "H" and rng.random() < 0.4 else edge_number(rng)
    if rng.random() < 0.3:
        value = rng.randint(1, 70)
    value &= 0xFFFF if code == "H" else 0xFFFFFFFF
    raw[at + offset : at + offset + struct.calcsize(code)] = struct.pack(
        order + code, value
    )


def _wav_chunks(raw: bytearray, order: str) -> list[tuple[bytes, int, int]]:
    chunks, at = [], 12
    while at + 8 <= len(raw) and len(chunks) < 20:
        name, nbytes = struct.unpack(f"{order}4sI", raw[at : at + 8])
        nbytes = min(nbytes, len(raw) - at - 8)
        chunks.append((name, at, nbytes))
        at += 8 + nbytes + nbytes % 2
    return chunks


def damage_npy(raw: bytearray, rng: random.Random) -> None:
    """Change shape, type, order or length in the header; leave the data."""
    if raw[:6] != b"\x93NUMPY" or len(raw) < 12:
        set_number(raw, rng)
        return
    begin = 10 if raw[6] == 1 else 12
    end = begin + int.from_bytes(raw[8:begin], "little")
    text = bytes(raw[begin:end]).decode("latin-1")
    kind = rng.randrange(5)
    if kind == 0:
        shape = rng.choice(_NPY_SHAPES)
        if rng.random() < 0.4:
            shape = f"({edge_number(rng)}, {edge_number(rng)})"
        text = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {shape}", text)
    elif kind == 1:
        descr = rng.choice(_NPY_DESCRS)
        text = re.sub(r"'descr': [^,]*", lambda _: f"'descr': {descr}", text)
    elif kind == 2:
        order = rng.choice(("True", "None", "1", "'x'"))
        text = text.replace("False", order)
    elif kind == 3:
        text = text.replace("'", rng.choice(('"', "", "\0"))) + "," * rng.randint(0, 9)
    else:
        raw[rng.choice((6, 7))] = rng.randrange(4)
    body = text.encode("latin-1", "replace")
    length = edge_number(rng) if rng.random() < 0.1 else len(body)
    raw[begin:end] = body
    raw[8:begin] = (length & (256 ** (begin - 8) - 1)).to_bytes(begin - 8, "little")


def damage_npz(raw: bytearray, rng: random.Random) -> None:
    """Damage inside a member and repack it, or damage the list of members."""
    try:
        with zipfile.ZipFile(io.BytesIO(bytes(raw))) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:  # whatever zipfile makes of a file that is damaged already
        members = {}
    if not members or rng.random() < 0.4:
        _damage_zip_directory(raw, rng)
        return
    if rng.random() < 0.3:
        name = rng.choice(("fs", "channels", "units"))
        members[f"{name}.npy"] = _npy_bytes(rng.choice(_NPZ_METADATA))
    buffer = io.BytesIO()
    method = rng.choice((0, 8, 8, zipfile.ZIP_BZIP2))
    damaged_name = rng.choice([*members])
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            piece = bytearray(content)
            if name == damaged_name and rng.random() < 0.8:
                rng.choice((damage_npy, damage_npy, *GENERAL_MUTATIONS))(piece, rng)
                name = rng.choice((name, name, name, "fs.npy", "units.npy", "x.txt"))
            info = zipfile.ZipInfo(name)  # by a name alone it would hold today's time
            info.compress_type = method
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # two members of one name
                archive.writestr(info, bytes(piece))
    raw[:] = buffer.getvalue()
    if rng.random() < 0.2:
        _damage_zip_directory(raw, rng)


def _npy_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(value), allow_pickle=True)
    return buffer.getvalue()


def _damage_zip_directory(raw: bytearray, rng: random.Random) -> None:
    """Damage a field of a member's entry, of its local header, or of the end of the
    directory.
    """
    signature, fields = rng.choice(
        (
            (b"PK\1\2", ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4))),
            (b"PK\3\4", ((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))),
            (b"PK\5\6", ((4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))),
        )
    )
    places = [match.start() for match in re.finditer(re.escape(signature), bytes(raw))]
    if not places:
        set_number(raw, rng)
        return
    at, (offset, width) = rng.choice(places), rng.choice(fields)
    value = edge_number(rng) & (256**width - 1)
    raw[at + offset : at + offset + width] = value.to_bytes(width, "little")


def damage_csv(raw: bytearray, rng: random.Random) -> None:
    """Put other cells, lose or double lines, or change the delimiter or encoding."""
    text = bytes(raw).decode("utf-8", "replace")
    lines = text.split("\n")
    at = rng.choice((0, 1, rng.randrange(len(lines))))
    at = min(at, len(lines) - 1)
    kind = rng.randrange(7)
    if kind <= 2:
        cells = re.split(r"([,;\t| ])", lines[at])
        cells[2 * rng.randrange((len(cells) + 1) // 2)] = rng.choice(_CSV_CELLS)
        lines[at] = "".join(cells)
    elif kind == 3:
        lines[at : at + rng.randint(1, 3)] = [lines[at]] * rng.choice((0, 2, 500))
    elif kind == 4:
        old = rng.choice(",;\t| .\n")
        new = rng.choice((",", ";", "\t", "|", " ", "\r"))
        lines = text.replace(old, new).split("\n")
    elif kind == 5:
        lines.insert(
            at, rng.choice(("", "#", "# a,b", ",,,", '"', "a b", "," * 70_000))
        )
    text = "\n".join(lines)
    encoding = "utf-8"
    if kind == 6:
        encoding = rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"))
    raw[:] = text.encode(encoding, "replace")


DAMAGE_BY_KIND: Mapping[str, Mutation] = {
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
