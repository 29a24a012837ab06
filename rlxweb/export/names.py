"""Names that JavaScript and a file system can carry: modules, inputs, outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlxweb.errors import UsageError, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.output_names import output_names as named_outputs

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TAKEN = {"page"}


def module_name(name: str, doing: str) -> str:
    """The name, fit for a file and a module. Errors  UsageError."""
    if not isinstance(name, str):
        raise UsageError(doing, f"its name is {shown(name)}", "a text is wanted")
    if not _NAME.fullmatch(name) or name in _TAKEN or name.endswith("."):
        raise UsageError(
            doing,
            f"{name!r} cannot be the name of a module",
            "letters, digits, '.', '_' and '-', up to 64, not 'page'",
            "give a name",
        )
    return name


def output_names(
    graph: Graph, given: Sequence[str] | None, doing: str
) -> tuple[str, ...]:
    """A name for each output. Errors  UsageError for a wrong number, twice the same."""
    names = named_outputs(graph, given, doing)
    for name in names if given is not None else ():
        _check_key(name, "output", doing)
    return names


def check_inputs(graph: Graph, doing: str) -> None:
    """Errors  UsageError for one that cannot be a property."""
    for name in graph.named("input"):
        _check_key(name, "input", doing)


def _check_key(name: object, what: str, doing: str) -> None:
    """JavaScript sets this one aside for what an object inherits from."""
    if not isinstance(name, str) or not name or name == "__proto__":
        raise UsageError(
            doing,
            f"{what} {shown(name)} cannot be a property of a JavaScript object",
            hint="give it another name",
        )
