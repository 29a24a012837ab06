"""Tables of the reference that read better than a list of docstrings.

The tree of errors, and every method of Graph that adds an op. Read from the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import op_facts
from docstring_to_markdown import escape_markdown

from rlxweb.core import errors
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.listing import composed_methods
from rlxweb.trace import supported_functions


def error_tree() -> str:
    """Return the error classes as a tree: their meaning, and their bases among Python's
    own.
    """
    lines = ["| error | built-in base | exit code | meaning |", "|---|---|---:|---|"]
    lines += _error_rows(errors.RlxError, 0)
    return "\n".join(lines)


def _error_rows(error_class: type[errors.RlxError], depth: int) -> Iterator[str]:
    also = [
        b.__name__ for b in error_class.__bases__ if not issubclass(b, errors.RlxError)
    ]
    bases_text = ", ".join(f"`{name}`" for name in also if name != "Exception")
    doc = (inspect.getdoc(error_class) or "").split("\n")[0]
    indent = "&emsp;" * depth
    label = f"{indent}[`{error_class.__name__}`][rlxweb.errors.{error_class.__name__}]"
    yield (
        f"| {label} | {bases_text} | {error_class.exit_code} | {escape_markdown(doc)} |"
    )
    for subclass in error_class.__subclasses__():
        if subclass.__module__ == errors.__name__:
            yield from _error_rows(subclass, depth + 1)


def error_classes() -> str:
    """Return one mkdocstrings entry for each error class, in the order of the file."""
    names = [
        name
        for name, member in vars(errors).items()
        if inspect.isclass(member) and member.__module__ == errors.__name__
    ]
    return "\n\n".join(f"::: rlxweb.errors.{name}" for name in names)


def methods() -> str:
    """Return a table of every method of Graph that adds ops, by the family of the first
    it adds.
    """
    adds: dict[str, list[str]] = {}
    for op, names in op_facts.methods().items():
        for name in names:
            adds.setdefault(name, []).append(op)
    lines = ["| method | op | result |", "|---|---|---|"]
    order = {op.name: at for at, op in enumerate(registry)}
    for name, ops in sorted(adds.items(), key=lambda entry: order[entry[1][0]]):
        if registry.get(ops[0]).family == "leaf":
            continue
        linked = ", ".join(f"[`{op}`](ops/{op}.md)" for op in ops)
        doc = inspect.getdoc(getattr(Graph, name)) or registry.get(ops[0]).doc
        summary = escape_markdown(op_facts.first_sentence(doc))
        lines.append(f"| `{op_facts.signature(name)}` | {linked} | {summary} |")
    lines += [
        f"| `{op_facts.signature(entry.name)}` | | {escape_markdown(entry.summary)} |"
        for entry in composed_methods()
        if entry.name not in adds
    ]
    return "\n".join(lines)


def numpy_functions() -> str:
    """Return the functions of NumPy that a traced function may call, by namespace."""
    functions_by_namespace: dict[str, list[str]] = {}
    for name in supported_functions.supported_function_names():
        namespace, _, function = name.rpartition(".")
        functions_by_namespace.setdefault(namespace, []).append(f"`{function}`")
    return "\n\n".join(
        f"**`{namespace}`**: {' '.join(functions)}"
        for namespace, functions in functions_by_namespace.items()
    )
