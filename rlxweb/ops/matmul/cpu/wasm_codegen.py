"""WebAssembly float32 matrix products, for browsers, where NumPy has no BLAS.

Eight columns of the right matrix are laid side by side, a panel; as many panels as the
second-level cache holds are met by six rows of the left one at a time, whose twelve
vectors of sums stay in registers. Panels come from a matrix, were laid before, or are
windows of an array: what a convolution multiplies its weights by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rlxweb.codegen.wasm_builder import WasmFunctionBuilder, encode_module
from rlxweb.ops.conv.cpu.wasm_codegen import WINDOW_PRODUCT_ARGUMENTS, window_functions

TILE_ROWS: Final = 6
PANEL_COLUMNS: Final = 8
GROUP_PANELS: Final = 8
"""Panels that are packed at once."""
PANEL_RECORD_LENGTH: Final = PANEL_COLUMNS + 2
"""Numbers in the record of a window panel: where each window begins, where its sums go,
how many windows there are.
"""
_UNROLLED: Final = 4
_SIZE_ARGUMENTS: Final = ("rows", "terms", "columns")
ARGUMENTS: Final = {
    "product": (
        *("a", "b", "out", *_SIZE_ARGUMENTS, "a_row", "b_row", "out_row", "room"),
        *("count", "a_step", "b_step", "out_step"),
    ),
    "laid": ("b", "terms", "columns", "b_row", "room"),
    "of_laid": ("a", "room", "out", *_SIZE_ARGUMENTS, "a_row", "out_row", "spare"),
    "of_windows": (
        *("a", "x", "taps", "places", "out", "rows", "terms", "columns"),
        *("a_row", "out_row", "room"),
    ),
    "of_runs": WINDOW_PRODUCT_ARGUMENTS,
}
"""Arguments of the exported functions: addresses, sizes, and bytes from one row, or one
matrix, to the next.
"""


def scratch_floats(terms: int) -> int:
    """Return the floats of scratch that a product needs."""
    return (terms * GROUP_PANELS + 1) * PANEL_COLUMNS


def packed_floats(terms: int, columns: int) -> int:
    """Return the floats of a matrix packed in panels, and of the spare room behind
    them.
    """
    return (terms * -(-columns // PANEL_COLUMNS) + 1) * PANEL_COLUMNS


def matmul_module(*, fused: bool) -> bytes:
    """Encode the module; `product` computes out = a b, of `count` times [rows, terms]
    by [terms, columns].

    `laid`: the panels of b; `of_laid`: the product with them. `of_windows`: that with
    windows of an array, whose elements lie `taps` bytes from where `places` says;
    `columns` counts panels of them. `of_runs`: see `ops/conv/cpu/wasm_codegen.py`.

    fused   by additions that need not round the product, where a browser knows them:
            twice as fast where the processor does
    """
    parts = matmul_functions(fused=fused)
    return encode_module([*parts, *window_functions(len(parts), fused)])


def matmul_functions(*, fused: bool) -> list[WasmFunctionBuilder]:
    """Return the module's functions, in the order of their indices."""
    tiles = [_tile_function(rows, fused) for rows in range(1, TILE_ROWS + 1)]
    products = [
        _product_function(),
        _pack_function(),
        _packed_product_function(),
        _window_product_function(),
    ]
    return [
        *tiles,
        _copy_function(),
        _pack_panel_function(),
        _gather_panel_function(),
        *products,
    ]


_COPY_INDEX: Final = TILE_ROWS
_PANEL_INDEX: Final = TILE_ROWS + 1
_GATHER_INDEX: Final = TILE_ROWS + 2


def _tile_function(rows: int, fused: bool) -> WasmFunctionBuilder:
    """Build the function that multiplies some rows by a panel, of which `width` columns
    count; `spare` has room for all.
    """
    f = WasmFunctionBuilder(
        f"tile{rows}",
        *("a", "a_row", "b", "terms", "out", "out_row", "width", "spare"),
    )
    row_range = range(rows)
    f.declare_locals("i32", *(f"p{r}" for r in row_range))
    f.declare_locals(
        "v128", "b0", "b1", "s", *(f"t{r}_{c}" for r in row_range for c in (0, 1))
    )
    f.set_local("p0", "a")
    for r in row_range[1:]:
        f.set_local(f"p{r}", f"p{r - 1}", "a_row", "i32.add")
    with f.loop_until("terms", _UNROLLED, "i32.lt_u"):
        _emit_terms(f, rows, _UNROLLED, fused)
    with f.loop_until("terms", 0, "i32.eq"):
        _emit_terms(f, rows, 1, fused)
    for r in row_range:
        # Straight to its place, or by way of the spare room.
        f.set_local("a", "out", "spare", "width", PANEL_COLUMNS, "i32.eq", "select")
        for c in (0, 1):
            f.emit("a", f"t{r}_{c}")
            f.emit_memory_access("v128.store", 16 * c)
        with f.if_block("width", PANEL_COLUMNS, "i32.lt_u"):
            f.emit("spare", "out", "width")
            f.call(_COPY_INDEX)
        f.set_local("out", "out", "out_row", "i32.add")
    return f


def _emit_terms(f: WasmFunctionBuilder, rows: int, count: int, fused: bool) -> None:
    """Emit `count` terms, added to all sums."""
    for term in range(count):
        for c in (0, 1):
            f.emit("b")
            f.emit_memory_access("v128.load", 32 * term + 16 * c)
            f.set_local(f"b{c}")
        for r in range(rows):
            f.emit(f"p{r}")
            f.emit_memory_access("v128.load32_splat", 4 * term)
            f.set_local("s")
            for c in (0, 1):
                f.add_product(f"t{r}_{c}", "s", f"b{c}", fused=fused)
    for r in range(rows):
        f.set_local(f"p{r}", f"p{r}", 4 * count, "i32.add")
    f.set_local("b", "b", 32 * count, "i32.add")
    f.set_local("terms", "terms", count, "i32.sub")


def _copy_function() -> WasmFunctionBuilder:
    """Build the function that copies floats."""
    f = WasmFunctionBuilder("copied", "here", "there", "count")
    with f.loop_until("count", 0, "i32.eq"):
        f.emit("there", "here")
        f.emit_memory_access("f32.load")
        f.emit_memory_access("f32.store")
        f.set_local("here", "here", 4, "i32.add")
        f.set_local("there", "there", 4, "i32.add")
        f.set_local("count", "count", 1, "i32.sub")
    return f


def _pack_panel_function() -> WasmFunctionBuilder:
    """Build the function that packs columns of the right matrix into a panel; missing
    columns are 0.
    """
    f = WasmFunctionBuilder("panel", "b", "b_row", "terms", "width", "to")
    f.declare_locals("v128", "none")
    with f.loop_until("terms", 0, "i32.eq"):
        f.emit("width", PANEL_COLUMNS, "i32.eq", "if")
        for offset in (0, 16):
            f.emit("to", "b")
            f.emit_memory_access("v128.load", offset)
            f.emit_memory_access("v128.store", offset)
        f.emit("else")
        for offset in (0, 16):
            f.emit("to", "none")
            f.emit_memory_access("v128.store", offset)
        f.emit("b", "to", "width")
        f.call(_COPY_INDEX)
        f.emit("end")
        f.set_local("b", "b", "b_row", "i32.add")
        f.set_local("to", "to", 4 * PANEL_COLUMNS, "i32.add")
        f.set_local("terms", "terms", 1, "i32.sub")
    return f


def _gather_panel_function() -> WasmFunctionBuilder:
    """Build the function that gathers eight windows, whose elements lie anywhere, term
    by term.
    """
    places = [f"p{i}" for i in range(PANEL_COLUMNS)]
    f = WasmFunctionBuilder("gathered", "x", "place", "taps", "terms", "to")
    f.declare_locals("i32", *places, "tap")
    f.declare_locals("v128", "v")
    for i, pointer in enumerate(places):
        f.emit("x", "place")
        f.emit_memory_access("i32.load", 4 * i)
        f.set_local(pointer, "i32.add")
    # One after the other: they grow from each to the next.
    is_contiguous = (
        places[-1],
        places[0],
        "i32.sub",
        4 * (PANEL_COLUMNS - 1),
        "i32.eq",
    )
    f.emit(*is_contiguous, "if")
    with _term_loop(f):
        for offset in (0, 16):
            f.emit("to", places[0], "tap", "i32.add")
            f.emit_memory_access("v128.load", offset)
            f.emit_memory_access("v128.store", offset)
    f.emit("else")
    with _term_loop(f):
        for half in (0, 4):
            for i in range(4):
                f.emit(places[half + i], "tap", "i32.add", "v")
                f.load_lane(i)
                f.set_local("v")
            f.emit("to", "v")
            f.emit_memory_access("v128.store", 4 * half)
    f.emit("end")
    return f


@contextmanager
def _term_loop(f: WasmFunctionBuilder) -> Iterator[None]:
    """Emit a loop over the terms; `tap` is the term's."""
    with f.loop_until("terms", 0, "i32.eq"):
        f.emit("taps")
        f.emit_memory_access("i32.load")
        f.set_local("tap")
        yield
        f.set_local("taps", "taps", 4, "i32.add")
        f.set_local("to", "to", 4 * PANEL_COLUMNS, "i32.add")
        f.set_local("terms", "terms", 1, "i32.sub")


def _declare_function(name: str) -> WasmFunctionBuilder:
    f = WasmFunctionBuilder(name, *ARGUMENTS[name])
    local_names = (
        "group",
        "many",
        "at",
        "width",
        "row",
        "left",
        "take",
        "tiles",
        "panel",
    )
    f.declare_locals(
        "i32", *local_names, *(["spare"] if "spare" not in ARGUMENTS[name] else [])
    )
    f.set_local("panel", "terms", 4 * PANEL_COLUMNS, "i32.mul")
    return f


def _product_function() -> WasmFunctionBuilder:
    """Build `product`: matrix by matrix, group of panels by group."""
    f = _declare_function("product")
    f.set_local("spare", "room", "panel", GROUP_PANELS, "i32.mul", "i32.add")
    with f.loop_until("count", 0, "i32.eq"):
        f.set_local("group", 0)
        with _group_loop(f, GROUP_PANELS * PANEL_COLUMNS):
            with _panel_loop(f, PANEL_COLUMNS):
                _emit_panel_width(f)
                f.emit("b", *_COLUMN_OFFSET, "i32.add", "b_row", "terms", "width")
                _emit_panel_address(f)
                f.call(_PANEL_INDEX)
            _emit_group_product(
                f, PANEL_COLUMNS, _emit_panel_width, _emit_column_offset
            )
        for operand in ("a", "b", "out"):
            f.set_local(operand, operand, f"{operand}_step", "i32.add")
        f.set_local("count", "count", 1, "i32.sub")
    return f


def _pack_function() -> WasmFunctionBuilder:
    """Build `laid`, which packs all columns of the right matrix."""
    f = _declare_function("laid")
    f.set_local("many", "columns")
    with _panel_loop(f, PANEL_COLUMNS):
        _emit_panel_width(f)
        f.emit("b", *_COLUMN_OFFSET, "i32.add", "b_row", "terms", "width")
        _emit_panel_address(f)
        f.call(_PANEL_INDEX)
    return f


def _packed_product_function() -> WasmFunctionBuilder:
    """Build `of_laid`: like `product`, for one packed matrix."""
    f = _declare_function("of_laid")
    with _group_loop(f, GROUP_PANELS * PANEL_COLUMNS):
        _emit_group_product(f, PANEL_COLUMNS, _emit_panel_width, _emit_column_offset)
        f.set_local("room", "room", "panel", GROUP_PANELS, "i32.mul", "i32.add")
    return f


def _window_product_function() -> WasmFunctionBuilder:
    """Build `of_windows`: like `product`, but a panel's sums go where its record
    says.
    """
    f = _declare_function("of_windows")
    f.declare_locals("i32", "record")
    f.set_local("spare", "room", "panel", GROUP_PANELS, "i32.mul", "i32.add")

    def emit_record_address(f: WasmFunctionBuilder) -> None:
        f.set_local(
            "record", "group", "at", "i32.add", 4 * PANEL_RECORD_LENGTH, "i32.mul"
        )
        f.set_local("record", "record", "places", "i32.add")

    def emit_width(f: WasmFunctionBuilder) -> None:
        emit_record_address(f)
        f.emit("record")
        f.emit_memory_access("i32.load", 4 * (PANEL_COLUMNS + 1))
        f.set_local("width")

    def emit_result_offset(f: WasmFunctionBuilder) -> None:
        f.emit("record")
        f.emit_memory_access("i32.load", 4 * PANEL_COLUMNS)

    with _group_loop(f, GROUP_PANELS):
        with _panel_loop(f, 1):
            emit_record_address(f)
            f.emit("x", "record", "taps", "terms")
            f.emit("room", "at", "panel", "i32.mul", "i32.add")
            f.call(_GATHER_INDEX)
        _emit_group_product(f, 1, emit_width, emit_result_offset)
    return f


_COLUMN_OFFSET: Final = ("group", "at", "i32.add", 4, "i32.mul")
"""Instructions for the bytes from a row's first element to the panel's."""


@contextmanager
def _group_loop(f: WasmFunctionBuilder, group_columns: int) -> Iterator[None]:
    """Emit a loop over groups: `group` is the first column, or panel, and `many` the
    number in the group.
    """
    with f.loop_until("group", "columns", "i32.ge_u"):
        f.set_local("many", "columns", "group", "i32.sub")
        f.set_local(
            "many", "many", group_columns, "many", group_columns, "i32.lt_u", "select"
        )
        yield
        f.set_local("group", "group", group_columns, "i32.add")


@contextmanager
def _panel_loop(f: WasmFunctionBuilder, step: int) -> Iterator[None]:
    f.set_local("at", 0)
    with f.loop_until("at", "many", "i32.ge_u"):
        yield
        f.set_local("at", "at", step, "i32.add")


def _emit_group_product(
    f: WasmFunctionBuilder,
    step: int,
    emit_width: Callable[[WasmFunctionBuilder], None],
    emit_result_offset: Callable[[WasmFunctionBuilder], None],
) -> None:
    """Multiply all rows by the panels of the group, with the rows divided evenly over
    the tiles.

    step    from a panel to the next
    emit_width  puts how many columns of a panel count
    emit_result_offset  leaves how many bytes from the first row's place its sums go
    """
    f.set_local("left", "rows")
    f.set_local("tiles", "rows", TILE_ROWS - 1, "i32.add", TILE_ROWS, "i32.div_u")
    f.set_local("row", 0)
    with f.loop_until("tiles", 0, "i32.eq"):
        f.set_local(
            "take", "left", "tiles", "i32.add", 1, "i32.sub", "tiles", "i32.div_u"
        )
        with _panel_loop(f, step):
            emit_width(f)
            for rows in range(1, TILE_ROWS + 1):
                with f.if_block("take", rows, "i32.eq"):
                    f.emit("a", "row", "a_row", "i32.mul", "i32.add", "a_row", "room")
                    f.emit("at", "panel", "i32.mul")
                    if step > 1:
                        f.emit(step, "i32.div_u")
                    f.emit("i32.add")
                    f.emit("terms", "out", "row", "out_row", "i32.mul", "i32.add")
                    emit_result_offset(f)
                    f.emit("i32.add", "out_row", "width", "spare")
                    f.call(rows - 1)
        f.set_local("row", "row", "take", "i32.add")
        f.set_local("left", "left", "take", "i32.sub")
        f.set_local("tiles", "tiles", 1, "i32.sub")


def _emit_column_offset(f: WasmFunctionBuilder) -> None:
    f.emit(*_COLUMN_OFFSET)


def _emit_panel_width(f: WasmFunctionBuilder) -> None:
    """Emit the number of the panel's columns that count."""
    f.set_local("width", "many", "at", "i32.sub")
    f.set_local(
        "width", "width", PANEL_COLUMNS, "width", PANEL_COLUMNS, "i32.lt_u", "select"
    )


def _emit_panel_address(f: WasmFunctionBuilder) -> None:
    """Emit the address of the panel of columns `at` in the scratch memory."""
    f.emit("room", "at", "terms", "i32.mul", 4, "i32.mul", "i32.add")
