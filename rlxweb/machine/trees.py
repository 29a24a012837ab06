"""Trees of WGSL walked: names, records and functions, whatever the instructions are.

Functions are put in where they are called. What an operator is, a function that WGSL
has, a number in all lanes or a branch is said by who writes the instructions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from rlxweb.errors import Unsupported
from rlxweb.machine.wgsl import (
    Apply,
    Library,
    Member,
    Name,
    Number,
    Put,
    ReturnIf,
    Tree,
)

Value: TypeAlias = str
Kind: TypeAlias = str
"""F, I, U, B; "truth" is one for all lanes, "number" one that has no type yet."""


@dataclass(frozen=True, slots=True)
class Of:
    """A value of a kind."""

    kind: Kind
    value: Value


Record: TypeAlias = "dict[str, Of]"
Result: TypeAlias = "Of | Record"
Branch: TypeAlias = "Callable[[], Result]"


def refused(what: str) -> Unsupported:
    """For what is not known here: it is computed by other means."""
    return Unsupported("compile an expression", f"{what} is not understood")


class Walk(ABC):
    """Writes trees as instructions.

    library  the functions and records that expressions may name
    depth    how many functions this is inside of
    """

    library: Library
    depth: int

    @abstractmethod
    def splat(self, kind: Kind, number: float) -> Of:
        """A number in every lane."""

    @abstractmethod
    def operator(self, sign: str, given: list[Result]) -> Of | None:
        """An operator on values; None where it is none."""

    @abstractmethod
    def builtin(self, name: str, given: list[Result]) -> Result | None:
        """A function that WGSL has; None where it is none."""

    @abstractmethod
    def branch(self, condition: Value, yes: Branch, no: Branch) -> Result:
        """One or the other, by a truth that is one for all lanes."""

    @abstractmethod
    def compared(self, order: str, a: Of, b: Of) -> Of:
        """Truths: "lt", "le", "gt", "ge", "eq" or "ne" of two of one kind."""

    @abstractmethod
    def select(self, no: Of, yes: Of, where: Of) -> Of:
        """Lane by lane one of two of one kind."""

    @abstractmethod
    def absolute(self, one: Of) -> Of:
        """Without its sign."""

    @abstractmethod
    def conversion(self, kind: Kind, one: Of) -> Of:
        """A float, whole number or truth as another one of these; truths are not made
        here, nor whole numbers of others.
        """

    def rounded(self, one: Of) -> Of:
        """A float to the nearest half. Errors  Unsupported where there are none."""
        raise refused("a half")

    def as_kind(self, kind: Kind, one: Of, convert: bool = False) -> Of:
        """A value of a kind: a number that had none, or what is to be converted."""
        if one.kind == kind:
            return one
        if one.kind == "number":
            text = one.value.removeprefix("-")
            size = float(text) if any(c in text for c in ".eE") else int(text, 0)
            return self.splat(kind, -size if one.value[0] == "-" else size)
        if not convert:
            return one
        if {kind, one.kind} == {"I", "U"}:
            return Of(kind, one.value)
        if kind == "B":
            return self.compared("ne", one, self.splat(one.kind, 0))
        return self.conversion(kind, one)

    def extreme(self, name: str, a: Of, b: Of) -> Of:
        """The "min" or "max" of two of one kind; a, where a comparison says no."""
        other = self.compared("lt" if name == "min" else "gt", b, a)
        return self.select(a, b, other)

    def chosen(self, name: str, every: list[Of]) -> Of | None:
        """abs, min, max, clamp and select; None for another function."""
        if name == "abs":
            return self.absolute(*every)
        if name in ("min", "max"):
            return self.extreme(name, *self.alike(*every))
        if name == "clamp":
            low = self.extreme("max", *self.alike(*every[:2]))
            return self.extreme("min", *self.alike(low, every[2]))
        if name == "select":
            return self.select(*self.alike(*every[:2]), every[2])
        return None

    def of(self, tree: Tree, names: Mapping[str, Result]) -> Of:
        """The value of a tree. Errors  Unsupported."""
        found = self._result(tree, names)
        if isinstance(found, dict):
            raise refused("a record as a number")
        return found

    def converted(self, kind: Kind, one: Of) -> Of:
        """The value as another kind."""
        return self.as_kind(kind, one, convert=True)

    def _result(self, tree: Tree, names: Mapping[str, Result]) -> Result:
        if isinstance(tree, Number):
            return number_of(tree.text)
        if isinstance(tree, Name):
            if tree.name in ("true", "false"):
                return self.splat("B", tree.name == "true")
            if tree.name not in names:
                raise refused(f"the name {tree.name}")
            return names[tree.name]
        if isinstance(tree, Member):
            record = self._result(tree.record, names)
            if not isinstance(record, dict):
                raise refused(f"part {tree.name} of a number")
            return record[tree.name]
        return self._applied(tree, names)

    def _applied(self, tree: Apply, names: Mapping[str, Result]) -> Result:
        given = [self._result(one, names) for one in tree.operands]
        if tree.name in self.library.records:
            parts = self.library.records[tree.name]
            return dict(zip(parts, plain(given), strict=True))
        own = self.operator(tree.name, given) or self.builtin(tree.name, given)
        if own is not None:
            return own
        return self.call(tree.name, given)

    def call(self, name: str, given: list[Result]) -> Result:
        """A function of the library. Errors  Unsupported."""
        if name not in self.library.functions:
            raise refused(f"the function {name}")
        function = self.library.functions[name]
        inside: dict[str, Result] = {}
        for (own, kind), one in zip(function.parameters, given, strict=True):
            inside[own] = self.as_kind(kind, one) if isinstance(one, Of) else one
        self.depth += 1
        found = self._run(function.lines, inside)
        self.depth -= 1
        return found

    def _run(
        self, lines: tuple[Put | ReturnIf, ...], names: dict[str, Result]
    ) -> Result:
        for at, line in enumerate(lines):
            if isinstance(line, Put):
                names[line.name] = self._result(line.value, names)
                continue
            if line.condition is None:
                return self._result(line.value, names)
            return self.branch(
                self.of(line.condition, names).value,
                partial(self._result, line.value, dict(names)),
                partial(self._run, lines[at + 1 :], dict(names)),
            )
        raise refused("a function without an end")

    def alike(self, a: Of, b: Of) -> tuple[Of, Of]:
        """Both of one kind. Errors  Unsupported."""
        kind = b.kind if a.kind == "number" else a.kind
        a, b = self.as_kind(kind, a), self.as_kind(kind, b)
        if a.kind != b.kind:
            raise refused(f"{a.kind} beside {b.kind}")
        return a, b


ORDER: Final = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
"""Comparisons, by their signs."""


def plain(given: list[Result]) -> list[Of]:
    """None of them a record. Errors  Unsupported."""
    if any(isinstance(one, dict) for one in given):
        raise refused("a record as a number")
    return [one for one in given if isinstance(one, Of)]


def number_of(text: str) -> Of:
    """A number as it is spelled."""
    if text.startswith("0x"):
        return Of("number", str(int(text.removesuffix("u"), 16)))
    return Of("number", text.removesuffix("u"))
