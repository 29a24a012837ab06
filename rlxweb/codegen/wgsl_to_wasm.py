"""Lowering of WGSL trees to WebAssembly SIMD instructions: four lanes of 32 bits.

A value is a variable of 128 bits; a truth has all bits of its lane or none. Powers and
logarithms are functions in WGSL themselves.
"""

from __future__ import annotations

import struct
from typing import Final

from rlxweb.codegen.wasm_builder import WasmFunctionBuilder
from rlxweb.codegen.wgsl_parser import WgslLibrary
from rlxweb.codegen.wgsl_to_instructions import (
    COMPARISONS,
    BranchBody,
    LoweredValue,
    TypedValue,
    Value,
    ValueKind,
    WgslLowering,
    require_scalars,
    unsupported_error,
)

_FLOAT_OPCODES: Final = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_INT_OPCODES: Final = {"+": "i32x4.add", "-": "i32x4.sub", "*": "i32x4.mul"}
_BITWISE_OPCODES: Final = {"&": "v128.and", "|": "v128.or", "^": "v128.xor"}
_ROUNDING_OPCODES: Final = {
    "round": "nearest",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "sqrt": "sqrt",
}
_CONVERSIONS: Final = {
    "FI": "i32x4.trunc_sat_f32x4_s",
    "FU": "i32x4.trunc_sat_f32x4_u",
    "IF": "f32x4.convert_i32x4_s",
    "UF": "f32x4.convert_i32x4_u",
}
_MATH_FUNCTIONS: Final = {
    "exp": "precise_exp",
    "exp2": "precise_exp2",
    "log": "precise_log",
}
REQUIRED_INCLUDES: Final = ("exponential", "logarithms")
"""Files of `shaders/include/` that define the power and logarithm functions."""


class WasmLowering(WgslLowering):
    """WebAssembly implementation of the WGSL lowering; emits into one function.

    library  the functions and records that expressions may name, those of NEEDED too
    """

    def __init__(self, function: WasmFunctionBuilder, library: WgslLibrary) -> None:
        self.f, self.call_depth = function, 0
        self.library = library
        self._local_count = 0
        self._constants: dict[bytes, Value] = {}
        self._constant_values: dict[Value, int] = {}

    def new_local(self, kind: str = "v128") -> Value:
        """Declare a new local variable."""
        self._local_count += 1
        self.f.declare_locals(kind, f"n{self._local_count}")
        return f"n{self._local_count}"

    def emit_value(self, *words: str | int) -> Value:
        """Emit the words and return a new local that holds their result."""
        name = self.new_local()
        self.f.set_local(name, *words)
        return name

    def splat(self, kind: ValueKind, number: float) -> TypedValue:
        if kind == "F":
            lane = struct.pack("<f", number)
        else:
            lane = struct.pack("<I", (int(number) * (-1 if kind == "B" else 1)) % 2**32)
        if lane not in self._constants:
            self._constants[lane] = name = self.new_local()
            self.f.splat_constant(name, lane)
        name = self._constants[lane]
        self._constant_values[name] = int.from_bytes(lane, "little")
        return TypedValue(kind, name)

    def branch(self, condition: Value, yes: BranchBody, no: BranchBody) -> LoweredValue:
        self.f.emit(condition, "if")
        yes_result = yes()
        parts = yes_result if isinstance(yes_result, dict) else {"": yes_result}
        merged = {
            name: TypedValue(part.kind, self.new_local())
            for name, part in parts.items()
        }

        def store_parts(result: LoweredValue) -> None:
            parts = result if isinstance(result, dict) else {"": result}
            for name, part in parts.items():
                self.f.set_local(merged[name].value, part.value)

        store_parts(yes_result)
        self.f.emit("else")
        store_parts(no())
        self.f.emit("end")
        return merged if isinstance(yes_result, dict) else merged[""]

    # --- operators

    def lower_operator(
        self, symbol: str, operands: list[LoweredValue]
    ) -> TypedValue | None:
        if symbol in ("-x", "!x", "~x"):
            (operand,) = require_scalars(operands)
            return self._lower_unary(symbol, operand)
        if symbol in ("<<", ">>"):
            return self._lower_shift(symbol, *require_scalars(operands))
        if symbol not in (
            *COMPARISONS,
            *_INT_OPCODES,
            *_FLOAT_OPCODES,
            *_BITWISE_OPCODES,
            "%",
        ):
            return None
        a, b = self.unify_kinds(*require_scalars(operands))
        if symbol in COMPARISONS:
            return self.compare(COMPARISONS[symbol], a, b)
        if a.kind == "F" and symbol in _FLOAT_OPCODES:
            opcode = f"f32x4.{_FLOAT_OPCODES[symbol]}"
        elif a.kind in "IU" and symbol in _INT_OPCODES:
            opcode = _INT_OPCODES[symbol]
        elif a.kind in "IUB" and symbol in _BITWISE_OPCODES:
            opcode = _BITWISE_OPCODES[symbol]
        else:
            raise unsupported_error(f"{symbol} of {a.kind}")
        return TypedValue(a.kind, self.emit_value(a.value, b.value, opcode))

    def _lower_shift(self, symbol: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """Shift by one constant for all lanes, or lane by lane: there is no instruction
        for per-lane shifts.
        """
        if b.kind == "number":
            b = self.as_kind("U", b)
        if a.kind not in "IU":
            raise unsupported_error(f"{symbol} of {a.kind}")
        right = "shr_s" if a.kind == "I" else "shr_u"
        opcode = "shl" if symbol == "<<" else right
        shift_count = self._constant_values.get(b.value)
        if shift_count is not None:
            return TypedValue(
                a.kind, self.emit_value(a.value, shift_count & 31, f"i32x4.{opcode}")
            )
        result = self.emit_value(a.value)
        for lane in range(4):
            self.f.emit(result)
            for operand in (a, b):
                self.f.emit(operand.value)
                self.f.emit_lane_access("extract", lane)
            self.f.emit(f"i32.{opcode}")
            self.f.emit_lane_access("replace", lane)
            self.f.set_local(result)
        return TypedValue(a.kind, result)

    def _lower_unary(self, symbol: str, operand: TypedValue) -> TypedValue:
        if operand.kind == "number" and symbol == "-x":
            return TypedValue("number", f"-{operand.value}")
        if operand.kind == "truth":
            name = self.new_local("i32")
            self.f.set_local(name, operand.value, "i32.eqz")
            return TypedValue("truth", name)
        minus = "f32x4.neg" if operand.kind == "F" else "i32x4.neg"
        return TypedValue(
            operand.kind,
            self.emit_value(operand.value, minus if symbol == "-x" else "v128.not"),
        )

    def compare(self, comparison: str, a: TypedValue, b: TypedValue) -> TypedValue:
        if a.kind == "F":
            opcode = f"f32x4.{comparison}"
        elif comparison in ("eq", "ne"):
            opcode = f"i32x4.{comparison}"
        elif a.kind in "IU":
            opcode = f"i32x4.{comparison}_{'s' if a.kind == 'I' else 'u'}"
        else:
            raise unsupported_error(f"{comparison} of {a.kind}")
        return TypedValue("B", self.emit_value(a.value, b.value, opcode))

    # --- functions that WGSL has

    def lower_builtin(
        self, name: str, operands: list[LoweredValue]
    ) -> LoweredValue | None:
        values = require_scalars(operands)
        if name in ("F", "I", "U", "B"):
            return self.as_kind(name, values[0], convert=True)
        if name.startswith("bitcast "):
            return TypedValue(name.removeprefix("bitcast "), values[0].value)
        if name == "opaque":  # nobody sees through anything here
            return values[0]
        if name == "quotient":  # which is right of every divisor here
            return self.lower_operator("/", operands)
        if name == "is_nan":
            return TypedValue(
                "B", self.emit_value(values[0].value, values[0].value, "f32x4.ne")
            )
        if name == "any":
            truth = self.new_local("i32")
            self.f.set_local(truth, values[0].value, "v128.any_true")
            return TypedValue("truth", truth)
        if name in _ROUNDING_OPCODES:
            return TypedValue(
                "F",
                self.emit_value(values[0].value, f"f32x4.{_ROUNDING_OPCODES[name]}"),
            )
        if name in _MATH_FUNCTIONS:
            return self.call_function(_MATH_FUNCTIONS[name], operands)
        if name == "inverseSqrt":
            root = self.emit_value(values[0].value, "f32x4.sqrt")
            return TypedValue(
                "F", self.emit_value(self.splat("F", 1.0).value, root, "f32x4.div")
            )
        return self.lower_common_builtin(name, values)

    def absolute_value(self, operand: TypedValue) -> TypedValue:
        if operand.kind == "U":
            return operand
        opcode = "f32x4.abs" if operand.kind == "F" else "i32x4.abs"
        return TypedValue(operand.kind, self.emit_value(operand.value, opcode))

    def min_or_max(self, name: str, a: TypedValue, b: TypedValue) -> TypedValue:
        if a.kind == "F":
            return TypedValue("F", self.emit_value(a.value, b.value, f"f32x4.p{name}"))
        return super().min_or_max(name, a, b)

    def select(
        self, if_false: TypedValue, if_true: TypedValue, condition: TypedValue
    ) -> TypedValue:
        chosen = self.emit_value(
            if_true.value, if_false.value, condition.value, "v128.bitselect"
        )
        return TypedValue(if_false.kind, chosen)

    # --- kinds

    def convert_lanes(self, kind: ValueKind, operand: TypedValue) -> TypedValue:
        if operand.kind == "B":
            return TypedValue(
                kind,
                self.emit_value(operand.value, self.splat(kind, 1).value, "v128.and"),
            )
        return TypedValue(
            kind, self.emit_value(operand.value, _CONVERSIONS[operand.kind + kind])
        )
