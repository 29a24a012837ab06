"""Format-blind mutations of a file's bytes: bits flipped, numbers set, pieces deleted,
repeated, moved or joined.

A mutation takes the bytes of a file and a source of chance and gives other bytes; the
same chance gives the same. What knows a format is in `damage_builtin_formats` and
`damage_library_formats`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

Mutation = Callable[[bytearray, random.Random], None]

MAX_FILE_NBYTES = 1 << 20
"""Maximum size of a mutated file."""

SMALL_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    127,
    128,
    255,
    256,
    1000,
    4096,
    32767,
    32768,
    65535,
    65536,
)
LARGE_NUMBERS = tuple(
    2**bits + off for bits in (24, 31, 32, 40, 53, 63) for off in (-1, 0)
)


def edge_number(rng: random.Random) -> int:
    """Return a number that programs often mishandle."""
    return rng.choice(SMALL_NUMBERS if rng.random() < 0.6 else LARGE_NUMBERS)


def random_offset(raw: bytearray, rng: random.Random) -> int:
    """Return an offset; half of them near the beginning, where headers are."""
    stop = min(len(raw), 1024) if rng.random() < 0.5 else len(raw)
    return rng.randrange(max(stop, 1))


def flip_bits(raw: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 8)):
        if raw:
            raw[random_offset(raw, rng)] ^= 1 << rng.randrange(8)


def set_bytes(raw: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 12)):
        if raw:
            raw[random_offset(raw, rng)] = rng.randrange(256)


def set_number(raw: bytearray, rng: random.Random) -> None:
    """Overwrite 1 to 8 bytes with a whole number, in either order."""
    code, nbytes = rng.choice((("B", 1), ("H", 2), ("I", 4), ("Q", 8)))
    value = edge_number(rng) & (256**nbytes - 1)
    at = random_offset(raw, rng)
    raw[at : at + nbytes] = struct.pack(rng.choice("<>") + code, value)


def truncate(raw: bytearray, rng: random.Random) -> None:
    del raw[rng.randrange(len(raw) + 1) :]


def delete_piece(raw: bytearray, rng: random.Random) -> None:
    at = random_offset(raw, rng)
    del raw[at : at + rng.choice((1, 2, 4, 8, 64, 256, 1000))]


def repeat_piece(raw: bytearray, rng: random.Random) -> None:
    """Repeat a piece where it stands."""
    at = random_offset(raw, rng)
    piece = raw[at : at + rng.choice((1, 2, 8, 60, 256, 2000))]
    raw[at:at] = piece * rng.choice((1, 1, 2, 5, 100))


def insert_bytes(raw: bytearray, rng: random.Random) -> None:
    at = random_offset(raw, rng)
    raw[at:at] = rng.randbytes(rng.choice((1, 2, 3, 16, 300)))


def blank_range(raw: bytearray, rng: random.Random) -> None:
    """Fill a range with one byte, as a failing disk leaves it."""
    at = random_offset(raw, rng)
    size = min(rng.choice((1, 8, 80, 512, 4096)), len(raw) - at)
    raw[at : at + size] = bytes([rng.choice((0, 0, 0x20, 0x39, 0xFF))]) * size


def swap_pieces(raw: bytearray, rng: random.Random) -> None:
    """Swap two pieces."""
    size = rng.choice((1, 2, 8, 100))
    a, b = sorted(random_offset(raw, rng) for _ in range(2))
    if a + size <= b:
        raw[a : a + size], raw[b : b + size] = raw[b : b + size], raw[a : a + size]


def splice(raw: bytearray, other: bytes, rng: random.Random) -> None:
    """Join the beginning of one file and the end of another."""
    at = random_offset(raw, rng)
    raw[at:] = other[rng.choice((at, rng.randrange(len(other) + 1))) :]


GENERAL_MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    flip_bits,
    set_bytes,
    set_number,
    set_number,
    truncate,
    delete_piece,
    repeat_piece,
    insert_bytes,
    blank_range,
    swap_pieces,
)
