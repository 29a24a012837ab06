"""Trees of WGSL as vector instructions: what an op declares is what is computed.

A value is a vector of one kind: F floats, I and U whole numbers, B truths. Functions
are put in where they are called; theirs may round a product and a sum once, an op's own
operations round one by one, as NumPy's do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rlxweb.machine import functions
from rlxweb.machine.text import Value, Writer
from rlxweb.machine.trees import ORDER, Kind, Of, Result, Walk, plain, refused
from rlxweb.machine.wgsl import Library

_FLOATS: Final = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_WHOLES: Final = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_ROUNDINGS: Final = {
    "round": "roundeven",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "sqrt": "sqrt",
}
_POWERS: Final = {"exp": functions.exp, "exp2": functions.exp2, "log": functions.log}


@dataclass(slots=True)
class Lowering(Walk):
    """Writes trees into a function.

    library  the functions and records that expressions may name
    """

    w: Writer
    library: Library
    depth: int = field(default=0, repr=False)

    def type_of(self, kind: Kind) -> str:
        """A kind's type in LLVM."""
        lanes = self.w.shape.lanes
        types = {"F": "float", "I": "i32", "U": "i32", "B": "i1"}
        return f"<{lanes} x {types[kind]}>" if kind in types else "i1"

    def splat(self, kind: Kind, number: float) -> Of:
        """A number in every lane."""
        if kind == "F":
            return Of(kind, self.w.shape.splat(float(number)))
        one = f"i1 {'true' if number else 'false'}"
        if kind != "B":
            # Whole numbers are known by their bits.
            one = f"i32 {int(number) & 0xFFFFFFFF}"
        return Of(kind, f"<{', '.join([one] * self.w.shape.lanes)}>")

    def branch(
        self, condition: Value, yes: Callable[[], Result], no: Callable[[], Result]
    ) -> Result:
        made: list[Result] = []

        def parts(body: Callable[[], Result]) -> list[tuple[str, Value]]:
            found = body()
            made.append(found)
            every = found.values() if isinstance(found, dict) else [found]
            return [(self.type_of(one.kind), one.value) for one in every]

        merged = self.w.either(condition, lambda: parts(yes), lambda: parts(no))
        like = made[0]
        if isinstance(like, dict):
            both = zip(like.items(), merged, strict=True)
            return {name: Of(one.kind, value) for (name, one), value in both}
        return Of(like.kind, merged[0])

    def rounded(self, one: Of) -> Of:
        """To the nearest half."""
        wide, half = self.w.shape.vector, f"<{self.w.shape.lanes} x half>"
        near = self.w.let(f"fptrunc {wide} {one.value} to {half}")
        return Of("F", self.w.let(f"fpext {half} {near} to {wide}"))

    # --- operators

    def operator(self, sign: str, given: list[Result]) -> Of | None:
        if sign in ("-x", "!x", "~x"):
            (one,) = plain(given)
            return self._unary(sign, one)
        if sign not in ORDER and sign not in (*_WHOLES, *_FLOATS, "<<", ">>", "%"):
            return None
        a, b = plain(given)
        if sign in ("<<", ">>") and "number" not in (a.kind, b.kind):
            b = Of(a.kind, b.value)  # by how much has no sign
        a, b = self.alike(a, b)
        if sign in ORDER:
            return self.compared(ORDER[sign], a, b)
        kind, type_ = a.kind, self.type_of(a.kind)
        if kind == "F" and sign in _FLOATS:
            flag = " contract" if self.depth else ""
            how = _FLOATS[sign] + flag
        elif kind in "IU" and sign in ("<<", ">>"):
            b = Of(kind, self._and(b, 31))
            how = "shl" if sign == "<<" else "ashr" if kind == "I" else "lshr"
        elif sign in _WHOLES and (kind in "IU" or (kind == "B" and sign in "&|^")):
            how = _WHOLES[sign]
        else:  # division of whole numbers traps
            raise refused(f"{sign} of {kind}")
        return Of(kind, self.w.let(f"{how} {type_} {a.value}, {b.value}"))

    def _and(self, one: Of, bits: int) -> Value:
        mask = self.splat("U", bits).value
        return self.w.let(f"and {self.type_of(one.kind)} {one.value}, {mask}")

    def _unary(self, sign: str, one: Of) -> Of:
        if one.kind == "number" and sign == "-x":
            return Of("number", f"-{one.value}")
        if one.kind == "truth":
            return Of("truth", self.w.let(f"xor i1 {one.value}, true"))
        type_ = self.type_of(one.kind)
        if sign == "-x" and one.kind == "F":
            return Of("F", self.w.negated(one.value))
        if sign == "-x":
            return Of(one.kind, self.w.let(f"sub {type_} zeroinitializer, {one.value}"))
        every = self.splat(one.kind, 1 if one.kind == "B" else 0xFFFFFFFF).value
        return Of(one.kind, self.w.let(f"xor {type_} {one.value}, {every}"))

    def compared(self, order: str, a: Of, b: Of) -> Of:
        type_ = self.type_of(a.kind)
        if a.kind == "F":
            how = f"fcmp {'une' if order == 'ne' else f'o{order}'}"
        elif order in ("eq", "ne"):
            how = f"icmp {order}"
        else:
            how = f"icmp {'s' if a.kind == 'I' else 'u'}{order}"
        return Of("B", self.w.let(f"{how} {type_} {a.value}, {b.value}"))

    # --- functions that WGSL has

    def builtin(self, name: str, given: list[Result]) -> Result | None:
        every = plain(given)
        if name in ("F", "I", "U", "B"):
            return self.as_kind(name, every[0], convert=True)
        if name.startswith("bitcast "):
            return self._bits(name.removeprefix("bitcast "), every[0])
        if name == "opaque":  # nobody sees through anything here
            return every[0]
        if name == "quotient":  # which is right of every divisor here
            return self.operator("/", given)
        if name == "is_nan":
            value = every[0].value
            how = f"fcmp uno {self.w.shape.vector} {value}, {value}"
            return Of("B", self.w.let(how))
        if name == "any":
            return self._any(every[0])
        if name in _ROUNDINGS:
            return Of(
                "F", functions.intrinsic(self.w, _ROUNDINGS[name], every[0].value)
            )
        if name in _POWERS:
            return Of("F", _POWERS[name](self.w, every[0].value))
        if name == "inverseSqrt":
            root = functions.intrinsic(self.w, "sqrt", every[0].value)
            one = self.splat("F", 1.0).value
            return Of("F", self.w.let(f"fdiv {self.w.shape.vector} {one}, {root}"))
        return self.chosen(name, every)

    def absolute(self, one: Of) -> Of:
        if one.kind == "F":
            return Of("F", functions.intrinsic(self.w, "fabs", one.value))
        if one.kind != "I":
            return one
        below = self.compared("lt", one, self.splat("I", 0))
        return self.select(one, self._unary("-x", one), below)

    def select(self, no: Of, yes: Of, where: Of) -> Of:
        type_ = self.type_of(no.kind)
        chosen = f"{type_} {yes.value}, {type_} {no.value}"
        return Of(
            no.kind, self.w.let(f"select {self.type_of('B')} {where.value}, {chosen}")
        )

    def _any(self, one: Of) -> Of:
        lanes = self.w.shape.lanes
        bits = self.w.let(f"bitcast {self.type_of('B')} {one.value} to i{lanes}")
        return Of("truth", self.w.let(f"icmp ne i{lanes} {bits}, 0"))

    def _bits(self, kind: Kind, one: Of) -> Of:
        if (one.kind == "F") == (kind == "F"):
            return Of(kind, one.value)
        how = f"bitcast {self.type_of(one.kind)} {one.value} to {self.type_of(kind)}"
        return Of(kind, self.w.let(how))

    # --- kinds

    def conversion(self, kind: Kind, one: Of) -> Of:
        type_, to = self.type_of(one.kind), self.type_of(kind)
        lanes = self.w.shape.lanes
        if one.kind == "F":
            how = "fptosi" if kind == "I" else "fptoui"
            name = f"@llvm.{how}.sat.v{lanes}i32.v{lanes}f32"
            return Of(kind, self.w.let(f"call {to} {name}({type_} {one.value})"))
        how = {"IF": "sitofp", "UF": "uitofp", "BF": "uitofp"}.get(
            one.kind + kind, "zext"
        )
        return Of(kind, self.w.let(f"{how} {type_} {one.value} to {to}"))
