"""Lines of floats normalised one by one: softmax, layer norm, rms norm.

A line is read two or three times while it lies in the nearest cache. Sums are kept in
double precision; a NaN in a line makes all of it NaN, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlxweb.machine import functions
from rlxweb.machine.text import Shape, Value, Whole, Writer

SIGNATURE: Final = (
    "void @lines(ptr %x, ptr %out, i64 %rows, i64 %n, "
    "ptr noalias %gamma, ptr noalias %beta, double %eps)"
)
"""So many rows of n floats, out where they are or elsewhere; softmax reads no more."""


def lines_text(op: str, nbytes: int) -> str:
    """The function of an op, for vectors of so many bytes."""
    w = Writer(SIGNATURE, Shape("float", nbytes // 4))
    line: Callable[[Writer, Value, Value], None] = _LINES[op]

    def row(i: Whole) -> None:
        first = w.multiple(i, "%n")
        line(w, w.at("%x", first), w.at("%out", first))

    w.loop("%rows", row)
    w.say("ret void")
    return w.text


def _softmax(w: Writer, x: Value, out: Value) -> None:
    most = _largest(w, x)

    def exponential(i: Whole) -> Value:
        e = functions.exp(w, w.minus(w.load(w.at(x, i)), w.spread(most)))
        w.store(e, w.at(out, i))
        return e

    sum_ = _total(w, exponential)
    inverse = w.let(f"fdiv double 1.0, {sum_}")
    factor = w.let(f"fptrunc double {inverse} to float")

    def scale(i: Whole) -> None:
        there = w.at(out, i)
        w.store(w.times(w.load(there), w.spread(factor)), there)

    w.sweep("%n", scale)


def _layer_norm(w: Writer, x: Value, out: Value) -> None:
    sum_ = _total(w, lambda i: w.load(w.at(x, i)))
    mean = w.let(f"fdiv double {sum_}, {_count(w)}")
    middle = w.let(f"fptrunc double {mean} to float")

    def centred(i: Whole) -> Value:
        return w.minus(w.load(w.at(x, i)), w.spread(middle))

    # What the mean lost when it was rounded is in every element alike.
    def square(i: Whole) -> Value:
        own = centred(i)
        return w.times(own, own)

    lost = w.let(f"fsub double {mean}, {w.let(f'fpext float {middle} to double')}")
    squares = w.let(f"fdiv double {_total(w, square)}, {_count(w)}")
    extra = w.let(f"fmul double {lost}, {lost}")
    variance = w.let(f"fsub double {squares}, {extra}")
    rest = w.let(f"fptrunc double {lost} to float")
    _scaled(w, out, variance, lambda i: w.minus(centred(i), w.spread(rest)))


def _rms_norm(w: Writer, x: Value, out: Value) -> None:
    def square(i: Whole) -> Value:
        own = w.load(w.at(x, i))
        return w.times(own, own)

    squares = w.let(f"fdiv double {_total(w, square)}, {_count(w)}")
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


def _total(w: Writer, term: Callable[[Whole], Value]) -> Value:
    """The sum of all that `term` gives, in double precision."""
    lanes = w.shape.lanes
    wide, single = f"<{lanes} x double>", "<1 x double>"
    whole, first = w.cut("%n")

    def added(kind: str, so_far: Value, given: Value) -> Value:
        own = w.let(f"fpext {w.shape.vector} {given} to {kind}")
        return w.let(f"fadd {kind} {so_far}, {own}")

    def vector(i: Whole, so_far: Value) -> list[Value]:
        return [added(wide, so_far, term(w.multiple(i, lanes)))]

    (sums,) = w.loop(whole, vector, [(wide, "zeroinitializer")])
    one = w.across("double", sums)
    begun = w.let(f"insertelement {single} poison, double {one}, i64 0")
    with w.single():

        def rest(i: Whole, so_far: Value) -> list[Value]:
            return [added(single, so_far, term(w.sum(first, i)))]

        left = w.difference("%n", first)
        (sums,) = w.loop(left, rest, [(single, begun)])
    return w.let(f"extractelement {single} {sums}, i64 0")


def _largest(w: Writer, x: Value) -> Value:
    """The largest number of a line; what a NaN does shows where it is subtracted."""
    lanes, vector = w.shape.lanes, w.shape.vector
    whole, first = w.cut("%n")

    def larger(kind: str, mask: str, a: Value, b: Value) -> Value:
        above = w.let(f"fcmp ogt {kind} {a}, {b}")
        return w.let(f"select {mask} {above}, {kind} {a}, {kind} {b}")

    def wide(i: Whole, most: Value) -> list[Value]:
        own = w.load(w.at(x, w.multiple(i, lanes)))
        return [larger(vector, w.shape.mask, own, most)]

    least = w.shape.splat(float("-inf"))
    (found,) = w.loop(whole, wide, [(vector, least)])
    one = w.let(f"extractelement {vector} {found}, i64 0")
    for lane in range(1, lanes):
        other = w.let(f"extractelement {vector} {found}, i64 {lane}")
        one = larger("float", "i1", other, one)

    def rest(i: Whole, most: Value) -> list[Value]:
        return [larger("float", "i1", w.one(x, w.sum(first, i)), most)]

    (one,) = w.loop(w.difference("%n", first), rest, [("float", one)])
    return one
