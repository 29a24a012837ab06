"""Compiled graphs whose sizes vary: every run binds them, params are there once."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rlxweb import Dim, Graph, Session
from rlxweb.backends.pool import pool
from rlxweb.device import Device
from rlxweb.errors import (
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
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import registry
from rlxweb.runtime import bindings
from rlxweb.runtime.compiled import CompiledGraph
from tests.made_op import made_op

W = np.arange(12, dtype=np.float32).reshape(4, 3)
wgpu = pytest.param("vulkan", marks=pytest.mark.requires_wgpu)
DEVICES = ["cpu", wgpu]


def layer() -> Graph:
    g = Graph("layer")
    n, m = Dim("n"), Dim("m")
    x, y, w = g.input("x", (n, m, 4)), g.input("y", (n,)), g.param("w", (4, 3))
    made = g.relu(x).reshape(n * m, 4) @ w
    g.set_outputs([made.reshape(n, m, 3).sum(1) / m + y[:, None], y * 2.0])
    return g


def arrays(n: int, m: int) -> dict[str, Any]:
    rng = np.random.default_rng(n + 100 * m)
    x, y = rng.normal(size=(n, m, 4)), rng.normal(size=n)
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def expected(given: dict[str, Any], w: Any = W) -> Any:
    return (np.maximum(given["x"], 0) @ w).mean(1) + given["y"][:, None]


def right(compiled: CompiledGraph, n: int, m: int, w: Any = W) -> None:
    first, second = compiled.run(arrays(n, m))
    np.testing.assert_allclose(first, expected(arrays(n, m), w), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, arrays(n, m)["y"] * 2)


@pytest.fixture(params=DEVICES)
def compiled(request: pytest.FixtureRequest) -> Iterator[CompiledGraph]:
    made = Session(request.param).compile(layer())
    made.set_param("w", W)
    yield made
    made.close()


def test_a_run_binds_the_sizes_by_what_it_is_given(compiled: CompiledGraph) -> None:
    for sizes in ((2, 3), (1, 1), (5, 2), (2, 3), (64, 33)):
        right(compiled, *sizes)
    assert compiled.cache_info() == (1, 4, bindings.MOST_BOUND, 4)
    assert "n=64, m=33" in compiled.explain()
    assert "4 of at most" in compiled.explain()


@pytest.mark.requires_wgpu
def test_the_shaders_are_those_of_the_first_sizes() -> None:
    """Sizes are uniforms: other ones make next to no pipelines."""
    engine: Any = pool.backend("vulkan", "")
    compiled = Session("vulkan").compile(layer())
    compiled.set_param("w", W)
    right(compiled, 6, 5)
    before = set(engine.pipelines.values())
    for sizes in ((7, 5), (6, 9), (31, 3), (12, 12)):
        right(compiled, *sizes)
    assert len(set(engine.pipelines.values()) - before) <= 1


def test_params_lie_there_once(compiled: CompiledGraph) -> None:
    """Params lie on the device once; a new value is that of every binding."""
    for n in (1, 2, 3):
        right(compiled, n, 2)
    every = [compiled.bind(n=n, m=2)._placed.ready.program for n in (1, 2, 3)]
    assert all(one.params is every[0].params for one in every)
    params = every[0].params_nbytes
    assert compiled.nbytes == sum(one.nbytes for one in every) - 2 * params
    compiled.set_param("w", -W)
    for n in (1, 2, 3, 4):
        right(compiled, n, 2, -W)
    np.testing.assert_array_equal(compiled.params()["w"], -W)
    compiled.bind(n=1, m=2).close()
    right(compiled, 2, 2, -W)


def test_only_so_many_are_kept(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bindings that ran last are kept; letting go of others keeps the params."""
    monkeypatch.setattr(bindings, "MOST_BOUND", 2)
    for n in (1, 2, 1, 3, 1):
        right(compiled, n, 2)
    assert compiled.cache_info() == (2, 3, 2, 2)
    right(compiled, 2, 2)
    assert compiled.cache_info().misses == 4


def test_state_stays_on_the_device(compiled: CompiledGraph) -> None:
    """An output of one size is an input of a run, or a param for all of them."""
    given = arrays(3, 2)
    _, twice = compiled.run(given, keep=True)
    again, _ = compiled.run({**given, "y": twice})
    want = expected({**given, "y": given["y"] * 2})
    np.testing.assert_allclose(again, want, rtol=1e-4, atol=1e-4)
    compiled.set_param("w", compiled.put(W * 3))
    right(compiled, 3, 2, W * 3)
    right(compiled, 5, 2, W * 3)
    np.testing.assert_array_equal(compiled.params()["w"], W * 3)


def test_batches_of_any_sizes_are_mapped(compiled: CompiledGraph) -> None:
    every = [arrays(n, 2) for n in (2, 2, 1, 3, 3)]
    for given, (first, _) in zip(every, compiled.map(every), strict=True):
        np.testing.assert_allclose(first, expected(given), rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match="batch 1: run 'layer', input 'y'"):
        compiled.map([arrays(2, 2), {**arrays(2, 2), "y": np.ones(3, np.float32)}])


F = np.float32
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "contradicts": (
        {**arrays(2, 3), "y": np.ones(4, F)},
        ShapeError,
        "input 'y': dimension 0, 'n', is 4; input 'x' has 2 for it",
    ),
    "rank": ({**arrays(2, 3), "y": np.ones((2, 1), F)}, ShapeError, r"declares \[n\]"),
    "number": (
        {"x": np.ones((2, 3, 5), F), "y": np.ones(2, F)},
        ShapeError,
        r"is \[2, 3, 5\]; the graph declares \[n, m, 4\]",
    ),
    "dtype": ({**arrays(2, 3), "y": np.ones(2)}, DTypeError, "is float64"),
    "empty": (
        {"x": np.ones((0, 3, 4), F), "y": np.ones(0, F)},
        ShapeError,
        "input 'x', axis 0: dim 'n' is 0; it is at least 1",
    ),
    "missing": ({"x": np.ones((2, 3, 4), F)}, InputError, "'y' was not given"),
    "unknown": ({**arrays(2, 3), "z": 1}, UnknownName, "no input 'z'"),
}
if sys.maxsize > 1 << 32:  # else NumPy itself refuses such shapes
    WRONG["huge"] = (
        {
            "x": np.broadcast_to(F(1), (10**9, 300, 4)),
            "y": np.broadcast_to(F(1), (10**9,)),
        },
        (LimitExceeded, OutOfMemory),  # type: ignore[dict-item]
        "",
    )


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_one_error(what: str, compiled: CompiledGraph) -> None:
    given, kind, words = WRONG[what]
    with pytest.raises(kind, match=words or None):
        compiled.run(given)
    right(compiled, 2, 3)


def test_lists_and_calls_bind_too() -> None:
    g = Graph()
    g.set_outputs([g.input("x", ("n",)) * 2.0])
    compiled = Session("cpu").compile(g)
    assert compiled([1, 2, 3]).tolist() == [2, 4, 6]
    assert compiled(x=[1.5]).tolist() == [3]


def test_dims_within_arithmetic_are_solved() -> None:
    g, n, m = Graph(), Dim("n"), Dim("m")
    x, y = g.input("x", (n * m, 2)), g.input("y", (2 * n + 1,))
    g.set_outputs([x.reshape(n, m, 2), y])
    compiled = Session("cpu").compile(g)
    a, b = compiled([[1, 2]] * 6, [0] * 5)
    assert (a.shape, b.shape) == ((2, 3, 2), (5,))
    with pytest.raises(ShapeError, match=r"dimension 0 is 4; it is 2\*n \+ 1"):
        compiled([[1, 2]] * 6, [0] * 4)


def test_a_dim_that_no_input_tells_is_refused_at_once() -> None:
    g = Graph()
    x = g.input("x", ("n",))
    g.set_outputs([g.expand(x, (Dim("times"), x.shape[0]))])
    with pytest.raises(ShapeError, match="dim 'times' is told by no input"):
        Session("cpu").compile(g)
    assert Session("cpu").compile(g.bind(times=2))([1]).shape == (2, 1)


@pytest.mark.requires_wgpu
def test_what_a_device_cannot_run_is_refused_at_once() -> None:
    registry.register(made_op("host_for_test", lower=HostOnly("of the host")))
    g = Graph()
    g.set_outputs([g.apply("host_for_test", g.input("x", ("n",)))])
    with pytest.raises(Unsupported, match="of the host"):
        Session("vulkan").compile(g)


ASKED: dict[str, tuple[Callable[[CompiledGraph], object], type[Exception]]] = {
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


@pytest.mark.parametrize("what", ASKED)
def test_what_wants_numbers_says_how_they_are_bound(what: str) -> None:
    ask, kind = ASKED[what]
    with pytest.raises(kind, match=r"bind|dim"):
        ask(Session("cpu").compile(layer()))


def test_a_binding_is_a_compiled_graph() -> None:
    compiled = Session("cpu").compile(layer())
    one = compiled.bind({"n": 2, "m": 3})
    with pytest.raises(InputError, match="'w' has no value"):
        compiled.run(arrays(2, 3))
    compiled.set_param("w", W)
    right(one, 2, 3)
    assert one.graph.named("input")["x"].type.shape == (2, 3, 4)
    assert (compiled.device, compiled.engine) == (Device.CPU, one.engine)
    assert compiled.plan is one.plan
    assert asyncio.run(compiled.bind_async(n=2, m=3)) is one
    assert compiled.profile(arrays(2, 3)).total_ns > 0
    assert Session("cpu").compile(one.graph).bind().graph.key == one.graph.key


def test_a_closed_one_says_so(compiled: CompiledGraph) -> None:
    right(compiled, 2, 3)
    compiled.close()
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.run(arrays(2, 3))


def test_rlxweb_chooses_for_each_binding() -> None:
    compiled = Session("auto").compile(layer())
    compiled.set_param("w", W)
    right(compiled, 2, 3)
    right(compiled, 4, 3)
    assert "device" in str(compiled.decisions[0])


def test_what_is_dropped_is_freed() -> None:
    """A dropped graph is freed at once, without the collector of cycles."""
    made = Session("cpu").compile(layer())
    made.set_param("w", W)
    right(made, 2, 3)
    freed = weakref.ref(made.bind(n=2, m=3))
    del made
    assert freed() is None
