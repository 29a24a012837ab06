"""Numbers of 64 bits on devices of 32: NumPy's, or an error; never others."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rlxweb.backends.evaluate import evaluate
from rlxweb.compile.intervals import Intervals
from rlxweb.errors import DTypeError
from rlxweb.gpu.port import Want
from rlxweb.ir.bounds import whole
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.tensor import Tensor
from tests.agreement import Array, engine, feeds_of, judge, one_op

WIDE = {DType.I64, DType.U64}
ONE = ("neg", "abs", "sign", "relu", "bitwise_not", "sum", "prod", "max", "cumsum")
TWO = (
    *("add", "sub", "mul", "div", "mod", "fmod", "floor_divide", "maximum", "minimum"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"),
    *("prelu", "matmul", "where", "pad", "gather", "scatter", "concat", "cast"),
)


@st.composite
def whole_numbers(draw: st.DrawFn) -> tuple[Graph, dict[str, Array]]:
    """A graph over [3, 3] of int64 or uint64 that returns all nodes, and feeds."""
    dtype = draw(st.sampled_from((DType.I64, DType.I64, DType.U64)))
    most = draw(st.sampled_from((3, 40, 1 << 16, (1 << 31) - 1, 1 << 33)))
    numbers = st.integers(0 if dtype is DType.U64 else -most, most)
    grids = st.lists(numbers, min_size=9, max_size=9)

    def grid() -> Array:
        return np.array(draw(grids), dtype.numpy).reshape(3, 3)

    g, feeds = Graph("numbers"), {"x": grid(), "y": grid()}
    made = [g.input(name, (3, 3), dtype) for name in feeds]
    made.append(g.constant(grid() % np.array(7, dtype.numpy)))
    for _ in range(draw(st.integers(1, 5))):
        x, y = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        made.append(_grown(draw, g, x, y))
    g.set_outputs(made)
    return g, feeds


def _grown(draw: st.DrawFn, g: Graph, x: Tensor, y: Tensor) -> Tensor:
    one = [op for op in ONE if op != "neg" or not x.dtype.is_unsigned]
    op = draw(st.sampled_from((*one, *TWO)))
    if op in ("sum", "prod", "max"):
        return g.expand(g.apply(op, x, axes=(1,), keep_dim=True), (3, 3))
    if op == "cumsum":
        return g.apply(op, x, exclusive=draw(st.booleans()))
    if op in ONE:
        return g.apply(op, x)
    if op == "where":
        return g.where(g.lt(x, y), x, y)
    if op == "pad":
        return g.apply(op, x, axes=(0,), before=(-1,), after=(1,), value=5.0)
    if op == "concat":
        return g.concat([x[:1], y[1:]], 0)
    if op == "gather":
        return g.gather(x, g.constant(np.array([2, 0, 0])))
    if op == "scatter":
        at = g.constant(np.array([[0, 1, 1]] * 3))
        how = draw(st.sampled_from(("none", "add", "mul", "min")))
        return g.apply("scatter_elements", x, at, y, axis=1, reduction=how)
    if op == "cast":
        by = draw(st.sampled_from(("f32", "i32", "u32", "bool", "f16")))
        return g.cast(g.cast(x, by), x.dtype)
    return g.apply(op, x, y)


@hypothesis.settings(max_examples=150)
@hypothesis.given(whole_numbers())
def test_every_value_lies_in_its_interval(
    drawn: tuple[Graph, dict[str, Array]],
) -> None:
    """Every value lies in its interval, which is all of the type where it wraps."""
    graph, feeds = drawn
    given = {name: (int(x.min()), int(x.max())) for name, x in feeds.items()}
    known = Intervals(graph, given, {d: whole(d) for d in WIDE})
    outs = dict(zip(graph.outputs, evaluate(graph, feeds), strict=True))
    for at, found in outs.items():
        low, high = known.of[at]
        assert low <= int(found.min()), graph.node(at)
        assert int(found.max()) <= high, graph.node(at)


def tried(adapter: Want, graph: Graph, feeds: dict[str, Array]) -> Array | None:
    """The output, or None where the device has not the type for it."""
    try:
        return engine(adapter).run(graph, feeds)[0]
    except DTypeError as error:
        if "the device has no " in str(error):
            return None
        raise


@hypothesis.settings(max_examples=25)
@hypothesis.given(whole_numbers())
def test_whole_numbers_are_numpys_or_refused(
    adapter: Want, drawn: tuple[Graph, dict[str, Array]]
) -> None:
    """Whole numbers are NumPy's, in the type that was declared, or refused."""
    graph, feeds = drawn
    graph.set_outputs([graph.tensor(graph.outputs[-1])])
    want = evaluate(graph, feeds)[0]
    got = tried(adapter, graph, feeds)
    hypothesis.event("refused" if got is None else "right")
    if got is not None:
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def _wide_samples() -> list[tuple[Op, Sample]]:
    """The first sample of each op with each set of types that hold 64 bits."""
    found: dict[Any, tuple[Op, Sample]] = {}
    for op in registry:
        for sample in op.samples:
            types = tuple(one.dtype for one in sample.inputs)
            if {*types, sample.attrs.get("to")} & WIDE:
                found.setdefault((op.name, types, sample.attrs.get("to")), (op, sample))
    return list(found.values())


@pytest.mark.full("opengl", "swiftshader")
def test_ops_of_wide_types_are_right_or_refused(adapter: Want) -> None:
    """Ops of wide types are right or refused, and most run."""
    right, names = 0, []
    for op, sample in _wide_samples():
        arrays = sample.draw(3)
        graph = one_op(op, sample, arrays)
        want = evaluate(graph, feeds_of(arrays))[0]
        got = tried(adapter, graph, feeds_of(arrays))
        if got is None:
            continue
        assert got.dtype == want.dtype
        assert not judge(
            got, want, graph.tensor(graph.outputs[0]).dtype, op.tolerance
        ), op.name
        right, names = right + 1, [*names, op.name]
    assert right > 50
    assert {"gather", "topk", "sum", "cumsum", "add", "where", "eq", "max"} <= {*names}
