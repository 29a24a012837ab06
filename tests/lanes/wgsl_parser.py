"""Parser of the WGSL that rlxweb generates: declarations, functions and expressions as
tuples.

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

TOKEN_PATTERN = re.compile(
    r"\s+|//[^\n]*|(?P<num>0[xX][0-9a-fA-F]+[ui]?|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?"
    r"[uifh]?)|(?P<id>[A-Za-z_]\w*)|(?P<op>->|<<=|>>=|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|"
    r"<<|>>|[-+*/%&|^~!<>=(){}\[\],;:.@])"
)
GENERIC_TYPES = {"vec2", "vec3", "vec4", "array", "atomic", "bitcast", "ptr"}
PRECEDENCE_LEVELS = (
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
PRECEDENCE = {op: level for level, ops in enumerate(PRECEDENCE_LEVELS) for op in ops}
"""Precedence of each binary operator."""
ASSIGNMENT_OPS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}


@dataclass(slots=True)
class ParsedFunction:
    """Parsed function: (name, type) of its parameters, its result type and its body."""

    parameters: list[tuple[str, Any]]
    result: Any
    body: list[Node]


@dataclass(slots=True)
class ParsedModule:
    """Declarations of a WGSL module. A type is a name, or a tuple (name, argument,
    …).
    """

    aliases: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Node] = field(default_factory=dict)
    constants: dict[str, tuple[Any, Node]] = field(default_factory=dict)
    uniforms: dict[str, Any] = field(default_factory=dict)
    structs: dict[str, dict[str, Any]] = field(default_factory=dict)
    storage: dict[str, Any] = field(default_factory=dict)
    private: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, ParsedFunction] = field(default_factory=dict)


class WgslSourceParser:
    """Recursive-descent parser over the tokens of one WGSL text."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        end = 0
        for match in TOKEN_PATTERN.finditer(text):
            if match.start() != end:
                break
            if match.lastgroup:
                self.tokens.append(match.group())
            end = match.end()
        if end < len(text):
            raise SyntaxError(f"cannot read {text[end : end + 40]!r}")
        self.tokens.append("")  # the end
        self.position = 0

    @property
    def current_token(self) -> str:
        return self.tokens[self.position]

    def consume(self, expected: str = "") -> str:
        token = self.current_token
        if expected and token != expected:
            if expected == ">" and token == ">>":  # two types end at once
                self.tokens[self.position] = ">"
                return ">"
            context = " ".join(
                self.tokens[max(0, self.position - 8) : self.position + 4]
            )
            raise SyntaxError(f"{expected!r} wanted, {token!r} found near: {context}")
        if not token:
            raise SyntaxError("the text ends in the midst of a declaration")
        self.position += 1
        return token

    def accept(self, token: str) -> bool:
        if self.current_token == token:
            self.position += 1
            return True
        return False

    # --- declarations -------------------------------------------------------------

    def parse_module(self) -> ParsedModule:
        module = ParsedModule()
        while self.current_token:
            self._skip_attributes()
            kind = self.consume()
            if kind in ("enable", "requires"):
                while self.consume() != ";":
                    pass
            elif kind == "alias":
                name = self.consume()
                self.consume("=")
                module.aliases[name] = self.parse_type()
                self.consume(";")
            elif kind in ("override", "const"):
                self._parse_constant(module, kind)
            elif kind == "struct":
                self._parse_struct(module)
            elif kind == "var":
                self._parse_variable(module)
            elif kind == "fn":
                self._parse_function(module)
            else:
                raise SyntaxError(f"no declaration begins with {kind!r}")
        return module

    def _skip_attributes(self) -> None:
        while self.accept("@"):
            self.consume()
            if self.accept("("):
                while self.consume() != ")":
                    pass

    def _parse_constant(self, module: ParsedModule, kind: str) -> None:
        name = self.consume()
        declared = self.parse_type() if self.accept(":") else None
        self.consume("=")
        value = self.parse_expression()
        self.consume(";")
        if kind == "override":
            module.overrides[name] = value
        else:
            module.constants[name] = declared, value

    def _parse_struct(self, module: ParsedModule) -> None:
        struct_name = self.consume()
        is_uniforms = struct_name == "Uniforms"
        members = (
            module.uniforms
            if is_uniforms
            else module.structs.setdefault(struct_name, {})
        )
        self.consume("{")
        while not self.accept("}"):
            name = self.consume()
            self.consume(":")
            members[name] = self.parse_type()
            self.accept(",")

    def _parse_variable(self, module: ParsedModule) -> None:
        self.consume("<")
        space = self.consume()
        while self.consume() != ">":
            pass
        name = self.consume()
        self.consume(":")
        declared = self.parse_type()
        self.consume(";")
        if space == "workgroup":
            module.shared[name] = declared
        elif space == "storage":
            module.storage[name] = declared
        elif space == "private":
            module.private[name] = declared

    def _parse_function(self, module: ParsedModule) -> None:
        name, parameters = self.consume(), []
        self.consume("(")
        while not self.accept(")"):
            self._skip_attributes()
            parameter = self.consume()
            self.consume(":")
            parameters.append((parameter, self.parse_type()))
            self.accept(",")
        result = self.parse_type() if self.accept("->") else None
        module.functions[name] = ParsedFunction(parameters, result, self.parse_block())

    def parse_type(self) -> Any:
        name = self.consume()
        if name not in GENERIC_TYPES or self.current_token != "<":
            return name
        self.consume("<")
        arguments: list[Any] = []
        while self.current_token not in (">", ">>"):
            arguments.append(
                self.parse_type()
                if self.current_token[0].isalpha()
                else int(self._parse_count())
            )
            self.accept(",")
        self.consume(">")
        return (name, *arguments)

    def _parse_count(self) -> str:
        return self.consume().rstrip("ui")

    # --- statements ---------------------------------------------------------------

    def parse_block(self) -> list[Node]:
        self.consume("{")
        body = []
        while not self.accept("}"):
            body.append(self.parse_statement())
        return body

    def parse_statement(self) -> Node:
        token = self.current_token
        if token == "{":
            return "block", self.parse_block()
        if token == "if":
            return self._parse_if()
        if token == "for":
            return self._parse_for()
        if token == "while":
            self.consume()
            return "for", None, self.parse_expression(), None, self.parse_block()
        if token == "return":
            self.consume()
            value = None if self.current_token == ";" else self.parse_expression()
            self.consume(";")
            return "return", value
        if token in ("break", "continue"):
            self.consume()
            self.consume(";")
            return (token,)
        statement = self._parse_simple_statement()
        self.consume(";")
        return statement

    def _parse_simple_statement(self) -> Node:
        if self.current_token in ("let", "var", "const"):
            kind = "var" if self.consume() == "var" else "let"
            name = self.consume()
            declared = self.parse_type() if self.accept(":") else None
            value = self.parse_expression() if self.accept("=") else None
            return kind, name, declared, value
        target = self.parse_expression()
        if self.accept("++"):
            return "set", target, "+=", ("num", 1)
        if self.current_token in ASSIGNMENT_OPS:
            return "set", target, self.consume(), self.parse_expression()
        return "do", target

    def _parse_if(self) -> Node:
        self.consume("if")
        condition, then = self.parse_expression(), self.parse_block()
        else_body: list[Node] = []
        if self.accept("else"):
            else_body = (
                [self._parse_if()] if self.current_token == "if" else self.parse_block()
            )
        return "if", condition, then, else_body

    def _parse_for(self) -> Node:
        self.consume("for")
        self.consume("(")
        initializer = (
            None if self.current_token == ";" else self._parse_simple_statement()
        )
        self.consume(";")
        condition = self.parse_expression()
        self.consume(";")
        continuing = (
            None if self.current_token == ")" else self._parse_simple_statement()
        )
        self.consume(")")
        return "for", initializer, condition, continuing, self.parse_block()

    # --- expressions --------------------------------------------------------------

    def parse_expression(self, level: int = 0) -> Node:
        """Parse operators of this precedence and higher."""
        left = self._parse_unary()
        while PRECEDENCE.get(op := self.current_token, -1) >= level:
            self.position += 1
            left = "bin", op, left, self.parse_expression(PRECEDENCE[op] + 1)
        return left

    def _parse_unary(self) -> Node:
        if self.current_token in ("-", "!", "~", "&"):
            op = self.consume()
            return "un", op, self._parse_unary()
        expression = self._parse_primary()
        while self.current_token in ("[", "."):
            if self.accept("["):
                expression = "at", expression, self.parse_expression()
                self.consume("]")
            else:
                self.consume(".")
                expression = "of", expression, self.consume()
        return expression

    def _parse_primary(self) -> Node:
        if self.accept("("):
            inner = self.parse_expression()
            self.consume(")")
            return inner
        token = self.current_token
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            return "num", self.consume()
        if token in GENERIC_TYPES and self.tokens[self.position + 1] == "<":
            generic_type = self.parse_type()
            name, types = generic_type[0], generic_type[1:]
        else:
            name, types = self.consume(), ()
        if not self.accept("("):
            return "id", name
        arguments = []
        while not self.accept(")"):
            arguments.append(self.parse_expression())
            self.accept(",")
        return "call", name, types, arguments


@lru_cache(maxsize=64)
def parse_wgsl(text: str) -> ParsedModule:
    """Parse a WGSL text into a module, which is cached and must not be changed.

    Errors  SyntaxError at what is not known.
    """
    return WgslSourceParser(text).parse_module()
