"""Parts of the reference that a table says better than a list of docstrings.

The tree of errors, and every method of Graph that adds an op. Read from the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import op_facts
from docstrings import prose

from rlxweb import errors
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.listing import composed
from rlxweb.tracing import vocabulary


def error_tree() -> str:
    """The classes as a tree: what they mean, which of Python's own they also are."""
    lines = ["| error | also | exit code | when |", "|---|---|---:|---|"]
    lines += _branch(errors.RlxError, 0)
    return "\n".join(lines)


def _branch(kind: type[errors.RlxError], depth: int) -> Iterator[str]:
    also = [b.__name__ for b in kind.__bases__ if not issubclass(b, errors.RlxError)]
    shown = ", ".join(f"`{name}`" for name in also if name != "Exception")
    doc = (inspect.getdoc(kind) or "").split("\n")[0]
    indent = "&emsp;" * depth
    label = f"{indent}[`{kind.__name__}`][rlxweb.errors.{kind.__name__}]"
    yield f"| {label} | {shown} | {kind.exit_code} | {prose(doc)} |"
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _branch(below, depth + 1)


def error_classes() -> str:
    """One mkdocstrings entry for each class of the page, in the order of the file."""
    names = [
        name
        for name, found in vars(errors).items()
        if inspect.isclass(found) and found.__module__ == errors.__name__
    ]
    return "\n\n".join(f"::: rlxweb.errors.{name}" for name in names)


def methods() -> str:
    """Every method of Graph that adds ops, by the family of the first it adds."""
    adds: dict[str, list[str]] = {}
    for op, names in op_facts.methods().items():
        for name in names:
            adds.setdefault(name, []).append(op)
    lines = ["| method | op | what it gives |", "|---|---|---|"]
    order = {op.name: at for at, op in enumerate(registry)}
    for name, ops in sorted(adds.items(), key=lambda one: order[one[1][0]]):
        if registry.get(ops[0]).family == "leaf":
            continue
        linked = ", ".join(f"[`{op}`](ops/{op}.md)" for op in ops)
        doc = inspect.getdoc(getattr(Graph, name)) or registry.get(ops[0]).doc
        said = prose(op_facts.first_sentence(doc))
        lines.append(f"| `{op_facts.signature(name)}` | {linked} | {said} |")
    lines += [
        f"| `{op_facts.signature(one.name)}` | | {prose(one.summary)} |"
        for one in composed()
        if one.name not in adds
    ]
    return "\n".join(lines)


def numpy_functions() -> str:
    """The functions of NumPy that a traced function may call, room by room."""
    rooms: dict[str, list[str]] = {}
    for name in vocabulary.names():
        room, _, function = name.rpartition(".")
        rooms.setdefault(room, []).append(f"`{function}`")
    return "\n\n".join(
        f"**`{room}`**: {' '.join(every)}" for room, every in rooms.items()
    )
