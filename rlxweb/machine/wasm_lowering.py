"""Trees of WGSL as vector instructions of WebAssembly: four lanes of 32 bits.

A value is a variable of 128 bits; a truth has all bits of its lane or none. Powers and
logarithms are functions in WGSL themselves.
"""

from __future__ import annotations

import struct
from typing import Final

from rlxweb.machine.trees import (
    ORDER,
    Branch,
    Kind,
    Of,
    Result,
    Value,
    Walk,
    plain,
    refused,
)
from rlxweb.machine.wasm import Function
from rlxweb.machine.wgsl import Library

_FLOATS: Final = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_WHOLES: Final = {"+": "i32x4.add", "-": "i32x4.sub", "*": "i32x4.mul"}
_BITS: Final = {"&": "v128.and", "|": "v128.or", "^": "v128.xor"}
_ROUNDINGS: Final = {
    "round": "nearest",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "sqrt": "sqrt",
}
_CONVERTED: Final = {
    "FI": "i32x4.trunc_sat_f32x4_s",
    "FU": "i32x4.trunc_sat_f32x4_u",
    "IF": "f32x4.convert_i32x4_s",
    "UF": "f32x4.convert_i32x4_u",
}
_POWERS: Final = {"exp": "precise_exp", "exp2": "precise_exp2", "log": "precise_log"}
NEEDED: Final = ("exponential", "logarithms")
"""What of `shaders/include/` the powers are in."""


class WasmLowering(Walk):
    """Writes trees into a function.

    library  the functions and records that expressions may name, those of NEEDED too
    """

    def __init__(self, function: Function, library: Library) -> None:
        self.f, self.depth = function, 0
        self.library = library
        self._count = 0
        self._constants: dict[bytes, Value] = {}
        self._numbers: dict[Value, int] = {}

    def fresh(self, kind: str = "v128") -> Value:
        """A new variable."""
        self._count += 1
        self.f.local(kind, f"n{self._count}")
        return f"n{self._count}"

    def let(self, *words: str | int) -> Value:
        """A new variable with what the words leave."""
        name = self.fresh()
        self.f.put(name, *words)
        return name

    def splat(self, kind: Kind, number: float) -> Of:
        if kind == "F":
            lane = struct.pack("<f", number)
        else:
            lane = struct.pack("<I", (int(number) * (-1 if kind == "B" else 1)) % 2**32)
        if lane not in self._constants:
            self._constants[lane] = name = self.fresh()
            self.f.constant(name, lane)
        name = self._constants[lane]
        self._numbers[name] = int.from_bytes(lane, "little")
        return Of(kind, name)

    def branch(self, condition: Value, yes: Branch, no: Branch) -> Result:
        self.f.say(condition, "if")
        one = yes()
        parts = one if isinstance(one, dict) else {"": one}
        merged = {name: Of(part.kind, self.fresh()) for name, part in parts.items()}

        def kept(found: Result) -> None:
            every = found if isinstance(found, dict) else {"": found}
            for name, part in every.items():
                self.f.put(merged[name].value, part.value)

        kept(one)
        self.f.say("else")
        kept(no())
        self.f.say("end")
        return merged if isinstance(one, dict) else merged[""]

    # --- operators

    def operator(self, sign: str, given: list[Result]) -> Of | None:
        if sign in ("-x", "!x", "~x"):
            (one,) = plain(given)
            return self._unary(sign, one)
        if sign in ("<<", ">>"):
            return self._shifted(sign, *plain(given))
        if sign not in (*ORDER, *_WHOLES, *_FLOATS, *_BITS, "%"):
            return None
        a, b = self.alike(*plain(given))
        if sign in ORDER:
            return self.compared(ORDER[sign], a, b)
        if a.kind == "F" and sign in _FLOATS:
            how = f"f32x4.{_FLOATS[sign]}"
        elif a.kind in "IU" and sign in _WHOLES:
            how = _WHOLES[sign]
        elif a.kind in "IUB" and sign in _BITS:
            how = _BITS[sign]
        else:
            raise refused(f"{sign} of {a.kind}")
        return Of(a.kind, self.let(a.value, b.value, how))

    def _shifted(self, sign: str, a: Of, b: Of) -> Of:
        """By one number for all lanes, or lane by lane: there is no instruction."""
        if b.kind == "number":
            b = self.as_kind("U", b)
        if a.kind not in "IU":
            raise refused(f"{sign} of {a.kind}")
        right = "shr_s" if a.kind == "I" else "shr_u"
        how, by = "shl" if sign == "<<" else right, self._numbers.get(b.value)
        if by is not None:
            return Of(a.kind, self.let(a.value, by & 31, f"i32x4.{how}"))
        made = self.let(a.value)
        for lane in range(4):
            self.f.say(made)
            for one in (a, b):
                self.f.say(one.value)
                self.f.lane("extract", lane)
            self.f.say(f"i32.{how}")
            self.f.lane("replace", lane)
            self.f.put(made)
        return Of(a.kind, made)

    def _unary(self, sign: str, one: Of) -> Of:
        if one.kind == "number" and sign == "-x":
            return Of("number", f"-{one.value}")
        if one.kind == "truth":
            name = self.fresh("i32")
            self.f.put(name, one.value, "i32.eqz")
            return Of("truth", name)
        minus = "f32x4.neg" if one.kind == "F" else "i32x4.neg"
        return Of(one.kind, self.let(one.value, minus if sign == "-x" else "v128.not"))

    def compared(self, order: str, a: Of, b: Of) -> Of:
        if a.kind == "F":
            how = f"f32x4.{order}"
        elif order in ("eq", "ne"):
            how = f"i32x4.{order}"
        elif a.kind in "IU":
            how = f"i32x4.{order}_{'s' if a.kind == 'I' else 'u'}"
        else:
            raise refused(f"{order} of {a.kind}")
        return Of("B", self.let(a.value, b.value, how))

    # --- functions that WGSL has

    def builtin(self, name: str, given: list[Result]) -> Result | None:
        every = plain(given)
        if name in ("F", "I", "U", "B"):
            return self.as_kind(name, every[0], convert=True)
        if name.startswith("bitcast "):
            return Of(name.removeprefix("bitcast "), every[0].value)
        if name == "opaque":  # nobody sees through anything here
            return every[0]
        if name == "quotient":  # which is right of every divisor here
            return self.operator("/", given)
        if name == "is_nan":
            return Of("B", self.let(every[0].value, every[0].value, "f32x4.ne"))
        if name == "any":
            truth = self.fresh("i32")
            self.f.put(truth, every[0].value, "v128.any_true")
            return Of("truth", truth)
        if name in _ROUNDINGS:
            return Of("F", self.let(every[0].value, f"f32x4.{_ROUNDINGS[name]}"))
        if name in _POWERS:
            return self.call(_POWERS[name], given)
        if name == "inverseSqrt":
            root = self.let(every[0].value, "f32x4.sqrt")
            return Of("F", self.let(self.splat("F", 1.0).value, root, "f32x4.div"))
        return self.chosen(name, every)

    def absolute(self, one: Of) -> Of:
        if one.kind == "U":
            return one
        how = "f32x4.abs" if one.kind == "F" else "i32x4.abs"
        return Of(one.kind, self.let(one.value, how))

    def extreme(self, name: str, a: Of, b: Of) -> Of:
        if a.kind == "F":
            return Of("F", self.let(a.value, b.value, f"f32x4.p{name}"))
        return super().extreme(name, a, b)

    def select(self, no: Of, yes: Of, where: Of) -> Of:
        chosen = self.let(yes.value, no.value, where.value, "v128.bitselect")
        return Of(no.kind, chosen)

    # --- kinds

    def conversion(self, kind: Kind, one: Of) -> Of:
        if one.kind == "B":
            return Of(kind, self.let(one.value, self.splat(kind, 1).value, "v128.and"))
        return Of(kind, self.let(one.value, _CONVERTED[one.kind + kind]))
