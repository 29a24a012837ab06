"""Damage to formats that other libraries read, where they look for their own words.

A byte that is flipped at random mostly breaks a checksum or a name. Here tags, fields,
pages, chunks and links are changed, and the sums are set right afterwards.
"""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zipfile
import zlib
from typing import Any

import h5py
import numpy as np

from tests.fuzz.damage_graphs import change_value
from tests.fuzz.mutate import ANY, number, set_number

NAMES = (
    "beside.eeg", "beside.fdt", "beside-1.fif", "beside.bin", "pipe", "zero", "folder",
    "../secret.bin", "/etc/passwd", "/dev/zero", "/dev/stdin", "..", ".", "", " ", "\0",
    "C:\\secret.bin", "\\\\host\\share\\x", "folder/../../secret.bin", "link.bin",
    "case.set", "$b.eeg", "x" * 300, "file:///etc/passwd", "http://localhost/x",
)  # fmt: skip
"""Names that a header may have for another file; some are there, some lead out."""


def damage_fif(raw: bytearray, chance: random.Random) -> None:
    """Change kind, type, length, successor or data of some tags."""
    tags = _tags_of(raw)
    if not tags:
        set_number(raw, chance)
        return
    for _ in range(chance.randint(1, 3)):
        at, nbytes = chance.choice(tags[: chance.choice((30, len(tags)))])
        what = chance.randrange(6)
        if what == 0:
            kinds = (100, 101, 102, 104, 105, 115, 117, 118, 200, 201, 203, 300, 301, 4)
            struct.pack_into(">i", raw, at, chance.choice(kinds))
        elif what == 1:
            kinds = (0, 1, 2, 3, 4, 5, 10, 16, 20, 21, 30, 31, 32, 35, 0x40000003)
            struct.pack_into(">i", raw, at + 4, chance.choice(kinds))
        elif what == 2:
            value = chance.choice((number(chance), nbytes + 4, nbytes - 4)) & 0x7FFFFFFF
            struct.pack_into(">i", raw, at + 8, value)
        elif what == 3:
            value = chance.choice((-1, 0, at, at + 16, 16, number(chance) & 0x7FFFFFFF))
            struct.pack_into(">i", raw, at + 12, value)
        elif what == 4 and nbytes >= 4:
            offset = chance.randrange(nbytes // 4) * 4
            value = number(chance) & 0xFFFFFFFF
            struct.pack_into(">I", raw, at + 16 + offset, value)
        elif nbytes:
            name = chance.choice(NAMES).encode("utf-8")[:nbytes].ljust(nbytes, b"\0")
            raw[at + 16 : at + 16 + nbytes] = name


def _tags_of(raw: bytearray) -> list[tuple[int, int]]:
    """Begin of each tag of a FIF file, and the length of its data."""
    tags, at = [], 0
    while at + 16 <= len(raw) and len(tags) < 4000:
        nbytes, after = struct.unpack_from(">ii", raw, at + 8)
        if nbytes < 0 or at + 16 + nbytes > len(raw):
            break
        tags.append((at, nbytes))
        at = after if after > at else at + 16 + nbytes
    return tags


_TEXTS = (
    "", "0", "-1", "1e9", "nan", "999999999", "BINARY", "ASCII", "VECTORIZED", "INT_16",
    "UINT_16", "IEEE_FLOAT_32", "utf_7", "cp037", "rot13", "utf-16", "µV", "%(x)s", "é",
    "Fz,,1e400,µV", "a,b,c,d,e,f", "[", "=", "New Segment,,1,1,0,99999999999999999999",
)  # fmt: skip


def damage_vhdr(raw: bytearray, chance: random.Random) -> None:
    """Change the value of a line; lose, double or insert lines."""
    lines = bytes(raw).decode("utf-8", "replace").split("\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        what = chance.randrange(5)
        if what <= 2:
            named = [n for n, line in enumerate(lines) if "File=" in line]
            if named and chance.random() < 0.5:
                at = chance.choice(named)
                value = chance.choice(NAMES)
            else:
                value = chance.choice((*_TEXTS, str(number(chance))))
            lines[at] = lines[at].partition("=")[0] + "=" + value
        elif what == 3:
            lines[at : at + 1] = [lines[at]] * chance.choice((0, 2, 300))
        else:
            lines.insert(at, chance.choice(("[Common Infos]", " x", "[Comment]", ";")))
    raw[:] = "\n".join(lines).encode("utf-8", "replace")


def damage_gdf(raw: bytearray, chance: random.Random) -> None:
    """Change a number in the header, in a channel's, or in the table of events."""
    many = max(1, min(9, int.from_bytes(raw[252:254], "little")))
    reach = 256 * (1 + many)
    for _ in range(chance.randint(1, 3)):
        code, nbytes = chance.choice((("B", 1), ("H", 2), ("I", 4), ("Q", 8), ("d", 8)))
        fields = (184, 236, 244, 248, 252, 256 + 96 * many, 256 + 104 * many)
        fields += (256 + 120 * many, 256 + 136 * many, 256 + 216 * many)
        at = chance.choice((*fields, 256 + 220 * many, chance.randrange(reach)))
        at = chance.choice((at, at, len(raw) - chance.randrange(1, 40)))
        if 0 <= at <= len(raw) - nbytes:
            value: Any = number(chance) & (256**nbytes - 1)
            if code == "d":
                value = chance.choice((0.0, -1.0, np.nan, np.inf, 1e300, 1e-300))
            struct.pack_into(f"<{code}", raw, at, value)


def damage_set(raw: bytearray, chance: random.Random) -> None:
    """A tag or its data, inside what is packed too."""
    at = 128
    places = []
    while at + 8 <= len(raw):
        kind, nbytes = struct.unpack_from("<2I", raw, at)
        places.append((at, kind, nbytes))
        at += 8 + nbytes
    if not places:
        set_number(raw, chance)
        return
    at, kind, nbytes = chance.choice(places)
    inside = bytes(raw[at + 8 : at + 8 + nbytes])
    if kind != 15:
        piece = bytearray(inside)
        _damage_tags(piece, chance)
        raw[at + 8 : at + 8 + nbytes] = piece
        return
    try:
        piece = bytearray(zlib.decompress(inside))
    except zlib.error:
        set_number(raw, chance)
        return
    _damage_tags(piece, chance)
    packed = zlib.compress(bytes(piece))
    raw[at : at + 8 + nbytes] = struct.pack("<2I", 15, len(packed)) + packed


def _damage_tags(piece: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 2)):
        if len(piece) < 16:
            return
        at = chance.randrange(len(piece) // 8) * 8
        what = chance.randrange(4)
        place = bytes(piece).find(b"beside.fdt")
        if what == 0 and place >= 0:
            name = chance.choice(NAMES).encode()[:10].ljust(10, b"\0")
            piece[place : place + 10] = name
        elif what <= 1:
            struct.pack_into("<I", piece, at, chance.choice((*range(19), 0x10001)))
        elif what == 2:
            struct.pack_into("<I", piece, at + 4, number(chance) & 0xFFFFFFFF)
        else:
            chance.choice(ANY)(piece, chance)


_VALUES: tuple[Any, ...] = (
    0, -1, 1e300, np.nan, "x", b"\xff", ["a", "b", "c"], ["a"] * 70_000, [1, 2], "",
    "2024-13-01", np.zeros((3, 3)), np.zeros(0), "\0", "volts", [["a"]], True, 1j,
)  # fmt: skip


def damage_hdf5(raw: bytearray, chance: random.Random) -> None:
    """Arrays that lie elsewhere, claim much or are another thing; other attributes."""
    head = bytes(raw[:512]) if raw[:6] == b"MATLAB" else b""
    file_bytes = io.BytesIO(bytes(raw))
    try:
        with h5py.File(file_bytes, "r+") as file:
            for _ in range(chance.randint(1, 2)):
                _damage_inside(file, chance)
    except Exception:  # whatever h5py makes of a file that is damaged already
        set_number(raw, chance)
        return
    raw[:] = file_bytes.getvalue()
    raw[: len(head)] = head


def _damage_inside(file: Any, chance: random.Random) -> None:
    names: list[str] = []
    file.visit(names.append)
    name = chance.choice(names)
    node = file[name]
    what = chance.randrange(7)
    if what == 0:
        holder = chance.choice((node, node.parent, file))
        said = ("fs", "channels", "unit", "rate", "conversion", "MATLAB_class", "table")
        holder.attrs[chance.choice(said)] = chance.choice(_VALUES)
        return
    group, own = node.parent, name.rpartition("/")[2]
    shape = getattr(node, "shape", (3,))
    del group[own]
    if what == 1:
        kind = chance.choice(("S8", "f8", "i2"))
        nbytes = 8 * int(np.prod(shape, dtype=int) or 1)
        target = chance.choice(NAMES).replace("\0", "") or "x"
        group.create_dataset(own, shape, kind, external=[(target, 0, nbytes)])
    elif what == 2:
        target = chance.choice(NAMES).replace("\0", "") or "x"
        links = (h5py.ExternalLink(target, "/x"), h5py.SoftLink("/" + own))
        group[own] = chance.choice((*links, h5py.SoftLink("/gone")))
    elif what == 3:
        count = chance.choice((1 << 20, 1 << 28, 1 << 34))
        kind = chance.choice(("f8", "S64", "u1", h5py.string_dtype()))
        chunk = chance.choice((1024, 1 << 20, 1 << 27))
        chunks = (min(chunk, count),)
        packing = chance.choice((None, "gzip", "lzf"))
        group.create_dataset(own, (count,), kind, chunks=chunks, compression=packing)
    elif what == 4:
        data = file.create_dataset(
            f"{group.name}/{own}", (3, 320), "f4", chunks=(3, 320), compression="gzip"
        )
        pack = zlib.compressobj(9)
        zeros = bytes(1 << 20)
        bomb = b"".join(pack.compress(zeros) for _ in range(chance.choice((1, 90))))
        data.id.write_direct_chunk((0, 0), bomb + pack.flush())
    elif what == 5:
        layout = h5py.VirtualLayout((3,), "f8")
        layout.dcpl.set_obj_track_times(False)  # else the file holds today's time
        target = chance.choice(NAMES).replace("\0", "") or "x"
        layout[:] = h5py.VirtualSource(target, "x", (3,))
        group.create_virtual_dataset(own, layout)
    else:
        value = chance.choice(_VALUES)
        group[own] = np.array(value, object) if value == ["a"] * 3 else value


def damage_zarr(raw: bytearray, chance: random.Random) -> None:
    """Other metadata, other chunks, members lost or of another name."""
    try:
        with zipfile.ZipFile(io.BytesIO(bytes(raw))) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:
        members = {}
    if not members:
        set_number(raw, chance)
        return
    for _ in range(chance.randint(1, 2)):
        name = chance.choice([*members])
        piece = bytearray(members[name])
        if name.endswith((".json", ".zarray", ".zgroup", ".zattrs")):
            _damage_json(piece, chance)
        elif chance.random() < 0.3:
            packs = {31: "gzip", 15: "zlib"}
            pack = zlib.compressobj(9, wbits=chance.choice([*packs]))
            zeros = bytes(1 << 20)
            piece[:] = b"".join(pack.compress(zeros) for _ in range(90)) + pack.flush()
        else:
            chance.choice(ANY)(piece, chance)
        del members[name]
        if chance.random() < 0.9:
            members[name] = bytes(piece)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = chance.choice((0, 8))
            archive.writestr(info, content)
    raw[:] = buffer.getvalue()


def _damage_json(piece: bytearray, chance: random.Random) -> None:
    try:
        about = json.loads(bytes(piece))
        change_value(about, chance)
        piece[:] = json.dumps(about).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        set_number(piece, chance)


def damage_parquet(raw: bytearray, chance: random.Random) -> None:
    """Bytes of the footer or of a page's header; or other words in the schema."""
    nbytes = int.from_bytes(raw[-8:-4], "little")
    begin = max(4, len(raw) - 8 - nbytes)
    what = chance.randrange(3)
    for _ in range(chance.randint(1, 4)):
        if what == 0 and begin < len(raw) - 8:
            at = chance.randrange(begin, len(raw) - 8)
        elif what == 1:
            at = chance.randrange(4, max(5, min(60, begin)))
        else:
            at = chance.randrange(len(raw))
        raw[at : at + 1] = bytes([chance.choice((0, 1, 127, 128, 255, raw[at] ^ 1))])


def damage_chunks(raw: bytearray, chance: random.Random) -> None:
    """Change a number in a chunk of AIFF, or in the first bytes of any audio."""
    at = 12
    places = [4, 8]
    while at + 8 <= len(raw) and len(places) < 30:
        places += [at, at + 4, at + 8, at + 10, at + 14, at + 16, at + 20]
        at += 8 + int.from_bytes(raw[at + 4 : at + 8], "big")
    place = chance.choice((*places, chance.randrange(60)))
    width = chance.choice((1, 2, 4))
    value = number(chance) & (256**width - 1)
    raw[place : place + width] = value.to_bytes(width, chance.choice(("big", "little")))


def damage_ogg(raw: bytearray, chance: random.Random) -> None:
    """Any damage to a page of Ogg, whose checksum is set right."""
    begins = [at for at in range(len(raw) - 27) if raw[at : at + 4] == b"OggS"]
    if not begins:
        set_number(raw, chance)
        return
    at = chance.choice(begins)
    past = next((other for other in begins if other > at), len(raw))
    page = bytearray(raw[at:past])
    chance.choice(ANY)(page, chance)
    if len(page) > 27:
        page[22:26] = bytes(4)
        page[22:26] = _sum_of(bytes(page)).to_bytes(4, "little")
    raw[at:past] = page


def _sum_of(page: bytes) -> int:
    """The checksum of Ogg: polynomial 0x04c11db7, nothing reflected."""
    found = 0
    for one in page:
        found ^= one << 24
        for _ in range(8):
            found = (found << 1 ^ (0x04C11DB7 if found & 1 << 31 else 0)) & 0xFFFFFFFF
    return found


def damage_onnx(raw: bytearray, chance: random.Random) -> None:
    """Change a value in one to three fields of the model's message."""
    import onnx

    message = onnx.ModelProto()
    try:
        message.ParseFromString(bytes(raw))
        for _ in range(chance.randint(1, 3)):
            _damage_message(message, chance)
        raw[:] = message.SerializeToString()
    except Exception:  # whatever protobuf makes of it
        set_number(raw, chance)


def _damage_message(message: Any, chance: random.Random) -> None:
    while True:
        fields = message.ListFields()
        if not fields:
            return
        field, value = chance.choice(fields)
        many = not isinstance(value, str | bytes) and hasattr(value, "__len__")
        inner = [one for one in (value if many else [value])]
        if field.type != field.TYPE_MESSAGE or chance.random() < 0.1:
            break
        message = chance.choice(inner)
    if many:
        if field.type == field.TYPE_MESSAGE or chance.random() < 0.3:
            del value[chance.randrange(len(value))]
        else:
            value[chance.randrange(len(value))] = _other(field, chance)
    elif field.type == field.TYPE_MESSAGE or chance.random() < 0.1:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _other(field, chance))


def _other(field: Any, chance: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return chance.choice((*NAMES, "x", "y", "Softmax", "Loop", "ai.onnx.ml"))
    if field.type == field.TYPE_BYTES:
        return chance.randbytes(chance.choice((0, 1, 4, 32, 100)))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return chance.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    if field.type == field.TYPE_ENUM:
        return chance.choice(range(25))
    if field.type == field.TYPE_INT32:
        return number(chance) & 0x7FFFFFFF
    return chance.choice((number(chance), -1, 1 << 62)) & ((1 << 63) - 1)


def damage_rlxl(raw: bytearray, chance: random.Random) -> None:
    """Change a value in the header or in what it says of the transform."""
    nbytes = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(bytes(raw[8 : 8 + nbytes]))
        texts = header["__metadata__"]
        key = next(iter(texts))
        about = json.loads(texts[key])
        change_value(about if chance.random() < 0.6 else header, chance)
        texts[key] = json.dumps(about)
        made = json.dumps(header).encode()
    except Exception:  # whatever it has become by the damage before
        set_number(raw, chance)
        return
    made += b" " * (-len(made) % 8)
    raw[: 8 + nbytes] = len(made).to_bytes(8, "little") + made
