"""A segment of samples made ready for its transform: detrended and windowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from rlxweb.machine.text import SIZE, Shape, Value, Whole, Writer

Sample = Literal["float", "double", "int"]
"""What rows hold; "int" is integers of 2 or 4 bytes, which the job tells apart."""
Trend = Literal["none", "constant", "linear"]

INTEGERS: Final = {2: "i16", 4: "i32"}
_ARGUMENTS: Final = (
    "ptr noalias %x, ptr noalias %out, ptr noalias %window, ptr noalias %ramp, "
    "i64 %n, {real} %offset"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """@segment: n samples x → (x + offset, without its trend) · window, into out.

    trend    removed is the mean, or the least-squares line: `ramp` is `centred_ramp(n)`
    """

    sample: Sample
    trend: Trend

    def text(self, shape: Shape) -> str:
        """@segment(…, i64 %size): of samples of so many bytes."""
        kinds = {SIZE[self.sample]: self.sample} if self.sample != "int" else INTEGERS
        arguments = _ARGUMENTS.format(real=shape.real)
        w = Writer(f"internal void @segment({arguments}, i64 %size)", shape)
        for size, kind in kinds.items():
            call = f"call void @segment_{kind}({arguments})".replace(" noalias", "")
            this = w.let(f"icmp eq i64 %size, {size}")
            w.when(this, partial(w.say, call))
        w.say("ret void")
        return "\n".join([*(self._of(kind, shape) for kind in kinds.values()), w.text])

    def _of(self, kind: str, shape: Shape) -> str:
        arguments = _ARGUMENTS.format(real=shape.real)
        w = Writer(f"internal void @segment_{kind}({arguments})", shape)
        if self.trend == "none":
            w.sweep("%n", lambda i: _put(w, i, read_sample(w, i, kind)))
            w.say("ret void")
            return w.text
        n = w.let(f"uitofp i64 %n to {shape.real}")
        sum_ = w.total("%n", lambda i: read_sample(w, i, kind))
        mean = w.let(f"fdiv {shape.real} {sum_}, {n}")

        def level(i: Whole) -> Value:
            return w.minus(read_sample(w, i, kind), w.spread(mean))

        if self.trend == "constant":
            w.sweep("%n", lambda i: _put(w, i, level(i)))
        else:
            slope = w.total("%n", lambda i: w.times(level(i), _ramp(w, i)))

            def flat(i: Whole) -> Value:
                return w.minus(level(i), w.times(_ramp(w, i), w.spread(slope)))

            w.sweep("%n", lambda i: _put(w, i, flat(i)))
        w.say("ret void")
        return w.text


def read_sample(w: Writer, i: Whole, kind: str) -> Value:
    """Samples %x from i on, in the kind that is computed with."""
    lanes, vector = w.shape.lanes, w.shape.vector
    where, own = w.at("%x", i, kind), f"<{lanes} x {kind}>"
    given = w.let(f"load {own}, ptr {where}, align {SIZE[kind]}")
    if kind == w.shape.real:
        return given
    if kind == "float":
        return w.let(f"fpext {own} {given} to {vector}")
    number = w.let(f"sitofp {own} {given} to {vector}")
    return w.plus(number, w.spread("%offset"))


def _ramp(w: Writer, i: Whole) -> Value:
    return w.load(w.at("%ramp", i))


def _put(w: Writer, i: Whole, value: Value) -> None:
    window = w.load(w.at("%window", i))
    w.store(w.times(value, window), w.at("%out", i))
