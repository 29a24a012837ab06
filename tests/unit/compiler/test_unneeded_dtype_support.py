"""A device is not rejected for a dtype that it need not support."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlxweb import Device, DevicePolicy, Graph, GraphDevices, Session, Tensor
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.rewrites import MAX_FOLD_ELEMENTS, MAX_FOLD_UNSUPPORTED_ELEMENTS
from rlxweb.core.errors import Disagrees, DTypeError
from rlxweb.devices import devices_for, supports_graph
from rlxweb.engines.custom_op_reference_check import check_custom_ops
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr, HostOnly
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.select.graph_job import GraphJob
from rlxweb.select.resolve import unsupported_node
from tests.engines_under_test import engine
from tests.op_factory import make_op

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
LONG = np.arange(100_000)


def add_unused_nodes(g: Graph, x: Tensor) -> Tensor:
    g.constant(np.arange(5)) * 2
    g.sqrt(g.constant(np.ones(7)))
    return g.exp(x)


UNNEEDED_DTYPE_GRAPHS: dict[str, Callable[[Graph, Tensor], Tensor]] = {
    "dead i64 and f64": add_unused_nodes,
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


def build_graph(build: Callable[[Graph, Tensor], Tensor]) -> Graph:
    graph = Graph("net")
    graph.set_outputs([build(graph, graph.input("x", X.shape))])
    return graph


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("name", UNNEEDED_DTYPE_GRAPHS)
def test_device_results_match_the_cpu(
    name: str, optimise: bool, adapter: AdapterRequest
) -> None:
    """Dead nodes are dropped, constants folded and indices demoted before support is
    judged.
    """
    graph = build_graph(UNNEEDED_DTYPE_GRAPHS[name])
    want = engine(None).run(graph, {"x": X})[0]
    got = engine(adapter, optimise=optimise).run(graph, {"x": X})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["dead i64 and f64", "i64 indices", "f64 arithmetic"])
@pytest.mark.requires_lavapipe
def test_all_support_checks_agree(name: str) -> None:
    """Support, candidates, prices, GraphDevices and sessions agree."""
    graph = build_graph(UNNEEDED_DTYPE_GRAPHS[name])
    assert supports_graph("vulkan", graph)
    assert Device.VULKAN in devices_for(graph)
    assert Device.VULKAN in GraphDevices(graph, DevicePolicy.only(["vulkan"])).devices
    (candidate,) = GraphJob(graph).candidates(DevicePlace(Device.VULKAN, ""))
    assert "has no" not in candidate.blocker
    want, got = (Session(d).compile(graph).run({"x": X}) for d in ("cpu", "vulkan"))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("optimise", [True, False])
def test_unread_inputs_and_params_may_have_any_dtype(
    optimise: bool, adapter: AdapterRequest
) -> None:
    """Unread inputs and params may be of a dtype that the device lacks."""
    graph = Graph()
    x = graph.input("x", X.shape)
    _ = graph.input("y", (3,), "f64")
    _ = graph.param("w", (2,), "f64")
    graph.set_outputs([x * 2.0])
    webgpu_engine = engine(adapter, optimise=optimise).engine
    plan = compile_graph(graph, webgpu_engine.target, optimise=optimise)
    program = run_blocking(webgpu_engine.prepare(plan))
    run_blocking(program.set_param("w", np.ones(2)))
    feeds = {"x": X, "y": np.ones(3)}
    np.testing.assert_array_equal(
        run_blocking(webgpu_engine.run(program, feeds))[0], X * 2
    )


HOST_ONLY_OPS = (
    make_op("lone_for_test", lower=HostOnly("of the host")),
    Op(
        name="table_for_test",
        arity=0,
        infer=lambda types, attrs: TensorType((6,), DType.F32),
        reference=lambda xp, attrs: xp.arange(6, dtype=xp.float32),
        lower=HostOnly("of the host"),
    ),
)


@pytest.mark.parametrize("optimise", [True, False])
def test_ops_of_constants_alone_need_no_kernel(
    optimise: bool, adapter: AdapterRequest
) -> None:
    """Ops of constants, large ones and those without operands too, need no kernel."""
    for op in HOST_ONLY_OPS:
        registry.register(op)
    graph = Graph()
    x = graph.input("x", X.shape)
    large_constant = graph.constant(np.ones(MAX_FOLD_ELEMENTS + 1, np.float32))
    graph.apply("lone_for_test", x)
    table = graph.apply("table_for_test")
    graph.set_outputs(
        [x + table, graph.apply("lone_for_test", large_constant) * x[0, 0]]
    )
    want = engine(None).run(graph, {"x": X})
    got = engine(adapter, optimise=optimise).run(graph, {"x": X})
    for got_output, want_output in zip(got, want, strict=True):
        np.testing.assert_allclose(got_output, want_output, rtol=1e-6)


def test_dead_custom_op_is_not_checked(adapter: AdapterRequest) -> None:
    """An op with wrong WGSL is not checked unless an output needs it."""
    registry.register(
        make_op("wrong_for_test", lower=Expr("x + X(1)"), traits={"custom"})
    )
    graph = Graph()
    x = graph.input("x", (3,))
    graph.apply("wrong_for_test", x)
    graph.set_outputs([x])
    run_blocking(check_custom_ops(graph, engine(adapter).engine))
    graph.set_outputs([graph.apply("wrong_for_test", x)])
    with pytest.raises(Disagrees):
        run_blocking(check_custom_ops(graph, engine(adapter).engine))


REJECTED_GRAPHS: dict[str, tuple[Callable[[Graph, Tensor], Tensor], str]] = {
    "an f64 output": (lambda g, x: g.constant(np.full(3, 0.1)), "has no f64 support"),
    "f64 that depends on x": (
        lambda g, x: g.sqrt(g.cast(x, "f64")),
        "has no f64 support",
    ),
    "i64 beyond i32": (
        lambda g, x: g.cast(g.cast(x, "i64") + g.constant(1 << 40, "i64"), "f32"),
        "has no i64 support",
    ),
}


@pytest.mark.parametrize("name", REJECTED_GRAPHS)
def test_needed_unsupported_dtype_is_rejected(
    name: str, adapter: AdapterRequest
) -> None:
    """A value not known to fit is rejected with its node."""
    build, words = REJECTED_GRAPHS[name]
    with pytest.raises(DTypeError, match=words):
        engine(adapter).run(build_graph(build), {"x": X})


def test_folding_does_not_enlarge_constants(adapter: AdapterRequest) -> None:
    """Folding stays small: doubles that are cast to f32 are f32 from the beginning."""
    graph = Graph()
    expanded = graph.expand(
        graph.constant(np.full((1, 1), 0.1)), (MAX_FOLD_UNSUPPORTED_ELEMENTS, 2)
    )
    graph.set_outputs([graph.sum(graph.cast(expanded, "f32")[:3])])
    plan = compile_graph(graph, engine(adapter).engine.target)
    constant_sizes = [n.type.numel for n in plan.graph.nodes() if n.op == "constant"]
    assert max(constant_sizes) == 1


@pytest.mark.requires_lavapipe
def test_blocker_uses_the_callers_node_numbers() -> None:
    """Node numbers are the caller's, also where earlier nodes were folded or
    dropped.
    """
    graph = build_graph(lambda g, x: g.sqrt(g.cast(add_unused_nodes(g, x), "f64")))
    reason = unsupported_node(Device.VULKAN, graph)
    node = next(
        n
        for n in graph.nodes()
        if n.op == "sqrt" and n.type.dtype is DType.F64 and n.type.rank == 2
    )
    assert reason.startswith(f"unsupported op at node {node.id}: sqrt (")


def test_out_of_range_indices_are_rejected(adapter: AdapterRequest) -> None:
    """Demotion never turns one index into another."""
    for index in (1 << 32, -(1 << 33), 4):
        graph = build_graph(
            lambda g, x, bound_index=index: g.gather(
                x, g.constant(np.array([0, bound_index]))
            )
        )
        with pytest.raises((IndexError, DTypeError)):
            engine(adapter).run(graph, {"x": X})
