"""Text of transforms that keep a whole row in one memory: in place, digit-reversed.

Each pass reads and writes the same cells (decimation in frequency), so one copy of the
row is enough and no pass needs more than its own butterflies, which the lanes of a
workgroup share. The last pass hands every bin to a callback; where the row lies is the
callbacks' business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlxweb.recipes.butterfly import Emitter, Pair

Load = Callable[[Emitter, str, int], Pair]
"""(emitter, base, offset) → names of the value in cell base + offset"""
Store = Callable[[Emitter, str, Pair], None]
"""(emitter, cell, value)"""
Last = Callable[[Emitter, str, str, Pair], None]
"""(emitter, bin, cell, value): the cell the value would be stored in, in place"""


FOURTH = 4
BARRIER = "  workgroupBarrier();\n"


def over_lanes(count: int, body: str, name: str = "j") -> str:
    """Return a loop in which the lanes of a workgroup share `count` turns."""
    return f"  for (var {name} = lid; {name} < {count}u; {name} += WG) {{\n{body}\n  }}"


def place(e: Emitter, index: str, radices: Sequence[int], n: int) -> str:
    """The cell where digits of `index` (lowest first) lie after passes of `radices`."""
    terms, rest, room = [], index, n
    for at, radix in enumerate(radices):
        room //= radix
        if at == len(radices) - 1:
            terms.append(f"{rest} * {room}u")
        else:
            terms.append(f"({rest} % {radix}u) * {room}u")
            rest = e.let(f"{rest} / {radix}u")
    return e.let(" + ".join(terms)) if terms else "0u"


def passes(
    n: int,
    radices: Sequence[int],
    table: Callable[[str], str],
    first: Load,
    load: Load,
    store: Store,
    last: Last,
) -> str:
    """The transform of one row.

    table  index → WGSL of the number at that index of [cos …, sin …] of n roots
    first  how the first pass gets a value of the input
    load, store  the row's memory between passes
    last   takes the result, bin by bin
    """
    out = []
    for at in range(len(radices)):
        get = first if at == 0 else load
        if at == len(radices) - 1:
            out.append(_last(n, radices, get, last))
        else:
            out.append(_inner(n, radices, at, table, get, store))
            out.append(BARRIER)
    return "\n".join(part for part in out if part)


def powers(e: Emitter, count: int, root: Callable[[int], Pair]) -> list[Pair]:
    """w^0 … w^(count-1), of which `root(k)` reads w^1, w^2, w^3 and every fourth.

    The others are one product each: a multiplication costs less than a read and one
    rounding more.
    """
    out: list[Pair] = [("1.0", "0.0")]
    for k in range(1, count):
        low = k % FOURTH
        if k < FOURTH or low == 0:
            out.append(root(k))
        else:
            out.append(e.times(out[k - low], *out[low]))
    return out


def _root(e: Emitter, table: Callable[[str], str], n: int, turn: str) -> Pair:
    at = e.let(turn)
    return e.let(table(at)), e.let(table(f"{n}u + {at}"))


def _inner(
    n: int,
    radices: Sequence[int],
    at: int,
    table: Callable[[str], str],
    load: Load,
    store: Store,
) -> str:
    radix, before = radices[at], math.prod(radices[:at])
    length = n // before
    stride = length // radix
    e = Emitter("abcdefgh"[at])
    m = e.let(f"j % {stride}u") if at else "j"
    base = e.let(f"(j / {stride}u) * {length}u + {m}") if at else "j"
    xs = [load(e, base, q * stride) for q in range(radix)]
    turns = powers(e, radix, lambda k: _root(e, table, n, f"{m} * {k * before}u"))
    for k, y in enumerate(e.dft(xs)):
        store(e, f"{base} + {k * stride}u", e.times(y, *turns[k]) if k else y)
    return over_lanes(n // radix, e.text())


def _last(n: int, radices: Sequence[int], load: Load, last: Last) -> str:
    radix = radices[-1]
    e = Emitter("z")
    base = place(e, "j", radices[:-1], n)
    xs = [load(e, base, q) for q in range(radix)]
    for k, y in enumerate(e.dft(xs)):
        last(e, f"j + {k * (n // radix)}u", f"{base} + {k}u", y)
    return over_lanes(n // radix, e.text())
