"""Products of float32 in WebAssembly: what NumPy has no BLAS for in a browser.

Eight columns of the right matrix are laid side by side, a panel; as many panels as the
second-level cache holds are met by six rows of the left one at a time, whose twelve
vectors of sums stay in registers.
"""

from __future__ import annotations

from typing import Final

from rlxweb.machine.wasm import Function, module

ROWS: Final = 6
COLUMNS: Final = 8
PANELS: Final = 8
"""Panels that are made at once."""
_UNROLLED: Final = 4
ARGUMENTS: Final = (
    *("a", "b", "out", "rows", "terms", "columns"),
    *("a_row", "b_row", "out_row", "room"),
)
"""Of `product`: addresses, sizes, and bytes from one row to the next."""


def room_of(terms: int) -> int:
    """Floats of the room that a product takes."""
    return (terms * PANELS + 1) * COLUMNS


def products_module(*, fused: bool) -> bytes:
    """`product`: out = a b, of [rows, terms] by [terms, columns].

    fused   by additions that need not round the product, where a browser knows them:
            twice as fast where the processor does
    """
    tiles = [_tile(rows, fused) for rows in range(1, ROWS + 1)]
    return module([*tiles, _copied(), _panel(), _product()])


_COPY: Final = ROWS
_PANEL: Final = ROWS + 1


def _tile(rows: int, fused: bool) -> Function:
    """Some rows by a panel. `width` columns of it count; `spare` has room for all."""
    f = Function(
        f"tile{rows}",
        *("a", "a_row", "b", "terms", "out", "out_row", "width", "spare"),
    )
    every = range(rows)
    f.local("i32", *(f"p{r}" for r in every))
    f.local("v128", "b0", "b1", "s", *(f"t{r}_{c}" for r in every for c in (0, 1)))
    f.put("p0", "a")
    for r in every[1:]:
        f.put(f"p{r}", f"p{r - 1}", "a_row", "i32.add")
    with f.repeated("terms", _UNROLLED, "i32.lt_u"):
        _terms(f, rows, _UNROLLED, fused)
    with f.repeated("terms", 0, "i32.eq"):
        _terms(f, rows, 1, fused)
    for r in every:
        # Straight to its place, or by way of the spare room.
        f.put("a", "out", "spare", "width", COLUMNS, "i32.eq", "select")
        for c in (0, 1):
            f.say("a", f"t{r}_{c}")
            f.move("v128.store", 16 * c)
        with f.only_if("width", COLUMNS, "i32.lt_u"):
            f.say("spare", "out", "width")
            f.call(_COPY)
        f.put("out", "out", "out_row", "i32.add")
    return f


def _terms(f: Function, rows: int, count: int, fused: bool) -> None:
    """So many terms onto all sums."""
    for at in range(count):
        for c in (0, 1):
            f.say("b")
            f.move("v128.load", 32 * at + 16 * c)
            f.put(f"b{c}")
        for r in range(rows):
            f.say(f"p{r}")
            f.move("v128.load32_splat", 4 * at)
            f.put("s")
            for c in (0, 1):
                total, own = f"t{r}_{c}", f"b{c}"
                both = ("s", own, total, "f32x4.relaxed_madd")
                apart = ("s", own, "f32x4.mul", total, "f32x4.add")
                f.put(total, *(both if fused else apart))
    for r in range(rows):
        f.put(f"p{r}", f"p{r}", 4 * count, "i32.add")
    f.put("b", "b", 32 * count, "i32.add")
    f.put("terms", "terms", count, "i32.sub")


def _copied() -> Function:
    """So many floats from one place to another."""
    f = Function("copied", "here", "there", "count")
    with f.repeated("count", 0, "i32.eq"):
        f.say("there", "here")
        f.move("f32.load")
        f.move("f32.store")
        f.put("here", "here", 4, "i32.add")
        f.put("there", "there", 4, "i32.add")
        f.put("count", "count", 1, "i32.sub")
    return f


def _panel() -> Function:
    """Columns of the right matrix side by side; those that are missing are 0."""
    f = Function("panel", "b", "b_row", "terms", "width", "to")
    f.local("v128", "none")
    with f.repeated("terms", 0, "i32.eq"):
        f.say("width", COLUMNS, "i32.eq", "if")
        for at in (0, 16):
            f.say("to", "b")
            f.move("v128.load", at)
            f.move("v128.store", at)
        f.say("else")
        for at in (0, 16):
            f.say("to", "none")
            f.move("v128.store", at)
        f.say("b", "to", "width")
        f.call(_COPY)
        f.say("end")
        f.put("b", "b", "b_row", "i32.add")
        f.put("to", "to", 4 * COLUMNS, "i32.add")
        f.put("terms", "terms", 1, "i32.sub")
    return f


def _product() -> Function:
    """Group of panels by group, six rows by six rows, panel by panel."""
    f = Function("product", *ARGUMENTS)
    f.local("i32", "group", "many", "at", "width", "row", "left", "panel", "spare")
    f.put("panel", "terms", 4 * COLUMNS, "i32.mul")
    f.put("spare", "room", "panel", PANELS, "i32.mul", "i32.add")
    with f.repeated("group", "columns", "i32.ge_u"):
        f.put("many", "columns", "group", "i32.sub")
        wide = PANELS * COLUMNS
        f.put("many", "many", wide, "many", wide, "i32.lt_u", "select")
        f.put("at", 0)
        with f.repeated("at", "many", "i32.ge_u"):
            _width(f)
            f.say("b", "group", "at", "i32.add", 4, "i32.mul", "i32.add")
            f.say("b_row", "terms", "width")
            _place(f)
            f.call(_PANEL)
            f.put("at", "at", COLUMNS, "i32.add")
        f.put("row", 0)
        with f.repeated("row", "rows", "i32.ge_u"):
            f.put("left", "rows", "row", "i32.sub")
            f.put("at", 0)
            with f.repeated("at", "many", "i32.ge_u"):
                _width(f)
                _by_rows(f)
                f.put("at", "at", COLUMNS, "i32.add")
            f.put("row", "row", ROWS, "i32.add")
        f.put("group", "group", wide, "i32.add")
    return f


def _width(f: Function) -> None:
    """Columns of the panel that count."""
    f.put("width", "many", "at", "i32.sub")
    f.put("width", "width", COLUMNS, "width", COLUMNS, "i32.lt_u", "select")


def _place(f: Function) -> None:
    """Where the panel of columns `at` lies in the room."""
    f.say("room", "at", "terms", "i32.mul", 4, "i32.mul", "i32.add")


def _by_rows(f: Function) -> None:
    """The tile of as many rows as are left, six at most."""
    for rows in range(1, ROWS + 1):
        as_many = "i32.ge_u" if rows == ROWS else "i32.eq"
        with f.only_if("left", rows, as_many):
            f.say("a", "row", "a_row", "i32.mul", "i32.add", "a_row")
            _place(f)
            f.say("terms", "out", "row", "out_row", "i32.mul", "i32.add")
            f.say("group", "at", "i32.add", 4, "i32.mul", "i32.add")
            f.say("out_row", "width", "spare")
            f.call(rows - 1)
