"""The part of WGSL that ops are declared in, read into trees: expressions, functions.

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

from rlxweb.errors import Unsupported

_TOKEN = re.compile(
    r"//[^\n]*|\s+|(0x[0-9a-fA-F]+u?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)|\d+u?)"
    r"|([A-Za-z_]\w*)|(->|&&|\|\||<<|>>|[<>=!]=|[-+*/%&|^~!<>=(){},:;.])"
)
# Each line binds tighter than the one before; where C has surprises WGSL has brackets.
_BINDING = (
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
class Number:
    """As it is spelled: 0.5, 3, 7u, 0xffu."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A value that was named before."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A function, a type or an operator on operands; `bitcast` has its type in it."""

    name: str
    operands: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One part of a record."""

    record: Tree
    name: str


Tree: TypeAlias = Number | Name | Apply | Member


@dataclass(frozen=True, slots=True)
class Put:
    """`let name = value`, or an assignment."""

    name: str
    value: Tree


@dataclass(frozen=True, slots=True)
class ReturnIf:
    """`if (condition) { return value; }`; without a condition the end."""

    condition: Tree | None
    value: Tree


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a file: names and types of its parameters, and its lines."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    lines: tuple[Put | ReturnIf, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """What a file declares: functions, and records as the names of their parts."""

    functions: dict[str, Function]
    records: dict[str, tuple[str, ...]]


class Reader:
    """Reads tokens one after the other; the grammar is in its methods."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    @property
    def next(self) -> str:
        """The token that comes; "" at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, wanted: str = "") -> str:
        """The next token. Errors  Unsupported where another one was wanted."""
        token = self.next
        if not token or (wanted and token != wanted):
            there = " ".join(self._tokens[max(0, self._at - 6) : self._at + 3])
            raise Unsupported(
                "read WGSL", f"{wanted or 'more'!r} is wanted near {there!r}"
            )
        self._at += 1
        return token

    def expression(self, level: int = 0) -> Tree:
        if level == len(_BINDING):
            return self._unary()
        left = self.expression(level + 1)
        while self.next in _BINDING[level]:
            sign = self.take()
            left = Apply(sign, (left, self.expression(level + 1)))
        return left

    def _unary(self) -> Tree:
        if self.next in ("-", "!", "~"):
            sign = self.take()
            return Apply(f"{sign}x", (self._unary(),))
        value = self._primary()
        while self.next == ".":
            self.take()
            value = Member(value, self.take())
        return value

    def _primary(self) -> Tree:
        token = self.take()
        if token == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if token[0].isdigit():
            return Number(token)
        if token == "bitcast":
            self.take("<")
            token = f"bitcast {self.take()}"
            self.take(">")
        return Apply(token, self._operands()) if self.next == "(" else Name(token)

    def _operands(self) -> tuple[Tree, ...]:
        self.take("(")
        found: list[Tree] = []
        while self.next != ")":
            found.append(self.expression())
            if self.next != ")":
                self.take(",")
        self.take(")")
        return tuple(found)

    def library(self) -> Library:
        """A whole file."""
        functions: dict[str, Function] = {}
        records: dict[str, tuple[str, ...]] = {}
        while self.next:
            if self.next == "struct":
                self.take()
                name = self.take()
                records[name] = tuple(part for part, _ in self._typed("{", "}"))
            else:
                made = self._function()
                functions[made.name] = made
        return Library(functions, records)

    def _typed(self, opening: str, closing: str) -> tuple[tuple[str, str], ...]:
        self.take(opening)
        found = []
        while self.next != closing:
            name = self.take()
            self.take(":")
            found.append((name, self.take()))
            if self.next != closing:
                self.take(",")
        self.take(closing)
        return tuple(found)

    def _function(self) -> Function:
        self.take("fn")
        name, parameters = self.take(), self._typed("(", ")")
        self.take("->")
        self.take()
        self.take("{")
        lines: list[Put | ReturnIf] = []
        while self.next != "}":
            lines.append(self._line())
        self.take("}")
        return Function(name, parameters, tuple(lines))

    def _line(self) -> Put | ReturnIf:
        if self.next == "if":
            self.take()
            self.take("(")
            condition = self.expression()
            self.take(")")
            self.take("{")
            value = self._returned()
            self.take("}")
            return ReturnIf(condition, value)
        if self.next == "return":
            return ReturnIf(None, self._returned())
        if self.next in ("let", "var"):
            self.take()
        name = self.take()
        self.take("=")
        value = self.expression()
        self.take(";")
        return Put(name, value)

    def _returned(self) -> Tree:
        self.take("return")
        value = self.expression()
        self.take(";")
        return value


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unsupported("read WGSL", f"{text[at : at + 20]!r} is not understood")
        if match.lastindex:
            yield match[0]
        at = match.end()


@lru_cache(maxsize=512)
def tree_of(expression: str) -> Tree:
    """An expression. Errors  Unsupported for what is none, or more than one."""
    reader = Reader(expression)
    found = reader.expression()
    if reader.next:
        raise Unsupported("read WGSL", f"{reader.next!r} follows {expression!r}")
    return found


@lru_cache(maxsize=64)
def library_of(text: str) -> Library:
    """A file of `shaders/include/`. Errors  Unsupported."""
    return Reader(text).library()
