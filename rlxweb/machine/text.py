"""The text of one function in LLVM's language, written instruction by instruction.

Every value is made once and has a name; whole vectors are the usual kind of number. A
product that is added may be contracted to one rounding, nothing else is reordered. It
knows no kernel and no library: the text is a string that tests can read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rlxweb.recipes.butterfly import Butterflies, Pair

Real = Literal["float", "double"]
Value: TypeAlias = str
"""A name such as %v7, or a constant."""
Whole: TypeAlias = "str | int"
"""An integer of 64 bits: a value, or a number that is known now."""

SIZE: Final = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def number(value: float, kind: str) -> str:
    """A float as LLVM reads it: the bits of the double that it is exactly.

    Rounded to single precision first where that is its kind.
    """
    if kind == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return "0x" + struct.pack(">d", value).hex().upper()


@dataclass(frozen=True, slots=True)
class Shape:
    """What numbers a kernel computes with: so many of a kind side by side."""

    real: Real
    lanes: int

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.real}>"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"

    @property
    def nbytes(self) -> int:
        return self.lanes * SIZE[self.real]

    def splat(self, value: float) -> str:
        """The constant in every lane."""
        one = f"{self.real} {number(value, self.real)}"
        return f"<{', '.join([one] * self.lanes)}>"


class Writer(Butterflies):
    """A function in the making; `text` is what was written so far.

    signature   "void @name(ptr noalias %x, i64 %n)"
    """

    def __init__(self, signature: str, shape: Shape) -> None:
        self.shape = shape
        self._signature = signature
        self._lines: list[str] = []
        self._names = 0
        self._block = "entry"

    @property
    def text(self) -> str:
        lines = "\n".join(self._lines)
        return f"define {self._signature} {{\nentry:\n{lines}\n}}\n"

    # --- instructions

    def say(self, line: str) -> None:
        self._lines.append(f"  {line}")

    def let(self, what: str) -> Value:
        """A new value."""
        self._names += 1
        name = f"%v{self._names}"
        self.say(f"{name} = {what}")
        return name

    def _two(self, how: str, a: Value, b: Value) -> Value:
        return self.let(f"{how} contract {self.shape.vector} {a}, {b}")

    def plus(self, a: Value, b: Value) -> Value:
        return self._two("fadd", a, b)

    def minus(self, a: Value, b: Value) -> Value:
        return self._two("fsub", a, b)

    def times(self, a: Value, b: Value) -> Value:
        return self._two("fmul", a, b)

    def negated(self, a: Value) -> Value:
        return self.let(f"fneg {self.shape.vector} {a}")

    def scaled(self, a: Value, factor: float, added: Value = "") -> Value:
        made = self.times(a, self.shape.splat(factor))
        return self.plus(added, made) if added else made

    def product(self, a: Pair, b: Pair) -> Pair:
        """Of two complex values."""
        re = self.minus(self.times(a[0], b[0]), self.times(a[1], b[1]))
        im = self.plus(self.times(a[0], b[1]), self.times(a[1], b[0]))
        return re, im

    def turned_by(self, x: Pair, factor: complex) -> Pair:
        return self.product(
            x, (self.shape.splat(factor.real), self.shape.splat(factor.imag))
        )

    def square(self, x: Pair, added: Value) -> Value:
        """re² + im² of a complex value, and what is there already."""
        re = self.times(x[0], x[0])
        return self.plus(added, self.plus(re, self.times(x[1], x[1])))

    def shuffled(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lane i is lane `lanes[i]` of a and b side by side."""
        vector = self.shape.vector
        picks = ", ".join(f"i32 {i}" for i in lanes)
        return self.let(
            f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{picks}>"
        )

    def spread(self, one: Value, kind: str = "") -> Value:
        """The number in every lane."""
        lanes, kind = self.shape.lanes, kind or self.shape.real
        vector = f"<{lanes} x {kind}>"
        first = self.let(f"insertelement {vector} poison, {kind} {one}, i64 0")
        if lanes == 1:
            return first
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.let(f"shufflevector {vector} {first}, {vector} poison, {zeros}")

    # --- whole numbers: what is known now is computed now

    def sum(self, a: Whole, b: Whole) -> Whole:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return b if a == 0 else self.let(f"add i64 {a}, {b}")

    def multiple(self, a: Whole, b: Whole) -> Whole:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if 0 in (a, b):
            return 0
        if b == 1:
            return a
        return b if a == 1 else self.let(f"mul i64 {a}, {b}")

    def difference(self, a: Whole, b: Whole) -> Whole:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.let(f"sub i64 {a}, {b}")

    def least(self, a: Whole, b: Whole) -> Whole:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        lower = self.let(f"icmp ult i64 {a}, {b}")
        return self.let(f"select i1 {lower}, i64 {a}, i64 {b}")

    # --- memory: elements of the shape's kind where nothing else is said

    def at(self, base: Value, index: Whole, kind: str = "") -> Value:
        """Where element `index` lies."""
        if index == 0:
            return base
        kind = kind or self.shape.real
        return self.let(f"getelementptr inbounds {kind}, ptr {base}, i64 {index}")

    def load(self, where: Value) -> Value:
        """A vector, which need not be aligned."""
        align = SIZE[self.shape.real]
        return self.let(f"load {self.shape.vector}, ptr {where}, align {align}")

    def store(self, value: Value, where: Value) -> None:
        align = SIZE[self.shape.real]
        self.say(f"store {self.shape.vector} {value}, ptr {where}, align {align}")

    def gathered(self, base: Value, places: Value) -> Value:
        """A vector of the elements so many places (i32) behind a base."""
        lanes, vector, mask = self.shape.lanes, self.shape.vector, self.shape.mask
        where = self.let(
            f"getelementptr {self.shape.real}, ptr {base}, <{lanes} x i32> {places}"
        )
        kind = f"v{lanes}f{8 * SIZE[self.shape.real]}.v{lanes}p0"
        every = f"<{', '.join(['i1 true'] * lanes)}>"
        return self.let(
            f"call {vector} @llvm.masked.gather.{kind}(<{lanes} x ptr> {where}, "
            f"i32 {SIZE[self.shape.real]}, {mask} {every}, {vector} poison)"
        )

    def prefetch(self, where: Value) -> None:
        """It will be read soon; beyond the end of what there is it is not."""
        self.say(f"call void @llvm.prefetch.p0(ptr {where}, i32 0, i32 3, i32 1)")

    def one(self, base: Value, index: Whole, kind: str = "") -> Value:
        """One element."""
        kind = kind or self.shape.real
        where = self.at(base, index, kind)
        return self.let(f"load {kind}, ptr {where}, align {SIZE.get(kind, 8)}")

    def count(self, base: Value, index: Whole) -> Value:
        """One element of an array of i32, as 64 bits."""
        return self.let(f"zext i32 {self.one(base, index, 'i32')} to i64")

    # --- the way of control

    def loop(
        self,
        count: Whole,
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[tuple[str, Value]] = (),
    ) -> list[Value]:
        """`body(i, *values)` for i from 0 below `count`.

        carried   (type, first value) of what a turn hands to the next; `body` returns
                  the new ones
        returns   what the last turn handed on
        """
        if count == 1:
            return list(body(0, *(value for _, value in carried)) or ())
        stem = self._fresh("loop")
        head, turn, end = f"{stem}.head", f"{stem}.turn", f"{stem}.end"
        index, names = f"%{stem}.i", [f"%{stem}.{n}" for n in range(len(carried))]
        before = self._block
        self.say(f"br label %{head}")
        self._begin(head)
        at = len(self._lines)
        goes_on = self.let(f"icmp ult i64 {index}, {count}")
        self.say(f"br i1 {goes_on}, label %{turn}, label %{end}")
        self._begin(turn)
        made = body(index, *names) or ()
        following, last = self.let(f"add nuw nsw i64 {index}, 1"), self._block
        self.say(f"br label %{head}")
        every = [(index, "i64", "0", following)] + [
            (name, kind, first, new)
            for name, (kind, first), new in zip(names, carried, made, strict=True)
        ]
        self._lines[at:at] = [
            f"  {name} = phi {kind} [ {first}, %{before} ], [ {new}, %{last} ]"
            for name, kind, first, new in every
        ]
        self._begin(end)
        return names

    def claimed(
        self, taken: Value, step: Whole, count: Whole, body: Callable[[Value], object]
    ) -> None:
        """`body(first)` for every step-th number below `count` that nobody took yet.

        taken   where all threads count what they took, from 0
        """
        stem = self._fresh("claim")
        self.say(f"br label %{stem}.head")
        self._begin(f"{stem}.head")
        first = self.let(f"atomicrmw add ptr {taken}, i64 {step} monotonic")
        goes_on = self.let(f"icmp ult i64 {first}, {count}")
        self.say(f"br i1 {goes_on}, label %{stem}.turn, label %{stem}.end")
        self._begin(f"{stem}.turn")
        body(first)
        self.say(f"br label %{stem}.head")
        self._begin(f"{stem}.end")

    def shared_out(
        self, each: Whole, count: Whole, body: Callable[[Whole], object]
    ) -> None:
        """`body(i)` for every i below `count`; threads claim so many at a time."""

        def some(begin: Value) -> None:
            def one(i: Whole) -> None:
                body(self.sum(begin, i))

            self.loop(self.least(each, self.difference(count, begin)), one)

        self.claimed("%taken", each, count, some)

    def fields(
        self, names: Sequence[str], addresses: Collection[str]
    ) -> dict[str, Value]:
        """What a job says, by name: addresses, or whole numbers."""
        return {
            name: self.one("%job", at, "ptr" if name in addresses else "i64")
            for at, name in enumerate(names)
        }

    def when(self, condition: Value, body: Callable[[], object]) -> None:
        """`body` where the condition holds."""
        then, end = self._fresh("then"), self._fresh("past")
        self.say(f"br i1 {condition}, label %{then}, label %{end}")
        self._begin(then)
        body()
        self.say(f"br label %{end}")
        self._begin(end)

    def either(
        self,
        condition: Value,
        yes: Callable[[], Sequence[tuple[str, Value]]],
        no: Callable[[], Sequence[tuple[str, Value]]],
    ) -> list[Value]:
        """What one of two gives, as (type, value); only that one is run."""
        stem = self._fresh("choice")
        self.say(f"br i1 {condition}, label %{stem}.yes, label %{stem}.no")
        made = []
        for which, body in (("yes", yes), ("no", no)):
            self._begin(f"{stem}.{which}")
            given = body()
            made.append((given, self._block))
            self.say(f"br label %{stem}.end")
        self._begin(f"{stem}.end")
        (ones, there), (others, elsewhere) = made
        return [
            self.let(f"phi {kind} [ {one}, %{there} ], [ {other}, %{elsewhere} ]")
            for (kind, one), (_, other) in zip(ones, others, strict=True)
        ]

    @contextmanager
    def single(self) -> Iterator[None]:
        """In here a vector has one lane: for what does not fill one."""
        wide = self.shape
        self.shape = Shape(wide.real, 1)
        try:
            yield
        finally:
            self.shape = wide

    def sweep(self, count: Whole, body: Callable[[Whole], None]) -> None:
        """`body(i)` for vectors that begin at i, then one by one for what is left."""
        whole, first = self.cut(count)
        lanes = self.shape.lanes
        if isinstance(whole, int):
            self.loop(whole, lambda i: body(self.multiple(i, lanes)))
        else:  # two at a time: what steers a loop is half of some

            def both(i: Whole) -> None:
                body(self.multiple(i, 2 * lanes))
                body(self.sum(self.multiple(i, 2 * lanes), lanes))

            pairs = self.let(f"lshr i64 {whole}, 1")
            self.loop(pairs, both)
            last = self.difference(first, lanes)
            odd = self.let(f"trunc i64 {whole} to i1")
            self.when(odd, lambda: body(last))
        with self.single():
            self.loop(self.difference(count, first), lambda i: body(self.sum(first, i)))

    def total(self, count: Whole, term: Callable[[Whole], Value]) -> Value:
        """The sum of the vectors that `term(i)` gives, lanes and all, as one number."""
        whole, first = self.cut(count)
        lanes, real = self.shape.lanes, self.shape.real

        def wide(i: Whole, so_far: Value) -> list[Value]:
            return [self.plus(so_far, term(self.multiple(i, lanes)))]

        def single(i: Whole, so_far: Value) -> list[Value]:
            return [self.plus(so_far, term(self.sum(first, i)))]

        (sums,) = self.loop(whole, wide, [(self.shape.vector, "zeroinitializer")])
        one = self.across(real, sums)
        with self.single():
            begun = self.spread(one)
            (sums,) = self.loop(
                self.difference(count, first), single, [(self.shape.vector, begun)]
            )
            return self.let(f"extractelement {self.shape.vector} {sums}, i64 0")

    def across(self, real: str, value: Value) -> Value:
        """The sum of a vector's lanes, of this kind of number."""
        lanes, nothing = self.shape.lanes, f"{real} {number(-0.0, real)}"
        name = f"@llvm.vector.reduce.fadd.v{lanes}f{8 * SIZE[real]}"
        given = f"<{lanes} x {real}> {value}"
        return self.let(f"call reassoc {real} {name}({nothing}, {given})")

    def cut(self, count: Whole) -> tuple[Whole, Whole]:
        """How many whole vectors there are, and the elements in them."""
        lanes = self.shape.lanes
        if isinstance(count, int):
            return count // lanes, count - count % lanes
        whole = self.let(f"udiv i64 {count}, {lanes}")
        return whole, self.multiple(whole, lanes)

    def _fresh(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label


def transposed(w: Writer, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as there are lanes, their lanes and numbers exchanged."""
    lanes, now = w.shape.lanes, list(rows)
    step = 1
    while step < lanes:
        for i in range(lanes):
            if i & step:
                continue
            low = [e ^ step | lanes if e & step else e for e in range(lanes)]
            high = [e + lanes if e & step else e | step for e in range(lanes)]
            a, b = now[i], now[i | step]
            now[i], now[i | step] = w.shuffled(a, b, low), w.shuffled(a, b, high)
        step *= 2
    return now
