"""Products with windows that lie side by side, in WebAssembly: nothing is gathered.

Where a window is a step of one element from the one before, each term of a line of them
is a run of the array. Few rows of weights meet such runs where they lie, eight vectors
of sums at a time, as many windows of a row as there are registers for.
"""

from __future__ import annotations

from typing import Final

from rlxweb.machine.wasm import Function

ARGUMENTS: Final = (
    *("a", "x", "taps", "starts", "out", "rows", "terms", "count", "length"),
    *("a_row", "out_row"),
)
"""Of `of_runs`: so many lines of `length` windows begin `starts` bytes from x, their
terms `taps` bytes from there; lines of the result lie one after the other.
"""
SHORTEST: Final = 8
"""Windows of a line at least."""
_TILES: Final = ((4, 2), (2, 4), (2, 2), (1, 8), (1, 2))
"""Rows by vectors."""
_LANES: Final = 4


def runs_of(first: int, fused: bool) -> list[Function]:
    """`of_runs` and what it calls; `first` is the first's number in the module."""
    return [*(_tile(*one, fused) for one in _TILES), _of_runs(first)]


def _tile(rows: int, vectors: int, fused: bool) -> Function:
    f = Function(
        f"run{rows}x{vectors}",
        *("a", "a_row", "x", "taps", "terms", "out", "out_row"),
    )
    every = range(rows)
    f.local("i32", "b", *(f"p{r}" for r in every))
    f.local("v128", "v", *(f"s{r}" for r in every))
    f.local("v128", *(f"t{r}_{c}" for r in every for c in range(vectors)))
    f.put("p0", "a")
    for r in every[1:]:
        f.put(f"p{r}", f"p{r - 1}", "a_row", "i32.add")
    for count in (2, 1):
        with f.repeated("terms", count, "i32.lt_u"):
            for at in range(count):
                _term(f, rows, vectors, at, fused)
            for pointer in ("taps", *(f"p{r}" for r in every)):
                f.put(pointer, pointer, 4 * count, "i32.add")
            f.put("terms", "terms", count, "i32.sub")
    for r in every:
        for c in range(vectors):
            f.say("out", f"t{r}_{c}")
            f.move("v128.store", 16 * c)
        f.put("out", "out", "out_row", "i32.add")
    return f


def _term(f: Function, rows: int, vectors: int, at: int, fused: bool) -> None:
    f.say("x", "taps")
    f.move("i32.load", 4 * at)
    f.put("b", "i32.add")
    for r in range(rows):
        f.say(f"p{r}")
        f.move("v128.load32_splat", 4 * at)
        f.put(f"s{r}")
    for c in range(vectors):
        f.say("b")
        f.move("v128.load", 16 * c)
        f.put("v")
        for r in range(rows):
            f.add_product(f"t{r}_{c}", f"s{r}", "v", fused=fused)


def _of_runs(first: int) -> Function:
    """Line by line, some rows at a time."""
    f = Function("of_runs", *ARGUMENTS)
    f.local("i32", "row", "left", "begin", "at", "here")
    with f.repeated("count", 0, "i32.eq"):
        f.say("x", "starts")
        f.move("i32.load")
        f.put("begin", "i32.add")
        f.put("row", 0)
        with f.repeated("row", "rows", "i32.ge_u"):
            f.put("left", "rows", "row", "i32.sub")
            f.say("left", 4, "i32.ge_u", "if")
            _over(f, first, 4, 2)
            f.say("else", "left", 2, "i32.ge_u", "if")
            _longest(f, first, 2, 4)
            f.say("else")
            _longest(f, first, 1, 8)
            f.say("end", "end")
        f.put("starts", "starts", 4, "i32.add")
        f.put("out", "out", "length", 4, "i32.mul", "i32.add")
        f.put("count", "count", 1, "i32.sub")
    return f


def _longest(f: Function, first: int, rows: int, vectors: int) -> None:
    """By the tile of so many vectors, where a line is as long."""
    f.say("length", vectors * _LANES, "i32.ge_u", "if")
    _over(f, first, rows, vectors)
    f.say("else")
    _over(f, first, rows, 2)
    f.say("end")


def _over(f: Function, first: int, rows: int, vectors: int) -> None:
    """A tile along the line; the last of it may be made twice."""
    wide = vectors * _LANES
    f.put("at", 0)
    with f.repeated("at", "length", "i32.ge_u"):
        last = ("length", wide, "i32.sub")
        f.put("here", "at", *last, "at", *last, "i32.lt_u", "select")
        f.put("here", "here", 4, "i32.mul")
        f.say("a", "row", "a_row", "i32.mul", "i32.add", "a_row")
        f.say("begin", "here", "i32.add", "taps", "terms")
        f.say("out", "row", "out_row", "i32.mul", "i32.add", "here", "i32.add")
        f.say("out_row")
        f.call(first + _TILES.index((rows, vectors)))
        f.put("at", "at", wide, "i32.add")
    f.put("row", "row", rows, "i32.add")
