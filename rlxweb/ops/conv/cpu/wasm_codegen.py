"""WebAssembly convolution of unit stride: its windows are runs of the array, so nothing
is gathered.

Where a window is a step of one element from the one before, each term of a line of them
is a run of the array. Few rows of weights meet such runs where they lie, eight vectors
of sums at a time, as many windows of a row as there are registers for.
"""

from __future__ import annotations

from typing import Final

from rlxweb.codegen.wasm_builder import WasmFunctionBuilder

WINDOW_PRODUCT_ARGUMENTS: Final = (
    *("a", "x", "taps", "starts", "out", "rows", "terms", "count", "length"),
    *("a_row", "out_row"),
)
"""Arguments of `of_runs`: `count` lines of `length` windows begin `starts` bytes from
x, their terms `taps` bytes from there; lines of the result lie one after the other.
"""
MIN_LINE_WINDOWS: Final = 8
"""Minimum number of windows of a line."""
_TILES: Final = ((4, 2), (2, 4), (2, 2), (1, 8), (1, 2))
"""Register tiles: rows by vectors."""
_LANES: Final = 4


def window_functions(first_index: int, fused: bool) -> list[WasmFunctionBuilder]:
    """Return `of_runs` and the functions it calls; `first_index` is the index of the
    first in the module.
    """
    return [
        *(_tile_function(*tile, fused) for tile in _TILES),
        _line_product_function(first_index),
    ]


def _tile_function(rows: int, vectors: int, fused: bool) -> WasmFunctionBuilder:
    f = WasmFunctionBuilder(
        f"run{rows}x{vectors}",
        *("a", "a_row", "x", "taps", "terms", "out", "out_row"),
    )
    row_range = range(rows)
    f.declare_locals("i32", "b", *(f"p{r}" for r in row_range))
    f.declare_locals("v128", "v", *(f"s{r}" for r in row_range))
    f.declare_locals("v128", *(f"t{r}_{c}" for r in row_range for c in range(vectors)))
    f.set_local("p0", "a")
    for r in row_range[1:]:
        f.set_local(f"p{r}", f"p{r - 1}", "a_row", "i32.add")
    for count in (2, 1):
        with f.loop_until("terms", count, "i32.lt_u"):
            for term in range(count):
                _emit_term(f, rows, vectors, term, fused)
            for pointer in ("taps", *(f"p{r}" for r in row_range)):
                f.set_local(pointer, pointer, 4 * count, "i32.add")
            f.set_local("terms", "terms", count, "i32.sub")
    for r in row_range:
        for c in range(vectors):
            f.emit("out", f"t{r}_{c}")
            f.emit_memory_access("v128.store", 16 * c)
        f.set_local("out", "out", "out_row", "i32.add")
    return f


def _emit_term(
    f: WasmFunctionBuilder, rows: int, vectors: int, term: int, fused: bool
) -> None:
    f.emit("x", "taps")
    f.emit_memory_access("i32.load", 4 * term)
    f.set_local("b", "i32.add")
    for r in range(rows):
        f.emit(f"p{r}")
        f.emit_memory_access("v128.load32_splat", 4 * term)
        f.set_local(f"s{r}")
    for c in range(vectors):
        f.emit("b")
        f.emit_memory_access("v128.load", 16 * c)
        f.set_local("v")
        for r in range(rows):
            f.add_product(f"t{r}_{c}", f"s{r}", "v", fused=fused)


def _line_product_function(first_index: int) -> WasmFunctionBuilder:
    """Build `of_runs`: line by line, some rows at a time."""
    f = WasmFunctionBuilder("of_runs", *WINDOW_PRODUCT_ARGUMENTS)
    f.declare_locals("i32", "row", "left", "begin", "at", "here")
    with f.loop_until("count", 0, "i32.eq"):
        f.emit("x", "starts")
        f.emit_memory_access("i32.load")
        f.set_local("begin", "i32.add")
        f.set_local("row", 0)
        with f.loop_until("row", "rows", "i32.ge_u"):
            f.set_local("left", "rows", "row", "i32.sub")
            f.emit("left", 4, "i32.ge_u", "if")
            _emit_line(f, first_index, 4, 2)
            f.emit("else", "left", 2, "i32.ge_u", "if")
            _emit_longest_tile(f, first_index, 2, 4)
            f.emit("else")
            _emit_longest_tile(f, first_index, 1, 8)
            f.emit("end", "end")
        f.set_local("starts", "starts", 4, "i32.add")
        f.set_local("out", "out", "length", 4, "i32.mul", "i32.add")
        f.set_local("count", "count", 1, "i32.sub")
    return f


def _emit_longest_tile(
    f: WasmFunctionBuilder, first_index: int, rows: int, vectors: int
) -> None:
    """Emit the widest tile that fits the length of a line."""
    f.emit("length", vectors * _LANES, "i32.ge_u", "if")
    _emit_line(f, first_index, rows, vectors)
    f.emit("else")
    _emit_line(f, first_index, rows, 2)
    f.emit("end")


def _emit_line(
    f: WasmFunctionBuilder, first_index: int, rows: int, vectors: int
) -> None:
    """Emit a tile along the line; the last one may overlap the one before."""
    tile_windows = vectors * _LANES
    f.set_local("at", 0)
    with f.loop_until("at", "length", "i32.ge_u"):
        last_start = ("length", tile_windows, "i32.sub")
        f.set_local("here", "at", *last_start, "at", *last_start, "i32.lt_u", "select")
        f.set_local("here", "here", 4, "i32.mul")
        f.emit("a", "row", "a_row", "i32.mul", "i32.add", "a_row")
        f.emit("begin", "here", "i32.add", "taps", "terms")
        f.emit("out", "row", "out_row", "i32.mul", "i32.add", "here", "i32.add")
        f.emit("out_row")
        f.call(first_index + _TILES.index((rows, vectors)))
        f.set_local("at", "at", tile_windows, "i32.add")
    f.set_local("row", "row", rows, "i32.add")
