"""Damage to graph files: their nodes, types, attributes and tensor offsets.

The length of the header is set right afterwards, so that what is within it is read.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz.mutate_bytes import edge_number, set_number

METADATA_KEY = "rlxweb.graph"
_REPLACEMENT_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 8, 9, 2**31, 2**40, 2**63, -(2**63), 1.5, "", "f32",
    "bool", "i64", "nan", "0x1.0p+0", "-inf", "../x", "a\n", "x" * 2000, [], [0], [-1],
    [2**31] * 8, [1] * 9, {}, {"a": 1}, [[]], ["f32"],
)  # fmt: skip


def damage_rlxg(raw: bytearray, rng: random.Random) -> None:
    """Replace one to three values somewhere in the header or the graph."""
    nbytes = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(bytes(raw[8 : 8 + nbytes]))
        graph = json.loads(header["__metadata__"][METADATA_KEY])
        for _ in range(rng.randint(1, 3)):
            change_value(header if rng.random() < 0.25 else graph, rng)
        header["__metadata__"][METADATA_KEY] = json.dumps(graph)
        encoded = json.dumps(header).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        set_number(raw, rng)
        return
    encoded += b" " * (-len(encoded) % 8)
    raw[: 8 + nbytes] = len(encoded).to_bytes(8, "little") + encoded


def change_value(container: Any, rng: random.Random) -> None:
    """Descend into a random part, and change, remove or double a value there."""
    while True:
        keys = (
            list(container)
            if isinstance(container, dict)
            else list(range(len(container)))
        )
        if not keys:
            return
        key = rng.choice(keys)
        child = container[key]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.1:
            break
        container = child
    action = rng.random()
    if action < 0.15:
        del container[key]
    elif action < 0.25 and isinstance(container, list):
        container.insert(key, child)
    elif action < 0.5 and type(child) is int:
        container[key] = child + rng.choice((-2, -1, 1, 2))
    elif action < 0.6:
        container[key] = edge_number(rng)
    else:
        container[key] = rng.choice(_REPLACEMENT_VALUES)
