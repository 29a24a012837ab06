"""A device is not refused for a type that it need never see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlxweb import Device, DevicePolicy, Graph, GraphDevices, Session, Tensor
from rlxweb.backends.custom_ops import try_custom_ops
from rlxweb.choose.graphs import GraphJob
from rlxweb.choose.resolve import unsupported_node
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.rewrites import FOLD_ELEMENTS, FOLD_UNHELD
from rlxweb.devices import devices_for, supports_graph
from rlxweb.devices.place import Place
from rlxweb.errors import Disagrees, DTypeError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr, HostOnly
from rlxweb.ir.op import Op, TensorType, registry
from tests.agreement import engine
from tests.made_op import made_op

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
LONG = np.arange(100_000)


def unused(g: Graph, x: Tensor) -> Tensor:
    g.constant(np.arange(5)) * 2
    g.sqrt(g.constant(np.ones(7)))
    return g.exp(x)


NEEDLESS: dict[str, Callable[[Graph, Tensor], Tensor]] = {
    "dead i64 and f64": unused,
    "i64 indices": lambda g, x: g.gather(x, g.constant(np.array([2, 0]))),
    "indices that are computed": lambda g, x: g.gather(
        x, g.reshape(g.constant(np.arange(6)) * 2 - 5 + 1, (2, 3))[1, :2], axis=1
    ),
    "many indices": lambda g, x: g.gather(x, g.constant(LONG % 4)),
    "i64 cast to f32": lambda g, x: x + g.cast(g.constant(np.arange(6)), "f32"),
    "a long one": lambda g, x: x + g.sum(g.cast(g.constant(LONG), "f32") * 1e-6),
    "f64 cast to f32": lambda g, x: x * g.cast(g.constant(np.arange(6) / 7), "f32"),
    "a large f64": lambda g, x: x + g.sum(g.cast(g.constant(LONG / 1e9), "f32")),
    "f64 arithmetic": lambda g, x: (
        x
        * g.cast(g.sqrt(g.constant(np.arange(1.0, 7)) / g.constant(3.0, "f64")), "f32")
    ),
    "f64 in a reduction": lambda g, x: (
        x + g.cast(g.mean(g.expand(g.constant(np.ones((300, 1))), (300, 400))), "f32")
    ),
    "a comparison of i64": lambda g, x: g.where(
        g.lt(g.constant(np.arange(6)), 3), x, 0.0
    ),
}


def built(how: Callable[[Graph, Tensor], Tensor]) -> Graph:
    graph = Graph("net")
    graph.set_outputs([how(graph, graph.input("x", X.shape))])
    return graph


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("what", NEEDLESS)
def test_it_runs_and_gives_what_the_cpu_gives(
    what: str, optimise: bool, adapter: Want
) -> None:
    """Dead nodes go, constants are folded and indices narrowed before it is judged."""
    graph = built(NEEDLESS[what])
    want = engine(None).run(graph, {"x": X})[0]
    got = engine(adapter, optimise=optimise).run(graph, {"x": X})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", ["dead i64 and f64", "i64 indices", "f64 arithmetic"])
@pytest.mark.requires_lavapipe
def test_every_door_judges_the_same(what: str) -> None:
    """Support, candidates, prices, GraphDevices and sessions judge the same."""
    graph = built(NEEDLESS[what])
    assert supports_graph("vulkan", graph)
    assert Device.VULKAN in devices_for(graph)
    assert Device.VULKAN in GraphDevices(graph, DevicePolicy.only(["vulkan"])).devices
    (way,) = GraphJob(graph).offers(Place(Device.VULKAN, ""))
    assert "has no" not in way.blocker
    want, got = (Session(d).compile(graph).run({"x": X}) for d in ("cpu", "vulkan"))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("optimise", [True, False])
def test_inputs_and_params_that_nobody_reads_are_no_reason_to_refuse(
    optimise: bool, adapter: Want
) -> None:
    """Unread inputs and params may be of a type that the device has not."""
    graph = Graph()
    x, _, _ = (
        graph.input("x", X.shape),
        graph.input("y", (3,), "f64"),
        graph.param("w", (2,), "f64"),
    )
    graph.set_outputs([x * 2.0])
    backend = engine(adapter, optimise=optimise).backend
    plan = compile_graph(graph, backend.target, optimise=optimise)
    program = drive(backend.prepare(plan))
    drive(backend.set_param(program, "w", np.ones(2)))
    feeds = {"x": X, "y": np.ones(3)}
    np.testing.assert_array_equal(drive(backend.run(program, feeds))[0], X * 2)


LONE = (
    made_op("lone_for_test", lower=HostOnly("of the host")),
    Op(
        name="table_for_test",
        arity=0,
        infer=lambda types, attrs: TensorType((6,), DType.F32),
        reference=lambda xp, attrs: xp.arange(6, dtype=xp.float32),
        lower=HostOnly("of the host"),
    ),
)


@pytest.mark.parametrize("optimise", [True, False])
def test_ops_of_constants_alone_need_no_kernel(optimise: bool, adapter: Want) -> None:
    """Ops of constants, large ones and those without operands too, need no kernel."""
    for op in LONE:
        registry.register(op)
    graph = Graph()
    x = graph.input("x", X.shape)
    many = graph.constant(np.ones(FOLD_ELEMENTS + 1, np.float32))
    graph.apply("lone_for_test", x)
    table = graph.apply("table_for_test")
    graph.set_outputs([x + table, graph.apply("lone_for_test", many) * x[0, 0]])
    want = engine(None).run(graph, {"x": X})
    got = engine(adapter, optimise=optimise).run(graph, {"x": X})
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_custom_op_that_no_output_needs_is_not_tried(adapter: Want) -> None:
    """An op with wrong WGSL is not tried unless an output needs it."""
    registry.register(
        made_op("wrong_for_test", lower=Expr("x + X(1)"), traits={"custom"})
    )
    graph = Graph()
    x = graph.input("x", (3,))
    graph.apply("wrong_for_test", x)
    graph.set_outputs([x])
    drive(try_custom_ops(graph, engine(adapter).backend))
    graph.set_outputs([graph.apply("wrong_for_test", x)])
    with pytest.raises(Disagrees):
        drive(try_custom_ops(graph, engine(adapter).backend))


REFUSED: dict[str, tuple[Callable[[Graph, Tensor], Tensor], str]] = {
    "an f64 output": (lambda g, x: g.constant(np.full(3, 0.1)), "has no f64"),
    "f64 that depends on x": (lambda g, x: g.sqrt(g.cast(x, "f64")), "has no f64"),
    "i64 beyond i32": (
        lambda g, x: g.cast(g.cast(x, "i64") + g.constant(1 << 40, "i64"), "f32"),
        "has no i64",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_must_see_is_refused(what: str, adapter: Want) -> None:
    """A value not known to fit is refused with its node."""
    how, words = REFUSED[what]
    with pytest.raises(DTypeError, match=words):
        engine(adapter).run(built(how), {"x": X})


def test_no_constant_is_made_much_larger_than_what_it_is_made_of(adapter: Want) -> None:
    """Folding stays small: doubles that are cast to f32 are f32 from the beginning."""
    graph = Graph()
    many = graph.expand(graph.constant(np.full((1, 1), 0.1)), (FOLD_UNHELD, 2))
    graph.set_outputs([graph.sum(graph.cast(many, "f32")[:3])])
    plan = compile_graph(graph, engine(adapter).backend.target)
    held = [n.type.numel for n in plan.graph.nodes() if n.op == "constant"]
    assert max(held) == 1


@pytest.mark.requires_lavapipe
def test_a_blocker_names_the_node_as_the_caller_counts_it() -> None:
    """Node numbers are the caller's, also where nodes before were folded or dropped."""
    graph = built(lambda g, x: g.sqrt(g.cast(unused(g, x), "f64")))
    said = unsupported_node(Device.VULKAN, graph)
    node = next(
        n
        for n in graph.nodes()
        if n.op == "sqrt" and n.type.dtype is DType.F64 and n.type.rank == 2
    )
    assert said.startswith(f"unsupported op at node {node.id}: sqrt (")


def test_indices_beyond_the_table_are_refused_as_ever(adapter: Want) -> None:
    """Narrowing never turns one index into another."""
    for index in (1 << 32, -(1 << 33), 4):
        graph = built(lambda g, x, at=index: g.gather(x, g.constant(np.array([0, at]))))
        with pytest.raises((IndexError, DTypeError)):
            engine(adapter).run(graph, {"x": X})
