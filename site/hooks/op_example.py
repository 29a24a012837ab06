"""A small runnable program for an op, made from its samples."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from op_facts import Case, cases

from rlxweb.bfloat16 import held
from rlxweb.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Drawn
from rlxweb.ir.tensor import Tensor

_NAMES = "xyzwabcd"
# Elements, inputs and result together, that show something and fit a few lines.
_WANTED = 20
# Results with more elements are printed as shape and dtype.
_PRINTED = 64
# Arrays that do not fit a line are drawn in the program instead of written out.
_LINE = 68

_LEAVES = """\
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
    """The program. It prints the result, or its shape when that is long."""
    if not op.samples:
        return _LEAVES
    few = [case for case in cases(op) if len(case.inputs) <= len(_NAMES)]
    case = min(few, key=_awkwardness)
    inputs = dict(zip(_NAMES, case.sample.inputs, strict=False))
    values = [
        (name, _value(drawn, seed)) for seed, (name, drawn) in enumerate(inputs.items())
    ]
    lines = ["import numpy as np", "import rlxweb as rlx", ""]
    lines.append(f'g = rlx.Graph("{op.name}")')
    for name, drawn in inputs.items():
        dtype = "" if drawn.dtype is DType.F32 else f', "{drawn.dtype}"'
        lines.append(f'{name} = g.input("{name}", {drawn.shape}{dtype})')
    lines += [f"g.set_outputs([{_call(op, case)}])", ""]
    if any("rng." in text for _, text in values):
        lines.append("rng = np.random.default_rng(0)")
    lines += ["feeds = {", *(f'    "{name}": {text},' for name, text in values), "}"]
    lines += ['(out,) = rlx.Session("cpu").compile(g).run(feeds)', _print(case)]
    return "\n".join(lines)


def output(program: str) -> str:
    """What the program prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "<example>", "exec"), {})
    return said.getvalue().rstrip()


def _print(case: Case) -> str:
    if case.out.numel > _PRINTED:
        return "print(out.shape, out.dtype)"
    return "print(out.round(3))" if case.out.dtype.is_float else "print(out)"


def _awkwardness(case: Case) -> tuple[bool, bool, bool, float]:
    """Least for a case that shows something: float32, a few elements, few ones."""
    types = (*case.inputs, case.out)
    total = sum(t.numel for t in types)
    ones = sum(t.shape.count(1) if t.shape else 1 for t in types)
    all_alike = any(d.low == d.high for d in case.sample.inputs)
    return (
        not all(t.numel for t in types) or all_alike,
        not any(t.dtype is DType.F32 for t in case.inputs),
        _does_nothing(case),
        abs(math.log2(max(total, 1) / _WANTED)) + ones / 2,
    )


def _does_nothing(case: Case) -> bool:
    """The result is the first operand as it stands."""
    if case.inputs[0].numel > _PRINTED or case.inputs[0] != case.out:
        return False
    with np.errstate(all="ignore"):
        arrays = case.sample.draw()
        made = case.op.reference(np, case.attrs, *map(held, arrays))
    return bool(np.array_equal(made, held(arrays[0])))


def _value(drawn: Drawn, seed: int) -> str:
    """The array as an expression: its numbers, or how they are drawn."""
    kind = f"np.{drawn.dtype.numpy.name}"
    if drawn.dtype is DType.BOOL:
        return f"rng.random({drawn.shape}) < 0.5"
    array = drawn.draw(np.random.default_rng(seed))
    if drawn.dtype.is_float:
        array = np.vectorize(lambda v: float(f"{v:.2g}"))(array)
    written = f"np.array({array.tolist()}, {kind})"
    return written if len(written) <= _LINE else _drawn(drawn, kind)


def _drawn(drawn: Drawn, kind: str) -> str:
    if drawn.dtype.is_integer:
        low = max(drawn.low, 0) if drawn.dtype.is_unsigned else drawn.low
        return f"rng.integers({int(low)}, {int(drawn.high) + 1}, {drawn.shape}, {kind})"
    low, high = (f"{v:g}" for v in (drawn.low, drawn.high))
    return f"rng.uniform({low}, {high}, {drawn.shape}).astype({kind})"


# --- the call -----------------------------------------------------------------------


def _call(op: Op, case: Case) -> str:
    """The shortest spelling that adds exactly this node."""
    for text in _spellings(op, case):
        if _adds(op, case, text):
            return text
    raise AssertionError(f"no way to call {op.name}")


def _spellings(op: Op, case: Case) -> Iterator[str]:
    defaults = {a.name: a.default for a in op.attrs}
    given = {k: v for k, v in case.sample.attrs.items() if v != defaults.get(k, ...)}
    xs = list(_NAMES[: len(case.inputs)])
    for operands in (xs, [f"[{', '.join(xs)}]"]):
        for attrs in (given, case.attrs):
            named = [f"{k}={_literal(v)}" for k, v in attrs.items()]
            yield f"g.{op.name}({', '.join([*operands, *named])})"
        plain = [_literal(v) for v in given.values()]
        yield f"g.{op.name}({', '.join([*operands, *plain])})"
    named = [f"{k}={_literal(v)}" for k, v in given.items()]
    yield f"g.apply({', '.join([_literal(op.name), *xs, *named])})"


def _literal(value: Any) -> str:
    """The value as Python text, with the quotes this project writes."""
    if isinstance(value, DType):
        return f'"{value.label}"'
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _adds(op: Op, case: Case, text: str) -> bool:
    g = Graph()
    names: Mapping[str, Tensor] = {
        _NAMES[k]: g.input(_NAMES[k], t.shape, t.dtype)
        for k, t in enumerate(case.inputs)
    }
    try:
        made = eval(text, {"g": g, **names})
    except (AttributeError, TypeError, RlxError):
        return False
    if not isinstance(made, Tensor):
        return False
    node = g.node(made.id)
    same_inputs = node.inputs == tuple(t.id for t in names.values())
    return node.op == op.name and same_inputs and node.attrs == dict(case.attrs)
