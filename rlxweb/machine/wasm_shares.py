"""Products of float32 that several threads of WebAssembly share, part by part.

A part is some rows by some columns, of a right matrix that lies in panels as
`wasm_products.py` lays them. Who is there takes the next part until there is none, and
does with it what is to be done with the product: a region of `wasm_region_text.py`.
Every sum is one thread's, its terms in the order in which one thread would add them.
"""

from __future__ import annotations

from typing import Final

from rlxweb.machine.jobs import WORD
from rlxweb.machine.wasm import Function, module
from rlxweb.machine.wasm_products import functions_of

FIELDS: Final = (
    *("next", "parts", "across", "each_rows", "each_columns"),
    *("a", "panels", "made", "rows", "terms", "columns", "a_row", "made_row"),
    *("tail", "count", "operands"),
)
"""Words of 32 bits of a job: the address of the counter of parts; how many there are,
how many of them side by side, and their sizes; the product; the place of a region in
the table (0 for none), how many operands it has, and where they are said.
"""
OPERAND: Final = ("at", "row", "column")
"""Of each operand, the result first: where it begins, bytes to the next row and column.
"""
NEXT: Final = 128
JOB: Final = 49152
ROOM: Final = 512
"""Where the counter of parts and the job lie, and the bytes of a thread's room: as
`host/workers.js` has them.
"""
_ELEMENT: Final = 4
_REGION: Final = 64
_STARTS: Final = _REGION + 3 * WORD


def mine_for(operands: int) -> int:
    """Bytes of the room of a thread, all zero in the beginning: what a panel leaves
    over, the job of a region, and its operands' addresses and strides.
    """
    return _STARTS + 2 * WORD * operands


def shares_module(*, fused: bool) -> bytes:
    """`share(job, mine)`: parts of a job until there is none left, in a memory that
    several threads have; `mine` is the thread's own room.

    fused   by additions that need not round the product, where a browser knows them
    """
    parts = functions_of(fused=fused)
    names = [one.name for one in parts]
    return module([*parts, _share(names.index("of_laid"))], shared=True)


def _share(of_laid: int) -> Function:
    f = Function("share", "job", "mine")
    f.local("i32", *FIELDS, "part", "row", "column", "high", "wide")
    for at, name in enumerate(FIELDS):
        f.say("job")
        f.move("i32.load", _ELEMENT * at)
        f.put(name)
    _take(f)
    with f.repeated("part", "parts", "i32.ge_u"):
        f.put("row", "part", "across", "i32.div_u", "each_rows", "i32.mul")
        f.put("column", "part", "across", "i32.rem_u", "each_columns", "i32.mul")
        for size, whole, first in (
            ("high", "rows", "row"),
            ("wide", "columns", "column"),
        ):
            each = f"each_{whole}"
            f.put(size, whole, first, "i32.sub")
            f.put(size, size, each, size, each, "i32.lt_u", "select")
        f.say("a", "row", "a_row", "i32.mul", "i32.add")
        f.say("panels", "column", "terms", "i32.mul", _ELEMENT, "i32.mul", "i32.add")
        f.say("made", "row", "made_row", "i32.mul", "i32.add")
        f.say("column", _ELEMENT, "i32.mul", "i32.add")
        f.say("high", "terms", "wide", "a_row", "made_row", "mine")
        f.call(of_laid)
        with f.only_if("tail"):
            _tail(f)
        _take(f)
    return f


def _take(f: Function) -> None:
    f.say("next", 1)
    f.add_shared()
    f.put("part")


def _tail(f: Function) -> None:
    """The region, of the rows and columns of a part."""
    f.local("i32", "left", "operand", "start", "stride")
    for at, words in enumerate((("mine", _STARTS, "i32.add"), ("high",), ("wide",))):
        f.say("mine", *words)
        f.move("i32.store", _REGION + WORD * at)
    f.put("operand", "operands")
    f.put("left", "count")
    f.put("start", "mine", _STARTS, "i32.add")
    f.put("stride", "start", "count", WORD, "i32.mul", "i32.add")
    with f.repeated("left", "i32.eqz"):
        f.say("start", "operand")
        f.move("i32.load")
        for at, first in enumerate(("row", "column"), 1):
            f.say("operand")
            f.move("i32.load", _ELEMENT * at)
            f.say(first, "i32.mul", "i32.add")
        f.move("i32.store")
        f.say("stride", "operand")
        f.move("i32.load", _ELEMENT)
        f.move("i32.store")
        for name, step in (("start", WORD), ("stride", WORD)):
            f.put(name, name, step, "i32.add")
        f.put("operand", "operand", _ELEMENT * len(OPERAND), "i32.add")
        f.put("left", "left", 1, "i32.sub")
    f.say("mine", _REGION, "i32.add", "tail")
    f.call_at()
