"""Lowering of WGSL syntax trees to instructions: names, structs and inlined functions,
independent of the instruction set.

Functions are put in where they are called. What an operator is, a function that WGSL
has, a number in all lanes or a branch is said by who writes the instructions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from rlxweb.codegen.wgsl_parser import (
    Assignment,
    CallExpression,
    Expression,
    MemberAccess,
    NameReference,
    NumberLiteral,
    ReturnStatement,
    WgslLibrary,
)
from rlxweb.core.errors import Unsupported

Value: TypeAlias = str
ValueKind: TypeAlias = str
"""Type of a value: F, I, U or B; "truth" is one boolean for all lanes, "number" a
literal that has no type yet.
"""


@dataclass(frozen=True, slots=True)
class TypedValue:
    """Lowered value with its kind."""

    kind: ValueKind
    value: Value


StructValue: TypeAlias = "dict[str, TypedValue]"
LoweredValue: TypeAlias = "TypedValue | StructValue"
BranchBody: TypeAlias = "Callable[[], LoweredValue]"


def unsupported_error(construct: str) -> Unsupported:
    """Return the error for a construct that cannot be lowered; the caller then computes
    by other means.
    """
    return Unsupported("compile an expression", f"{construct} is not supported")


class WgslLowering(ABC):
    """Base class that lowers WGSL trees; subclasses emit the instructions.

    library  the functions and records that expressions may name
    call_depth  how many functions this is inside of
    """

    library: WgslLibrary
    call_depth: int

    @abstractmethod
    def splat(self, kind: ValueKind, number: float) -> TypedValue:
        """Return a vector with the number in every lane."""

    @abstractmethod
    def lower_operator(
        self, symbol: str, operands: list[LoweredValue]
    ) -> TypedValue | None:
        """Lower an operator on values; None if the symbol is no operator."""

    @abstractmethod
    def lower_builtin(
        self, name: str, operands: list[LoweredValue]
    ) -> LoweredValue | None:
        """Lower a WGSL built-in function; None if the name is none."""

    @abstractmethod
    def branch(self, condition: Value, yes: BranchBody, no: BranchBody) -> LoweredValue:
        """Lower a branch on a condition that is the same for all lanes."""

    @abstractmethod
    def compare(self, comparison: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """Compare two values of one kind: "lt", "le", "gt", "ge", "eq" or "ne"."""

    @abstractmethod
    def select(
        self, if_false: TypedValue, if_true: TypedValue, condition: TypedValue
    ) -> TypedValue:
        """Select one of two values of one kind, lane by lane."""

    @abstractmethod
    def absolute_value(self, operand: TypedValue) -> TypedValue:
        """Return the absolute value."""

    @abstractmethod
    def convert_lanes(self, kind: ValueKind, operand: TypedValue) -> TypedValue:
        """Convert a float, integer or boolean to another of these kinds. Conversions to
        booleans and between integer kinds are handled by `as_kind`.
        """

    def round_to_float16(self, operand: TypedValue) -> TypedValue:
        """Round a float to the nearest half-precision value. Errors  Unsupported if the
        target has no half precision.
        """
        raise unsupported_error("rounding to float16")

    def as_kind(
        self, kind: ValueKind, operand: TypedValue, convert: bool = False
    ) -> TypedValue:
        """Return the value as a kind: give an untyped number its type, or convert if
        asked to.
        """
        if operand.kind == kind:
            return operand
        if operand.kind == "number":
            text = operand.value.removeprefix("-")
            number = float(text) if any(c in text for c in ".eE") else int(text, 0)
            return self.splat(kind, -number if operand.value[0] == "-" else number)
        if not convert:
            return operand
        if {kind, operand.kind} == {"I", "U"}:
            return TypedValue(kind, operand.value)
        if kind == "B":
            return self.compare("ne", operand, self.splat(operand.kind, 0))
        return self.convert_lanes(kind, operand)

    def min_or_max(self, name: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """Return the "min" or "max" of two values of one kind; a if the comparison is
        false.
        """
        takes_b = self.compare("lt" if name == "min" else "gt", b, a)
        return self.select(a, b, takes_b)

    def lower_common_builtin(
        self, name: str, operands: list[TypedValue]
    ) -> TypedValue | None:
        """Lower abs, min, max, clamp and select; None for another function."""
        if name == "abs":
            return self.absolute_value(*operands)
        if name in ("min", "max"):
            return self.min_or_max(name, *self.unify_kinds(*operands))
        if name == "clamp":
            clamped = self.min_or_max("max", *self.unify_kinds(*operands[:2]))
            return self.min_or_max("min", *self.unify_kinds(clamped, operands[2]))
        if name == "select":
            return self.select(*self.unify_kinds(*operands[:2]), operands[2])
        return None

    def lower(self, tree: Expression, names: Mapping[str, LoweredValue]) -> TypedValue:
        """Lower a tree to its value. Errors  Unsupported."""
        result = self._lower_any(tree, names)
        if isinstance(result, dict):
            raise unsupported_error("a struct where a number is expected")
        return result

    def convert(self, kind: ValueKind, operand: TypedValue) -> TypedValue:
        """Convert a value to another kind."""
        return self.as_kind(kind, operand, convert=True)

    def _lower_any(
        self, tree: Expression, names: Mapping[str, LoweredValue]
    ) -> LoweredValue:
        if isinstance(tree, NumberLiteral):
            return parse_number(tree.text)
        if isinstance(tree, NameReference):
            if tree.name in ("true", "false"):
                return self.splat("B", tree.name == "true")
            if tree.name not in names:
                raise unsupported_error(f"the name {tree.name}")
            return names[tree.name]
        if isinstance(tree, MemberAccess):
            struct_value = self._lower_any(tree.operand, names)
            if not isinstance(struct_value, dict):
                raise unsupported_error(f"component {tree.name} of a number")
            return struct_value[tree.name]
        return self._lower_call(tree, names)

    def _lower_call(
        self, tree: CallExpression, names: Mapping[str, LoweredValue]
    ) -> LoweredValue:
        operands = [self._lower_any(operand, names) for operand in tree.operands]
        if tree.name in self.library.structs:
            members = self.library.structs[tree.name]
            return dict(zip(members, require_scalars(operands), strict=True))
        result = self.lower_operator(tree.name, operands) or self.lower_builtin(
            tree.name, operands
        )
        if result is not None:
            return result
        return self.call_function(tree.name, operands)

    def call_function(self, name: str, operands: list[LoweredValue]) -> LoweredValue:
        """Inline a call of a function of the library. Errors  Unsupported."""
        if name not in self.library.functions:
            raise unsupported_error(f"the function {name}")
        function = self.library.functions[name]
        arguments: dict[str, LoweredValue] = {}
        for (parameter, kind), operand in zip(
            function.parameters, operands, strict=True
        ):
            arguments[parameter] = (
                self.as_kind(kind, operand)
                if isinstance(operand, TypedValue)
                else operand
            )
        self.call_depth += 1
        result = self._lower_statements(function.statements, arguments)
        self.call_depth -= 1
        return result

    def _lower_statements(
        self,
        statements: tuple[Assignment | ReturnStatement, ...],
        names: dict[str, LoweredValue],
    ) -> LoweredValue:
        for index, statement in enumerate(statements):
            if isinstance(statement, Assignment):
                names[statement.name] = self._lower_any(statement.value, names)
                continue
            if statement.condition is None:
                return self._lower_any(statement.value, names)
            return self.branch(
                self.lower(statement.condition, names).value,
                partial(self._lower_any, statement.value, dict(names)),
                partial(self._lower_statements, statements[index + 1 :], dict(names)),
            )
        raise unsupported_error("a function without a return value")

    def unify_kinds(
        self, a: TypedValue, b: TypedValue
    ) -> tuple[TypedValue, TypedValue]:
        """Return both values in one common kind. Errors  Unsupported."""
        kind = b.kind if a.kind == "number" else a.kind
        a, b = self.as_kind(kind, a), self.as_kind(kind, b)
        if a.kind != b.kind:
            raise unsupported_error(f"mixing {a.kind} and {b.kind} operands")
        return a, b


COMPARISONS: Final = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "!=": "ne",
}
"""Comparison names by their operator symbols."""


def require_scalars(values: list[LoweredValue]) -> list[TypedValue]:
    """Return the values; refuse struct values. Errors  Unsupported."""
    if any(isinstance(value, dict) for value in values):
        raise unsupported_error("a struct where a number is expected")
    return [value for value in values if isinstance(value, TypedValue)]


def parse_number(text: str) -> TypedValue:
    """Return a number literal as an untyped value."""
    if text.startswith("0x"):
        return TypedValue("number", str(int(text.removesuffix("u"), 16)))
    return TypedValue("number", text.removesuffix("u"))
