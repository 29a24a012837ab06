"""A line of floats as one number: sums, products, extremes.

Four vectors go side by side, so that no addition waits for the one before. What a fold
is kept in is its own: doubles for sums of anything, floats for extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from rlxweb.machine.text import SIZE, Real, Shape, Value, Whole, Writer, number

Term = Callable[[Whole], Value]
"""(index of its first element) → a vector of the writer's shape"""

_ABREAST: Final = 4
_RUN: Final = 16
"""Terms that are added up in single precision before a double takes them."""


@dataclass(frozen=True, slots=True)
class Fold:
    """How two become one.

    first   what changes nothing
    real    the numbers it is kept in
    how     LLVM's instruction or, with a dot in it, its function of two
    across  LLVM's function that folds the lanes of a vector
    holds   the comparison that holds for the one of two numbers that is taken: one
            step where `how` takes four for what a NaN and the sign of 0 do
    """

    first: float
    real: Real
    how: str
    across: str
    holds: str = ""

    def number_of(self, w: Writer, a: Value, b: Value, lanes: int) -> Value:
        """The same of two vectors of numbers; of a NaN either."""
        vector = f"<{lanes} x {self.real}>"
        mask = w.let(f"fcmp {self.holds} {vector} {a}, {b}")
        return w.let(f"select <{lanes} x i1> {mask}, {vector} {a}, {vector} {b}")

    def joined(self, w: Writer, a: Value, b: Value, lanes: int) -> Value:
        """Two vectors, lane by lane."""
        vector = f"<{lanes} x {self.real}>"
        if "." not in self.how:
            return w.let(f"{self.how} {vector} {a}, {b}")
        name = f"@{self.how}.v{lanes}f{8 * SIZE[self.real]}"
        return w.let(f"call {vector} {name}({vector} {a}, {vector} {b})")

    def lanes_of(self, w: Writer, value: Value, lanes: int) -> Value:
        """The lanes of a vector."""
        if self.across in ("fadd", "fmul"):
            start = f"{self.real} {number(self.first, self.real)}, "
        else:
            start = ""
        name = f"@llvm.vector.reduce.{self.across}.v{lanes}f{8 * SIZE[self.real]}"
        given = f"{start}<{lanes} x {self.real}> {value}"
        return w.let(f"call reassoc {self.real} {name}({given})")


SUM: Final = Fold(-0.0, "double", "fadd", "fadd")
PRODUCT: Final = Fold(1.0, "double", "fmul", "fmul")
# A NaN stays one.
LARGEST: Final = Fold(float("-inf"), "float", "llvm.maximum", "fmaximum", "ogt")
SMALLEST: Final = Fold(float("inf"), "float", "llvm.minimum", "fminimum", "olt")


def _as_kept(w: Writer, fold: Fold, value: Value) -> Value:
    shape = w.shape
    if shape.real == fold.real:
        return value
    return w.let(f"fpext {shape.vector} {value} to <{shape.lanes} x {fold.real}>")


def folded(
    w: Writer, count: Whole, term: Term, fold: Fold, *, any_nan: bool = False
) -> Value:
    """All that `term` gives for so many elements, as one number.

    any_nan   what becomes of a NaN is nobody's business
    """
    lanes = w.shape.lanes
    whole, first = w.cut(count)
    if fold.holds:
        one = _extreme(w, whole, term, fold, any_nan)
    else:
        one = fold.lanes_of(w, _vectors(w, whole, term, fold), lanes)
    return _with_the_rest(w, one, first, count, term, fold)


def _groups(w: Writer, whole: Whole) -> tuple[Whole, Whole]:
    """Groups of vectors side by side, and the vectors in them."""
    groups = w.let(f"udiv i64 {whole}, {_ABREAST}")
    return groups, w.multiple(groups, _ABREAST)


def _vectors(w: Writer, whole: Whole, term: Term, fold: Fold) -> Value:
    """So many vectors as one."""
    lanes = w.shape.lanes
    vector = f"<{lanes} x {fold.real}>"
    splat = Shape(fold.real, lanes).splat(fold.first)
    groups, done = _groups(w, whole)

    def some(i: Whole, *so_far: Value) -> list[Value]:
        at = w.multiple(i, _ABREAST * lanes)
        given = [term(w.sum(at, lanes * part)) for part in range(_ABREAST)]
        return [
            fold.joined(w, one, _as_kept(w, fold, own), lanes)
            for one, own in zip(so_far, given, strict=True)
        ]

    made = w.loop(groups, some, [(vector, splat)] * _ABREAST)
    together = reduce(lambda a, b: fold.joined(w, a, b, lanes), made)

    def one_more(i: Whole, so_far: Value) -> list[Value]:
        given = _as_kept(w, fold, term(w.multiple(w.sum(i, done), lanes)))
        return [fold.joined(w, so_far, given, lanes)]

    (sums,) = w.loop(w.difference(whole, done), one_more, [(vector, together)])
    return sums


def _extreme(w: Writer, whole: Whole, term: Term, fold: Fold, any_nan: bool) -> Value:
    """So many vectors as one number: numbers are compared, NaN are looked for apart."""
    lanes, vector, mask = w.shape.lanes, w.shape.vector, w.shape.mask
    splat, none = w.shape.splat(fold.first), "zeroinitializer"
    groups, done = _groups(w, whole)

    def odd(seen: Value, a: Value, b: Value) -> Value:
        found = w.let(f"fcmp uno {vector} {a}, {b}")
        return w.let(f"or {mask} {seen}, {found}")

    def some(i: Whole, seen: Value, *so_far: Value) -> list[Value]:
        at = w.multiple(i, _ABREAST * lanes)
        given = [term(w.sum(at, lanes * part)) for part in range(_ABREAST)]
        for a, b in () if any_nan else zip(given[::2], given[1::2], strict=True):
            seen = odd(seen, a, b)
        pairs = zip(given, so_far, strict=True)
        return [seen, *(fold.number_of(w, a, b, lanes) for a, b in pairs)]

    seen, *made = w.loop(groups, some, [(mask, none), *[(vector, splat)] * _ABREAST])
    best = reduce(lambda a, b: fold.number_of(w, a, b, lanes), made)

    def one_more(i: Whole, seen: Value, so_far: Value) -> list[Value]:
        given = term(w.multiple(w.sum(i, done), lanes))
        if not any_nan:
            seen = odd(seen, given, given)
        return [seen, fold.number_of(w, given, so_far, lanes)]

    left = w.difference(whole, done)
    seen, best = w.loop(left, one_more, [(mask, seen), (vector, best)])
    one = _across(w, fold, best)
    some_are = w.let(f"call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} {seen})")
    nan = number(float("nan"), "float")
    return w.let(f"select i1 {some_are}, float {nan}, float {one}")


def _across(w: Writer, fold: Fold, best: Value) -> Value:
    """The extreme of a vector's lanes: each half with the other."""
    half = w.shape.lanes // 2
    while half:
        other = w.shuffled(best, best, [(i ^ half) for i in range(w.shape.lanes)])
        best = fold.number_of(w, best, other, w.shape.lanes)
        half //= 2
    return w.let(f"extractelement {w.shape.vector} {best}, i64 0")


def _with_the_rest(
    w: Writer, one: Value, first: Whole, count: Whole, term: Term, fold: Fold
) -> Value:
    """What does not fill a vector, element by element."""
    single = f"<1 x {fold.real}>"
    begun = w.let(f"insertelement {single} poison, {fold.real} {one}, i64 0")
    with w.single():

        def rest(i: Whole, so_far: Value) -> list[Value]:
            given = _as_kept(w, fold, term(w.sum(first, i)))
            return [fold.joined(w, so_far, given, 1)]

        (made,) = w.loop(w.difference(count, first), rest, [(single, begun)])
    return w.let(f"extractelement {single} {made}, i64 0")


def summed_in_runs(w: Writer, count: Whole, term: Term) -> Value:
    """A sum of what has one sign: short runs in single precision, those in double.

    Nothing is lost by cancelling, so a run costs a few units in the last place.
    """
    lanes = w.shape.lanes
    vector, wide = w.shape.vector, f"<{lanes} x double>"
    whole, first = w.cut(count)
    runs = w.let(f"udiv i64 {w.sum(whole, _RUN - 1)}, {_RUN}")

    def run(i: Whole, so_far: Value) -> list[Value]:
        at = w.multiple(i, _RUN)
        length = w.least(_RUN, w.difference(whole, at))
        pairs = w.let(f"lshr i64 {length}, 1")

        def both(j: Whole, a: Value, b: Value) -> list[Value]:
            here = w.multiple(w.sum(at, w.multiple(j, 2)), lanes)
            return [w.plus(a, term(here)), w.plus(b, term(w.sum(here, lanes)))]

        def one(j: Whole, a: Value) -> list[Value]:
            here = w.sum(at, w.sum(w.multiple(pairs, 2), j))
            return [w.plus(a, term(w.multiple(here, lanes)))]

        nothing = (vector, "zeroinitializer")
        a, b = w.loop(pairs, both, [nothing, nothing])
        left = w.let(f"and i64 {length}, 1")
        (made,) = w.loop(left, one, [(vector, w.plus(a, b))])
        widened = w.let(f"fpext {vector} {made} to {wide}")
        return [w.let(f"fadd {wide} {so_far}, {widened}")]

    (sums,) = w.loop(runs, run, [(wide, "zeroinitializer")])
    one = SUM.lanes_of(w, sums, lanes)
    return _with_the_rest(w, one, first, count, term, SUM)
