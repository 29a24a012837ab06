"""Validation of names for JavaScript and file systems: modules, inputs, outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlxweb.core.errors import UsageError, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.output_names import output_names as named_outputs

_MODULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED_NAMES = {"page"}


def check_module_name(name: str, context: str) -> str:
    """Return a name that is valid for a file and a module; raise UsageError
    otherwise.
    """
    if not isinstance(name, str):
        raise UsageError(context, f"the name is {shown(name)}", "expected a string")
    if (
        not _MODULE_NAME.fullmatch(name)
        or name in _RESERVED_NAMES
        or name.endswith(".")
    ):
        raise UsageError(
            context,
            f"{name!r} is not a valid module name",
            "expected at most 64 characters: letters, digits, '.', '_' and '-', "
            "beginning with a letter or a digit and not ending with '.'; 'page' is "
            "reserved",
            "choose another name",
        )
    return name


def check_output_names(
    graph: Graph, requested: Sequence[str] | None, context: str
) -> tuple[str, ...]:
    """Return a name for each output; raise UsageError for a wrong number of names or
    duplicates.
    """
    names = named_outputs(graph, requested, context)
    for name in names if requested is not None else ():
        _check_property_name(name, "output", context)
    return names


def check_input_names(graph: Graph, context: str) -> None:
    """Raise UsageError if an input's name cannot be a JavaScript property."""
    for name in graph.named("input"):
        _check_property_name(name, "input", context)


def _check_property_name(name: object, kind: str, context: str) -> None:
    """Raise UsageError for a name that cannot be a property, such as "__proto__", which
    JavaScript reserves for inheritance.
    """
    if not isinstance(name, str) or not name or name == "__proto__":
        raise UsageError(
            context,
            f"{kind} {shown(name)} cannot be the name of a JavaScript property",
            hint=f"rename the {kind}",
        )
