"""Parser for the subset of WGSL that ops are declared in: expressions and functions
become syntax trees.

Elementwise ops and the functions of `shaders/include/` are straight lines: `let`,
`var`, assignments, an early return, records of results. `lowering.py` writes them as
machine code; what shaders do besides is not understood here, and said so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from rlxweb.core.errors import Unsupported

_TOKEN_PATTERN = re.compile(
    r"//[^\n]*|\s+|(0x[0-9a-fA-F]+u?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)|\d+u?)"
    r"|([A-Za-z_]\w*)|(->|&&|\|\||<<|>>|[<>=!]=|[-+*/%&|^~!<>=(){},:;.])"
)
# Each line binds tighter than the one before; where C has surprises WGSL has brackets.
_OPERATORS_BY_PRECEDENCE = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


@dataclass(frozen=True, slots=True)
class NumberLiteral:
    """Number literal as spelled in the source: 0.5, 3, 7u, 0xffu."""

    text: str


@dataclass(frozen=True, slots=True)
class NameReference:
    """Reference to a named value."""

    name: str


@dataclass(frozen=True, slots=True)
class CallExpression:
    """Application of a function, a type or an operator to operands; the name of a
    `bitcast` includes its type.
    """

    name: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """Access to one member of a struct."""

    operand: Expression
    name: str


Expression: TypeAlias = NumberLiteral | NameReference | CallExpression | MemberAccess


@dataclass(frozen=True, slots=True)
class Assignment:
    """Declaration `let name = value`, or an assignment."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class ReturnStatement:
    """Return statement `if (condition) { return value; }`; unconditional if there is no
    condition.
    """

    condition: Expression | None
    value: Expression


@dataclass(frozen=True, slots=True)
class WgslFunction:
    """WGSL function: names and types of its parameters, and its statements."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    statements: tuple[Assignment | ReturnStatement, ...]


@dataclass(frozen=True, slots=True)
class WgslLibrary:
    """Declarations of a WGSL file: functions, and structs as tuples of member names."""

    functions: dict[str, WgslFunction]
    structs: dict[str, tuple[str, ...]]


class WgslParser:
    """Recursive-descent parser of WGSL; its methods follow the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokenize(text))
        self._position = 0

    @property
    def next_token(self) -> str:
        """Next token, or "" at the end of the text."""
        return (
            self._tokens[self._position] if self._position < len(self._tokens) else ""
        )

    def take_token(self, expected: str = "") -> str:
        """Consume and return the next token. Errors  Unsupported if another one is
        expected.
        """
        token = self.next_token
        if not token or (expected and token != expected):
            context = " ".join(
                self._tokens[max(0, self._position - 6) : self._position + 3]
            )
            problem = (
                f"expected {expected!r} near {context!r}"
                if expected
                else f"the text ends too early, after {context!r}"
            )
            raise Unsupported("read WGSL", problem)
        self._position += 1
        return token

    def parse_expression(self, level: int = 0) -> Expression:
        if level == len(_OPERATORS_BY_PRECEDENCE):
            return self._parse_unary()
        left = self.parse_expression(level + 1)
        while self.next_token in _OPERATORS_BY_PRECEDENCE[level]:
            symbol = self.take_token()
            left = CallExpression(symbol, (left, self.parse_expression(level + 1)))
        return left

    def _parse_unary(self) -> Expression:
        if self.next_token in ("-", "!", "~"):
            symbol = self.take_token()
            return CallExpression(f"{symbol}x", (self._parse_unary(),))
        value = self._parse_primary()
        while self.next_token == ".":
            self.take_token()
            value = MemberAccess(value, self.take_token())
        return value

    def _parse_primary(self) -> Expression:
        token = self.take_token()
        if token == "(":
            inner = self.parse_expression()
            self.take_token(")")
            return inner
        if token[0].isdigit():
            return NumberLiteral(token)
        if token == "bitcast":
            self.take_token("<")
            token = f"bitcast {self.take_token()}"
            self.take_token(">")
        return (
            CallExpression(token, self._parse_arguments())
            if self.next_token == "("
            else NameReference(token)
        )

    def _parse_arguments(self) -> tuple[Expression, ...]:
        self.take_token("(")
        arguments: list[Expression] = []
        while self.next_token != ")":
            arguments.append(self.parse_expression())
            if self.next_token != ")":
                self.take_token(",")
        self.take_token(")")
        return tuple(arguments)

    def parse_library(self) -> WgslLibrary:
        """Parse a whole file."""
        functions: dict[str, WgslFunction] = {}
        structs: dict[str, tuple[str, ...]] = {}
        while self.next_token:
            if self.next_token == "struct":
                self.take_token()
                name = self.take_token()
                structs[name] = tuple(
                    member for member, _ in self._parse_typed_names("{", "}")
                )
            else:
                function = self._parse_function()
                functions[function.name] = function
        return WgslLibrary(functions, structs)

    def _parse_typed_names(
        self, opening: str, closing: str
    ) -> tuple[tuple[str, str], ...]:
        self.take_token(opening)
        pairs = []
        while self.next_token != closing:
            name = self.take_token()
            self.take_token(":")
            pairs.append((name, self.take_token()))
            if self.next_token != closing:
                self.take_token(",")
        self.take_token(closing)
        return tuple(pairs)

    def _parse_function(self) -> WgslFunction:
        self.take_token("fn")
        name, parameters = self.take_token(), self._parse_typed_names("(", ")")
        self.take_token("->")
        self.take_token()
        self.take_token("{")
        statements: list[Assignment | ReturnStatement] = []
        while self.next_token != "}":
            statements.append(self._parse_statement())
        self.take_token("}")
        return WgslFunction(name, parameters, tuple(statements))

    def _parse_statement(self) -> Assignment | ReturnStatement:
        if self.next_token == "if":
            self.take_token()
            self.take_token("(")
            condition = self.parse_expression()
            self.take_token(")")
            self.take_token("{")
            value = self._parse_return()
            self.take_token("}")
            return ReturnStatement(condition, value)
        if self.next_token == "return":
            return ReturnStatement(None, self._parse_return())
        if self.next_token in ("let", "var"):
            self.take_token()
        name = self.take_token()
        self.take_token("=")
        value = self.parse_expression()
        self.take_token(";")
        return Assignment(name, value)

    def _parse_return(self) -> Expression:
        self.take_token("return")
        value = self.parse_expression()
        self.take_token(";")
        return value


def _tokenize(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN_PATTERN.match(text, position)
        if match is None:
            raise Unsupported(
                "read WGSL", f"{text[position : position + 20]!r} is not supported"
            )
        if match.lastindex:
            yield match[0]
        position = match.end()


@lru_cache(maxsize=512)
def parse_expression(expression: str) -> Expression:
    """Parse one expression. Errors  Unsupported if the text is not exactly one
    expression.
    """
    reader = WgslParser(expression)
    tree = reader.parse_expression()
    if reader.next_token:
        raise Unsupported(
            "read WGSL", f"unexpected {reader.next_token!r} in {expression!r}"
        )
    return tree


@lru_cache(maxsize=64)
def parse_library(text: str) -> WgslLibrary:
    """Parse a file of `shaders/include/`. Errors  Unsupported."""
    return WgslParser(text).parse_library()
