"""Products of float32 in WebAssembly: what NumPy has no BLAS for in a browser.

Eight columns of the right matrix are laid side by side, a panel; as many panels as the
second-level cache holds are met by six rows of the left one at a time, whose twelve
vectors of sums stay in registers. Panels come from a matrix, were laid before, or are
windows of an array: what a convolution multiplies its weights by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rlxweb.machine.wasm import Function, module
from rlxweb.machine.wasm_runs import ARGUMENTS as RUNS
from rlxweb.machine.wasm_runs import runs_of

ROWS: Final = 6
COLUMNS: Final = 8
PANELS: Final = 8
"""Panels that are made at once."""
PLACE: Final = COLUMNS + 2
"""Numbers of a panel of windows: where each begins, where its sums go, how many are."""
_UNROLLED: Final = 4
_SIZES: Final = ("rows", "terms", "columns")
ARGUMENTS: Final = {
    "product": (
        *("a", "b", "out", *_SIZES, "a_row", "b_row", "out_row", "room"),
        *("count", "a_step", "b_step", "out_step"),
    ),
    "laid": ("b", "terms", "columns", "b_row", "room"),
    "of_laid": ("a", "room", "out", *_SIZES, "a_row", "out_row", "spare"),
    "of_windows": (
        *("a", "x", "taps", "places", "out", "rows", "terms", "columns"),
        *("a_row", "out_row", "room"),
    ),
    "of_runs": RUNS,
}
"""Of the functions that are called: addresses, sizes, and bytes from one row, or one
matrix, to the next.
"""


def room_of(terms: int) -> int:
    """Floats of the room that a product takes."""
    return (terms * PANELS + 1) * COLUMNS


def laid_of(terms: int, columns: int) -> int:
    """Floats of a matrix in panels, and of the spare room behind them."""
    return (terms * -(-columns // COLUMNS) + 1) * COLUMNS


def products_module(*, fused: bool) -> bytes:
    """`product`: out = a b, of `count` times [rows, terms] by [terms, columns].

    `laid`: the panels of b; `of_laid`: the product with them. `of_windows`: that with
    windows of an array, whose elements lie `taps` bytes from where `places` says;
    `columns` counts panels of them. `of_runs`: see `wasm_runs.py`.

    fused   by additions that need not round the product, where a browser knows them:
            twice as fast where the processor does
    """
    parts = functions_of(fused=fused)
    return module([*parts, *runs_of(len(parts), fused)])


def functions_of(*, fused: bool) -> list[Function]:
    """Of the module, for others to call them by their places in it."""
    tiles = [_tile(rows, fused) for rows in range(1, ROWS + 1)]
    made = [_product(), _laid(), _of_laid(), _of_windows()]
    return [*tiles, _copied(), _panel(), _gathered(), *made]


_COPY: Final = ROWS
_PANEL: Final = ROWS + 1
_GATHERED: Final = ROWS + 2


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
                f.add_product(f"t{r}_{c}", "s", f"b{c}", fused=fused)
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


def _gathered() -> Function:
    """Eight windows side by side, whose elements lie anywhere, term by term."""
    places = [f"p{i}" for i in range(COLUMNS)]
    f = Function("gathered", "x", "place", "taps", "terms", "to")
    f.local("i32", *places, "tap")
    f.local("v128", "v")
    for i, place in enumerate(places):
        f.say("x", "place")
        f.move("i32.load", 4 * i)
        f.put(place, "i32.add")
    # One after the other: they grow from each to the next.
    beside = (places[-1], places[0], "i32.sub", 4 * (COLUMNS - 1), "i32.eq")
    f.say(*beside, "if")
    with _each_term(f):
        for at in (0, 16):
            f.say("to", places[0], "tap", "i32.add")
            f.move("v128.load", at)
            f.move("v128.store", at)
    f.say("else")
    with _each_term(f):
        for half in (0, 4):
            for i in range(4):
                f.say(places[half + i], "tap", "i32.add", "v")
                f.load_lane(i)
                f.put("v")
            f.say("to", "v")
            f.move("v128.store", 4 * half)
    f.say("end")
    return f


@contextmanager
def _each_term(f: Function) -> Iterator[None]:
    """`tap` is the term's."""
    with f.repeated("terms", 0, "i32.eq"):
        f.say("taps")
        f.move("i32.load")
        f.put("tap")
        yield
        f.put("taps", "taps", 4, "i32.add")
        f.put("to", "to", 4 * COLUMNS, "i32.add")
        f.put("terms", "terms", 1, "i32.sub")


def _of(name: str) -> Function:
    f = Function(name, *ARGUMENTS[name])
    own = ("group", "many", "at", "width", "row", "left", "take", "tiles", "panel")
    f.local("i32", *own, *(["spare"] if "spare" not in ARGUMENTS[name] else []))
    f.put("panel", "terms", 4 * COLUMNS, "i32.mul")
    return f


def _product() -> Function:
    """Matrix by matrix, group of panels by group."""
    f = _of("product")
    f.put("spare", "room", "panel", PANELS, "i32.mul", "i32.add")
    with f.repeated("count", 0, "i32.eq"):
        f.put("group", 0)
        with _each_group(f, PANELS * COLUMNS):
            with _each_panel(f, COLUMNS):
                _width(f)
                f.say("b", *_COLUMN, "i32.add", "b_row", "terms", "width")
                _place(f)
                f.call(_PANEL)
            _met(f, COLUMNS, _width, _beside)
        for one in ("a", "b", "out"):
            f.put(one, one, f"{one}_step", "i32.add")
        f.put("count", "count", 1, "i32.sub")
    return f


def _laid() -> Function:
    """All columns of the right matrix."""
    f = _of("laid")
    f.put("many", "columns")
    with _each_panel(f, COLUMNS):
        _width(f)
        f.say("b", *_COLUMN, "i32.add", "b_row", "terms", "width")
        _place(f)
        f.call(_PANEL)
    return f


def _of_laid() -> Function:
    """As `product`, of one matrix."""
    f = _of("of_laid")
    with _each_group(f, PANELS * COLUMNS):
        _met(f, COLUMNS, _width, _beside)
        f.put("room", "room", "panel", PANELS, "i32.mul", "i32.add")
    return f


def _of_windows() -> Function:
    """As `product`: a panel's sums go where its record says."""
    f = _of("of_windows")
    f.local("i32", "record")
    f.put("spare", "room", "panel", PANELS, "i32.mul", "i32.add")

    def record(f: Function) -> None:
        f.put("record", "group", "at", "i32.add", 4 * PLACE, "i32.mul")
        f.put("record", "record", "places", "i32.add")

    def width(f: Function) -> None:
        record(f)
        f.say("record")
        f.move("i32.load", 4 * (COLUMNS + 1))
        f.put("width")

    def there(f: Function) -> None:
        f.say("record")
        f.move("i32.load", 4 * COLUMNS)

    with _each_group(f, PANELS):
        with _each_panel(f, 1):
            record(f)
            f.say("x", "record", "taps", "terms")
            f.say("room", "at", "panel", "i32.mul", "i32.add")
            f.call(_GATHERED)
        _met(f, 1, width, there)
    return f


_COLUMN: Final = ("group", "at", "i32.add", 4, "i32.mul")
"""Bytes from a row's first element to the panel's."""


@contextmanager
def _each_group(f: Function, wide: int) -> Iterator[None]:
    """`group` is the first column, or panel, and `many` how many there are of it."""
    with f.repeated("group", "columns", "i32.ge_u"):
        f.put("many", "columns", "group", "i32.sub")
        f.put("many", "many", wide, "many", wide, "i32.lt_u", "select")
        yield
        f.put("group", "group", wide, "i32.add")


@contextmanager
def _each_panel(f: Function, step: int) -> Iterator[None]:
    f.put("at", 0)
    with f.repeated("at", "many", "i32.ge_u"):
        yield
        f.put("at", "at", step, "i32.add")


def _met(
    f: Function,
    step: int,
    width: Callable[[Function], None],
    there: Callable[[Function], None],
) -> None:
    """All rows by the panels of the group: as many rows at a time as come out even.

    step    from a panel to the next
    width   puts how many columns of a panel count
    there   leaves how many bytes from the first row's place its sums go
    """
    f.put("left", "rows")
    f.put("tiles", "rows", ROWS - 1, "i32.add", ROWS, "i32.div_u")
    f.put("row", 0)
    with f.repeated("tiles", 0, "i32.eq"):
        f.put("take", "left", "tiles", "i32.add", 1, "i32.sub", "tiles", "i32.div_u")
        with _each_panel(f, step):
            width(f)
            for rows in range(1, ROWS + 1):
                with f.only_if("take", rows, "i32.eq"):
                    f.say("a", "row", "a_row", "i32.mul", "i32.add", "a_row", "room")
                    f.say("at", "panel", "i32.mul")
                    if step > 1:
                        f.say(step, "i32.div_u")
                    f.say("i32.add")
                    f.say("terms", "out", "row", "out_row", "i32.mul", "i32.add")
                    there(f)
                    f.say("i32.add", "out_row", "width", "spare")
                    f.call(rows - 1)
        f.put("row", "row", "take", "i32.add")
        f.put("left", "left", "take", "i32.sub")
        f.put("tiles", "tiles", 1, "i32.sub")


def _beside(f: Function) -> None:
    f.say(*_COLUMN)


def _width(f: Function) -> None:
    """Columns of the panel that count."""
    f.put("width", "many", "at", "i32.sub")
    f.put("width", "width", COLUMNS, "width", COLUMNS, "i32.lt_u", "select")


def _place(f: Function) -> None:
    """Where the panel of columns `at` lies in the room."""
    f.say("room", "at", "terms", "i32.mul", 4, "i32.mul", "i32.add")
