"""Attention of float32 as WebAssembly: products, and the softmax between them.

Head by head the keys are turned into panels; then the scores of a block of queries,
their softmax and the weighted values are made, all of it in the nearest caches.
"""

from __future__ import annotations

from typing import Final

from rlxweb.backends.wasm_lines_text import weights_function
from rlxweb.machine.wasm import Function, module
from rlxweb.machine.wasm_products import COLUMNS, functions_of, room_of

OPERANDS: Final = ("q", "k", "v", "out", "bias")
FIELDS: Final = (
    *OPERANDS,
    *(f"{one}_{step}" for one in OPERANDS for step in ("batch", "head", "row")),
    *("batches", "heads", "group", "queries", "keys", "size", "value", "room"),
)
"""Words of 32 bits of a job: addresses; bytes from one batch, head and row to the next,
0 where all have the same; how many batches and heads, how many heads share a key head,
the lengths; the room, whose first four floats are the factor of scores.
"""
QUERIES: Final = 64
"""Of a block."""
_ELEMENT: Final = 4
_FRONT: Final = 8
"""Floats before the rest of the room: the factor, and four that are written over."""


def room_for(queries: int, keys: int, size: int) -> int:
    """Floats of the room: the factor, keys in panels, scores twice, the products'."""
    padded = -(-keys // COLUMNS) * COLUMNS
    scores = min(queries, QUERIES) * keys
    return _FRONT + COLUMNS + padded * size + 2 * scores + room_of(keys)


def attention_module(*, fused: bool) -> bytes:
    """`attention(job)`.

    fused   by additions that need not round the product, where a browser knows them
    """
    parts = functions_of(fused=fused)
    at = {one.name: number for number, one in enumerate(parts)}
    at |= {"turned": len(parts), "weights": len(parts) + 1}
    return module([*parts, _turned(), weights_function(), _attention(at)])


def _turned() -> Function:
    """Rows side by side, term by term; missing ones are the last one again."""
    f = Function("turned", "x", "row", "terms", "width", "to")
    places = [f"p{i}" for i in range(COLUMNS)]
    f.local("i32", *places, "last")
    f.local("v128", "v")
    f.put("last", "width", 1, "i32.sub")
    for i, place in enumerate(places):
        f.put(place, i, "last", i, "last", "i32.lt_u", "select")
        f.put(place, place, "row", "i32.mul", "x", "i32.add")
    with f.repeated("terms", "i32.eqz"):
        for half in (0, 4):
            for i in range(4):
                f.say(places[half + i], "v")
                f.load_lane(i)
                f.put("v")
            f.say("to", "v")
            f.move("v128.store", _ELEMENT * half)
        for place in places:
            f.put(place, place, _ELEMENT, "i32.add")
        f.put("to", "to", _ELEMENT * COLUMNS, "i32.add")
        f.put("terms", "terms", 1, "i32.sub")
    return f


def _attention(at: dict[str, int]) -> Function:
    f = Function("attention", "job")
    f.local("i32", *FIELDS)
    for number, name in enumerate(FIELDS):
        f.say("job")
        f.move("i32.load", _ELEMENT * number)
        f.put(name)
    f.local("i32", "spare", "panels", "raw", "scores", "rest")
    f.put("spare", "room", _ELEMENT * _FRONT, "i32.add")
    f.put("panels", "spare", _ELEMENT * COLUMNS, "i32.add")
    f.put("rest", "keys", COLUMNS - 1, "i32.add", COLUMNS, "i32.div_u")
    f.put("rest", "rest", "size", "i32.mul", _ELEMENT * COLUMNS, "i32.mul")
    f.put("raw", "panels", "rest", "i32.add")
    f.local("i32", "each", "row_of_keys", "room_of_scores")
    f.put("each", "queries", QUERIES, "queries", QUERIES, "i32.lt_u", "select")
    f.put("row_of_keys", "keys", _ELEMENT, "i32.mul")
    f.put("room_of_scores", "each", "row_of_keys", "i32.mul")
    f.put("scores", "raw", "room_of_scores", "i32.add")
    f.put("rest", "scores", "room_of_scores", "i32.add")
    f.local("i32", "head", *(f"{one}_at" for one in OPERANDS))
    with f.repeated("batches", "i32.eqz"):
        f.put("head", 0)
        with f.repeated("head", "heads", "i32.ge_u"):
            for one in OPERANDS:
                which = ["head"]
                if one in ("k", "v"):
                    which += ["group", "i32.div_u"]
                step = (*which, f"{one}_head", "i32.mul")
                f.put(f"{one}_at", one, *step, "i32.add")
            _head(f, at)
            f.put("head", "head", 1, "i32.add")
        for one in OPERANDS:
            f.put(one, one, f"{one}_batch", "i32.add")
        f.put("batches", "batches", 1, "i32.sub")
    return f


def _head(f: Function, at: dict[str, int]) -> None:
    f.local("i32", "key", "width", "left", "many")
    f.put("key", 0)
    with f.repeated("key", "keys", "i32.ge_u"):
        f.put("width", "keys", "key", "i32.sub")
        f.put("width", "width", COLUMNS, "width", COLUMNS, "i32.lt_u", "select")
        f.say("k_at", "key", "k_row", "i32.mul", "i32.add", "k_row", "size", "width")
        f.say("key", "size", "i32.mul", _ELEMENT, "i32.mul", "panels", "i32.add")
        f.call(at["turned"])
        f.put("key", "key", COLUMNS, "i32.add")
    f.put("left", "queries")
    with f.repeated("left", "i32.eqz"):
        f.put("many", "left", "each", "left", "each", "i32.lt_u", "select")
        f.say("q_at", "panels", "raw", "many", "size", "keys")
        f.say("q_row", "row_of_keys", "spare")
        f.call(at["of_laid"])
        f.say("raw", "scores", "many", "keys", "bias_at", "bias_row", "room")
        f.call(at["weights"])
        f.say("scores", "v_at", "out_at", "many", "keys", "value")
        f.say("row_of_keys", "v_row", "out_row", "rest", 1, 0, 0, 0)
        f.call(at["product"])
        for one in ("q", "out", "bias"):
            step = ("many", f"{one}_row", "i32.mul")
            f.put(f"{one}_at", f"{one}_at", *step, "i32.add")
        f.put("left", "left", "many", "i32.sub")
