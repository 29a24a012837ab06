"""Damage to any file: bits, numbers, pieces cut out, doubled, moved or joined.

A mutation takes the bytes of a file and a source of chance and gives other bytes; the
same chance gives the same. What knows a format is in `damage`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

Mutation = Callable[[bytearray, random.Random], None]

MOST_NBYTES = 1 << 20
"""No mutated file is longer."""

NUMBERS = (
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
LARGE = tuple(2**bits + off for bits in (24, 31, 32, 40, 53, 63) for off in (-1, 0))


def number(chance: random.Random) -> int:
    """One that programs stumble over."""
    return chance.choice(NUMBERS if chance.random() < 0.6 else LARGE)


def place(raw: bytearray, chance: random.Random) -> int:
    """An offset; half of them near the beginning, where headers are."""
    reach = min(len(raw), 1024) if chance.random() < 0.5 else len(raw)
    return chance.randrange(max(reach, 1))


def flip_bits(raw: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        if raw:
            raw[place(raw, chance)] ^= 1 << chance.randrange(8)


def set_bytes(raw: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 12)):
        if raw:
            raw[place(raw, chance)] = chance.randrange(256)


def set_number(raw: bytearray, chance: random.Random) -> None:
    """Overwrite 1 to 8 bytes with a whole number, in either order."""
    code, nbytes = chance.choice((("B", 1), ("H", 2), ("I", 4), ("Q", 8)))
    value = number(chance) & (256**nbytes - 1)
    at = place(raw, chance)
    raw[at : at + nbytes] = struct.pack(chance.choice("<>") + code, value)


def cut(raw: bytearray, chance: random.Random) -> None:
    del raw[chance.randrange(len(raw) + 1) :]


def take_out(raw: bytearray, chance: random.Random) -> None:
    at = place(raw, chance)
    del raw[at : at + chance.choice((1, 2, 4, 8, 64, 256, 1000))]


def double(raw: bytearray, chance: random.Random) -> None:
    """Repeat a piece where it stands."""
    at = place(raw, chance)
    piece = raw[at : at + chance.choice((1, 2, 8, 60, 256, 2000))]
    raw[at:at] = piece * chance.choice((1, 1, 2, 5, 100))


def insert(raw: bytearray, chance: random.Random) -> None:
    at = place(raw, chance)
    raw[at:at] = chance.randbytes(chance.choice((1, 2, 3, 16, 300)))


def blank(raw: bytearray, chance: random.Random) -> None:
    """A stretch of one byte, as a failing disk leaves it."""
    at = place(raw, chance)
    size = min(chance.choice((1, 8, 80, 512, 4096)), len(raw) - at)
    raw[at : at + size] = bytes([chance.choice((0, 0, 0x20, 0x39, 0xFF))]) * size


def swap(raw: bytearray, chance: random.Random) -> None:
    """Two pieces change places."""
    size = chance.choice((1, 2, 8, 100))
    a, b = sorted(place(raw, chance) for _ in range(2))
    if a + size <= b:
        raw[a : a + size], raw[b : b + size] = raw[b : b + size], raw[a : a + size]


def splice(raw: bytearray, other: bytes, chance: random.Random) -> None:
    """The beginning of one file and the end of another."""
    at = place(raw, chance)
    raw[at:] = other[chance.choice((at, chance.randrange(len(other) + 1))) :]


ANY: tuple[Mutation, ...] = (
    flip_bits,
    flip_bits,
    set_bytes,
    set_number,
    set_number,
    cut,
    take_out,
    double,
    insert,
    blank,
    swap,
)
