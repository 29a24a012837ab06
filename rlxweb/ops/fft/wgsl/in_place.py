"""WGSL source of transforms that keep a whole row in one memory: in place,
digit-reversed.

Each pass reads and writes the same cells (decimation in frequency), so one copy of the
row is enough and no pass needs more than its own butterflies, which the lanes of a
workgroup share. The last pass hands every bin to a callback; where the row lies is the
callbacks' business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlxweb.codegen.butterfly import ComplexNames, WgslButterflyBuilder

LoadValue = Callable[[WgslButterflyBuilder, str, int], ComplexNames]
"""(builder, base, offset) → names of the value in cell base + offset"""
StoreValue = Callable[[WgslButterflyBuilder, str, ComplexNames], None]
"""(builder, cell, value)"""
StoreBin = Callable[[WgslButterflyBuilder, str, str, ComplexNames], None]
"""(builder, bin, cell, value): the cell is the one that an in-place pass would store
the value in
"""


ROOT_READ_STEP = 4
BARRIER = "  workgroupBarrier();\n"


def lane_loop(count: int, body: str, name: str = "j") -> str:
    """Return a loop in which the lanes of a workgroup share `count` iterations."""
    return f"  for (var {name} = lid; {name} < {count}u; {name} += WG) {{\n{body}\n  }}"


def digit_reversed_cell(
    e: WgslButterflyBuilder, index: str, radices: Sequence[int], n: int
) -> str:
    """Return the cell that holds the digits of `index` (lowest first) after passes of
    `radices`.
    """
    terms, rest, span = [], index, n
    for position, radix in enumerate(radices):
        span //= radix
        if position == len(radices) - 1:
            terms.append(f"{rest} * {span}u")
        else:
            terms.append(f"({rest} % {radix}u) * {span}u")
            rest = e.emit_let(f"{rest} / {radix}u")
    return e.emit_let(" + ".join(terms)) if terms else "0u"


def in_place_passes(
    n: int,
    radices: Sequence[int],
    table: Callable[[str], str],
    load_first: LoadValue,
    load: LoadValue,
    store: StoreValue,
    store_bin: StoreBin,
) -> str:
    """Return the WGSL of the transform of one row.

    table  index → WGSL of the number at that index of [cos …, sin …] of n roots
    load_first  how the first pass gets a value of the input
    load, store  the row's memory between passes
    store_bin  takes the result, bin by bin
    """
    texts = []
    for pass_index in range(len(radices)):
        load_input = load_first if pass_index == 0 else load
        if pass_index == len(radices) - 1:
            texts.append(_last_pass(n, radices, load_input, store_bin))
        else:
            texts.append(_inner_pass(n, radices, pass_index, table, load_input, store))
            texts.append(BARRIER)
    return "\n".join(part for part in texts if part)


def root_powers(
    e: WgslButterflyBuilder, count: int, read_root: Callable[[int], ComplexNames]
) -> list[ComplexNames]:
    """Return w^0 … w^(count-1), of which `root(k)` reads w^1, w^2, w^3 and every
    fourth.

    The others are one product each: a multiplication costs less than a read and one
    rounding more.
    """
    out: list[ComplexNames] = [("1.0", "0.0")]
    for k in range(1, count):
        remainder = k % ROOT_READ_STEP
        if k < ROOT_READ_STEP or remainder == 0:
            out.append(read_root(k))
        else:
            out.append(e.multiply_complex(out[k - remainder], *out[remainder]))
    return out


def _read_root(
    e: WgslButterflyBuilder, table: Callable[[str], str], n: int, index: str
) -> ComplexNames:
    """Read a root of unity from the table."""
    name = e.emit_let(index)
    return e.emit_let(table(name)), e.emit_let(table(f"{n}u + {name}"))


def _inner_pass(
    n: int,
    radices: Sequence[int],
    pass_index: int,
    table: Callable[[str], str],
    load: LoadValue,
    store: StoreValue,
) -> str:
    """Return the WGSL of a pass that multiplies by roots of unity and stores in
    place.
    """
    radix, done_length = radices[pass_index], math.prod(radices[:pass_index])
    length = n // done_length
    stride = length // radix
    e = WgslButterflyBuilder("abcdefgh"[pass_index])
    m = e.emit_let(f"j % {stride}u") if pass_index else "j"
    base = e.emit_let(f"(j / {stride}u) * {length}u + {m}") if pass_index else "j"
    xs = [load(e, base, q * stride) for q in range(radix)]
    twiddles = root_powers(
        e, radix, lambda k: _read_root(e, table, n, f"{m} * {k * done_length}u")
    )
    for k, y in enumerate(e.dft(xs)):
        store(
            e,
            f"{base} + {k * stride}u",
            e.multiply_complex(y, *twiddles[k]) if k else y,
        )
    return lane_loop(n // radix, e.render())


def _last_pass(
    n: int, radices: Sequence[int], load: LoadValue, store_bin: StoreBin
) -> str:
    """Return the WGSL of the last pass, which hands every bin to the callback."""
    radix = radices[-1]
    e = WgslButterflyBuilder("z")
    base = digit_reversed_cell(e, "j", radices[:-1], n)
    xs = [load(e, base, q) for q in range(radix)]
    for k, y in enumerate(e.dft(xs)):
        store_bin(e, f"j + {k * (n // radix)}u", f"{base} + {k}u", y)
    return lane_loop(n // radix, e.render())
