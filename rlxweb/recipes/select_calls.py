"""Geometry of gather, topk, cumsum and cumprod on a device.

All three walk lines of a dense tensor. A few long lines are cut into chunks that are
worked on side by side and then put together, so that no single invocation walks
millions of elements. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.recipes.reduce_calls import (
    KINDS,
    Kept,
    Kind,
    Pass,
    Reduced,
    pass_call,
    scalar_of,
    type_include,
)

# Lines longer than `_LONG` are cut into chunks when there are fewer than `_FEW`.
_LONG, _FEW = 512, 2048

_IN, _OUT = Ref("in"), Ref("out")


def _power_of_two(least: float) -> int:
    return 1 << max(0, math.ceil(least) - 1).bit_length()


def gather_recipe(table: tuple[int, int, int], count: int) -> Recipe:
    """`count` rows of a table given as (outer, rows, inner).

    The table's axis is serial: each piece writes what falls into its rows.
    """
    outer, rows, inner = table
    call = Call(
        shader="gather",
        axes=(
            Axis("outer", outer),
            Axis("index", count),
            Axis("inner", inner),
            Axis("t", rows, "serial"),
        ),
        accesses=(
            Access(_IN, (rows * inner, 0, 1, inner)),
            Access(Ref("in", 1), (0, 1, 0, 0)),
            Access(_OUT, (count * inner, inner, 1, 0), "update"),
        ),
        grid=(("outer", 1), ("index", 1), ("inner", 1)),
        values={
            "rows": rows,
            "x_outer": rows * inner,
            "x_t": inner,
            "y_outer": count * inner,
            "y_index": inner,
        },
        faults=True,
        turns=0.0,
    )
    return Recipe((call,))


@dataclass(frozen=True, slots=True)
class Ranking:
    """A walk over lines that keeps a sorted list of k (value, index) for each.

    sizes    rows, chunks of each row, candidates of each chunk
    pitch    candidates from one row to the next
    index    where the candidates' indices are; None when they are positions
    before   list entries an earlier walk has left
    """

    sizes: tuple[int, int, int]
    pitch: int
    k: int
    dtype: DType
    source: Ref
    values: Ref
    indices: Ref
    index: Ref | None = None
    offset: int = 0
    before: int = 0

    def call(self) -> Call:
        rows, chunks, n = self.sizes
        x, kept = (self.pitch, n, 1), (chunks * self.k, self.k, 0)
        accesses = [
            Access(self.source, x, "read", self.offset),
            Access(self.values, kept, "update", span=self.k),
            Access(self.indices, kept, "update", span=self.k),
        ]
        if self.index is not None:
            accesses.append(Access(self.index, x))
        origin = "topk_direct" if self.index is None else "topk_merge"
        return Call(
            shader="topk",
            axes=(Axis("row", rows), Axis("chunk", chunks), Axis("n", n, "serial")),
            accesses=tuple(accesses),
            grid=(("row", 1), ("chunk", 1)),
            values={
                "k": self.k,
                "x_row": x[0],
                "x_chunk": x[1],
                "y_row": kept[0],
                "y_chunk": kept[1],
                "start": self.offset,
                "before": self.before,
            },
            uses=(type_include(self.dtype), origin),
            # A newcomer may pass all k entries before it, where the values rise.
            turns=self.k + 2.0,
        )


def topk_recipe(rows: int, n: int, k: int, dtype: DType) -> Recipe:
    """One walk per row; few long rows in chunks whose lists are merged."""
    kind = scalar_of(dtype)
    best = Ref("scratch", 0)
    chunks = _power_of_two(math.sqrt(n / k)) if rows < _FEW else 1
    length = n // chunks
    row = Ranking((rows, 1, n), n, k, dtype, _IN, best, _OUT)
    if n <= _LONG or chunks < 2 or length < k:
        return Recipe((row.call(),), (Scratch(rows * k, kind),))
    width, left = chunks * k, n - chunks * length
    part = replace(
        row,
        sizes=(rows, chunks, length),
        values=Ref("scratch", 1),
        indices=Ref("scratch", 2),
    )
    merge = replace(
        row,
        sizes=(rows, 1, width),
        pitch=width,
        source=part.values,
        index=part.indices,
    )
    walks = [part, merge]
    if left:
        start = chunks * length
        walks.append(replace(row, sizes=(rows, 1, left), offset=start, before=k))
    scratch = (
        Scratch(rows * k, kind),
        Scratch(rows * width, kind),
        Scratch(rows * width, "i32"),
    )
    return Recipe(tuple(w.call() for w in walks), scratch)


def peaks_call(power: Ref, rows: int, bins: int, k: int) -> Call:
    """The k strongest bins of each row of power, packed as (bin, power) pairs."""
    return Call(
        "welch_peaks",
        (Axis("rows", rows), Axis("bins", bins, "serial")),
        (Access(power, (bins, 1)), Access(_OUT, (2 * k, 0), "update", span=2 * k)),
        (("rows", 1),),
        values={"pitch": bins, "k": k},
        uses=(type_include(DType.F32),),
        turns=2.0 * (k + 1),
    )


@dataclass(frozen=True, slots=True)
class Running:
    """Running sums of (outer, chunk, n, inner) lines; input and output lie alike.

    whole    elements of a whole line, and its chunks, each of which has a carry
    kind     "sum", or "prod" for running products
    fresh    whether a line starts at nothing; else at its carry
    """

    sizes: tuple[int, int, int, int]
    whole: tuple[int, int]
    kind: Kind
    dtype: DType
    source: Ref
    target: Ref
    carry: Ref
    exclusive: bool
    fresh: bool = True
    offset: int = 0
    carry_offset: int = 0

    def call(self) -> Call:
        outer, chunks, n, inner = self.sizes
        line, carries = self.whole
        x, kept = (line * inner, n * inner, inner, 1), (carries * inner, inner, 0, 1)
        return Call(
            shader="cumsum",
            axes=(
                Axis("outer", outer),
                Axis("chunk", chunks),
                Axis("n", n, "serial"),
                Axis("inner", inner),
            ),
            accesses=(
                Access(self.source, x, "read", self.offset),
                Access(self.target, x, "write", self.offset),
                Access(self.carry, kept, "update", self.carry_offset),
            ),
            grid=(("outer", 1), ("chunk", 1), ("inner", 1)),
            values={
                "x_outer": x[0],
                "x_chunk": x[1],
                "x_n": x[2],
                "c_outer": kept[0],
                "c_chunk": kept[1],
                "exclusive": int(self.exclusive),
                "fresh": int(self.fresh),
            },
            constants={"KIND": KINDS.index(self.kind)},
            uses=(type_include(self.dtype), "combine"),
        )


def scan_recipe(
    sizes: tuple[int, int, int], dtype: DType, exclusive: bool, kind: Kind = "sum"
) -> Recipe:
    """Running sums, or products, along the middle of (outer, n, inner).

    A few long lines are cut into chunks: sums of the chunks, running sums of those, and
    then every chunk from the sum of all before it.
    """
    outer, n, inner = sizes
    carry = Scratch(outer * inner, scalar_of(dtype))
    only = Ref("scratch", 0)
    lines, walked = (outer, 1, n, inner), (_IN, _OUT, only, exclusive)
    row = Running(lines, (n, 1), kind, dtype, *walked)
    if n <= _LONG or outer * inner >= _FEW:
        return Recipe((row.call(),), (carry,))
    length = _power_of_two(math.sqrt(n))
    chunks, left = divmod(n, length)
    sums, starts = Ref("scratch", 1), Ref("scratch", 2)
    line, step, width = n * inner, length * inner, chunks * inner
    kept = (Kept(outer, line, width), Kept(chunks, step, inner), Kept(inner, 1, 1))
    whole = Pass(_IN, sums, kept, (Reduced(length, inner),))
    across = replace(
        row,
        sizes=(outer, 1, chunks, inner),
        whole=(chunks, 1),
        source=sums,
        target=starts,
        exclusive=True,
    )
    inside = replace(
        row,
        sizes=(outer, chunks, length, inner),
        whole=(n, chunks),
        carry=starts,
        fresh=False,
    )
    walks = [across, inside]
    if left:
        # Behind the last whole chunk, whose carry by then holds all before.
        size, at = (outer, 1, left, inner), (chunks - 1) * inner
        tail = replace(inside, sizes=size, offset=chunks * step, carry_offset=at)
        walks.append(tail)
    calls = (pass_call(kind, whole, type_include(dtype)), *(w.call() for w in walks))
    part = Scratch(outer * width, scalar_of(dtype))
    return Recipe(calls, (carry, part, part))
