"""One generated CUDA kernel for each elementwise region: the ops' expressions, and the
statements built of them.

CuPy turns the text into a kernel that broadcasts and walks strides by itself. A region
with an op that has no expression here runs op by op. `x`, `y`, `z` stand for operands,
T for their type. Nothing is contracted to a fused multiply-add: each operation rounds
as NumPy's does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from rlxweb.compiler.plan import PlanStep
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node

# Not below where a function of it is 0 anyway; a NaN stays one.
_CLAMPED_BELOW = "select(x < T(-1000), T(-1000), x)"
_SIGMOID = "select(x < T(0), exp(-abs(x)), T(1)) / (T(1) + exp(-abs(x)))"
_SIGNS_DIFFER = "(fmod(x, y) != T(0)) & ((fmod(x, y) < T(0)) != (y < T(0)))"
_CLAMPED_TO_UNIT = "select({0} < T(0), T(0), select({0} > T(1), T(1), {0}))"
_FUNCTIONS = (
    "tanh exp log sqrt sin cos tan atan erf floor ceil trunc exp2 expm1 log2 log1p "
    "sinh cosh asinh acosh atanh asin acos"
)

CUDA_EXPRESSIONS: dict[str, str] = {
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
    "gelu": f"T(0.5) * ({_CLAMPED_BELOW}) * erfc(({_CLAMPED_BELOW}) * "
    f"T({-math.sqrt(0.5)!r}))",
    "gelu_approx": f"T(0.5) * ({_CLAMPED_BELOW}) * (T(1) + "
    f"tanh(T({math.sqrt(2 / math.pi)!r})"
    f" * (({_CLAMPED_BELOW}) + T(0.044715) * ({_CLAMPED_BELOW}) * ({_CLAMPED_BELOW}) "
    f"* ({_CLAMPED_BELOW}))))",
    "silu": f"({_CLAMPED_BELOW}) * ({_SIGMOID})",
    "sigmoid": _SIGMOID,
    "rsqrt": "T(1) / sqrt(x)",
    "neg": "-x",
    "abs": "abs(x)",
    "round": "rint(x)",
    "sign": "select(x != x, x, select(x > T(0), T(1), select(x < T(0), T(-1), T(0))))",
    "reciprocal": "T(1) / x",
    "fmod": "fmod(x, y)",
    "mod": f"fmod(x, y) + select({_SIGNS_DIFFER}, y, T(0))",
    "floor_divide": f"select(y == T(0), x / y, rint((x - fmod(x, y)) / y) "
    f"- select({_SIGNS_DIFFER}, T(1), T(0)))",
    "softplus": "select(x > T(0), x, select(x != x, x, T(0))) + log1p(exp(-abs(x)))",
    "elu": "select(x < T(0), {alpha} * expm1(x), x)",
    "selu": "{gamma} * select(x < T(0), {alpha} * expm1(x), x)",
    "leaky_relu": "select(x < T(0), {alpha} * x, x)",
    "prelu": "select(x < T(0), x * y, x)",
    "hard_sigmoid": f"select(x != x, x, "
    f"{_CLAMPED_TO_UNIT.format('({alpha} * x + {beta})')})",
    "thresholded_relu": "select(x <= {alpha}, T(0), x)",
    "isnan": "x != x",
    "isfinite": "(x - x) == T(0)",
    "logical_and": "x & y",
    "logical_or": "x | y",
    "logical_xor": "x != y",
    "logical_not": "x == bool(0)",
    **{name: f"{name}(x)" for name in _FUNCTIONS.split()},
}
"""CUDA C expression of each op, with its attributes in braces; each is a valid Python
expression as well.
"""

PREAMBLE = """
template <typename T> __device__ T select(bool c, T a, T b) { return c ? a : b; }
"""
_CUDA_TYPES = {DType.F32: "float", DType.F64: "double", DType.BOOL: "bool"}
_OPERAND_PATTERN = re.compile(r"\b([xyzT])\b")
_ATTRIBUTE_PATTERN = re.compile(r"\{(\w+)\}")


def build_region_kernel(
    graph: Graph, step: PlanStep, make_kernel: Callable[..., Any]
) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
    """Build the kernel of a region and return it with the nodes it reads; None if an op
    has no CUDA expression.

    make_kernel  `cupy.ElementwiseKernel`, with the flags of the compiler put in
    """
    nodes = [graph.node(i) for i in step.nodes]
    region_ids = set(step.nodes)
    reads = dict.fromkeys(i for n in nodes for i in n.inputs if i not in region_ids)
    literals = {i: text for i in reads if (text := _literal_text(graph.node(i)))}
    loads = tuple(i for i in reads if i not in literals)
    types = {graph.node(i).type.dtype for i in (*region_ids, *reads)}
    if (
        not loads
        or not types <= set(_CUDA_TYPES)
        or not all(map(_has_expression, nodes))
    ):
        return None
    names = literals | {i: f"i{i}" for i in loads}
    lines = []
    for node in nodes:
        lines.append(_statement(graph, node, names))
        names[node.id] = f"v{node.id}"
    out = nodes[-1]
    kernel = make_kernel(
        ", ".join(f"{_dtype_name(graph.node(i))} i{i}" for i in loads),
        f"{_dtype_name(out)} out",
        "\n".join([*lines, f"out = v{out.id};"]),
        "rlxweb_region",
        preamble=PREAMBLE,
    )
    return (lambda attrs, *arrays: kernel(*arrays)), loads


def _has_expression(node: Node) -> bool:
    """Return whether the op has an expression and its attributes can be written in
    C.
    """
    numbers = [value for value in node.attrs.values() if isinstance(value, float)]
    return node.op in CUDA_EXPRESSIONS and all(map(math.isfinite, numbers))


def _dtype_name(node: Node) -> str:
    return node.type.dtype.numpy.name


def _literal_text(node: Node) -> str:
    """Return a finite constant of one element as text; "" for any other node."""
    if node.op != "constant" or not node.is_literal:
        return ""
    value = node.attrs["value"].array.reshape(-1)[0].item()
    if node.type.dtype is DType.BOOL:
        return f"bool({int(value)})"
    return (
        f"{_CUDA_TYPES[node.type.dtype]}({value!r})"
        if _is_finite_literal(node, value)
        else ""
    )


def _is_finite_literal(node: Node, value: float) -> bool:
    return node.type.dtype in _CUDA_TYPES and math.isfinite(value)


def _statement(graph: Graph, node: Node, names: dict[int, str]) -> str:
    operands: Sequence[str] = [names[i] for i in node.inputs]
    # Of a comparison and of a choice, the type of what is compared or chosen.
    operand_type = _CUDA_TYPES[graph.node(node.inputs[-1]).type.dtype]

    def substitute_operand(match: re.Match[str]) -> str:
        word = match[1]
        return operand_type if word == "T" else operands["xyz".index(word)]

    def format_attribute(match: re.Match[str]) -> str:
        return f"T({node.attrs[match[1]]!r})"

    text = _OPERAND_PATTERN.sub(
        substitute_operand,
        _ATTRIBUTE_PATTERN.sub(format_attribute, CUDA_EXPRESSIONS[node.op]),
    )
    return f"{_CUDA_TYPES[node.type.dtype]} v{node.id} = {text};"
