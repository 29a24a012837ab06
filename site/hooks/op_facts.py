"""What the registry knows of an op, asked of the record and its samples.

Shapes, dtypes, the ways of a GPU, the methods that add it. Writes no page.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlxweb.backends.agreement import one_op
from rlxweb.backends.webgpu_recipes import Recipes
from rlxweb.compile.rewrites import composition
from rlxweb.errors import RlxError
from rlxweb.gpu.port import Want
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Expr, Kernel
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.kernels.expression import expression
from rlxweb.kernels.source import STORED
from rlxweb.ops.listing import Case, cases
from rlxweb.ops.listing import dtypes as dtypes
from rlxweb.ops.listing import first_sentence as first_sentence
from rlxweb.recipes.variants import Hardware

Types = tuple[TensorType, ...]


# --- how it is called ---------------------------------------------------------------

_OPERATORS = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "x ** y": lambda x, y: x**y,
    "x @ y": lambda x, y: x @ y,
    "x < y": lambda x, y: x < y,
    "x <= y": lambda x, y: x <= y,
    "x > y": lambda x, y: x > y,
    "x >= y": lambda x, y: x >= y,
    "-x": lambda x, y: -x,
    "abs(x)": lambda x, y: abs(x),
    "x[1:3]": lambda x, y: x[1:3],
}


@cache
def operators() -> Mapping[str, str]:
    """Op → the Python operator of a Tensor that adds it."""
    found = {}
    for text, apply in _OPERATORS.items():
        g = Graph()
        made = apply(g.input("x", (4, 4)), g.input("y", (4, 4)))
        found[g.node(made.id).op] = text
    return found


@cache
def methods() -> Mapping[str, tuple[str, ...]]:
    """Op → the methods of Graph that add it, read from their source."""
    found: dict[str, list[str]] = {}
    for owner in Graph.__mro__:
        if owner is object or not owner.__module__.startswith("rlxweb"):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        for method in ast.walk(tree):
            if isinstance(method, ast.FunctionDef) and method.name[0] != "_":
                for name in _added_by(method):
                    found.setdefault(name, []).append(method.name)
            elif isinstance(method, ast.Assign):
                for name in _added_by(method, "adding"):
                    found.setdefault(name, []).append(method.targets[0].id)
    return {name: tuple(dict.fromkeys(them)) for name, them in found.items()}


def _added_by(code: ast.AST, function: str = "") -> Iterator[str]:
    """Ops named in calls of `function`, or of a method of self."""
    for call in ast.walk(code):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        if function:
            names_op = getattr(call.func, "id", "") == function
        else:
            names_op = getattr(getattr(call.func, "value", None), "id", "") == "self"
        first = call.args[0]
        if names_op and isinstance(first, ast.Constant) and first.value in registry:
            yield first.value


def signature(method: str) -> str:
    """How a method of Graph is called: `g.softmax(x, axis=-1)`."""
    parameters = inspect.signature(getattr(Graph, method)).parameters.values()
    shown = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in parameters
        if p.name != "self"
    ]
    return f"g.{method}{inspect.Signature(shown)}".replace("'", '"')


# --- on a GPU -----------------------------------------------------------------------


def kind(op: Op) -> str:
    """How it becomes device work, in a word: the lowering's own name."""
    return type(op.lower).__name__


def wgsl(op: Op) -> dict[str, str]:
    """The expression, with its attributes put in; by dtype where that matters."""
    if not isinstance(op.lower, Expr):
        return {}
    if isinstance(op.lower.text, str):
        return {"": op.lower.text}
    found: dict[str, dict[str, Case]] = {}
    for case in cases(op):
        if all(t.dtype in STORED for t in (*case.inputs, case.out)):
            text = _expression(op, op.lower, case)
            found.setdefault(_arrow(case), {}).setdefault(text, case)
    return {
        # an expression that the shape goes into is shown once, with that shape
        arrow if len(texts) == 1 else f"{arrow} of shape {list(case.out.shape)}": text
        for arrow, texts in found.items()
        for text, case in [max(texts.items(), key=lambda one: one[1].out.rank)]
    }


def _expression(op: Op, lower: Expr, case: Case) -> str:
    graph = one_op(op, case.sample, case.sample.inputs)
    node = graph.node(graph.outputs[0])
    kinds = [t.dtype for t in case.inputs]
    return expression(lower, "xyz"[: len(kinds)], kinds, node, (case.inputs, case.out))


def _arrow(case: Case) -> str:
    taken = dict.fromkeys(t.dtype.label for t in case.inputs)
    return f"{', '.join(taken)} → {case.out.dtype}"


@dataclass(frozen=True, slots=True)
class Way:
    """One way an op runs on a GPU: its name, and the shaders it starts."""

    name: str
    shaders: tuple[str, ...]


def ways(op: Op) -> tuple[Way, ...]:
    """The ways taken for its samples, with "" for shaders that are generated."""
    if not isinstance(op.lower, Kernel | Compose):
        return ()
    # a usual GPU grants what we ask for
    recipes = Recipes(Hardware(Want().limits, frozenset({"subgroup"})))
    found: dict[str, list[str]] = {}
    for case in cases(op):
        if not all(t.dtype in STORED for t in (*case.inputs, case.out)):
            continue  # only the CPU has the type
        chosen = recipes.choose(op, case.inputs, case.out, case.attrs)
        if chosen is None:
            continue
        shaders = found.setdefault(chosen.variant, [])
        for launch in chosen.launches:
            name = _file_of(launch.shader.source)
            if name not in shaders:
                shaders.append(name)
    return tuple(Way(name, tuple(shaders)) for name, shaders in found.items())


def _file_of(source: str) -> str:
    """The name of the file of `shaders/` that a module ends with; "" for none."""
    files = _shader_files().items()
    return next((name for name, text in files if source.endswith(f"\n{text}")), "")


@cache
def _shader_files() -> Mapping[str, str]:
    folder = Path(__file__).resolve().parents[2] / "shaders"
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.wgsl")}


def parts(op: Op) -> tuple[str, ...]:
    """The ops it is built from, where it is built from others; leaves left out."""
    how = composition(op)
    if how is None:
        return ()
    found: dict[str, None] = {}
    for case in cases(op):
        g = Graph()
        xs = [g.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(case.inputs)]
        try:
            made: Tensor = how.build(g, case.attrs, *xs)
        except RlxError:
            continue  # a composition may be for some operands only
        found |= {n.op: None for n in made.graph.nodes()}
    # a long op may be cut into shorter ones of its own kind
    found.pop(op.name, None)
    return tuple(n for n in found if not registry.get(n).has("leaf"))
