"""Fused row reductions: which nodes they include, which they leave, and when there is
none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.row_reduction_fusion import MAX_DEPTH, find_row_reductions
from rlxweb.compiler.target import Target
from rlxweb.core.limits import Limits
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from tests.fake_gpu_port import FakePort
from tests.unit.compiler.graph_factory import build_graph


def target(length: int = 64, **options: Any) -> Target:
    dtypes = CpuEngine.target.dtypes
    native = lambda op, *rest: op.name not in ("mean", "std")  # noqa: E731
    return Target("test", dtypes, native, line_length=length, **options)


def step_labels(
    graph: Graph, length: int = 64, **options: Any
) -> list[tuple[str, str]]:
    """Return kind and label of every step, in order."""
    plan = compile_graph(graph, target(length, **options))
    return [(step.kind, step.label) for step in plan.steps]


def softmax(g: Any, x: Any, axis: int = -1) -> Any:
    exponentials = g.exp(x - g.max(x, axis, keep_dim=True))
    return exponentials / g.sum(exponentials, axis, keep_dim=True)


def test_decomposed_softmax_is_one_step() -> None:
    graph = build_graph(softmax, (4, 5))
    assert step_labels(graph) == [("lines", "max+sub+exp+sum…")]
    assert [kind for kind, _ in step_labels(graph, 0)] == [
        "kernel",
        "region",
        "kernel",
        "region",
    ]


def test_nothing_is_fused_without_optimising() -> None:
    plan = compile_graph(build_graph(softmax, (4, 5)), target(), optimise=False)
    assert {step.kind for step in plan.steps} == {"kernel", "region"}
    assert len(plan.steps) == 5


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.sum(x, -1),
        lambda g, x: g.exp(g.sum(x, -1)),
        lambda g, x: g.exp(g.sum(x, -1, keep_dim=True)),
        lambda g, x: softmax(g, x, 0),
        lambda g, x: g.exp(x) + 1.0,
        lambda g, x: g.sum(g.matmul(x, g.transpose(x, (1, 0))), -1),
    ],
)
def test_single_ops_keep_their_own_kernel(
    build: Callable[..., Any],
) -> None:
    """Not fused: a reduction alone or with something after it, another axis, no
    reduction.
    """
    assert find_row_reductions(build_graph(build, (4, 5)), target()) == {}


def test_rows_that_are_too_long_are_not_fused() -> None:
    graph = build_graph(softmax, (4, 65))
    assert find_row_reductions(graph, target(64)) == {}
    assert len(find_row_reductions(graph, target(65))) == 1


def test_loss_and_its_scale_are_one_step() -> None:
    """A reduction of few elements to a scalar fuses with the ops after it."""
    graph = build_graph(lambda g, x: g.neg(g.sum(x)) / 5.0, (5,))
    assert step_labels(graph) == [("lines", "sum+neg+div")]


def test_values_with_other_readers_are_read_from_memory() -> None:
    """The exponentials are an output anyway: the fused step begins with them."""

    def build(g: Any, x: Any) -> list[Any]:
        e = g.exp(x)
        return [e, e / g.sum(e, -1, keep_dim=True)]

    graph = build_graph(build, (4, 5))
    (step,) = find_row_reductions(graph, target()).values()
    assert [graph.node(i).op for i in step.nodes] == ["sum", "div"]
    assert step.read_nodes() == {graph.outputs[0]}


def test_shared_values_are_recomputed_in_both_steps() -> None:
    """Neither maximum nor sum is stored for the other step: both compute it."""

    def build(g: Any, x: Any, y: Any) -> list[Any]:
        shifted = x - g.max(x, -1, keep_dim=True)
        total = g.sum(g.exp(shifted), -1, keep_dim=True)
        return [
            g.sum((shifted - g.log(total)) * y, -1),
            g.exp(shifted) / total - y,
        ]

    kinds = [kind for kind, _ in step_labels(build_graph(build, (4, 5), (4, 5)))]
    assert kinds == ["lines", "lines"]


def test_reshape_restores_a_reduced_axis_within_the_step() -> None:
    """A sum without its axis gets it back by a reshape, within the fused step."""

    def build(g: Any, x: Any) -> Any:
        total = g.sum(g.exp(x), -1)
        return x / g.reshape(total, (4, 1))

    assert [kind for kind, _ in step_labels(build_graph(build, (4, 5)))] == ["lines"]


def test_value_broadcast_across_rows_is_stored() -> None:
    """A value per row that is read per column is stored first."""

    def build(g: Any, x: Any) -> Any:
        total = g.sum(g.exp(x), -1)
        return g.sum(x / total, -1)

    graph = build_graph(build, (5, 5))
    kinds = [kind for kind, _ in step_labels(graph)]
    assert kinds == ["lines", "lines"]
    first, second = sorted(find_row_reductions(graph, target()).items())
    assert first[0] in second[1].read_nodes()


def test_operand_is_read_with_the_strides_of_each_reader() -> None:
    """A weight is read along the row and per row, with the strides of each reader."""

    def build(g: Any, x: Any, w: Any) -> Any:
        return g.sum(x * w, -1) + w

    graph = build_graph(build, (5, 5), (5,))
    (step,) = find_row_reductions(graph, target()).values()
    weight = graph.named("input")["x1"].id
    assert [node_id for node_id, _ in step.reads].count(weight) == 2
    plan = compile_graph(graph, target())
    layouts = [o.layout.strides for o in plan.steps[0].inputs]
    assert layouts == [(5, 1), (0, 1), (1, 0)]


def test_nested_reductions_are_bounded() -> None:
    def build(g: Any, x: Any) -> Any:
        for _ in range(MAX_DEPTH + 2):
            x = x - g.sum(g.exp(x), -1, keep_dim=True)
        return x

    graph = build_graph(build, (4, 5))
    plan = compile_graph(graph, target())
    assert all(step.kind in ("lines", "region", "kernel") for step in plan.steps)
    node_ids = [i for step in plan.steps for i in step.nodes]
    reductions = [i for i in node_ids if plan.graph.node(i).op == "sum"]
    assert len(set(reductions)) == MAX_DEPTH + 2


def test_bindings_stay_within_the_device_limit() -> None:
    def build(g: Any, *xs: Any) -> Any:
        return g.sum(g.exp(sum(xs[1:], xs[0])), -1)

    shapes = ((4, 5),) * 6
    assert (
        len(find_row_reductions(build_graph(build, *shapes), target(max_operands=7)))
        == 1
    )
    for max_operands in (6, 4):
        graph = build_graph(build, *shapes)
        plan = compile_graph(graph, target(max_operands=max_operands))
        assert all(len(step.inputs) < max_operands for step in plan.steps)


def test_widely_strided_rows_are_copied() -> None:
    """A row whose elements span more than the binding limit is copied first."""

    def build(g: Any, x: Any) -> Any:
        return softmax(g, g.transpose(x, (1, 0)))

    graph = build_graph(build, (60, 50))
    assert step_labels(graph)[0][0] == "lines"
    limits = Limits(max_storage_buffer_binding_size=16_384)
    kinds = [kind for kind, _ in step_labels(graph, limits=limits)]
    assert kinds == ["copy", "lines"]


def test_reductions_of_rows_declare_their_kind() -> None:
    """Only these reduce rows in one pass with what stands around them; a mean, where
    the target keeps it whole.
    """
    kinds = {op.name: getattr(op.lower, "reduction", "") for op in registry}
    assert {name: kind for name, kind in kinds.items() if kind} == {
        name: name for name in ("sum", "mean", "prod", "max", "min")
    }


def test_a_mean_is_taken_apart_for_webgpu() -> None:
    """The WGSL of a row kernel has sums alone."""
    graph = build_graph(lambda g, x: g.mean(x * x, -1), (8, 64))
    port = FakePort()
    run_blocking(port.open(AdapterRequest()))
    plan = compile_graph(graph, WebGpuEngine(port).target)
    assert [(s.kind, s.label) for s in plan.steps] == [("lines", "mul+sum+div")]
