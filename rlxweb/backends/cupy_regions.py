"""Elementwise regions as one CUDA kernel each: the expressions, and their joining.

CuPy turns the text into a kernel that broadcasts and walks strides by itself. What has
no row here runs op by op. `x`, `y`, `z` stand for operands, T for their type. Nothing
is contracted to a fused multiply-add: each operation rounds as NumPy's does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from rlxweb.compile.plan import Step
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node

# Not below where a function of it is 0 anyway; a NaN stays one.
_BOUNDED = "select(x < T(-1000), T(-1000), x)"
_SIGMOID = "select(x < T(0), exp(-abs(x)), T(1)) / (T(1) + exp(-abs(x)))"
_TURNED = "(fmod(x, y) != T(0)) & ((fmod(x, y) < T(0)) != (y < T(0)))"
_UNIT = "select({0} < T(0), T(0), select({0} > T(1), T(1), {0}))"
_FUNCTIONS = (
    "tanh exp log sqrt sin cos tan atan erf floor ceil trunc exp2 expm1 log2 log1p "
    "sinh cosh asinh acosh atanh asin acos"
)

TEXT: dict[str, str] = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y",
    "maximum": "select((x != x) | (y != y), x + y, select(x > y, x, y))",
    "minimum": "select((x != x) | (y != y), x + y, select(x < y, x, y))",
    "pow": "pow(x, y)",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "where": "select(x, y, z)",
    "relu": "select((x > T(0)) | (x != x), x, T(0))",
    "gelu": f"T(0.5) * ({_BOUNDED}) * erfc(({_BOUNDED}) * T({-math.sqrt(0.5)!r}))",
    "gelu_approx": f"T(0.5) * ({_BOUNDED}) * (T(1) + tanh(T({math.sqrt(2 / math.pi)!r})"
    f" * (({_BOUNDED}) + T(0.044715) * ({_BOUNDED}) * ({_BOUNDED}) * ({_BOUNDED}))))",
    "silu": f"({_BOUNDED}) * ({_SIGMOID})",
    "sigmoid": _SIGMOID,
    "rsqrt": "T(1) / sqrt(x)",
    "neg": "-x",
    "abs": "abs(x)",
    "round": "rint(x)",
    "sign": "select(x != x, x, select(x > T(0), T(1), select(x < T(0), T(-1), T(0))))",
    "reciprocal": "T(1) / x",
    "fmod": "fmod(x, y)",
    "mod": f"fmod(x, y) + select({_TURNED}, y, T(0))",
    "floor_divide": f"select(y == T(0), x / y, rint((x - fmod(x, y)) / y) "
    f"- select({_TURNED}, T(1), T(0)))",
    "softplus": "select(x > T(0), x, select(x != x, x, T(0))) + log1p(exp(-abs(x)))",
    "elu": "select(x < T(0), {alpha} * expm1(x), x)",
    "selu": "{gamma} * select(x < T(0), {alpha} * expm1(x), x)",
    "leaky_relu": "select(x < T(0), {alpha} * x, x)",
    "prelu": "select(x < T(0), x * y, x)",
    "hard_sigmoid": f"select(x != x, x, {_UNIT.format('({alpha} * x + {beta})')})",
    "thresholded_relu": "select(x <= {alpha}, T(0), x)",
    "isnan": "x != x",
    "isfinite": "(x - x) == T(0)",
    "logical_and": "x & y",
    "logical_or": "x | y",
    "logical_xor": "x != y",
    "logical_not": "x == bool(0)",
    **{name: f"{name}(x)" for name in _FUNCTIONS.split()},
}
"""Op → its expression in CUDA C, with its attributes in braces; each is a Python
expression as well.
"""

PREAMBLE = """
template <typename T> __device__ T select(bool c, T a, T b) { return c ? a : b; }
"""
_NAMES = {DType.F32: "float", DType.F64: "double", DType.BOOL: "bool"}
_OPERAND = re.compile(r"\b([xyzT])\b")
_ATTRIBUTE = re.compile(r"\{(\w+)\}")


def region_kernel(
    graph: Graph, step: Step, make: Callable[..., Any]
) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
    """The kernel of a region and the nodes it reads; None where a row is missing.

    make   `cupy.ElementwiseKernel`, with the flags of the compiler put in
    """
    nodes = [graph.node(i) for i in step.nodes]
    inside = set(step.nodes)
    reads = dict.fromkeys(i for n in nodes for i in n.inputs if i not in inside)
    literals = {i: text for i in reads if (text := _literal(graph.node(i)))}
    loads = tuple(i for i in reads if i not in literals)
    types = {graph.node(i).type.dtype for i in (*inside, *reads)}
    if not loads or not types <= set(_NAMES) or not all(map(_has_text, nodes)):
        return None
    known = literals | {i: f"i{i}" for i in loads}
    lines = []
    for node in nodes:
        lines.append(_line(graph, node, known))
        known[node.id] = f"v{node.id}"
    out = nodes[-1]
    kernel = make(
        ", ".join(f"{_kind(graph.node(i))} i{i}" for i in loads),
        f"{_kind(out)} out",
        "\n".join([*lines, f"out = v{out.id};"]),
        "rlxweb_region",
        preamble=PREAMBLE,
    )
    return (lambda attrs, *arrays: kernel(*arrays)), loads


def _has_text(node: Node) -> bool:
    """Is there a row, with attributes that C can write?"""
    numbers = [v for v in node.attrs.values() if isinstance(v, float)]
    return node.op in TEXT and all(map(math.isfinite, numbers))


def _kind(node: Node) -> str:
    return node.type.dtype.numpy.name


def _literal(node: Node) -> str:
    """A finite constant of one element as text; "" for what is none."""
    if node.op != "constant" or not node.is_literal:
        return ""
    value = node.attrs["value"].array.reshape(-1)[0].item()
    if node.type.dtype is DType.BOOL:
        return f"bool({int(value)})"
    return f"{_NAMES[node.type.dtype]}({value!r})" if _is_plain(node, value) else ""


def _is_plain(node: Node, value: float) -> bool:
    return node.type.dtype in _NAMES and math.isfinite(value)


def _line(graph: Graph, node: Node, known: dict[int, str]) -> str:
    operands: Sequence[str] = [known[i] for i in node.inputs]
    # Of a comparison and of a choice, the type of what is compared or chosen.
    of_operands = _NAMES[graph.node(node.inputs[-1]).type.dtype]

    def put(match: re.Match[str]) -> str:
        word = match[1]
        return of_operands if word == "T" else operands["xyz".index(word)]

    def number(match: re.Match[str]) -> str:
        return f"T({node.attrs[match[1]]!r})"

    text = _OPERAND.sub(put, _ATTRIBUTE.sub(number, TEXT[node.op]))
    return f"{_NAMES[node.type.dtype]} v{node.id} = {text};"
