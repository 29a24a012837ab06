"""Damage to files of graphs: their nodes, types, attributes and places of tensors.

The length of the header is set right afterwards, so that what is within it is read.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz.mutate import number, set_number

KEY = "rlxweb.graph"
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 8, 9, 2**31, 2**40, 2**63, -(2**63), 1.5, "", "f32",
    "bool", "i64", "nan", "0x1.0p+0", "-inf", "../x", "a\n", "x" * 2000, [], [0], [-1],
    [2**31] * 8, [1] * 9, {}, {"a": 1}, [[]], ["f32"],
)  # fmt: skip


def damage_rlxg(raw: bytearray, chance: random.Random) -> None:
    """One to three values somewhere in the header or the graph become others."""
    nbytes = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(bytes(raw[8 : 8 + nbytes]))
        graph = json.loads(header["__metadata__"][KEY])
        for _ in range(chance.randint(1, 3)):
            change_value(header if chance.random() < 0.25 else graph, chance)
        header["__metadata__"][KEY] = json.dumps(graph)
        made = json.dumps(header).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        set_number(raw, chance)
        return
    made += b" " * (-len(made) % 8)
    raw[: 8 + nbytes] = len(made).to_bytes(8, "little") + made


def change_value(part: Any, chance: random.Random) -> None:
    """Go down into a part by chance, and change, remove or double a value there."""
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        if not keys:
            return
        key = chance.choice(keys)
        below = part[key]
        if not isinstance(below, dict | list) or not below or chance.random() < 0.1:
            break
        part = below
    what = chance.random()
    if what < 0.15:
        del part[key]
    elif what < 0.25 and isinstance(part, list):
        part.insert(key, below)
    elif what < 0.5 and type(below) is int:
        part[key] = below + chance.choice((-2, -1, 1, 2))
    elif what < 0.6:
        part[key] = number(chance)
    else:
        part[key] = chance.choice(_VALUES)
