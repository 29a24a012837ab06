"""One page per op and an index of all, written from the registry at every build.

A new op has its page without an edit here. What is asked of a record is in
`op_facts.py`; the program of each page is made in `op_example.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module

import op_facts
from docstrings import prose
from op_example import example, output
from op_facts import Way, first_sentence

from rlxweb.ir.lowering import Kernel
from rlxweb.ir.op import REQUIRED, Attr, Op, registry
from rlxweb.kernels.source import STORED, shader_text
from rlxweb.ops import FAMILIES

_MEANT = {
    "Expr": "expression, fuses",
    "View": "view, moves no data",
    "Compose": "built from other ops",
    "Kernel": "kernel",
    "Join": "one copy per operand",
    "Leaf": "given, not computed",
    "HostOnly": "CPU only",
}
_SHAPES_SHOWN = 8
_OPERANDS_SHOWN = 6
_ON_CPU = " ([f64 and i64 on the CPU only](../../concepts/numerics.md))"


def groups() -> dict[str, list[Op]]:
    """The ops by family, in the order the families are declared."""
    found: dict[str, list[Op]] = {name: [] for name in FAMILIES}
    for op in sorted(registry, key=lambda one: one.name):
        found.setdefault(op.family, []).append(op)
    return {name: ops for name, ops in found.items() if ops}


def title(family: str) -> str:
    """A heading for a family."""
    return family.upper() if len(family) < 3 else family.capitalize()


def pages() -> Iterator[tuple[str, str]]:
    """(path, Markdown) of every page."""
    yield "reference/ops/index.md", _index()
    for op in registry:
        yield f"reference/ops/{op.name}.md", page(op)


# --- the index ----------------------------------------------------------------------


def _index() -> str:
    lines = [
        "# Ops",
        "",
        f"The vocabulary: {len(registry)} ops, each declared once. Every page here is "
        "made from the op's own record, the one that the CPU, the shaders, the cost "
        "model and the tests read. [Adding one](../../howto/add-an-op.md) takes a "
        "single statement.",
        "",
    ]
    for family, ops in groups().items():
        lines += [f"## {title(family)}", "", _about(family), ""]
        lines += ["| op | what it gives | on a GPU |", "|---|---|---|"]
        lines += [
            f"| [`{op.name}`]({op.name}.md) | {prose(first_sentence(op.doc))} "
            f"| {_MEANT[op_facts.kind(op)]} |"
            for op in ops
        ]
        lines.append("")
    return "\n".join(lines)


def _about(family: str) -> str:
    """The first sentence of the module that declares the family."""
    doc = inspect.getdoc(import_module(f"rlxweb.ops.{family}")) or ""
    return prose(first_sentence(doc))


# --- a page -------------------------------------------------------------------------


def page(op: Op) -> str:
    """The whole page of an op."""
    parts = [
        f"---\ntitle: {op.name}\ndescription: {first_sentence(op.doc)!r}\n---",
        f"# {op.name}",
        prose(op.doc),
        _facts(op),
        _attributes(op),
        _shapes(op),
        _on_a_gpu(op),
        _example(op),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(op: Op) -> str:
    rows = [("Called as", _called(op)), ("Operands", _operands(op))]
    rows += [("Types", _types(op)), ("Traits", ", ".join(sorted(op.traits)) or "none")]
    rows += [("Tolerance", _tolerance(op)), ("Also known as", ", ".join(op.aliases))]
    if op.fused_from is not None:
        outer, inner = (f"[`{name}`]({name}.md)" for name in op.fused_from)
        rows.append(("Stands for", f"{outer} of {inner}, where the gate lets it"))
    lines = ["| | |", "|---|---|"]
    lines += [f"| **{name}** | {text} |" for name, text in rows if text]
    return "\n".join(lines)


def _called(op: Op) -> str:
    named = [f"`{text}`" for text in [op_facts.operators().get(op.name)] if text]
    named += [
        f"`{op_facts.signature(name)}`" for name in op_facts.methods().get(op.name, ())
    ]
    return ", ".join(named) or f'`g.apply("{op.name}", …)`'


def _operands(op: Op) -> str:
    least, most = op.arity_range()
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _types(op: Op) -> str:
    """Each accepted type, with what comes out where that is another one."""
    found = op_facts.dtypes(op)
    follows = next((a.name for a in op.attrs if a.kind == "dtype"), "")
    names = [f"`{dtype}`" for dtype in found]
    if any(dtype not in STORED for dtype in found):
        names[-1] += _ON_CPU
    outs = set(found.values())
    if follows:
        return f"{', '.join(names)} → the one `{follows}` names"
    gives = f" → `{outs.pop()}`" if len(outs) == 1 and len(found) > 1 else ""
    return ", ".join(names) + gives


def _tolerance(op: Op) -> str:
    """What a result may differ from NumPy in float64."""
    allowed = op.tolerance
    if op.has("leaf"):
        return ""
    if not (allowed.rtol or allowed.atol):
        return "exact"
    parts = []
    if allowed.rtol:
        parts.append(f"{allowed.rtol:.2g} of the value")
    if allowed.atol:
        of = " of the largest value" if allowed.relative_to_peak else ""
        parts.append(f"{allowed.atol:.2g}{of}")
    return " + ".join(parts) + ", against NumPy in float64"


def _attributes(op: Op) -> str:
    if not op.attrs:
        return ""
    lines = ["## Attributes", "", "| name | kind | default |", "|---|---|---|"]
    lines += [f"| `{a.name}` | {_kind(a)} | {_default(a)} |" for a in op.attrs]
    return "\n".join(lines)


def _kind(attr: Attr) -> str:
    if attr.allowed:
        return "one of " + ", ".join(f"`{value}`" for value in attr.allowed)
    return attr.kind + (" or nothing" if attr.optional else "")


def _default(attr: Attr) -> str:
    return "required" if attr.default is REQUIRED else f"`{attr.default!r}`"


def _shapes(op: Op) -> str:
    """A few of the shapes it is tested on, those that differ most in rank first."""
    first: dict[tuple[int, ...], tuple[str, ...]] = {}
    rows: dict[tuple[str, ...], None] = {}
    for case in op_facts.cases(op):
        row = _shape_row(op, case)
        first.setdefault(tuple(t.rank for t in (*case.inputs, case.out)), row)
        rows[row] = None
    if not rows:
        return ""
    shown = list(dict.fromkeys([*first.values(), *rows]))[:_SHAPES_SHOWN]
    heads = ["operands", "attributes", "result"] if op.attrs else ["operands", "result"]
    lines = ["## Shapes", "", "Some of those that every engine is tested on:", ""]
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in shown]
    return "\n".join(lines)


def _shape_row(op: Op, case: op_facts.Case) -> tuple[str, ...]:
    """The cells of one case; attributes that have their default are left out."""
    taken = ", ".join(str(list(t.shape)) for t in case.inputs[:_OPERANDS_SHOWN])
    taken += ", …" if len(case.inputs) > _OPERANDS_SHOWN else ""
    defaults = {a.name: a.default for a in op.attrs}
    attrs = ", ".join(
        f"{name}={value}"
        for name, value in case.sample.attrs.items()
        if value != defaults.get(name)
    )
    out = f"`{list(case.out.shape)}`"
    if not op.attrs:
        return f"`{taken}`", out
    return f"`{taken}`", f"`{attrs}`" if attrs else "defaults", out


# --- on a GPU -----------------------------------------------------------------------


def _on_a_gpu(op: Op) -> str:
    written = {
        "Expr": _as_expression,
        "View": _as_view,
        "Join": _as_join,
        "Kernel": _as_kernel,
        "Compose": _as_composition,
    }.get(op_facts.kind(op))
    if written is None:
        return ""
    return "\n\n".join(["## On a GPU", *written(op)])


def _as_expression(op: Op) -> list[str]:
    said = [
        "A scalar WGSL expression: elementwise neighbours are fused with it into one "
        "kernel. `x`, `y`, `z` are the operands; `F`, `I`, `U`, `B` stand for f32, "
        "i32, u32, bool or their vec4, `X` for the type of `x`."
    ]
    texts = op_facts.wgsl(op)
    if list(texts) == [""]:
        said.append(f"```wgsl\n{texts['']}\n```")
    else:
        rows = [f"| {arrow} | `{text}` |" for arrow, text in texts.items()]
        said.append("\n".join(["| types | expression |", "|---|---|", *rows]))
    uses = getattr(op.lower, "uses", ())
    if uses:
        said.append("It calls functions of ours, for WGSL's own promise less:")
        said += [_source(f"include/{name}") for name in uses]
    return said


def _as_view(op: Op) -> list[str]:
    return [
        "A view: arithmetic on offsets and strides. It costs nothing; whatever reads "
        "it next reads through it."
    ]


def _as_join(op: Op) -> list[str]:
    return ["One strided copy per operand, straight into its place in the result."]


def _as_kernel(op: Op) -> list[str]:
    said = ["Hand-written shaders. Which one runs depends on the device and shape:"]
    ways = op_facts.ways(op)
    said += [_ways_table(op, ways)]
    if isinstance(op.lower, Kernel) and op.lower.otherwise is not None:
        said.append(
            "Where none fits the device's limits it is built from "
            f"{_links(op_facts.parts(op))}."
        )
    return said + _sources(ways)


def _as_composition(op: Op) -> list[str]:
    said = []
    ways = op_facts.ways(op)
    if ways:
        said += ["Shaders of its own, where they fit:", _ways_table(op, ways)]
        said.append("Otherwise it")
    else:
        said.append("It")
    said[-1] += f" is built from {_links(op_facts.parts(op))}."
    return [*said, *_sources(ways)]


def _ways_table(op: Op, ways: Sequence[Way]) -> str:
    lines = ["| way | shaders |", "|---|---|"]
    for way in ways:
        names = [f"`{name}.wgsl`" if name else "generated" for name in way.shaders]
        how = way.name.removeprefix(op.name).lstrip(", ") or "any shape"
        lines.append(f"| {how} | {', '.join(names)} |")
    return "\n".join(lines)


def _sources(ways: Sequence[Way]) -> list[str]:
    names: dict[str, None] = {}
    for way in ways:
        names |= dict.fromkeys(name for name in way.shaders if name)
    return [_source(name) for name in names]


def _source(name: str) -> str:
    """A shader's text, folded away."""
    body = f"```wgsl\n{shader_text(name).rstrip()}\n```"
    inside = "\n".join(f"    {line}" if line else "" for line in body.split("\n"))
    return f'??? abstract "shaders/{name}.wgsl"\n\n{inside}'


def _links(names: Sequence[str]) -> str:
    linked = [f"[`{name}`]({name}.md)" for name in names]
    return ", ".join(linked[:-1]) + (" and " if linked[:-1] else "") + linked[-1]


def _example(op: Op) -> str:
    program = example(op)
    lines = ["## Example", "", "<!-- playground -->", "```python", program, "```"]
    return "\n".join([*lines, "", "```text", output(program), "```", ""])
