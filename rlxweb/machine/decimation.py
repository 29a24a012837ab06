"""A low-pass filter that gives every so manieth sample, as machine code.

As many outputs as a vector has lanes are made at once. Each is a sum over vectors of
taps, and what is left of those in lanes is added up in a tree: two shuffles and a sum
for two outputs, in place of a walk over the lanes of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.machine.text import SIZE, Real, Shape, Value, Whole, Writer

NAME = "decimate"


@dataclass(frozen=True, slots=True)
class Decimation:
    """@decimate(x, y, taps, count): y[j] = sum over t of taps[t] * x[j * step + t].

    step     samples of x for one of y
    vectors  of taps; the last is filled up with zeros, and x is read as far
    nbytes   of a vector
    count    of y, a multiple of `lanes`
    """

    real: Real
    step: int
    vectors: int
    nbytes: int

    @property
    def lanes(self) -> int:
        return self.nbytes // SIZE[self.real]

    def text(self) -> str:
        """The module."""
        arguments = "ptr noalias %x, ptr noalias %y, ptr noalias %taps, i64 %count"
        w = Writer(f"void @{NAME}({arguments})", Shape(self.real, self.lanes))
        turns = w.let(f"udiv i64 %count, {self.lanes}")
        w.loop(turns, lambda i: self._outputs(w, w.multiple(i, self.lanes)))
        w.say("ret void")
        return w.text

    def _outputs(self, w: Writer, first: Whole) -> None:
        """As many as there are lanes."""
        x = w.at("%x", w.multiple(first, self.step))

        def vector(v: Whole, *sums: Value) -> Sequence[Value]:
            at = w.multiple(v, self.lanes)
            taps, start = w.load(w.at("%taps", at)), w.at(x, at)
            return [
                w.plus(total, w.times(taps, w.load(w.at(start, j * self.step))))
                for j, total in enumerate(sums)
            ]

        begun = [(w.shape.vector, "zeroinitializer")] * self.lanes
        w.store(_summed(w, w.loop(self.vectors, vector, begun)), w.at("%y", first))


def _summed(w: Writer, rows: Sequence[Value]) -> Value:
    """A vector of the sum of each, of as many as there are lanes."""
    lanes, now, width = w.shape.lanes, list(rows), 1
    while len(now) > 1:
        half = len(now) // 2
        # Lanes whose number has the bit `width` go to the second of a pair.
        low = [e if not e & width else (e ^ width) + lanes for e in range(lanes)]
        high = [e | width if not e & width else e + lanes for e in range(lanes)]
        now = [
            w.plus(
                w.shuffled(now[2 * i], now[2 * i + 1], low),
                w.shuffled(now[2 * i], now[2 * i + 1], high),
            )
            for i in range(half)
        ]
        width *= 2
    return now[0]
