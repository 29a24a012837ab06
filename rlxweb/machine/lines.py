"""Lines of floats normalised one by one: softmax, layer norm, rms norm.

A line is read two or three times while it lies in the nearest cache. Sums are kept in
double precision; a NaN in a line makes all of it NaN, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlxweb.machine import functions
from rlxweb.machine.folds import LARGEST, SUM, folded, summed_in_runs
from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import Shape, Value, Whole, Writer

SIGNATURE: Final = (
    "void @lines(ptr %x, ptr %out, i64 %rows, i64 %n, "
    "ptr noalias %gamma, ptr noalias %beta, double %eps, ptr %taken, i64 %each)"
)
"""So many rows of n floats, out where they are or elsewhere; softmax reads no more.

Threads that call it together take `each` rows at a time, and count them in `taken`.
"""


def lines_text(op: str, nbytes: int) -> str:
    """The function of an op, for vectors of so many bytes."""
    w = Writer(SIGNATURE, Shape("float", nbytes // 4))
    line: Callable[[Writer, Value, Value], None] = _LINES[op]

    def row(i: Whole) -> None:
        first = w.multiple(i, "%n")
        line(w, w.at("%x", first), w.at("%out", first))

    w.shared_out("%each", "%rows", row)
    w.say("ret void")
    return w.text + job_text(SIGNATURE)


def _softmax(w: Writer, x: Value, out: Value) -> None:
    # What a NaN does shows where it is subtracted.
    most = folded(w, "%n", lambda i: w.load(w.at(x, i)), LARGEST, any_nan=True)

    def exponential(i: Whole) -> Value:
        e = functions.exp_falling(w, w.minus(w.load(w.at(x, i)), w.spread(most)))
        w.store(e, w.at(out, i))
        return e

    sum_ = summed_in_runs(w, "%n", exponential)
    inverse = w.let(f"fdiv double 1.0, {sum_}")
    factor = w.let(f"fptrunc double {inverse} to float")

    def scale(i: Whole) -> None:
        there = w.at(out, i)
        w.store(w.times(w.load(there), w.spread(factor)), there)

    w.sweep("%n", scale)


def _layer_norm(w: Writer, x: Value, out: Value) -> None:
    sum_ = folded(w, "%n", lambda i: w.load(w.at(x, i)), SUM)
    mean = w.let(f"fdiv double {sum_}, {_count(w)}")
    middle = w.let(f"fptrunc double {mean} to float")

    def centred(i: Whole) -> Value:
        return w.minus(w.load(w.at(x, i)), w.spread(middle))

    # What the mean lost when it was rounded is in every element alike.
    def square(i: Whole) -> Value:
        own = centred(i)
        return w.times(own, own)

    lost = w.let(f"fsub double {mean}, {w.let(f'fpext float {middle} to double')}")
    sum_of_squares = summed_in_runs(w, "%n", square)
    squares = w.let(f"fdiv double {sum_of_squares}, {_count(w)}")
    extra = w.let(f"fmul double {lost}, {lost}")
    variance = w.let(f"fsub double {squares}, {extra}")
    rest = w.let(f"fptrunc double {lost} to float")
    _scaled(w, out, variance, lambda i: w.minus(centred(i), w.spread(rest)))


def _rms_norm(w: Writer, x: Value, out: Value) -> None:
    def square(i: Whole) -> Value:
        own = w.load(w.at(x, i))
        return w.times(own, own)

    sum_of_squares = summed_in_runs(w, "%n", square)
    squares = w.let(f"fdiv double {sum_of_squares}, {_count(w)}")
    _scaled(w, out, squares, lambda i: w.load(w.at(x, i)))


_LINES: Final = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}


def _scaled(
    w: Writer, out: Value, square: Value, value: Callable[[Whole], Value]
) -> None:
    """Value / sqrt(square + eps) · gamma + beta, into out."""
    whole = w.let(f"fadd double {square}, %eps")
    root = w.let(f"call double @llvm.sqrt.f64(double {whole})")
    inverse = w.let(f"fdiv double 1.0, {root}")
    factor = w.let(f"fptrunc double {inverse} to float")

    def each(i: Whole) -> None:
        made = w.times(value(i), w.spread(factor))
        gamma, beta = w.load(w.at("%gamma", i)), w.load(w.at("%beta", i))
        w.store(w.plus(w.times(made, gamma), beta), w.at(out, i))

    w.sweep("%n", each)


def _count(w: Writer) -> Value:
    return w.let("uitofp i64 %n to double")
