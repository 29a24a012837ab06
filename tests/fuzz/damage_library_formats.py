"""Damage to formats that other libraries read, at the places where they look for tags
and fields.

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

from tests.fuzz.damage_graph_files import change_value
from tests.fuzz.mutate_bytes import GENERAL_MUTATIONS, edge_number, set_number

LINK_TARGETS = (
    "beside.eeg", "beside.fdt", "beside-1.fif", "beside.bin", "pipe", "zero", "folder",
    "../secret.bin", "/etc/passwd", "/dev/zero", "/dev/stdin", "..", ".", "", " ", "\0",
    "C:\\secret.bin", "\\\\host\\share\\x", "folder/../../secret.bin", "link.bin",
    "case.set", "$b.eeg", "x" * 300, "file:///etc/passwd", "http://localhost/x",
)  # fmt: skip
"""Names that a header may have for another file; some exist, some lead outside the
folder.
"""


def damage_fif(raw: bytearray, rng: random.Random) -> None:
    """Change kind, type, length, successor or data of some tags."""
    tags = _fif_tags(raw)
    if not tags:
        set_number(raw, rng)
        return
    for _ in range(rng.randint(1, 3)):
        at, nbytes = rng.choice(tags[: rng.choice((30, len(tags)))])
        action = rng.randrange(6)
        if action == 0:
            kinds = (100, 101, 102, 104, 105, 115, 117, 118, 200, 201, 203, 300, 301, 4)
            struct.pack_into(">i", raw, at, rng.choice(kinds))
        elif action == 1:
            kinds = (0, 1, 2, 3, 4, 5, 10, 16, 20, 21, 30, 31, 32, 35, 0x40000003)
            struct.pack_into(">i", raw, at + 4, rng.choice(kinds))
        elif action == 2:
            value = rng.choice((edge_number(rng), nbytes + 4, nbytes - 4)) & 0x7FFFFFFF
            struct.pack_into(">i", raw, at + 8, value)
        elif action == 3:
            value = rng.choice((-1, 0, at, at + 16, 16, edge_number(rng) & 0x7FFFFFFF))
            struct.pack_into(">i", raw, at + 12, value)
        elif action == 4 and nbytes >= 4:
            offset = rng.randrange(nbytes // 4) * 4
            value = edge_number(rng) & 0xFFFFFFFF
            struct.pack_into(">I", raw, at + 16 + offset, value)
        elif nbytes:
            name = (
                rng.choice(LINK_TARGETS).encode("utf-8")[:nbytes].ljust(nbytes, b"\0")
            )
            raw[at + 16 : at + 16 + nbytes] = name


def _fif_tags(raw: bytearray) -> list[tuple[int, int]]:
    """Return the offset of each tag of a FIF file, and the length of its data."""
    tags, at = [], 0
    while at + 16 <= len(raw) and len(tags) < 4000:
        nbytes, next_tag = struct.unpack_from(">ii", raw, at + 8)
        if nbytes < 0 or at + 16 + nbytes > len(raw):
            break
        tags.append((at, nbytes))
        at = next_tag if next_tag > at else at + 16 + nbytes
    return tags


_VHDR_VALUES = (
    "", "0", "-1", "1e9", "nan", "999999999", "BINARY", "ASCII", "VECTORIZED", "INT_16",
    "UINT_16", "IEEE_FLOAT_32", "utf_7", "cp037", "rot13", "utf-16", "µV", "%(x)s", "é",
    "Fz,,1e400,µV", "a,b,c,d,e,f", "[", "=", "New Segment,,1,1,0,99999999999999999999",
)  # fmt: skip


def damage_vhdr(raw: bytearray, rng: random.Random) -> None:
    """Change the value of a line; lose, double or insert lines."""
    lines = bytes(raw).decode("utf-8", "replace").split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        action = rng.randrange(5)
        if action <= 2:
            file_lines = [n for n, line in enumerate(lines) if "File=" in line]
            if file_lines and rng.random() < 0.5:
                at = rng.choice(file_lines)
                value = rng.choice(LINK_TARGETS)
            else:
                value = rng.choice((*_VHDR_VALUES, str(edge_number(rng))))
            lines[at] = lines[at].partition("=")[0] + "=" + value
        elif action == 3:
            lines[at : at + 1] = [lines[at]] * rng.choice((0, 2, 300))
        else:
            lines.insert(at, rng.choice(("[Common Infos]", " x", "[Comment]", ";")))
    raw[:] = "\n".join(lines).encode("utf-8", "replace")


def damage_gdf(raw: bytearray, rng: random.Random) -> None:
    """Change a number in the header, in a channel's, or in the table of events."""
    n_channels = max(1, min(9, int.from_bytes(raw[252:254], "little")))
    header_nbytes = 256 * (1 + n_channels)
    for _ in range(rng.randint(1, 3)):
        code, nbytes = rng.choice((("B", 1), ("H", 2), ("I", 4), ("Q", 8), ("d", 8)))
        fields = (
            184,
            236,
            244,
            248,
            252,
            256 + 96 * n_channels,
            256 + 104 * n_channels,
        )
        fields += (
            256 + 120 * n_channels,
            256 + 136 * n_channels,
            256 + 216 * n_channels,
        )
        at = rng.choice((*fields, 256 + 220 * n_channels, rng.randrange(header_nbytes)))
        at = rng.choice((at, at, len(raw) - rng.randrange(1, 40)))
        if 0 <= at <= len(raw) - nbytes:
            value: Any = edge_number(rng) & (256**nbytes - 1)
            if code == "d":
                value = rng.choice((0.0, -1.0, np.nan, np.inf, 1e300, 1e-300))
            struct.pack_into(f"<{code}", raw, at, value)


def damage_set(raw: bytearray, rng: random.Random) -> None:
    """Damage a tag or its data, inside compressed elements too."""
    at = 128
    places = []
    while at + 8 <= len(raw):
        kind, nbytes = struct.unpack_from("<2I", raw, at)
        places.append((at, kind, nbytes))
        at += 8 + nbytes
    if not places:
        set_number(raw, rng)
        return
    at, kind, nbytes = rng.choice(places)
    content = bytes(raw[at + 8 : at + 8 + nbytes])
    if kind != 15:
        piece = bytearray(content)
        _damage_mat_tags(piece, rng)
        raw[at + 8 : at + 8 + nbytes] = piece
        return
    try:
        piece = bytearray(zlib.decompress(content))
    except zlib.error:
        set_number(raw, rng)
        return
    _damage_mat_tags(piece, rng)
    packed = zlib.compress(bytes(piece))
    raw[at : at + 8 + nbytes] = struct.pack("<2I", 15, len(packed)) + packed


def _damage_mat_tags(piece: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 2)):
        if len(piece) < 16:
            return
        at = rng.randrange(len(piece) // 8) * 8
        action = rng.randrange(4)
        place = bytes(piece).find(b"beside.fdt")
        if action == 0 and place >= 0:
            name = rng.choice(LINK_TARGETS).encode()[:10].ljust(10, b"\0")
            piece[place : place + 10] = name
        elif action <= 1:
            struct.pack_into("<I", piece, at, rng.choice((*range(19), 0x10001)))
        elif action == 2:
            struct.pack_into("<I", piece, at + 4, edge_number(rng) & 0xFFFFFFFF)
        else:
            rng.choice(GENERAL_MUTATIONS)(piece, rng)


_HDF5_VALUES: tuple[Any, ...] = (
    0, -1, 1e300, np.nan, "x", b"\xff", ["a", "b", "c"], ["a"] * 70_000, [1, 2], "",
    "2024-13-01", np.zeros((3, 3)), np.zeros(0), "\0", "volts", [["a"]], True, 1j,
)  # fmt: skip


def damage_hdf5(raw: bytearray, rng: random.Random) -> None:
    """Replace datasets by external, huge or other objects, or change attributes."""
    head = bytes(raw[:512]) if raw[:6] == b"MATLAB" else b""
    file_bytes = io.BytesIO(bytes(raw))
    try:
        with h5py.File(file_bytes, "r+") as file:
            for _ in range(rng.randint(1, 2)):
                _damage_hdf5_node(file, rng)
    except Exception:  # whatever h5py makes of a file that is damaged already
        set_number(raw, rng)
        return
    raw[:] = file_bytes.getvalue()
    raw[: len(head)] = head


def _damage_hdf5_node(file: Any, rng: random.Random) -> None:
    names: list[str] = []
    file.visit(names.append)
    name = rng.choice(names)
    node = file[name]
    action = rng.randrange(7)
    if action == 0:
        holder = rng.choice((node, node.parent, file))
        attribute_names = (
            "fs",
            "channels",
            "unit",
            "rate",
            "conversion",
            "MATLAB_class",
            "table",
        )
        holder.attrs[rng.choice(attribute_names)] = rng.choice(_HDF5_VALUES)
        return
    group, base_name = node.parent, name.rpartition("/")[2]
    shape = getattr(node, "shape", (3,))
    del group[base_name]
    if action == 1:
        kind = rng.choice(("S8", "f8", "i2"))
        nbytes = 8 * int(np.prod(shape, dtype=int) or 1)
        target = rng.choice(LINK_TARGETS).replace("\0", "") or "x"
        group.create_dataset(base_name, shape, kind, external=[(target, 0, nbytes)])
    elif action == 2:
        target = rng.choice(LINK_TARGETS).replace("\0", "") or "x"
        links = (h5py.ExternalLink(target, "/x"), h5py.SoftLink("/" + base_name))
        group[base_name] = rng.choice((*links, h5py.SoftLink("/gone")))
    elif action == 3:
        count = rng.choice((1 << 20, 1 << 28, 1 << 34))
        kind = rng.choice(("f8", "S64", "u1", h5py.string_dtype()))
        chunk = rng.choice((1024, 1 << 20, 1 << 27))
        chunks = (min(chunk, count),)
        compression = rng.choice((None, "gzip", "lzf"))
        group.create_dataset(
            base_name, (count,), kind, chunks=chunks, compression=compression
        )
    elif action == 4:
        data = file.create_dataset(
            f"{group.name}/{base_name}",
            (3, 320),
            "f4",
            chunks=(3, 320),
            compression="gzip",
        )
        compressor = zlib.compressobj(9)
        zeros = bytes(1 << 20)
        bomb = b"".join(compressor.compress(zeros) for _ in range(rng.choice((1, 90))))
        data.id.write_direct_chunk((0, 0), bomb + compressor.flush())
    elif action == 5:
        layout = h5py.VirtualLayout((3,), "f8")
        layout.dcpl.set_obj_track_times(False)  # else the file holds today's time
        target = rng.choice(LINK_TARGETS).replace("\0", "") or "x"
        layout[:] = h5py.VirtualSource(target, "x", (3,))
        group.create_virtual_dataset(base_name, layout)
    else:
        value = rng.choice(_HDF5_VALUES)
        group[base_name] = np.array(value, object) if value == ["a"] * 3 else value


def damage_zarr(raw: bytearray, rng: random.Random) -> None:
    """Change metadata or chunks, lose members or rename them."""
    try:
        with zipfile.ZipFile(io.BytesIO(bytes(raw))) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:
        members = {}
    if not members:
        set_number(raw, rng)
        return
    for _ in range(rng.randint(1, 2)):
        name = rng.choice([*members])
        piece = bytearray(members[name])
        if name.endswith((".json", ".zarray", ".zgroup", ".zattrs")):
            _damage_json(piece, rng)
        elif rng.random() < 0.3:
            wbits_formats = {31: "gzip", 15: "zlib"}
            compressor = zlib.compressobj(9, wbits=rng.choice([*wbits_formats]))
            zeros = bytes(1 << 20)
            piece[:] = (
                b"".join(compressor.compress(zeros) for _ in range(90))
                + compressor.flush()
            )
        else:
            rng.choice(GENERAL_MUTATIONS)(piece, rng)
        del members[name]
        if rng.random() < 0.9:
            members[name] = bytes(piece)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = rng.choice((0, 8))
            archive.writestr(info, content)
    raw[:] = buffer.getvalue()


def _damage_json(piece: bytearray, rng: random.Random) -> None:
    try:
        metadata = json.loads(bytes(piece))
        change_value(metadata, rng)
        piece[:] = json.dumps(metadata).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        set_number(piece, rng)


def damage_parquet(raw: bytearray, rng: random.Random) -> None:
    """Change bytes of the footer or of a page's header, or any bytes."""
    nbytes = int.from_bytes(raw[-8:-4], "little")
    begin = max(4, len(raw) - 8 - nbytes)
    action = rng.randrange(3)
    for _ in range(rng.randint(1, 4)):
        if action == 0 and begin < len(raw) - 8:
            at = rng.randrange(begin, len(raw) - 8)
        elif action == 1:
            at = rng.randrange(4, max(5, min(60, begin)))
        else:
            at = rng.randrange(len(raw))
        raw[at : at + 1] = bytes([rng.choice((0, 1, 127, 128, 255, raw[at] ^ 1))])


def damage_chunks(raw: bytearray, rng: random.Random) -> None:
    """Change a number in a chunk of AIFF, or in the first bytes of any audio."""
    at = 12
    places = [4, 8]
    while at + 8 <= len(raw) and len(places) < 30:
        places += [at, at + 4, at + 8, at + 10, at + 14, at + 16, at + 20]
        at += 8 + int.from_bytes(raw[at + 4 : at + 8], "big")
    place = rng.choice((*places, rng.randrange(60)))
    width = rng.choice((1, 2, 4))
    value = edge_number(rng) & (256**width - 1)
    raw[place : place + width] = value.to_bytes(width, rng.choice(("big", "little")))


def damage_ogg(raw: bytearray, rng: random.Random) -> None:
    """Damage a page of Ogg and correct its checksum."""
    page_offsets = [at for at in range(len(raw) - 27) if raw[at : at + 4] == b"OggS"]
    if not page_offsets:
        set_number(raw, rng)
        return
    at = rng.choice(page_offsets)
    page_end = next((offset for offset in page_offsets if offset > at), len(raw))
    page = bytearray(raw[at:page_end])
    rng.choice(GENERAL_MUTATIONS)(page, rng)
    if len(page) > 27:
        page[22:26] = bytes(4)
        page[22:26] = _ogg_checksum(bytes(page)).to_bytes(4, "little")
    raw[at:page_end] = page


def _ogg_checksum(page: bytes) -> int:
    """Return the checksum of an Ogg page: polynomial 0x04c11db7, nothing reflected."""
    checksum = 0
    for byte in page:
        checksum ^= byte << 24
        for _ in range(8):
            checksum = (
                checksum << 1 ^ (0x04C11DB7 if checksum & 1 << 31 else 0)
            ) & 0xFFFFFFFF
    return checksum


def damage_onnx(raw: bytearray, rng: random.Random) -> None:
    """Change a value in one to three fields of the model's message."""
    import onnx

    message = onnx.ModelProto()
    try:
        message.ParseFromString(bytes(raw))
        for _ in range(rng.randint(1, 3)):
            _damage_onnx_message(message, rng)
        raw[:] = message.SerializeToString()
    except Exception:  # whatever protobuf makes of it
        set_number(raw, rng)


def _damage_onnx_message(message: Any, rng: random.Random) -> None:
    while True:
        fields = message.ListFields()
        if not fields:
            return
        field, value = rng.choice(fields)
        is_repeated = not isinstance(value, str | bytes) and hasattr(value, "__len__")
        items = [item for item in (value if is_repeated else [value])]
        if field.type != field.TYPE_MESSAGE or rng.random() < 0.1:
            break
        message = rng.choice(items)
    if is_repeated:
        if field.type == field.TYPE_MESSAGE or rng.random() < 0.3:
            del value[rng.randrange(len(value))]
        else:
            value[rng.randrange(len(value))] = _random_field_value(field, rng)
    elif field.type == field.TYPE_MESSAGE or rng.random() < 0.1:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _random_field_value(field, rng))


def _random_field_value(field: Any, rng: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice((*LINK_TARGETS, "x", "y", "Softmax", "Loop", "ai.onnx.ml"))
    if field.type == field.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 4, 32, 100)))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    if field.type == field.TYPE_ENUM:
        return rng.choice(range(25))
    if field.type == field.TYPE_INT32:
        return edge_number(rng) & 0x7FFFFFFF
    return rng.choice((edge_number(rng), -1, 1 << 62)) & ((1 << 63) - 1)


def damage_rlxl(raw: bytearray, rng: random.Random) -> None:
    """Change a value in the header or in its description of the transform."""
    nbytes = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(bytes(raw[8 : 8 + nbytes]))
        texts = header["__metadata__"]
        key = next(iter(texts))
        transform = json.loads(texts[key])
        change_value(transform if rng.random() < 0.6 else header, rng)
        texts[key] = json.dumps(transform)
        encoded = json.dumps(header).encode()
    except Exception:  # whatever it has become by the damage before
        set_number(raw, rng)
        return
    encoded += b" " * (-len(encoded) % 8)
    raw[: 8 + nbytes] = len(encoded).to_bytes(8, "little") + encoded
