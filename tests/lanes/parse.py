"""Reads the WGSL that rlxweb writes: declarations, functions and expressions as tuples.

A subset: structs of plain members, no switch, no pointers but to an argument. What it
does not know it refuses, so that nothing is counted wrongly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Node = tuple[Any, ...]
"""("num" value) ("id" name) ("un" op x) ("bin" op x y) ("call" name types arguments)
("at" array index) ("of" value member)
("let" name type x) ("var" name type x) ("set" target op x) ("do" call)
("if" condition then else) ("for" first condition next body) ("return" x) ("break",)
("block" body)"""

TOKEN = re.compile(
    r"\s+|//[^\n]*|(?P<num>0[xX][0-9a-fA-F]+[ui]?|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?"
    r"[uifh]?)|(?P<id>[A-Za-z_]\w*)|(?P<op>->|<<=|>>=|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|"
    r"<<|>>|[-+*/%&|^~!<>=(){}\[\],;:.@])"
)
GENERIC = {"vec2", "vec3", "vec4", "array", "atomic", "bitcast", "ptr"}
LEVELS = (
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
PRECEDENCE = {op: level for level, ops in enumerate(LEVELS) for op in ops}
"""Precedence of each binary operator."""
SETS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}


@dataclass(slots=True)
class Function:
    """A function: (name, type) of its parameters, its result's type and its body."""

    parameters: list[tuple[str, Any]]
    result: Any
    body: list[Node]


@dataclass(slots=True)
class Module:
    """What a text declares. A type is a name, or a tuple (name, argument, …)."""

    aliases: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Node] = field(default_factory=dict)
    constants: dict[str, tuple[Any, Node]] = field(default_factory=dict)
    uniforms: dict[str, Any] = field(default_factory=dict)
    structs: dict[str, dict[str, Any]] = field(default_factory=dict)
    storage: dict[str, Any] = field(default_factory=dict)
    private: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


class Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        for found in TOKEN.finditer(text):
            if found.start() != at:
                break
            if found.lastgroup:
                self.tokens.append(found.group())
            at = found.end()
        if at < len(text):
            raise SyntaxError(f"cannot read {text[at : at + 40]!r}")
        self.tokens.append("")  # the end
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at]

    def take(self, wanted: str = "") -> str:
        token = self.next
        if wanted and token != wanted:
            if wanted == ">" and token == ">>":  # two types end at once
                self.tokens[self.at] = ">"
                return ">"
            near = " ".join(self.tokens[max(0, self.at - 8) : self.at + 4])
            raise SyntaxError(f"{wanted!r} wanted, {token!r} found near: {near}")
        if not token:
            raise SyntaxError("the text ends in the midst of a declaration")
        self.at += 1
        return token

    def took(self, token: str) -> bool:
        if self.next == token:
            self.at += 1
            return True
        return False

    # --- declarations -------------------------------------------------------------

    def module(self) -> Module:
        made = Module()
        while self.next:
            self._attributes()
            kind = self.take()
            if kind in ("enable", "requires"):
                while self.take() != ";":
                    pass
            elif kind == "alias":
                name = self.take()
                self.take("=")
                made.aliases[name] = self.type()
                self.take(";")
            elif kind in ("override", "const"):
                self._constant(made, kind)
            elif kind == "struct":
                self._struct(made)
            elif kind == "var":
                self._variable(made)
            elif kind == "fn":
                self._function(made)
            else:
                raise SyntaxError(f"no declaration begins with {kind!r}")
        return made

    def _attributes(self) -> None:
        while self.took("@"):
            self.take()
            if self.took("("):
                while self.take() != ")":
                    pass

    def _constant(self, made: Module, kind: str) -> None:
        name = self.take()
        declared = self.type() if self.took(":") else None
        self.take("=")
        value = self.expression()
        self.take(";")
        if kind == "override":
            made.overrides[name] = value
        else:
            made.constants[name] = declared, value

    def _struct(self, made: Module) -> None:
        record = self.take()
        is_uniforms = record == "Uniforms"
        members = made.uniforms if is_uniforms else made.structs.setdefault(record, {})
        self.take("{")
        while not self.took("}"):
            name = self.take()
            self.take(":")
            members[name] = self.type()
            self.took(",")

    def _variable(self, made: Module) -> None:
        self.take("<")
        space = self.take()
        while self.take() != ">":
            pass
        name = self.take()
        self.take(":")
        declared = self.type()
        self.take(";")
        if space == "workgroup":
            made.shared[name] = declared
        elif space == "storage":
            made.storage[name] = declared
        elif space == "private":
            made.private[name] = declared

    def _function(self, made: Module) -> None:
        name, parameters = self.take(), []
        self.take("(")
        while not self.took(")"):
            self._attributes()
            parameter = self.take()
            self.take(":")
            parameters.append((parameter, self.type()))
            self.took(",")
        result = self.type() if self.took("->") else None
        made.functions[name] = Function(parameters, result, self.block())

    def type(self) -> Any:
        name = self.take()
        if name not in GENERIC or self.next != "<":
            return name
        self.take("<")
        found: list[Any] = []
        while self.next not in (">", ">>"):
            found.append(self.type() if self.next[0].isalpha() else int(self._count()))
            self.took(",")
        self.take(">")
        return (name, *found)

    def _count(self) -> str:
        return self.take().rstrip("ui")

    # --- statements ---------------------------------------------------------------

    def block(self) -> list[Node]:
        self.take("{")
        body = []
        while not self.took("}"):
            body.append(self.statement())
        return body

    def statement(self) -> Node:
        token = self.next
        if token == "{":
            return "block", self.block()
        if token == "if":
            return self._if()
        if token == "for":
            return self._for()
        if token == "while":
            self.take()
            return "for", None, self.expression(), None, self.block()
        if token == "return":
            self.take()
            value = None if self.next == ";" else self.expression()
            self.take(";")
            return "return", value
        if token in ("break", "continue"):
            self.take()
            self.take(";")
            return (token,)
        made = self._simple()
        self.take(";")
        return made

    def _simple(self) -> Node:
        if self.next in ("let", "var", "const"):
            kind = "var" if self.take() == "var" else "let"
            name = self.take()
            declared = self.type() if self.took(":") else None
            value = self.expression() if self.took("=") else None
            return kind, name, declared, value
        target = self.expression()
        if self.took("++"):
            return "set", target, "+=", ("num", 1)
        if self.next in SETS:
            return "set", target, self.take(), self.expression()
        return "do", target

    def _if(self) -> Node:
        self.take("if")
        condition, then = self.expression(), self.block()
        other: list[Node] = []
        if self.took("else"):
            other = [self._if()] if self.next == "if" else self.block()
        return "if", condition, then, other

    def _for(self) -> Node:
        self.take("for")
        self.take("(")
        first = None if self.next == ";" else self._simple()
        self.take(";")
        condition = self.expression()
        self.take(";")
        after = None if self.next == ")" else self._simple()
        self.take(")")
        return "for", first, condition, after, self.block()

    # --- expressions --------------------------------------------------------------

    def expression(self, level: int = 0) -> Node:
        """Parse operators of this precedence and higher."""
        left = self._unary()
        while PRECEDENCE.get(op := self.next, -1) >= level:
            self.at += 1
            left = "bin", op, left, self.expression(PRECEDENCE[op] + 1)
        return left

    def _unary(self) -> Node:
        if self.next in ("-", "!", "~", "&"):
            op = self.take()
            return "un", op, self._unary()
        found = self._primary()
        while self.next in ("[", "."):
            if self.took("["):
                found = "at", found, self.expression()
                self.take("]")
            else:
                self.take(".")
                found = "of", found, self.take()
        return found

    def _primary(self) -> Node:
        if self.took("("):
            inner = self.expression()
            self.take(")")
            return inner
        token = self.next
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            return "num", self.take()
        if token in GENERIC and self.tokens[self.at + 1] == "<":
            made = self.type()
            name, types = made[0], made[1:]
        else:
            name, types = self.take(), ()
        if not self.took("("):
            return "id", name
        arguments = []
        while not self.took(")"):
            arguments.append(self.expression())
            self.took(",")
        return "call", name, types, arguments


@lru_cache(maxsize=64)
def parse(text: str) -> Module:
    """The module of a WGSL text, which nobody changes: it is read once.

    Errors  SyntaxError at what is not known.
    """
    return Parser(text).module()
