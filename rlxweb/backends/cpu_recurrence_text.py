"""The steps of a recurrent network as one function of machine code.

One row of one direction: its state stays in the nearest cache, and a step is the
product of that with the recurrent weights, with the cell's arithmetic on each block of
units as soon as its sums are there. The arithmetic is that of the shaders, read by
`machine/wgsl.py`.

A block is some vectors of units. The last one ends with the last unit: where units are
no multiple of a block it does some again, which is why a step's new state is written
beside the old one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rlxweb.backends.cpu_region_text import library_for
from rlxweb.machine.jobs import job_text
from rlxweb.machine.lowering import Lowering
from rlxweb.machine.text import Shape, Value, Whole, Writer
from rlxweb.machine.trees import Of, Result
from rlxweb.machine.wgsl import Library, library_of, tree_of
from rlxweb.recipes.recurrent_cells import (
    BLENDED,
    Network,
    cell_text,
    functions_text,
    shown_text,
    uses_of,
)

SIGNATURE: Final = (
    "void @recurrence(ptr %gates, ptr %weights, ptr %extra, ptr noalias %state, "
    "ptr noalias %room, ptr noalias %out, i64 %steps, i64 %hidden, i64 %gate_step, "
    "i64 %out_step)"
)
"""gates    of the first step; `gate_step` elements on are those of the next
weights  [blocks, hidden, gates, units of a block]
extra    the extra operand of this direction, if there is one
state    [parts, hidden]: before the first step, and at the end after the last
room     ROOM times `hidden` elements
out      what is shown of the first step; `out_step` elements on that of the next
"""
ROOM: Final = 7
_READ, _BLEND, _RESET = 4, 5, 6
"""Which `hidden` elements of the room hold what products read, a GRU's z, its r · h."""
_LINE: Final = re.compile(r"let (\w+) = (.+);")


@dataclass(frozen=True, slots=True)
class Walked:
    """What code is compiled for: a cell, whatever its sizes, and the blocks of its
    units: so many vectors of so many lanes.
    """

    net: Network
    lanes: int
    vectors: int

    @property
    def width(self) -> int:
        return self.lanes * self.vectors


def walked(net: Network, d: int, lanes: int) -> Walked:
    """The code for a direction; `lanes` are the processor's."""
    while lanes > net.H:
        lanes //= 2
    most = {"lstm": 2, "gru": 2, "rnn": 4}[net.kind]
    vectors = max(1, min(most, net.H // lanes))
    one = replace(
        net,
        T=0,
        B=0,
        D=1,
        H=0,
        directions="forward",
        functions=net.of(d),
        state=None,
        extra=None if net.extra is None else 0,
        lengths=None,
    )
    return Walked(one, lanes, vectors)


def recurrence_text(about: Walked) -> str:
    """@recurrence, and its @recurrence_job. Errors  Unsupported."""
    return _Steps(about).text()


class _Steps:
    """The function in the making."""

    def __init__(self, about: Walked) -> None:
        self.about, self.net = about, about.net
        self.w = Writer(SIGNATURE, Shape("float", about.lanes))
        plain = replace(self.net, quantized=False)  # that is said in another way here
        own = library_of("\n".join(functions_text(plain, 0)))
        given = library_for(uses_of(plain, 0))
        every = Library(given.functions | own.functions, given.records | own.records)
        self.to = Lowering(self.w, every)

    def text(self) -> str:
        w = self.w
        more = w.sum("%hidden", self.about.width - 1)
        self.blocks = w.let(f"udiv i64 {more}, {self.about.width}")
        self.last = w.difference("%hidden", self.about.width)
        for part in range(self.net.parts):
            self._copied(self._of("%state", part), self._of("%room", 2 * part))
        w.loop("%steps", self._step)
        odd = w.multiple(w.let("and i64 %steps, 1"), "%hidden")
        for part in range(self.net.parts):
            there = w.at(self._of("%room", 2 * part), odd)
            self._copied(there, self._of("%state", part))
        w.say("ret void")
        return w.text + job_text(SIGNATURE)

    def _of(self, base: Value, count: int) -> Value:
        """So many times `hidden` elements on."""
        return self.w.at(base, self.w.multiple("%hidden", count))

    def _each_block(self, body: Callable[[Whole, list[Whole]], None]) -> None:
        """`body(block, where its vectors begin)`."""
        w, about = self.w, self.about

        def block(b: Whole) -> None:
            first = w.least(w.multiple(b, about.width), self.last)
            body(b, [w.sum(first, v * about.lanes) for v in range(about.vectors)])

        w.loop(self.blocks, block)

    def _copied(self, source: Value, target: Value) -> None:
        w = self.w

        def body(b: Whole, places: list[Whole]) -> None:
            for j in places:
                w.store(w.load(w.at(source, j)), w.at(target, j))

        self._each_block(body)

    def _value(self, text: str, names: dict[str, Result]) -> Of:
        return self.to.converted("F", self.to.of(tree_of(text), names))

    def _said(self, lines: Sequence[str], names: dict[str, Result]) -> None:
        """Lines of WGSL, whose values get their names."""
        for line in lines:
            found = _LINE.fullmatch(line)
            assert found is not None, line
            names[found[1]] = self._value(found[2], names)

    def _step(self, t: Whole) -> None:
        w, net = self.w, self.net
        before = w.multiple(w.let(f"and i64 {t}, 1"), "%hidden")
        after = w.difference("%hidden", before)
        both = [self._of("%room", 2 * part) for part in range(net.parts)]
        self.old = [w.at(one, before) for one in both]
        self.new = [w.at(one, after) for one in both]
        self.x = w.at("%gates", w.multiple(t, "%gate_step"))
        self.y = w.at("%out", w.multiple(t, "%out_step"))
        read = self.old[0]
        if net.quantized:
            read = self._of("%room", _READ)
            self._in_bytes(read)
        if net.kind == "gru" and not net.late:
            self._each_block(lambda b, places: self._first(b, places, read))
            self._each_block(self._second)
        else:
            self._each_block(lambda b, places: self._cell(b, places, read))

    def _in_bytes(self, target: Value) -> None:
        """The state as 8 bits of its range and 0, and back."""
        w, vector = self.w, self.w.shape.vector
        zero = w.shape.splat(0.0)
        ends = [zero, zero]

        def widened(b: Whole, low: Value, high: Value) -> list[Value]:
            first = w.least(w.multiple(b, self.about.width), self.last)
            both = [Of("F", low), Of("F", high)]
            for v in range(self.about.vectors):
                h = Of("F", w.load(w.at(self.old[0], w.sum(first, v * w.shape.lanes))))
                both = [
                    self.to.extreme(name, one, h)
                    for name, one in zip(("min", "max"), both, strict=True)
                ]
            return [one.value for one in both]

        ends = w.loop(self.blocks, widened, [(vector, zero), (vector, zero)])
        names: dict[str, Result] = {}
        for name, how, value in zip(("low", "high"), ("min", "max"), ends, strict=True):
            reduced = f"@llvm.vector.reduce.f{how}.v{w.shape.lanes}f32"
            one = w.let(f"call float {reduced}({vector} {value})")
            names[name] = Of("F", w.spread(one))
        lines = [
            "let wide = high - low;",
            "let scale = select(wide / 255.0, 1.0, wide == 0.0);",
            "let zero = round(-low / scale);",
        ]
        self._said(lines, names)

        def near(b: Whole, places: list[Whole]) -> None:
            for j in places:
                inside = {**names, "x": Of("F", w.load(w.at(self.old[0], j)))}
                text = "(clamp(round(x / scale) + zero, 0.0, 255.0) - zero) * scale"
                w.store(self._value(text, inside).value, w.at(target, j))

        self._each_block(near)

    def _gate(self, gate: int, j: Whole, base: Value = "") -> Value:
        """A vector of a gate's part of this step's inputs, or of the extra operand."""
        return self.w.load(self.w.at(self._of(base or self.x, gate), j))

    def _sums(
        self, b: Whole, read: Value, gates: Sequence[int], first: list[Value]
    ) -> list[Value]:
        """Sums of gates, vector after vector of each, with the products of a state."""
        w, about = self.w, self.about
        line = self.net.gates * about.width
        block = w.multiple(w.multiple(b, "%hidden"), line)
        weights = w.at("%weights", w.sum(block, gates[0] * about.width))

        def term(k: Whole, *sums: Value) -> list[Value]:
            v = w.spread(w.one(read, k))
            row = w.at(weights, w.multiple(k, line))
            return [
                w.plus(one, w.times(v, w.load(w.at(row, at * about.lanes))))
                for at, one in enumerate(sums)
            ]

        return w.loop("%hidden", term, [(w.shape.vector, one) for one in first])

    def _begun(self, gates: Sequence[int], places: list[Whole]) -> list[Value]:
        return [self._gate(g, j) for g in gates for j in places]

    def _put(self, names: dict[str, Result], name: str, where: Value) -> None:
        one = names[name]
        assert isinstance(one, Of)
        self.w.store(one.value, where)

    def _ended(self, names: dict[str, Result], j: Whole) -> None:
        w = self.w
        for part, name in enumerate(("next_h", "next_c")[: self.net.parts]):
            self._put(names, name, w.at(self.new[part], j))
        self._put(names, shown_text(self.net), w.at(self.y, j))

    def _cell(self, b: Whole, places: list[Whole], read: Value) -> None:
        """A block of units, whose cell needs one product."""
        w, net, V = self.w, self.net, self.about.vectors
        gates = range(net.gates)
        first = self._begun(gates, places)
        given = first[-V:]
        if net.late:  # the last gate's inputs stand beside its product
            first[-V:] = [w.shape.splat(0.0)] * V
        sums = self._sums(b, read, gates, first)
        for v, j in enumerate(places):
            names: dict[str, Result] = {
                f"a{g}": Of("F", sums[g * V + v]) for g in gates
            }
            if net.late:
                names |= {"m": Of("F", sums[-V:][v]), "a2": Of("F", given[v])}
            parts = zip("hc", self.old, strict=False)
            names |= {one: Of("F", w.load(w.at(at, j))) for one, at in parts}
            if net.extra is not None:
                for g in range(net.extras):
                    names[f"extra_{g}u"] = Of("F", self._gate(g, j, "%extra"))
            self._said(cell_text(net, "extra_{gate}"), names)
            self._ended(names, j)

    def _first(self, b: Whole, places: list[Whole], read: Value) -> None:
        """Z and r · h of a block, for the product that waits for them."""
        w, V = self.w, self.about.vectors
        sums = self._sums(b, read, (0, 1), self._begun((0, 1), places))
        for v, j in enumerate(places):
            names: dict[str, Result] = {
                "a0": Of("F", sums[v]),
                "a1": Of("F", sums[V + v]),
                "h": Of("F", w.load(w.at(self.old[0], j))),
            }
            self._said(["let z = f0(a0);", "let r = f0(a1) * h;"], names)
            self._put(names, "z", w.at(self._of("%room", _BLEND), j))
            self._put(names, "r", w.at(self._of("%room", _RESET), j))

    def _second(self, b: Whole, places: list[Whole]) -> None:
        w = self.w
        reset, blend = self._of("%room", _RESET), self._of("%room", _BLEND)
        sums = self._sums(b, reset, (2,), self._begun((2,), places))
        for v, j in enumerate(places):
            names: dict[str, Result] = {
                "a2": Of("F", sums[v]),
                "z": Of("F", w.load(w.at(blend, j))),
                "h": Of("F", w.load(w.at(self.old[0], j))),
            }
            self._said(["let n = f1(a2);", BLENDED], names)
            self._ended(names, j)
