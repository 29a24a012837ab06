"""A tape in WebAssembly: what `tape.py` says for processors, with the same jobs.

Functions that an entry names are places in the table that all modules of a page share;
of each word of 64 bits the lower half counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from rlxweb.machine.jobs import WORD
from rlxweb.machine.tape import MOVE_FIELDS, PRODUCT_FIELDS, Tile, tiles
from rlxweb.machine.wasm import VECTOR, Function, module

_LANES: Final = VECTOR // 4
_ELEMENT: Final = 4
_STEPS: Final = ("a_row", "b_step", "out_row", "out_column")
_UNROLLED: Final = 4


def tape_module(*, fused: bool) -> bytes:
    """@walk(entries, count), @move(job), and a product of each tile by its name.

    fused   by additions that need not round the product, where a browser knows them
    """
    products = [_Product(tile, fused).function() for tile in tiles(VECTOR)]
    return module([_walk(), _move(), *products])


def _walk() -> Function:
    f = Function("walk", "entries", "count")
    with f.repeated("count", "i32.eqz"):
        for at in (WORD, 0):  # the job, and whose it is
            f.say("entries")
            f.move("i32.load", at)
        f.call_at()
        f.put("entries", "entries", 2 * WORD, "i32.add")
        f.put("count", "count", 1, "i32.sub")
    return f


def _fields(f: Function, names: tuple[str, ...]) -> None:
    """What a job says, in variables."""
    f.local("i32", *names)
    for at, name in enumerate(names):
        f.say("job")
        f.move("i32.load", WORD * at)
        f.put(name)


def _move() -> Function:
    f = Function("move", "job")
    _fields(f, MOVE_FIELDS)
    f.local("i32", "place")
    # Place 0 reads what is there in any case, and takes 0 instead of it.
    f.put("from", "from", _ELEMENT, "i32.sub")
    for count in (_UNROLLED, 1):
        with f.repeated("count", count, "i32.lt_u"):
            for at in range(count):
                f.say("table")
                f.move("i32.load", _ELEMENT * at)
                f.put("place")
                f.say("to", "from", "place", _ELEMENT, "i32.mul", "i32.add")
                f.move("i32.load")
                f.say(0, "place", "select")
                f.move("i32.store", _ELEMENT * at)
            for name in ("table", "to"):
                f.put(name, name, _ELEMENT * count, "i32.add")
            f.put("count", "count", count, "i32.sub")
    return f


class _Product:
    """out[r, c] = the sum over t of a[r, t] · b, for all rows and columns."""

    def __init__(self, tile: Tile, fused: bool) -> None:
        self.tile, self.fused = tile, fused
        f = self.f = Function(tile.name, "job")
        _fields(f, PRODUCT_FIELDS)
        for name in _STEPS:
            f.put(name, name, _ELEMENT, "i32.mul")
        self.ours = [f"a{r}" for r in range(tile.rows)]
        self.theirs = [f"b{c}" for c in range(tile.across)]
        self.sums = [
            [f"s{r}_{c}" for c in range(tile.across)] for r in range(tile.rows)
        ]
        f.local("i32", "row", "column", "row_at", "column_at", "left", "there")
        f.local("i32", *self.ours, *self.theirs)
        f.local("v128", "none", "mine", *(f"v{c}" for c in range(tile.across)))
        f.local("v128", *(one for row in self.sums for one in row))

    def function(self) -> Function:
        f, (kind, height, width) = self.f, self.tile
        is_dots = kind == "dots"
        each = width * (1 if is_dots else _LANES)
        with (
            self._in_steps("column", "columns", each),
            self._in_steps("row", "rows", height),
        ):
            self._pointers("a", "row", self.ours)
            for row in self.sums:
                for one in row:
                    f.put(one, "none")
            (self._dots if is_dots else self._lines)()
        return f

    @contextmanager
    def _in_steps(self, first: str, count: str, each: int) -> Iterator[None]:
        """So many at a time from `first` on; the last ones end where all do."""
        f, at = self.f, f"{first}_at"
        last = (count, each, "i32.sub")
        f.put(at, 0)
        with f.repeated(at, count, "i32.ge_u"):
            f.put(first, at, *last, at, *last, "i32.lt_u", "select")
            yield
            f.put(at, at, each, "i32.add")

    def _pointers(self, base: str, first: str, names: list[str]) -> None:
        """To each of the rows from `first` on."""
        f, step = self.f, "b_step" if base == "b" else "a_row"
        f.put(names[0], base, first, step, "i32.mul", "i32.add")
        for before, name in pairwise(names):
            f.put(name, before, step, "i32.add")

    def _dots(self) -> None:
        f = self.f
        self._pointers("b", "column", self.theirs)

        def turn(at: int) -> None:
            for c, pointer in enumerate(self.theirs):
                f.say(pointer)
                f.move("v128.load", VECTOR * at)
                f.put(f"v{c}")
            for pointer, row in zip(self.ours, self.sums, strict=True):
                f.say(pointer)
                f.move("v128.load", VECTOR * at)
                f.put("mine")
                for c, total in enumerate(row):
                    f.add_product(total, "mine", f"v{c}", fused=self.fused)

        f.put("left", "terms", _LANES, "i32.div_u")
        self._turns(turn, VECTOR, (*self.ours, *self.theirs))
        for r, row in enumerate(self.sums):
            f.put("there", "row", r, "i32.add", "out_row", "i32.mul", "out", "i32.add")
            f.put("there", "column", "out_column", "i32.mul", "there", "i32.add")
            for total in row:
                f.say("there")
                for lane in range(_LANES):
                    f.say(total)
                    f.lane("extract f32", lane)
                    if lane:
                        f.say("f32.add")
                f.move("f32.store")
                f.put("there", "there", "out_column", "i32.add")

    def _lines(self) -> None:
        f, line = self.f, self.theirs[0]
        f.put(line, "column", _ELEMENT, "i32.mul", "b", "i32.add")

        def turn(at: int) -> None:
            for c in range(self.tile.across):
                f.say(line)
                f.move("v128.load", VECTOR * c)
                f.put(f"v{c}")
            f.put(line, line, "b_step", "i32.add")
            for pointer, row in zip(self.ours, self.sums, strict=True):
                f.say(pointer)
                f.move("v128.load32_splat", _ELEMENT * at)
                f.put("mine")
                for c, total in enumerate(row):
                    f.add_product(total, "mine", f"v{c}", fused=self.fused)

        f.put("left", "terms")
        self._turns(turn, _ELEMENT, self.ours)
        f.put("there", "row", "out_row", "i32.mul", "out", "i32.add")
        f.put("there", "column", _ELEMENT, "i32.mul", "there", "i32.add")
        for row in self.sums:
            for c, total in enumerate(row):
                f.say("there", total)
                f.move("v128.store", VECTOR * c)
            f.put("there", "there", "out_row", "i32.add")

    def _turns(
        self, turn: Callable[[int], None], step: int, pointers: Sequence[str]
    ) -> None:
        """`left` of them, some at a time; `step` is bytes of the pointers for each."""
        f = self.f
        for count in (_UNROLLED, 1):
            with f.repeated("left", count, "i32.lt_u"):
                for at in range(count):
                    turn(at)
                for name in pointers:
                    f.put(name, name, step * count, "i32.add")
                f.put("left", "left", count, "i32.sub")
