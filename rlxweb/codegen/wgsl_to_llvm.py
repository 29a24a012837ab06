"""Lowering of WGSL trees to LLVM vector instructions.

A value is a vector of one kind: F floats, I and U whole numbers, B truths. Functions
are put in where they are called; theirs may round a product and a sum once, an op's own
operations round one by one, as NumPy's do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.llvm_builder import IRBuilder, Value
from rlxweb.codegen.wgsl_parser import WgslLibrary
from rlxweb.codegen.wgsl_to_instructions import (
    COMPARISONS,
    LoweredValue,
    TypedValue,
    ValueKind,
    WgslLowering,
    require_scalars,
    unsupported_error,
)

_FLOAT_OPCODES: Final = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPCODES: Final = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "&": "and",
    "|": "or",
    "^": "xor",
}
_INTRINSICS: Final = {
    "round": "roundeven",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "sqrt": "sqrt",
}
_MATH_FUNCTIONS: Final = {
    "exp": llvm_math_functions.exp,
    "exp2": llvm_math_functions.exp2,
    "log": llvm_math_functions.log,
}


@dataclass(slots=True)
class LlvmLowering(WgslLowering):
    """LLVM implementation of the WGSL lowering; emits into one function.

    library  the functions and records that expressions may name
    """

    ir: IRBuilder
    library: WgslLibrary
    call_depth: int = field(default=0, repr=False)

    def llvm_type(self, kind: ValueKind) -> str:
        """Return the LLVM type of a value kind."""
        lanes = self.ir.vector_type.lanes
        types = {"F": "float", "I": "i32", "U": "i32", "B": "i1"}
        return f"<{lanes} x {types[kind]}>" if kind in types else "i1"

    def splat(self, kind: ValueKind, number: float) -> TypedValue:
        """Return a constant vector with the number in every lane."""
        if kind == "F":
            return TypedValue(kind, self.ir.vector_type.splat(float(number)))
        lane = f"i1 {'true' if number else 'false'}"
        if kind != "B":
            # Whole numbers are known by their bits.
            lane = f"i32 {int(number) & 0xFFFFFFFF}"
        return TypedValue(kind, f"<{', '.join([lane] * self.ir.vector_type.lanes)}>")

    def branch(
        self,
        condition: Value,
        yes: Callable[[], LoweredValue],
        no: Callable[[], LoweredValue],
    ) -> LoweredValue:
        branch_values: list[LoweredValue] = []

        def typed_parts(body: Callable[[], LoweredValue]) -> list[tuple[str, Value]]:
            result = body()
            branch_values.append(result)
            values = result.values() if isinstance(result, dict) else [result]
            return [(self.llvm_type(part.kind), part.value) for part in values]

        merged = self.ir.if_else(
            condition, lambda: typed_parts(yes), lambda: typed_parts(no)
        )
        first = branch_values[0]
        if isinstance(first, dict):
            named_values = zip(first.items(), merged, strict=True)
            return {
                name: TypedValue(part.kind, value)
                for (name, part), value in named_values
            }
        return TypedValue(first.kind, merged[0])

    def round_to_float16(self, operand: TypedValue) -> TypedValue:
        """Round a float to the nearest half-precision value."""
        vector = self.ir.vector_type.llvm_type
        half = f"<{self.ir.vector_type.lanes} x half>"
        rounded = self.ir.emit_value(f"fptrunc {vector} {operand.value} to {half}")
        return TypedValue(
            "F", self.ir.emit_value(f"fpext {half} {rounded} to {vector}")
        )

    # --- operators

    def lower_operator(
        self, symbol: str, operands: list[LoweredValue]
    ) -> TypedValue | None:
        if symbol in ("-x", "!x", "~x"):
            (operand,) = require_scalars(operands)
            return self._lower_unary(symbol, operand)
        if symbol not in COMPARISONS and symbol not in (
            *_INT_OPCODES,
            *_FLOAT_OPCODES,
            "<<",
            ">>",
            "%",
        ):
            return None
        a, b = require_scalars(operands)
        if symbol in ("<<", ">>") and "number" not in (a.kind, b.kind):
            b = TypedValue(a.kind, b.value)  # by how much has no sign
        a, b = self.unify_kinds(a, b)
        if symbol in COMPARISONS:
            return self.compare(COMPARISONS[symbol], a, b)
        kind, type_ = a.kind, self.llvm_type(a.kind)
        if kind == "F" and symbol in _FLOAT_OPCODES:
            flag = " contract" if self.call_depth else ""
            opcode = _FLOAT_OPCODES[symbol] + flag
        elif kind in "IU" and symbol in ("<<", ">>"):
            b = TypedValue(kind, self._mask_bits(b, 31))
            opcode = "shl" if symbol == "<<" else "ashr" if kind == "I" else "lshr"
        elif symbol in _INT_OPCODES and (
            kind in "IU" or (kind == "B" and symbol in "&|^")
        ):
            opcode = _INT_OPCODES[symbol]
        else:  # division of whole numbers traps
            raise unsupported_error(f"{symbol} of {kind}")
        return TypedValue(
            kind, self.ir.emit_value(f"{opcode} {type_} {a.value}, {b.value}")
        )

    def _mask_bits(self, operand: TypedValue, bits: int) -> Value:
        mask = self.splat("U", bits).value
        return self.ir.emit_value(
            f"and {self.llvm_type(operand.kind)} {operand.value}, {mask}"
        )

    def _lower_unary(self, symbol: str, operand: TypedValue) -> TypedValue:
        if operand.kind == "number" and symbol == "-x":
            return TypedValue("number", f"-{operand.value}")
        if operand.kind == "truth":
            return TypedValue(
                "truth", self.ir.emit_value(f"xor i1 {operand.value}, true")
            )
        type_ = self.llvm_type(operand.kind)
        if symbol == "-x" and operand.kind == "F":
            return TypedValue("F", self.ir.negate_real(operand.value))
        if symbol == "-x":
            return TypedValue(
                operand.kind,
                self.ir.emit_value(f"sub {type_} zeroinitializer, {operand.value}"),
            )
        all_ones = self.splat(
            operand.kind, 1 if operand.kind == "B" else 0xFFFFFFFF
        ).value
        return TypedValue(
            operand.kind, self.ir.emit_value(f"xor {type_} {operand.value}, {all_ones}")
        )

    def compare(self, comparison: str, a: TypedValue, b: TypedValue) -> TypedValue:
        type_ = self.llvm_type(a.kind)
        if a.kind == "F":
            opcode = f"fcmp {'une' if comparison == 'ne' else f'o{comparison}'}"
        elif comparison in ("eq", "ne"):
            opcode = f"icmp {comparison}"
        else:
            opcode = f"icmp {'s' if a.kind == 'I' else 'u'}{comparison}"
        return TypedValue(
            "B", self.ir.emit_value(f"{opcode} {type_} {a.value}, {b.value}")
        )

    # --- functions that WGSL has

    def lower_builtin(
        self, name: str, operands: list[LoweredValue]
    ) -> LoweredValue | None:
        values = require_scalars(operands)
        if name in ("F", "I", "U", "B"):
            return self.as_kind(name, values[0], convert=True)
        if name.startswith("bitcast "):
            return self._bitcast(name.removeprefix("bitcast "), values[0])
        if name == "opaque":  # nobody sees through anything here
            return values[0]
        if name == "quotient":  # which is right of every divisor here
            return self.lower_operator("/", operands)
        if name == "is_nan":
            value = values[0].value
            opcode = f"fcmp uno {self.ir.vector_type.llvm_type} {value}, {value}"
            return TypedValue("B", self.ir.emit_value(opcode))
        if name == "any":
            return self._any_lane(values[0])
        if name in _INTRINSICS:
            return TypedValue(
                "F",
                llvm_math_functions.intrinsic(
                    self.ir, _INTRINSICS[name], values[0].value
                ),
            )
        if name in _MATH_FUNCTIONS:
            return TypedValue("F", _MATH_FUNCTIONS[name](self.ir, values[0].value))
        if name == "inverseSqrt":
            root = llvm_math_functions.intrinsic(self.ir, "sqrt", values[0].value)
            one = self.splat("F", 1.0).value
            return TypedValue(
                "F",
                self.ir.emit_value(
                    f"fdiv {self.ir.vector_type.llvm_type} {one}, {root}"
                ),
            )
        return self.lower_common_builtin(name, values)

    def absolute_value(self, operand: TypedValue) -> TypedValue:
        if operand.kind == "F":
            return TypedValue(
                "F", llvm_math_functions.intrinsic(self.ir, "fabs", operand.value)
            )
        if operand.kind != "I":
            return operand
        is_negative = self.compare("lt", operand, self.splat("I", 0))
        return self.select(operand, self._lower_unary("-x", operand), is_negative)

    def select(
        self, if_false: TypedValue, if_true: TypedValue, condition: TypedValue
    ) -> TypedValue:
        type_ = self.llvm_type(if_false.kind)
        chosen = f"{type_} {if_true.value}, {type_} {if_false.value}"
        return TypedValue(
            if_false.kind,
            self.ir.emit_value(
                f"select {self.llvm_type('B')} {condition.value}, {chosen}"
            ),
        )

    def _any_lane(self, operand: TypedValue) -> TypedValue:
        lanes = self.ir.vector_type.lanes
        bits = self.ir.emit_value(
            f"bitcast {self.llvm_type('B')} {operand.value} to i{lanes}"
        )
        return TypedValue("truth", self.ir.emit_value(f"icmp ne i{lanes} {bits}, 0"))

    def _bitcast(self, kind: ValueKind, operand: TypedValue) -> TypedValue:
        if (operand.kind == "F") == (kind == "F"):
            return TypedValue(kind, operand.value)
        instruction = (
            f"bitcast {self.llvm_type(operand.kind)} {operand.value} to "
            f"{self.llvm_type(kind)}"
        )
        return TypedValue(kind, self.ir.emit_value(instruction))

    # --- kinds

    def convert_lanes(self, kind: ValueKind, operand: TypedValue) -> TypedValue:
        type_, target_type = self.llvm_type(operand.kind), self.llvm_type(kind)
        lanes = self.ir.vector_type.lanes
        if operand.kind == "F":
            opcode = "fptosi" if kind == "I" else "fptoui"
            name = f"@llvm.{opcode}.sat.v{lanes}i32.v{lanes}f32"
            return TypedValue(
                kind,
                self.ir.emit_value(
                    f"call {target_type} {name}({type_} {operand.value})"
                ),
            )
        opcode = {"IF": "sitofp", "UF": "uitofp", "BF": "uitofp"}.get(
            operand.kind + kind, "zext"
        )
        return TypedValue(
            kind,
            self.ir.emit_value(f"{opcode} {type_} {operand.value} to {target_type}"),
        )
