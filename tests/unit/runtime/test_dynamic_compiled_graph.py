"""Dynamic compiled graphs: every run binds the sizes, and params are stored once."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rlxweb import Dim, Graph, Session
from rlxweb.core.device import Device
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    LimitExceeded,
    OutOfMemory,
    SessionClosed,
    ShapeError,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.engines.pool import pool
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import registry
from rlxweb.runtime import dynamic_shape_graph_cache
from rlxweb.runtime.compiled_graph import CompiledGraph
from tests.op_factory import make_op

W = np.arange(12, dtype=np.float32).reshape(4, 3)
wgpu = pytest.param("vulkan", marks=pytest.mark.requires_wgpu)
DEVICES = ["cpu", wgpu]


def dynamic_layer_graph() -> Graph:
    """Build a layer with two dynamic sizes n and m."""
    g = Graph("layer")
    n, m = Dim("n"), Dim("m")
    x, y, w = g.input("x", (n, m, 4)), g.input("y", (n,)), g.param("w", (4, 3))
    product = g.relu(x).reshape(n * m, 4) @ w
    g.set_outputs([product.reshape(n, m, 3).sum(1) / m + y[:, None], y * 2.0])
    return g


def random_inputs(n: int, m: int) -> dict[str, Any]:
    """Return random inputs of these sizes."""
    rng = np.random.default_rng(n + 100 * m)
    x, y = rng.normal(size=(n, m, 4)), rng.normal(size=n)
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def reference_output(inputs: dict[str, Any], w: Any = W) -> Any:
    """Return the first output computed by NumPy."""
    return (np.maximum(inputs["x"], 0) @ w).mean(1) + inputs["y"][:, None]


def check_run(compiled: CompiledGraph, n: int, m: int, w: Any = W) -> None:
    """Run the graph with these sizes and check both outputs."""
    first, second = compiled.run(random_inputs(n, m))
    np.testing.assert_allclose(
        first, reference_output(random_inputs(n, m), w), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(second, random_inputs(n, m)["y"] * 2)


@pytest.fixture(params=DEVICES)
def compiled(request: pytest.FixtureRequest) -> Iterator[CompiledGraph]:
    compiled_graph = Session(request.param).compile(dynamic_layer_graph())
    compiled_graph.set_param("w", W)
    yield compiled_graph
    compiled_graph.close()


def test_run_binds_sizes_from_inputs(compiled: CompiledGraph) -> None:
    for sizes in ((2, 3), (1, 1), (5, 2), (2, 3), (64, 33)):
        check_run(compiled, *sizes)
    assert compiled.cache_info() == (
        1,
        4,
        dynamic_shape_graph_cache.MAX_BOUND_GRAPHS,
        4,
    )
    assert "n=64, m=33" in compiled.explain()
    assert "compiled for 4 sets of sizes (at most 16 are kept)" in compiled.explain()


@pytest.mark.requires_wgpu
def test_other_sizes_reuse_pipelines() -> None:
    """Sizes are uniforms, so other sizes create at most one new pipeline."""
    engine: Any = pool.engine("vulkan", "")
    compiled = Session("vulkan").compile(dynamic_layer_graph())
    compiled.set_param("w", W)
    check_run(compiled, 6, 5)
    pipelines_before = set(engine.pipelines.handles())
    for sizes in ((7, 5), (6, 9), (31, 3), (12, 12)):
        check_run(compiled, *sizes)
    assert len(set(engine.pipelines.handles()) - pipelines_before) <= 1


def test_params_are_stored_once(compiled: CompiledGraph) -> None:
    """Params are stored once per device; a new value applies to every binding."""
    for n in (1, 2, 3):
        check_run(compiled, n, 2)
    programs = [compiled.bind(n=n, m=2)._placement.prepared.program for n in (1, 2, 3)]
    assert all(program.params is programs[0].params for program in programs)
    params = programs[0].params_nbytes
    assert compiled.nbytes == sum(program.nbytes for program in programs) - 2 * params
    compiled.set_param("w", -W)
    for n in (1, 2, 3, 4):
        check_run(compiled, n, 2, -W)
    np.testing.assert_array_equal(compiled.params()["w"], -W)
    compiled.bind(n=1, m=2).close()
    check_run(compiled, 2, 2, -W)


def test_binding_cache_is_bounded(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the most recent bindings are cached; eviction keeps the params."""
    monkeypatch.setattr(dynamic_shape_graph_cache, "MAX_BOUND_GRAPHS", 2)
    for n in (1, 2, 1, 3, 1):
        check_run(compiled, n, 2)
    assert compiled.cache_info() == (2, 3, 2, 2)
    check_run(compiled, 2, 2)
    assert compiled.cache_info().misses == 4


def test_state_stays_on_the_device(compiled: CompiledGraph) -> None:
    """A kept output is a valid input of a later run, or a param of all bindings."""
    inputs = random_inputs(3, 2)
    _, doubled_y = compiled.run(inputs, keep=True)
    second_output, _ = compiled.run({**inputs, "y": doubled_y})
    want = reference_output({**inputs, "y": inputs["y"] * 2})
    np.testing.assert_allclose(second_output, want, rtol=1e-4, atol=1e-4)
    compiled.set_param("w", compiled.put(W * 3))
    check_run(compiled, 3, 2, W * 3)
    check_run(compiled, 5, 2, W * 3)
    np.testing.assert_array_equal(compiled.params()["w"], W * 3)


def test_map_accepts_batches_of_any_size(compiled: CompiledGraph) -> None:
    batches = [random_inputs(n, 2) for n in (2, 2, 1, 3, 3)]
    for inputs, (first, _) in zip(batches, compiled.map(batches), strict=True):
        np.testing.assert_allclose(
            first, reference_output(inputs), rtol=1e-4, atol=1e-4
        )
    with pytest.raises(ShapeError, match="batch 1: run 'layer', input 'y'"):
        compiled.map(
            [random_inputs(2, 2), {**random_inputs(2, 2), "y": np.ones(3, np.float32)}]
        )


F = np.float32
INVALID_INPUTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "contradicts": (
        {**random_inputs(2, 3), "y": np.ones(4, F)},
        ShapeError,
        r"input 'y': dimension 0 \('n'\) is 4; input 'x' sets 'n' to 2",
    ),
    "rank": (
        {**random_inputs(2, 3), "y": np.ones((2, 1), F)},
        ShapeError,
        r"declares shape \[n\]",
    ),
    "number": (
        {"x": np.ones((2, 3, 5), F), "y": np.ones(2, F)},
        ShapeError,
        r"has shape \[2, 3, 5\]; the graph declares shape \[n, m, 4\]",
    ),
    "dtype": (
        {**random_inputs(2, 3), "y": np.ones(2)},
        DTypeError,
        "has dtype float64",
    ),
    "empty": (
        {"x": np.ones((0, 3, 4), F), "y": np.ones(0, F)},
        ShapeError,
        "input 'x', axis 0: dim 'n' is 0; it must be at least 1",
    ),
    "missing": ({"x": np.ones((2, 3, 4), F)}, InputError, "'y' was not given"),
    "unknown": ({**random_inputs(2, 3), "z": 1}, UnknownName, "no input 'z'"),
}
if sys.maxsize > 1 << 32:  # else NumPy itself refuses such shapes
    INVALID_INPUTS["huge"] = (
        {
            "x": np.broadcast_to(F(1), (10**9, 300, 4)),
            "y": np.broadcast_to(F(1), (10**9,)),
        },
        (LimitExceeded, OutOfMemory),  # type: ignore[dict-item]
        "",
    )


@pytest.mark.parametrize("case", INVALID_INPUTS)
def test_invalid_inputs_are_rejected(case: str, compiled: CompiledGraph) -> None:
    inputs, error, message = INVALID_INPUTS[case]
    with pytest.raises(error, match=message or None):
        compiled.run(inputs)
    check_run(compiled, 2, 3)


def test_lists_and_direct_calls_bind_sizes() -> None:
    g = Graph()
    g.set_outputs([g.input("x", ("n",)) * 2.0])
    compiled = Session("cpu").compile(g)
    assert compiled([1, 2, 3]).tolist() == [2, 4, 6]
    assert compiled(x=[1.5]).tolist() == [3]


def test_dims_in_expressions_are_solved() -> None:
    g, n, m = Graph(), Dim("n"), Dim("m")
    x, y = g.input("x", (n * m, 2)), g.input("y", (2 * n + 1,))
    g.set_outputs([x.reshape(n, m, 2), y])
    compiled = Session("cpu").compile(g)
    a, b = compiled([[1, 2]] * 6, [0] * 5)
    assert (a.shape, b.shape) == ((2, 3, 2), (5,))
    with pytest.raises(
        ShapeError, match=r"dimension 0 is 4; it must equal 2\*n \+ 1 for some"
    ):
        compiled([[1, 2]] * 6, [0] * 4)


def test_undetermined_dim_is_rejected_at_compile() -> None:
    g = Graph()
    x = g.input("x", ("n",))
    g.set_outputs([g.expand(x, (Dim("times"), x.shape[0]))])
    with pytest.raises(ShapeError, match="no input shape determines dim 'times'"):
        Session("cpu").compile(g)
    assert Session("cpu").compile(g.bind(times=2))([1]).shape == (2, 1)


@pytest.mark.requires_wgpu
def test_unsupported_op_is_rejected_at_compile() -> None:
    registry.register(make_op("host_for_test", lower=HostOnly("of the host")))
    g = Graph()
    g.set_outputs([g.apply("host_for_test", g.input("x", ("n",)))])
    with pytest.raises(Unsupported, match="of the host"):
        Session("vulkan").compile(g)


CALLS_NEEDING_SIZES: dict[
    str, tuple[Callable[[CompiledGraph], object], type[Exception]]
] = {
    "a plan": (lambda c: c.plan, UsageError),
    "a device": (lambda c: c.device, UsageError),
    "no sizes": (lambda c: c.bind(), UsageError),
    "some sizes": (lambda c: c.bind(n=2), UsageError),
    "another dim": (lambda c: c.bind(n=2, m=2, k=2), UnknownName),
    "a size it may not be": (lambda c: c.bind(n=0, m=2), ShapeError),
    "bytes": (
        lambda c: c.run_typed({"x": (b"\0" * 16, "f32"), "y": (b"\0" * 4, "f32")}),
        UsageError,
    ),
}


@pytest.mark.parametrize("case", CALLS_NEEDING_SIZES)
def test_calls_needing_sizes_suggest_bind(case: str) -> None:
    call, error = CALLS_NEEDING_SIZES[case]
    with pytest.raises(error, match=r"bind|dim"):
        call(Session("cpu").compile(dynamic_layer_graph()))


def test_bound_graph_is_a_compiled_graph() -> None:
    compiled = Session("cpu").compile(dynamic_layer_graph())
    bound = compiled.bind({"n": 2, "m": 3})
    with pytest.raises(InputError, match="'w' has no value"):
        compiled.run(random_inputs(2, 3))
    compiled.set_param("w", W)
    check_run(bound, 2, 3)
    assert bound.graph.named("input")["x"].type.shape == (2, 3, 4)
    assert (compiled.device, compiled.engine) == (Device.CPU, bound.engine)
    assert compiled.plan is bound.plan
    assert asyncio.run(compiled.bind_async(n=2, m=3)) is bound
    assert compiled.profile(random_inputs(2, 3)).total_ns > 0
    assert Session("cpu").compile(bound.graph).bind().graph.key == bound.graph.key


def test_closed_dynamic_graph_raises(compiled: CompiledGraph) -> None:
    check_run(compiled, 2, 3)
    compiled.close()
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.run(random_inputs(2, 3))


def test_device_is_chosen_for_each_binding() -> None:
    compiled = Session("auto").compile(dynamic_layer_graph())
    compiled.set_param("w", W)
    check_run(compiled, 2, 3)
    check_run(compiled, 4, 3)
    assert "device" in str(compiled.decisions[0])


def test_dropped_graph_is_freed_at_once() -> None:
    """A dropped graph is freed by reference counting, without the cycle collector."""
    compiled_graph = Session("cpu").compile(dynamic_layer_graph())
    compiled_graph.set_param("w", W)
    check_run(compiled_graph, 2, 3)
    weak_graph = weakref.ref(compiled_graph.bind(n=2, m=3))
    del compiled_graph
    assert weak_graph() is None
