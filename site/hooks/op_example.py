"""Small runnable program for an op, made from its samples."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from op_facts import TypedSample, typed_samples

from rlxweb.core.bfloat16 import widen_bfloat16
from rlxweb.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Drawn
from rlxweb.ir.tensor import Tensor

_OPERAND_NAMES = "xyzwabcd"
# Elements, inputs and result together, that show something and fit a few lines.
_PREFERRED_ELEMENTS = 20
# Results with more elements are printed as shape and dtype.
_MAX_PRINTED = 64
# Arrays that do not fit a line are drawn in the program instead of written out.
_MAX_LINE = 68

_LEAVES_PROGRAM = """\
import numpy as np
import rlxweb as rlx

g = rlx.Graph("leaves")
x = g.input("x", (3,))  # given at every run
w = g.param("w", (3,))  # set once
two = g.constant(2.0)  # part of the graph
g.set_outputs([x * w + two])

compiled = rlx.Session("cpu").compile(g)
compiled.set_param("w", np.array([1, 10, 100], np.float32))
(out,) = compiled.run({"x": np.ones(3, np.float32)})
print(out)"""


def example(op: Op) -> str:
    """Return the program; it prints the result, or its shape when that is long."""
    if not op.samples:
        return _LEAVES_PROGRAM
    short_cases = [
        case for case in typed_samples(op) if len(case.inputs) <= len(_OPERAND_NAMES)
    ]
    case = min(short_cases, key=_unsuitability)
    inputs = dict(zip(_OPERAND_NAMES, case.sample.inputs, strict=False))
    values = [
        (name, _value_expression(operand, seed))
        for seed, (name, operand) in enumerate(inputs.items())
    ]
    lines = ["import numpy as np", "import rlxweb as rlx", ""]
    lines.append(f'g = rlx.Graph("{op.name}")')
    for name, operand in inputs.items():
        dtype = "" if operand.dtype is DType.F32 else f', "{operand.dtype}"'
        lines.append(f'{name} = g.input("{name}", {operand.shape}{dtype})')
    lines += [f"g.set_outputs([{_call_expression(op, case)}])", ""]
    if any("rng." in text for _, text in values):
        lines.append("rng = np.random.default_rng(0)")
    lines += ["feeds = {", *(f'    "{name}": {text},' for name, text in values), "}"]
    lines += [
        '(out,) = rlx.Session("cpu").compile(g).run(feeds)',
        _print_statement(case),
    ]
    return "\n".join(lines)


def output(program: str) -> str:
    """Run the program and return its output."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(compile(program, "<example>", "exec"), {})
    return stdout.getvalue().rstrip()


def _print_statement(case: TypedSample) -> str:
    if case.out.numel > _MAX_PRINTED:
        return "print(out.shape, out.dtype)"
    return "print(out.round(3))" if case.out.dtype.is_float else "print(out)"


def _unsuitability(case: TypedSample) -> tuple[bool, bool, bool, float]:
    """Sort key of cases, least for one that shows something: float32, a few elements,
    few ones.
    """
    types = (*case.inputs, case.out)
    total = sum(t.numel for t in types)
    ones = sum(t.shape.count(1) if t.shape else 1 for t in types)
    all_alike = any(d.low == d.high for d in case.sample.inputs)
    return (
        not all(t.numel for t in types) or all_alike,
        not any(t.dtype is DType.F32 for t in case.inputs),
        _is_identity(case),
        abs(math.log2(max(total, 1) / _PREFERRED_ELEMENTS)) + ones / 2,
    )


def _is_identity(case: TypedSample) -> bool:
    """Tell whether the result equals the first operand."""
    if case.inputs[0].numel > _MAX_PRINTED or case.inputs[0] != case.out:
        return False
    with np.errstate(all="ignore"):
        arrays = case.sample.draw()
        result = case.op.reference(np, case.attrs, *map(widen_bfloat16, arrays))
    return bool(np.array_equal(result, widen_bfloat16(arrays[0])))


def _value_expression(operand: Drawn, seed: int) -> str:
    """Return an expression for the array: its numbers, or the call that draws them."""
    dtype = f"np.{operand.dtype.numpy.name}"
    if operand.dtype is DType.BOOL:
        return f"rng.random({operand.shape}) < 0.5"
    array = operand.draw(np.random.default_rng(seed))
    if operand.dtype.is_float:
        array = np.vectorize(lambda v: float(f"{v:.2g}"))(array)
    literal = f"np.array({array.tolist()}, {dtype})"
    return literal if len(literal) <= _MAX_LINE else _random_expression(operand, dtype)


def _random_expression(operand: Drawn, dtype: str) -> str:
    if operand.dtype.is_integer:
        low = max(operand.low, 0) if operand.dtype.is_unsigned else operand.low
        return (
            f"rng.integers({int(low)}, {int(operand.high) + 1}, {operand.shape}, "
            f"{dtype})"
        )
    low, high = (f"{v:g}" for v in (operand.low, operand.high))
    return f"rng.uniform({low}, {high}, {operand.shape}).astype({dtype})"


# --- the call -----------------------------------------------------------------------


def _call_expression(op: Op, case: TypedSample) -> str:
    """Return the shortest call that adds exactly this node."""
    for text in _call_candidates(op, case):
        if _adds_node(op, case, text):
            return text
    raise AssertionError(f"no call is known for {op.name}")


def _call_candidates(op: Op, case: TypedSample) -> Iterator[str]:
    defaults = {a.name: a.default for a in op.attrs}
    non_defaults = {
        k: v for k, v in case.sample.attrs.items() if v != defaults.get(k, ...)
    }
    xs = list(_OPERAND_NAMES[: len(case.inputs)])
    for operands in (xs, [f"[{', '.join(xs)}]"]):
        for attrs in (non_defaults, case.attrs):
            keyword_args = [f"{k}={_literal(v)}" for k, v in attrs.items()]
            yield f"g.{op.name}({', '.join([*operands, *keyword_args])})"
        positional_args = [_literal(v) for v in non_defaults.values()]
        yield f"g.{op.name}({', '.join([*operands, *positional_args])})"
    keyword_args = [f"{k}={_literal(v)}" for k, v in non_defaults.items()]
    yield f"g.apply({', '.join([_literal(op.name), *xs, *keyword_args])})"


def _literal(value: Any) -> str:
    """Return the value as Python source, with double quotes."""
    if isinstance(value, DType):
        return f'"{value.label}"'
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _adds_node(op: Op, case: TypedSample, text: str) -> bool:
    g = Graph()
    names: Mapping[str, Tensor] = {
        _OPERAND_NAMES[k]: g.input(_OPERAND_NAMES[k], t.shape, t.dtype)
        for k, t in enumerate(case.inputs)
    }
    try:
        result = eval(text, {"g": g, **names})
    except (AttributeError, TypeError, RlxError):
        return False
    if not isinstance(result, Tensor):
        return False
    node = g.node(result.id)
    same_inputs = node.inputs == tuple(t.id for t in names.values())
    return node.op == op.name and same_inputs and node.attrs == dict(case.attrs)
