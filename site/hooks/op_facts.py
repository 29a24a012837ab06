"""Facts about an op, read from its record and its samples.

Shapes, dtypes, kernel variants of a GPU, the methods that add it, the files that make
it. Writes no page.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rlxweb.codegen.elementwise_wgsl import substitute_expression
from rlxweb.codegen.wgsl_module import STORAGE_TYPES
from rlxweb.engines.reference_comparison import single_op_graph
from rlxweb.engines.webgpu.kernel_selection import Hardware, KernelSelector
from rlxweb.errors import RlxError
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Expr, Kernel
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.kernel_variant import KERNEL_MODULES
from rlxweb.ops.listing import TypedSample, typed_samples
from rlxweb.ops.listing import first_sentence as first_sentence
from rlxweb.ops.listing import supported_dtypes as supported_dtypes

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
    """Return a map from an op to the Python operator of a Tensor that adds it."""
    texts = {}
    for text, apply in _OPERATORS.items():
        g = Graph()
        result = apply(g.input("x", (4, 4)), g.input("y", (4, 4)))
        texts[g.node(result.id).op] = text
    return texts


@cache
def methods() -> Mapping[str, tuple[str, ...]]:
    """Return a map from an op to the methods of Graph that add it: the one of its name,
    else those that add no other op.
    """
    methods_by_op: dict[str, list[str]] = {
        op.name: [op.name] for op in registry if hasattr(Graph, op.name)
    }
    for name, function in registry.graph_methods.items():
        added = set(_applied_ops(function))
        if len(added) == 1 and not hasattr(Graph, *added):
            methods_by_op.setdefault(added.pop(), []).append(name)
    return {op: tuple(names) for op, names in methods_by_op.items()}


def _applied_ops(function: Callable[..., object]) -> Iterator[str]:
    """Yield the ops that a function names in calls of `apply`."""
    for call in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(call, ast.Call) and call.args:
            first = call.args[0]
            is_apply = getattr(call.func, "attr", "") == "apply"
            if is_apply and isinstance(first, ast.Constant):
                yield first.value


def signature(method: str) -> str:
    """Return the call of a method of Graph: `g.softmax(x, axis=-1)`."""
    parameters = inspect.signature(getattr(Graph, method)).parameters.values()
    public_parameters = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in parameters
        if p.name != "self"
    ]
    return f"g.{method}{inspect.Signature(public_parameters)}".replace("'", '"')


# --- where it is written ------------------------------------------------------------


def source_files(op: Op) -> dict[str, tuple[str, ...]]:
    """Return the files of the package that make an op, by their part in it; {} for one
    of the caller's own.
    """
    if not op.module:
        return {}
    method = registry.graph_methods.get(op.name)
    gradient = list(_ops_modules(op.vjp)) if op.vjp else []
    modules = {
        "record": [op.module],
        "method of `Graph`": [method.__module__] if method else [],
        "gradient": gradient,
        "GPU": [*_plan_modules(op), *_variant_modules("wgsl", op.name)],
        "CPU": [
            *_variant_modules("cpu", op.name),
            *_variant_modules("native program", op.name),
        ],
    }
    return {
        part: tuple(f"{name.replace('.', '/')}.py" for name in dict.fromkeys(names))
        for part, names in modules.items()
        if names
    }


def _ops_modules(function: Any) -> Iterator[str]:
    """Yield the modules of `rlxweb.ops` that define a function, or those from which
    another's were made.
    """
    if isinstance(function, tuple):
        for each in function:
            yield from _ops_modules(each)
    elif isinstance(function, partial):
        yield from _ops_modules(function.func)
    elif getattr(function, "__module__", "").startswith("rlxweb.ops."):
        yield function.__module__
    else:
        for cell in getattr(function, "__closure__", None) or ():
            yield from _ops_modules(cell.cell_contents)


def _plan_modules(op: Op) -> list[str]:
    """Return the modules that plan an op's own kernel: those in its family's `wgsl`
    that its rule uses, else the rule's.
    """
    if not isinstance(op.lower, Kernel):
        return []
    rule: Any = op.lower.plan
    rule = rule.func if isinstance(rule, partial) else rule
    folder = f"rlxweb.ops.{op.family}.wgsl"
    return [*_modules_used(rule, folder, set())] or [rule.__module__]


def _modules_used(function: Any, folder: str, seen: set[object]) -> Iterator[str]:
    """Yield the modules in a folder whose functions and classes a function uses, by way
    of other functions of its module too.
    """
    if function in seen or not inspect.isfunction(function):
        return
    seen.add(function)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        module = getattr(used, "__module__", None) or ""
        if module.startswith(folder):
            yield module
        elif module == function.__module__:
            yield from _modules_used(used, folder, seen)


def _variant_modules(engine: str, op: str) -> Iterator[str]:
    """Yield the modules with kernel variants of an op for one kind of engine."""
    for name in KERNEL_MODULES[engine]:
        module = f"rlxweb.ops.{name}"
        if any(variant.op == op for variant in import_module(module).KERNELS):
            yield module


# --- on a GPU -----------------------------------------------------------------------


def lowering_name(op: Op) -> str:
    """Return the class name of the op's lowering."""
    return type(op.lower).__name__


def wgsl_expressions(op: Op) -> dict[str, str]:
    """Return the WGSL expression with its attributes filled in, by dtypes where they
    matter.
    """
    if not isinstance(op.lower, Expr):
        return {}
    if isinstance(op.lower.text, str):
        return {"": op.lower.text}
    cases_by_dtypes: dict[str, dict[str, TypedSample]] = {}
    for case in typed_samples(op):
        if all(t.dtype in STORAGE_TYPES for t in (*case.inputs, case.out)):
            text = _wgsl_expression(op, op.lower, case)
            cases_by_dtypes.setdefault(_dtype_signature(case), {}).setdefault(
                text, case
            )
    return {
        # an expression that the shape goes into is shown once, with that shape
        arrow if len(texts) == 1 else f"{arrow} of shape {list(case.out.shape)}": text
        for arrow, texts in cases_by_dtypes.items()
        for text, case in [max(texts.items(), key=lambda entry: entry[1].out.rank)]
    }


def _wgsl_expression(op: Op, lower: Expr, case: TypedSample) -> str:
    graph = single_op_graph(op, case.sample, case.sample.inputs)
    node = graph.node(graph.outputs[0])
    kinds = [t.dtype for t in case.inputs]
    return substitute_expression(
        lower, "xyz"[: len(kinds)], kinds, node, (case.inputs, case.out)
    )


def _dtype_signature(case: TypedSample) -> str:
    labels = dict.fromkeys(t.dtype.label for t in case.inputs)
    return f"{', '.join(labels)} → {case.out.dtype}"


@dataclass(frozen=True, slots=True)
class GpuVariant:
    """Kernel variant of an op on a GPU: its name, and the shaders it starts."""

    name: str
    shaders: tuple[str, ...]


def gpu_variants(op: Op) -> tuple[GpuVariant, ...]:
    """Return the variants that the op's samples use, with "" for generated shaders."""
    if not isinstance(op.lower, Kernel | Compose):
        return ()
    # a usual GPU grants what we ask for
    selector = KernelSelector(
        Hardware(AdapterRequest().limits, frozenset({"subgroup"}))
    )
    shaders_by_variant: dict[str, list[str]] = {}
    for case in typed_samples(op):
        if not all(t.dtype in STORAGE_TYPES for t in (*case.inputs, case.out)):
            continue  # only the CPU has the type
        selected = selector.select_kernel(op, case.inputs, case.out, case.attrs)
        if selected is None:
            continue
        shaders = shaders_by_variant.setdefault(selected.variant, [])
        for launch in selected.launches:
            name = _shader_name(launch.shader.source)
            if name not in shaders:
                shaders.append(name)
    return tuple(
        GpuVariant(name, tuple(shaders)) for name, shaders in shaders_by_variant.items()
    )


def _shader_name(source: str) -> str:
    """Return the name of the file of `shaders/` that a module ends with, or ""."""
    files = _shader_files().items()
    return next((name for name, text in files if source.endswith(f"\n{text}")), "")


@cache
def _shader_files() -> Mapping[str, str]:
    folder = Path(__file__).resolve().parents[2] / "shaders"
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*/*.wgsl")}


def composed_from(op: Op) -> tuple[str, ...]:
    """Return the ops that a composed op is built from, without leaves."""
    decomposition = op.decomposition
    if decomposition is None:
        return ()
    op_names: dict[str, None] = {}
    for case in typed_samples(op):
        g = Graph()
        xs = [g.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(case.inputs)]
        try:
            result: Tensor = decomposition.build(g, case.attrs, *xs)
        except RlxError:
            continue  # a decomposition may be for some operands only
        op_names |= {n.op: None for n in result.graph.nodes()}
    # a long op may be cut into shorter ones of its own kind
    op_names.pop(op.name, None)
    return tuple(n for n in op_names if not registry.get(n).has_trait("leaf"))
