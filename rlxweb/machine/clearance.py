"""Whether a row needs no second look: its samples finite, its powers above rounding.

Ordinary rows pass at once, while they lie in the cache; whoever calls looks into those
that do not by slower means. The limits are told with each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlxweb.machine.segments import Sample, read_sample
from rlxweb.machine.text import Shape, Value, Whole, Writer

LIMITS: Final = ("least", "most", "floor", "base", "used", "all")
"""What a call allows, 8 bytes each: four numbers, then two counts of samples.

least, most  the sum of squares of the `used` first samples of a row
floor, base  the weakest of a row's strongest bins is above floor · that sum + base
all          samples of a row: those behind the used ones are finite
"""
_COUNTS: Final = LIMITS.index("used")


@dataclass(frozen=True, slots=True)
class Clearance:
    """@energy: the sum of squares of samples from x on. Of integers it is not asked."""

    sample: Sample

    def text(self, shape: Shape) -> str:
        w = Writer(f"internal {shape.real} @energy(ptr noalias %x, i64 %n)", shape)
        if self.sample == "int":
            w.say(f"ret {shape.real} 0.0")
            return w.text

        def square(i: Whole) -> Value:
            value = read_sample(w, i, self.sample)
            return w.times(value, value)

        w.say(f"ret {shape.real} {w.total('%n', square)}")
        return w.text


def energy_of(w: Writer, x: Value, size: int) -> Value:
    """A row's sum of squares; NaN where a sample behind those is not finite."""
    real = w.shape.real
    used, all_ = _limit(w, "used"), _limit(w, "all")
    own = w.let(f"call {real} @energy(ptr {x}, i64 {used})")
    behind = w.at(x, w.multiple(used, size), "i8")
    rest = w.let(f"call {real} @energy(ptr {behind}, i64 {w.difference(all_, used)})")
    # 0 · infinity and 0 · NaN are NaN, any other number is left out.
    none = w.let(f"fmul {real} {rest}, 0.0")
    return w.let(f"fadd {real} {own}, {none}")


def is_within(w: Writer, energy: Value) -> Value:
    """Is it between the least and the most?"""
    real = w.shape.real
    low = w.let(f"fcmp oge {real} {energy}, {_limit(w, 'least')}")
    high = w.let(f"fcmp ole {real} {energy}, {_limit(w, 'most')}")
    return w.let(f"and i1 {low}, {high}")


def is_above(w: Writer, energy: Value, weakest: Value) -> Value:
    """Is a power, in the kind that is computed with, above what rounding leaves?"""
    real = w.shape.real
    part = w.let(f"fmul {real} {energy}, {_limit(w, 'floor')}")
    least = w.let(f"fadd {real} {part}, {_limit(w, 'base')}")
    return w.let(f"fcmp ogt {real} {weakest}, {least}")


def _limit(w: Writer, name: str) -> Value:
    at = LIMITS.index(name)
    return w.one("%limits", at, "i64" if at >= _COUNTS else w.shape.real)
