"""Views become layouts, and copies appear only where a kernel needs dense data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb.compiler.pipeline import check_dtypes, compile_graph
from rlxweb.compiler.plan import Plan
from rlxweb.compiler.target import Target
from rlxweb.core.errors import DTypeError, VerifyError
from rlxweb.cost.decision import Decision
from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from tests.unit.compiler.graph_factory import build_graph

DEVICE = Target("test", frozenset({DType.F32, DType.BOOL, DType.I32}), lambda *a: True)


def build_plan(
    build: Callable[..., Any], *shapes: tuple[int, ...], optimise: bool = True
) -> Plan:
    return compile_graph(build_graph(build, *shapes), DEVICE, optimise=optimise)


def step_kinds(plan: Plan) -> list[str]:
    return [step.kind for step in plan.steps]


def test_views_before_elementwise_cost_nothing() -> None:
    """Transpose and narrow are read in place; one region remains."""
    plan = build_plan(
        lambda g, x: g.exp(g.narrow(g.transpose(x, (1, 0)), 1, 2, 3)), (6, 4)
    )
    assert step_kinds(plan) == ["region"]
    (operand,) = plan.steps[0].inputs
    assert operand.layout.strides == (1, 4)
    assert operand.layout.offset == 8


def test_a_kernel_gets_dense_operands() -> None:
    """A kernel's transposed operand is copied, once for all its readers."""
    plan = build_plan(
        lambda g, x: [g.cumsum(y := g.transpose(x, (1, 0)), 1), g.cumsum(y, 0)], (6, 4)
    )
    assert step_kinds(plan) == ["copy", "kernel", "kernel"]
    copy_value = plan.steps[0].output
    assert all(s.inputs[0].value == copy_value for s in plan.steps[1:])


def test_aligned_row_is_bound_in_place() -> None:
    """A dense part that starts on an alignment needs no copy; others do."""
    aligned = build_plan(lambda g, x: g.cumsum(g.narrow(x, 0, 2, 1)), (4, 128))
    assert step_kinds(aligned) == ["kernel"]
    unaligned = build_plan(lambda g, x: g.cumsum(g.narrow(x, 0, 1, 1)), (4, 100))
    assert step_kinds(unaligned) == ["copy", "kernel"]


def test_outputs_are_dense() -> None:
    """A view as output is one copy; an input as output is none."""
    plan = build_plan(
        lambda g, x: [g.transpose(x, (1, 0)), x, g.reshape(x, (24,))], (6, 4)
    )
    assert step_kinds(plan) == ["copy"]
    assert all(o.layout.strides[-1] == 1 for o in plan.outputs)


def test_reshape_of_a_view_copies_only_if_needed() -> None:
    """Merging a transposed pair of axes needs a copy; merging others does not."""
    viewed = build_plan(lambda g, x: g.exp(g.reshape(x, (6, 4))), (2, 3, 4))
    assert step_kinds(viewed) == ["region"]
    copied = build_plan(
        lambda g, x: g.exp(g.reshape(g.transpose(x, (1, 0, 2)), (6, 4))), (2, 3, 4)
    )
    assert step_kinds(copied) == ["copy", "region"]


def test_numpy_keeps_its_views() -> None:
    """A target that makes its own views gets them as steps."""
    graph = build_graph(lambda g, x: g.exp(g.transpose(x, (1, 0))), (2, 3))
    assert step_kinds(compile_graph(graph, CpuEngine.target)) == ["view", "region"]


def test_broadcast_operands_are_read_with_stride_zero() -> None:
    """Broadcast operands are never expanded in memory."""
    plan = build_plan(lambda g, x, row: x + row, (5, 4), (4,))
    assert [o.layout.strides for o in plan.steps[0].inputs] == [(4, 1), (0, 1)]


def test_unoptimised_plans_keep_every_step_and_slot() -> None:
    """An unoptimised plan keeps all steps, for comparison with a suspect rewrite."""
    optimised_plan, unoptimised_plan = (
        build_plan(lambda g, x: g.exp(g.neg(g.abs(x))), (8,), optimise=optimise)
        for optimise in (True, False)
    )
    assert (step_kinds(optimised_plan), step_kinds(unoptimised_plan)) == (
        ["region"],
        ["region"] * 3,
    )
    assert (len(optimised_plan.slot_bytes), len(unoptimised_plan.slot_bytes)) == (1, 3)


def test_a_plan_prints_its_steps_and_memory() -> None:
    """A plan prints steps with types and slots, its outputs, and the bytes."""
    text = str(build_plan(lambda g, x: g.exp(x), (64,)))
    assert text.splitlines() == [
        "plan of 'made'",
        "  v1 = region exp(v0) : [64] f32 @0",
        "  return v1",
        "  1 slots, 256 bytes",
    ]


def test_a_decision_prints_and_serialises() -> None:
    """A decision is what, why and the numbers, as text and as JSON."""
    decision = Decision("device", "it is there", {"flops": 3})
    assert str(decision) == "device: it is there (flops=3)"
    assert decision.as_json() == {
        "what": "device",
        "why": "it is there",
        "numbers": {"flops": 3},
    }
    assert str(Decision("a", "b")) == "a: b"


def test_unsupported_dtype_is_rejected() -> None:
    """The error names the node, the device, the dtypes it supports, and a remedy."""
    graph = Graph()
    graph.set_outputs([graph.neg(graph.input("x", (2,), "f64"))])
    with pytest.raises(
        DTypeError, match="has no f64 support; it supports bool, f32, i32; cast to f32"
    ):
        check_dtypes(graph, DEVICE)
    check_dtypes(graph, CpuEngine.target)


def test_dtypes_of_decomposed_ops_are_checked() -> None:
    """A dtype that appears only after decomposition is checked as well."""
    graph = Graph()
    graph.set_outputs([graph.cast(graph.constant(np.ones(2, np.float32)), "i64")])
    with pytest.raises(DTypeError, match="no i64 support"):
        compile_graph(graph, DEVICE)


def test_graph_without_outputs_is_rejected() -> None:
    """The verifier runs before anything else."""
    graph = Graph()
    graph.input("x", (2,))
    with pytest.raises(VerifyError, match="no outputs"):
        compile_graph(graph, DEVICE)
