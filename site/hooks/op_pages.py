"""Pages of ops, one per op and an index of all, written from the registry at every
build.

A new op has its page without an edit here. What is asked of a record is in
`op_facts.py`; the program of each page is made in `op_example.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import op_facts
from docstring_to_markdown import escape_markdown
from op_example import example, output
from op_facts import GpuVariant, first_sentence

from rlxweb.codegen.wgsl_module import STORAGE_TYPES, load_shader_text
from rlxweb.ir.lowering import Kernel
from rlxweb.ir.op import REQUIRED, Attr, Op, registry
from rlxweb.ops import FAMILIES

SHADERS = Path(__file__).resolve().parents[2] / "shaders"
_LOWERING_LABELS = {
    "Expr": "expression, fuses",
    "View": "view, moves no data",
    "Compose": "built from other ops",
    "Kernel": "kernel",
    "ConcatLowering": "one copy per operand",
    "Leaf": "provided, not computed",
    "HostOnly": "CPU only",
}
_MAX_SHAPES = 8
_MAX_OPERANDS = 6
_CPU_ONLY_NOTE = " ([f64 and i64 on the CPU only](../../concepts/numerics.md))"


def ops_by_family() -> dict[str, list[Op]]:
    """Return the ops by family, in the order the families are declared."""
    families: dict[str, list[Op]] = {name: [] for name in FAMILIES}
    for op in sorted(registry, key=lambda entry: entry.name):
        families.setdefault(op.family, []).append(op)
    return {name: ops for name, ops in families.items() if ops}


def family_title(family: str) -> str:
    """Return the heading of a family."""
    return family.upper() if len(family) < 3 else family.capitalize()


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and Markdown of every page."""
    yield "reference/ops/index.md", _index_page()
    for op in registry:
        yield f"reference/ops/{op.name}.md", page(op)


# --- the index ----------------------------------------------------------------------


def _index_page() -> str:
    lines = [
        "# Ops",
        "",
        f"rlxweb has {len(registry)} ops, each declared once. Every page here is "
        "generated from the declaration that the CPU code, the shaders, the cost model "
        "and the tests also use, and ends with a list of the op's files. "
        "[Adding an op](../../howto/add-an-op.md) takes a single statement.",
        "",
    ]
    for family, ops in ops_by_family().items():
        lines += [f"## {family_title(family)}", "", _family_summary(family), ""]
        lines += ["| op | result | on a GPU |", "|---|---|---|"]
        lines += [
            f"| [`{op.name}`]({op.name}.md) | "
            f"{escape_markdown(first_sentence(op.doc))} "
            f"| {_LOWERING_LABELS[op_facts.lowering_name(op)]} |"
            for op in ops
        ]
        lines.append("")
    return "\n".join(lines)


def _family_summary(family: str) -> str:
    """The folder of the family, and the first sentence of its documentation."""
    doc = inspect.getdoc(import_module(f"rlxweb.ops.{family}")) or ""
    return f"`rlxweb/ops/{family}/`: {escape_markdown(first_sentence(doc))}"


# --- a page -------------------------------------------------------------------------


def page(op: Op) -> str:
    """Return the whole page of an op."""
    parts = [
        f"---\ntitle: {op.name}\ndescription: {first_sentence(op.doc)!r}\n---",
        f"# {op.name}",
        escape_markdown(op.doc),
        _facts_table(op),
        _attributes_section(op),
        _shapes_section(op),
        _gpu_section(op),
        _example_section(op),
        _files_section(op),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts_table(op: Op) -> str:
    rows = [("Called as", _call_forms(op)), ("Operands", _operand_count(op))]
    rows += [
        ("Types", _dtypes_text(op)),
        ("Traits", ", ".join(sorted(op.traits)) or "none"),
    ]
    rows += [
        ("Tolerance", _tolerance_text(op)),
        ("Also known as", ", ".join(op.aliases)),
    ]
    if op.fused_from is not None:
        outer, inner = (f"[`{name}`]({name}.md)" for name in op.fused_from)
        rows.append(
            ("Replaces", f"{outer} of {inner}, where the fusion gate allows it")
        )
    lines = ["| | |", "|---|---|"]
    lines += [f"| **{name}** | {text} |" for name, text in rows if text]
    return "\n".join(lines)


def _call_forms(op: Op) -> str:
    forms = [f"`{text}`" for text in [op_facts.operators().get(op.name)] if text]
    forms += [
        f"`{op_facts.signature(name)}`" for name in op_facts.methods().get(op.name, ())
    ]
    return ", ".join(forms) or f'`g.apply("{op.name}", …)`'


def _operand_count(op: Op) -> str:
    min_count, max_count = op.arity_range()
    if max_count is None:
        return f"{min_count} or more"
    return str(min_count) if min_count == max_count else f"{min_count} to {max_count}"


def _dtypes_text(op: Op) -> str:
    """Accepted dtypes, with the dtype of the result where it is another one."""
    dtypes = op_facts.supported_dtypes(op)
    dtype_attr = next((a.name for a in op.attrs if a.kind == "dtype"), "")
    names = [f"`{dtype}`" for dtype in dtypes]
    if any(dtype not in STORAGE_TYPES for dtype in dtypes):
        names[-1] += _CPU_ONLY_NOTE
    outs = set(dtypes.values())
    if dtype_attr:
        return f"{', '.join(names)} → the dtype given by `{dtype_attr}`"
    result_text = f" → `{outs.pop()}`" if len(outs) == 1 and len(dtypes) > 1 else ""
    return ", ".join(names) + result_text


def _tolerance_text(op: Op) -> str:
    """Allowed difference of a result from NumPy in float64."""
    tolerance = op.tolerance
    if op.has_trait("leaf"):
        return ""
    if not (tolerance.rtol or tolerance.atol):
        return "exact"
    parts = []
    if tolerance.rtol:
        parts.append(f"{tolerance.rtol:.2g} of the value")
    if tolerance.atol:
        unit = " of the largest value" if tolerance.relative_to_peak else ""
        parts.append(f"{tolerance.atol:.2g}{unit}")
    return " + ".join(parts) + ", against NumPy in float64"


def _attributes_section(op: Op) -> str:
    if not op.attrs:
        return ""
    lines = ["## Attributes", "", "| name | kind | default |", "|---|---|---|"]
    lines += [
        f"| `{a.name}` | {_attr_kind(a)} | {_attr_default(a)} |" for a in op.attrs
    ]
    return "\n".join(lines)


def _attr_kind(attr: Attr) -> str:
    if attr.allowed:
        return "one of " + ", ".join(f"`{value}`" for value in attr.allowed)
    return attr.kind + (" or None" if attr.is_nullable else "")


def _attr_default(attr: Attr) -> str:
    return "required" if attr.default is REQUIRED else f"`{attr.default!r}`"


def _shapes_section(op: Op) -> str:
    """Table of a few tested shapes, those that differ most in rank first."""
    row_by_ranks: dict[tuple[int, ...], tuple[str, ...]] = {}
    rows: dict[tuple[str, ...], None] = {}
    for case in op_facts.typed_samples(op):
        row = _shape_row(op, case)
        row_by_ranks.setdefault(tuple(t.rank for t in (*case.inputs, case.out)), row)
        rows[row] = None
    if not rows:
        return ""
    selected = list(dict.fromkeys([*row_by_ranks.values(), *rows]))[:_MAX_SHAPES]
    headers = (
        ["operands", "attributes", "result"] if op.attrs else ["operands", "result"]
    )
    lines = [
        "## Shapes",
        "",
        "Some of the shapes that every engine is tested with:",
        "",
    ]
    lines += [f"| {' | '.join(headers)} |", "|---" * len(headers) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in selected]
    return "\n".join(lines)


def _shape_row(op: Op, case: op_facts.TypedSample) -> tuple[str, ...]:
    """Cells of one case; attributes that have their default are left out."""
    shapes = ", ".join(str(list(t.shape)) for t in case.inputs[:_MAX_OPERANDS])
    shapes += ", …" if len(case.inputs) > _MAX_OPERANDS else ""
    defaults = {a.name: a.default for a in op.attrs}
    attrs = ", ".join(
        f"{name}={value}"
        for name, value in case.sample.attrs.items()
        if value != defaults.get(name)
    )
    out = f"`{list(case.out.shape)}`"
    if not op.attrs:
        return f"`{shapes}`", out
    return f"`{shapes}`", f"`{attrs}`" if attrs else "defaults", out


# --- on a GPU -----------------------------------------------------------------------


def _gpu_section(op: Op) -> str:
    write = {
        "Expr": _expression_text,
        "View": _view_text,
        "ConcatLowering": _concat_text,
        "Kernel": _kernel_text,
        "Compose": _decomposition_text,
    }.get(op_facts.lowering_name(op))
    if write is None:
        return ""
    return "\n\n".join(["## On a GPU", *write(op)])


def _expression_text(op: Op) -> list[str]:
    paragraphs = [
        "A scalar WGSL expression: adjacent elementwise ops are fused with it into one "
        "kernel. `x`, `y`, `z` are the operands; `F`, `I`, `U`, `B` stand for f32, "
        "i32, u32, bool or their vec4, `X` for the type of `x`."
    ]
    texts = op_facts.wgsl_expressions(op)
    if list(texts) == [""]:
        paragraphs.append(f"```wgsl\n{texts['']}\n```")
    else:
        rows = [f"| {arrow} | `{text}` |" for arrow, text in texts.items()]
        paragraphs.append("\n".join(["| types | expression |", "|---|---|", *rows]))
    uses = getattr(op.lower, "uses", ())
    if uses:
        paragraphs.append(
            "It calls these functions, as the built-in ones of WGSL guarantee less:"
        )
        paragraphs += [_shader_listing(name) for name in uses]
    return paragraphs


def _view_text(op: Op) -> list[str]:
    return [
        "A view: only offsets and strides change, no data is moved. The op that uses "
        "the result reads the original elements."
    ]


def _concat_text(op: Op) -> list[str]:
    return ["One strided copy per operand, directly to its position in the result."]


def _kernel_text(op: Op) -> list[str]:
    paragraphs = [
        "Hand-written shaders; the device and the shape decide which one runs:"
    ]
    variants = op_facts.gpu_variants(op)
    paragraphs += [_variants_table(op, variants)]
    if isinstance(op.lower, Kernel) and op.lower.fallback is not None:
        paragraphs.append(
            "If none fits the limits of the device, the op is built from "
            f"{_op_links(op_facts.composed_from(op))}."
        )
    return paragraphs + _shader_listings(variants)


def _decomposition_text(op: Op) -> list[str]:
    paragraphs = []
    variants = op_facts.gpu_variants(op)
    if variants:
        paragraphs += [
            "Hand-written shaders, where they fit:",
            _variants_table(op, variants),
        ]
        paragraphs.append("Otherwise the op")
    else:
        paragraphs.append("The op")
    paragraphs[-1] += f" is built from {_op_links(op_facts.composed_from(op))}."
    return [*paragraphs, *_shader_listings(variants)]


def _variants_table(op: Op, variants: Sequence[GpuVariant]) -> str:
    lines = ["| variant | shaders |", "|---|---|"]
    for variant in variants:
        names = [f"`{name}.wgsl`" if name else "generated" for name in variant.shaders]
        label = variant.name.removeprefix(op.name).lstrip(", ") or "any shape"
        lines.append(f"| {label} | {', '.join(names)} |")
    return "\n".join(lines)


def _shader_listings(variants: Sequence[GpuVariant]) -> list[str]:
    names: dict[str, None] = {}
    for variant in variants:
        names |= dict.fromkeys(name for name in variant.shaders if name)
    return [_shader_listing(name) for name in names]


def _shader_listing(name: str) -> str:
    """Source of a shader in a collapsible block."""
    path = next(SHADERS.glob(f"*/{name}.wgsl")).relative_to(SHADERS).as_posix()
    body = f"```wgsl\n{load_shader_text(name).rstrip()}\n```"
    indented = "\n".join(f"    {line}" if line else "" for line in body.split("\n"))
    return f'??? abstract "shaders/{path}"\n\n{indented}'


def _op_links(names: Sequence[str]) -> str:
    linked = [f"[`{name}`]({name}.md)" for name in names]
    return ", ".join(linked[:-1]) + (" and " if linked[:-1] else "") + linked[-1]


def _files_section(op: Op) -> str:
    """Table of the files of the package that make the op."""
    files = op_facts.source_files(op)
    if not files:
        return ""
    lines = ["## Files", "", "| part | files |", "|---|---|"]
    lines += [
        f"| {part} | {', '.join(f'`{path}`' for path in paths)} |"
        for part, paths in files.items()
    ]
    return "\n".join(lines)


def _example_section(op: Op) -> str:
    program = example(op)
    lines = ["## Example", "", "<!-- playground -->", "```python", program, "```"]
    return "\n".join([*lines, "", "```text", output(program), "```", ""])
