"""Floats reduced along one of two axes: sum, product, largest, smallest.

Sums and products are kept in double precision; of the extremes a NaN is one.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from rlxweb.machine.folds import LARGEST, PRODUCT, SMALLEST, SUM, Fold, folded
from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import SIZE, Shape, Value, Whole, Writer

FOLDS: Final = {"sum": SUM, "prod": PRODUCT, "max": LARGEST, "min": SMALLEST}
SIGNATURE: Final = (
    "void @reduce(ptr %x, ptr noalias %out, i64 %outer, i64 %count, i64 %inner, "
    "i64 %each, ptr %taken)"
)
"""x [outer, count, inner] along its middle axis into out [outer, inner].

out is of the fold's own kind of number. Lines (inner is 1) are taken `each` at a time
by the threads that call it together, columns `each` side by side: there out begins as
what changes nothing.
"""
_ABREAST: Final = 8


def reduction_text(op: str, lines: bool, nbytes: int) -> str:
    """The function of an op, for vectors of so many bytes."""
    w, fold = Writer(SIGNATURE, Shape("float", nbytes // 4)), FOLDS[op]
    (_lines if lines else _columns)(w, fold)
    w.say("ret void")
    return w.text + job_text(SIGNATURE)


def _lines(w: Writer, fold: Fold) -> None:
    def line(row: Whole) -> None:
        x = w.at("%x", w.multiple(row, "%count"))
        made = folded(w, "%count", lambda j: w.load(w.at(x, j)), fold)
        _put(w, fold, 0, made, w.at("%out", row, fold.real))

    w.shared_out("%each", "%outer", line)


def _put(w: Writer, fold: Fold, lanes: int, value: Value, where: Value) -> None:
    kind = f"<{lanes} x {fold.real}>" if lanes else fold.real
    w.say(f"store {kind} {value}, ptr {where}, align {SIZE[fold.real]}")


def _columns(w: Writer, fold: Fold) -> None:
    """Some rows at a time into what columns have so far: memory is read in order."""
    more = w.difference(w.sum("%inner", "%each"), 1)
    shares = w.let(f"udiv i64 {more}, %each")

    def some(begin: Value) -> None:
        block = w.let(f"udiv i64 {begin}, {shares}")
        share = w.let(f"urem i64 {begin}, {shares}")
        first = w.multiple(share, "%each")
        wide = w.least("%each", w.difference("%inner", first))
        corner = w.sum(w.multiple(w.multiple(block, "%count"), "%inner"), first)
        x = w.at("%x", corner)
        out = w.at("%out", w.sum(w.multiple(block, "%inner"), first), fold.real)
        groups = w.let(f"udiv i64 %count, {_ABREAST}")
        done = w.multiple(groups, _ABREAST)

        def rows(at: Whole, how_many: int) -> None:
            starts = [
                w.at(x, w.multiple(w.sum(at, part), "%inner"))
                for part in range(how_many)
            ]
            w.sweep(wide, lambda j: _added(w, fold, starts, out, j))

        w.loop(groups, lambda i: rows(w.multiple(i, _ABREAST), _ABREAST))
        left = w.difference("%count", done)
        w.loop(left, lambda i: rows(w.sum(done, i), 1))

    w.claimed("%taken", 1, w.multiple("%outer", shares), some)


def _added(w: Writer, fold: Fold, starts: list[Value], out: Value, j: Whole) -> None:
    lanes = w.shape.lanes
    vector, kept = w.shape.vector, f"<{lanes} x {fold.real}>"
    where = w.at(out, j, fold.real)
    made = w.let(f"load {kept}, ptr {where}, align {SIZE[fold.real]}")
    given = [w.load(w.at(start, j)) for start in starts]
    if fold.real != w.shape.real:
        given = [w.let(f"fpext {vector} {own} to {kept}") for own in given]
    if fold.holds and len(given) > 1:
        given = [_numbers(w, fold, given)]
    for own in given:
        made = fold.joined(w, made, own, lanes)
    _put(w, fold, lanes, made, where)


def _numbers(w: Writer, fold: Fold, given: list[Value]) -> Value:
    """The extremes of some vectors, or a NaN where one of them is."""
    vector, mask, lanes = w.shape.vector, w.shape.mask, w.shape.lanes
    best = reduce(lambda a, b: fold.number_of(w, a, b, lanes), given)
    pairs = zip(given[::2], given[1::2], strict=True)
    odd = [w.let(f"fcmp uno {vector} {a}, {b}") for a, b in pairs]
    any_odd = reduce(lambda a, b: w.let(f"or {mask} {a}, {b}"), odd)
    nan = w.shape.splat(float("nan"))
    return w.let(f"select {mask} {any_odd}, {vector} {nan}, {vector} {best}")
