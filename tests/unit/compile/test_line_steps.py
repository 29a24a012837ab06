"""Passes along lines: what they take in, what they leave, and when there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlxweb.backends.cpu import CpuBackend
from rlxweb.compile.line_steps import MOST_DEEP, line_steps
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.target import Target
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.limits import Limits
from tests.unit.compile.made import made


def target(length: int = 64, **more: Any) -> Target:
    kinds = CpuBackend.target.dtypes
    native = lambda op, *asked: op.name not in ("mean", "std")  # noqa: E731
    return Target("test", kinds, native, line_length=length, **more)


def steps_of(graph: Graph, length: int = 64, **more: Any) -> list[tuple[str, str]]:
    """(kind, label) of every step, in order."""
    plan = compile_graph(graph, target(length, **more))
    return [(step.kind, step.label) for step in plan.steps]


def softmax(g: Any, x: Any, axis: int = -1) -> Any:
    e = g.exp(x - g.max(x, axis, keep_dim=True))
    return e / g.sum(e, axis, keep_dim=True)


def test_a_softmax_written_out_is_one_pass() -> None:
    graph = made(softmax, (4, 5))
    assert steps_of(graph) == [("lines", "max+sub+exp+sum…")]
    assert [kind for kind, _ in steps_of(graph, 0)] == [
        "kernel",
        "region",
        "kernel",
        "region",
    ]


def test_nothing_is_taken_in_without_optimising() -> None:
    plan = compile_graph(made(softmax, (4, 5)), target(), optimise=False)
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
def test_what_has_a_kernel_of_its_own_is_left_to_it(
    build: Callable[..., Any],
) -> None:
    """A reduction alone or with something after it, another axis, no reduction."""
    assert line_steps(made(build, (4, 5)), target()) == {}


def test_lines_that_are_too_long_are_left() -> None:
    graph = made(softmax, (4, 65))
    assert line_steps(graph, target(64)) == {}
    assert len(line_steps(graph, target(65))) == 1


def test_a_loss_and_its_scale_are_one_pass() -> None:
    """A reduction of few elements to one, and what becomes of it, are one pass."""
    graph = made(lambda g, x: g.neg(g.sum(x)) / 5.0, (5,))
    assert steps_of(graph) == [("lines", "sum+neg+div")]


def test_what_others_read_is_read() -> None:
    """The exponentials go to memory anyway: the pass begins with them."""

    def build(g: Any, x: Any) -> list[Any]:
        e = g.exp(x)
        return [e, e / g.sum(e, -1, keep_dim=True)]

    graph = made(build, (4, 5))
    (step,) = line_steps(graph, target()).values()
    assert [graph.node(i).op for i in step.nodes] == ["sum", "div"]
    assert step.read() == {graph.outputs[0]}


def test_what_two_passes_need_is_computed_in_both() -> None:
    """Neither maximum nor sum is stored for another pass: both compute it."""

    def build(g: Any, x: Any, y: Any) -> list[Any]:
        low = x - g.max(x, -1, keep_dim=True)
        total = g.sum(g.exp(low), -1, keep_dim=True)
        return [
            g.sum((low - g.log(total)) * y, -1),
            g.exp(low) / total - y,
        ]

    kinds = [kind for kind, _ in steps_of(made(build, (4, 5), (4, 5)))]
    assert kinds == ["lines", "lines"]


def test_values_without_the_axis_are_spread_by_a_view() -> None:
    """A sum that loses its axis gets it back by a reshape, within the pass."""

    def build(g: Any, x: Any) -> Any:
        total = g.sum(g.exp(x), -1)
        return x / g.reshape(total, (4, 1))

    assert [kind for kind, _ in steps_of(made(build, (4, 5)))] == ["lines"]


def test_a_value_that_broadcasts_across_the_lines_is_stored() -> None:
    """A value for each row that is read for each column is stored first."""

    def build(g: Any, x: Any) -> Any:
        total = g.sum(g.exp(x), -1)
        return g.sum(x / total, -1)

    graph = made(build, (5, 5))
    kinds = [kind for kind, _ in steps_of(graph)]
    assert kinds == ["lines", "lines"]
    first, second = sorted(line_steps(graph, target()).items())
    assert first[0] in second[1].read()


def test_a_weight_is_read_as_each_reader_broadcasts_it() -> None:
    """A weight of a square is read along the line and by row, as each reader wants."""

    def build(g: Any, x: Any, w: Any) -> Any:
        return g.sum(x * w, -1) + w

    graph = made(build, (5, 5), (5,))
    (step,) = line_steps(graph, target()).values()
    weight = graph.named("input")["x1"].id
    assert [at for at, _ in step.reads].count(weight) == 2
    plan = compile_graph(graph, target())
    layouts = [o.layout.strides for o in plan.steps[0].inputs]
    assert layouts == [(5, 1), (0, 1), (1, 0)]


def test_reductions_of_reductions_end_somewhere() -> None:
    def build(g: Any, x: Any) -> Any:
        for _ in range(MOST_DEEP + 2):
            x = x - g.sum(g.exp(x), -1, keep_dim=True)
        return x

    graph = made(build, (4, 5))
    plan = compile_graph(graph, target())
    assert all(step.kind in ("lines", "region", "kernel") for step in plan.steps)
    every = [i for step in plan.steps for i in step.nodes]
    folds = [i for i in every if plan.graph.node(i).op == "sum"]
    assert len(set(folds)) == MOST_DEEP + 2


def test_a_pass_binds_no_more_than_the_device() -> None:
    def build(g: Any, *xs: Any) -> Any:
        return g.sum(g.exp(sum(xs[1:], xs[0])), -1)

    shapes = ((4, 5),) * 6
    assert len(line_steps(made(build, *shapes), target(max_operands=7))) == 1
    for most in (6, 4):
        graph = made(build, *shapes)
        plan = compile_graph(graph, target(max_operands=most))
        assert all(len(step.inputs) < most for step in plan.steps)


def test_a_line_further_apart_than_is_bound_is_made_dense() -> None:
    """A line whose elements lie across the whole array is made dense."""

    def build(g: Any, x: Any) -> Any:
        return softmax(g, g.transpose(x, (1, 0)))

    graph = made(build, (60, 50))
    assert steps_of(graph)[0][0] == "lines"
    small = Limits(max_storage_buffer_binding_size=16_384)
    kinds = [kind for kind, _ in steps_of(graph, limits=small)]
    assert kinds == ["copy", "lines"]


def test_every_reduction_says_how_it_joins_two() -> None:
    """Only sum, prod, max and min have a record of how they join two."""
    folding = {op.name: getattr(op.lower, "folds", "") for op in registry}
    assert {name: how for name, how in folding.items() if how} == {
        name: name for name in ("sum", "prod", "max", "min")
    }
