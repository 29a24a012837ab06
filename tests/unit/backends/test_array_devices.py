"""Engines over array libraries behind the public calls: sessions, Welch, residents."""

from __future__ import annotations

import sys
from threading import Thread
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.array_faults import fault_of
from rlxweb.backends.mlx_arrays import open_mlx
from rlxweb.backends.pool import pool
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import (
    AdapterMissing,
    DeviceLost,
    IndexRefused,
    OutOfMemory,
    Unsupported,
)
from rlxweb.gpu.drive import drive
from rlxweb.ir.op import registry
from tests.agreement import Engine

DEVICES = ("torch-cpu", "jax-cpu", "mlx")
X = np.random.default_rng(0).normal(size=(6, 2048)).astype(np.float32)


def dense() -> rlx.Graph:
    graph = rlx.Graph("dense")
    x, w = graph.input("x", (4, 8)), graph.param("w", (8, 3))
    graph.set_outputs([graph.gelu(x @ w)])
    return graph


@pytest.mark.parametrize("device", DEVICES)
def test_welch_is_that_of_numpy(device: str) -> None:
    """Welch estimates and peaks are NumPy's, segment for segment."""
    _, got = rlx.welch(X, fs=256, device=device)
    _, want = rlx.welch(X, fs=256, device="cpu")
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-9)
    asked: dict[str, Any] = {"fs": 256, "nperseg": 256, "k": 8}
    some = rlx.welch_peaks(X, **asked, device=device)
    other = rlx.welch_peaks(X, **asked, device="cpu")
    np.testing.assert_array_equal(some.bins, other.bins)
    np.testing.assert_allclose(some.power, other.power, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_stay_there_and_threads_share_them(device: str) -> None:
    """Params, inputs that were put and kept results stay; four threads share them."""
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
    x = np.ones((4, 8), np.float32)
    made = rlx.Session(device).compile(dense())
    made.set_param("w", w)
    (want,) = made.run({"x": x})
    there = rlx.put(x, device)
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(5):
                (kept,) = made.run({"x": there}, keep=True)
                np.testing.assert_array_equal(np.asarray(kept), want)
        except Exception as error:
            wrong.append(error)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_outside_its_table_is_refused(device: str) -> None:
    """A bad index is refused in the words of NumPy's engine, in a whole plan too."""
    graph = rlx.Graph("rows")
    table, at = graph.input("t", (4, 2)), graph.input("i", (2, 3), "i32")
    graph.set_outputs([graph.gather(table, at) + 1.0])
    feeds = {"t": np.ones((4, 2), np.float32), "i": np.array([[0, 1, 2], [3, -5, 9]])}
    feeds["i"] = feeds["i"].astype(np.int32)
    said = []
    for one in ("cpu", device):
        with pytest.raises(IndexRefused) as caught:
            rlx.Session(one).compile(graph).run(feeds)
        said.append((caught.value.problem, caught.value.rule))
    assert said[0] == said[1]
    assert said[0][0] == "index -5 at position [1, 1]"


@pytest.mark.parametrize("device", DEVICES)
def test_a_reference_of_the_callers_own(device: str) -> None:
    """A reference that uses functions of xp runs; what only NumPy has is refused."""
    portable = rlx.register_custom(
        "halved_for_test", arity=1, reference=lambda xp, attrs, x: xp.abs(x) / 2
    )
    numpys = rlx.register_custom(
        "kept_for_test", arity=1, reference=lambda xp, attrs, x: x.no_such_method()
    )
    try:
        graphs = []
        for op in (portable, numpys):
            graph = rlx.Graph(op.name)
            graph.set_outputs([graph.apply(op.name, graph.input("x", 3))])
            graphs.append(rlx.Session(device).compile(graph))
        feeds = {"x": np.array([-1, 2, 3], np.float32)}
        assert graphs[0].run(feeds)[0].tolist() == [0.5, 1.0, 1.5]
        with pytest.raises(Unsupported, match="no_such_method"):
            graphs[1].run(feeds)
        with pytest.raises(
            Unsupported, match=r"run with x\.numpy\(\) and device='cpu'"
        ):
            graphs[1].run({"x": rlx.put(feeds["x"], device)})
    finally:
        registry.unregister(portable.name)
        registry.unregister(numpys.name)


@pytest.mark.parametrize("device", DEVICES)
def test_an_adapter_of_another_name_is_not_swapped(device: str) -> None:
    """An adapter that is not there is refused by name; the engine's own is taken."""
    here = rlx.put(X, device)
    name = pool.backend(device).adapter
    assert rlx.put(X, device, name).engine == here.engine
    with pytest.raises(AdapterMissing, match=rf"named 'nvidia'; there is \['{name}"):
        rlx.put(X, device, "nvidia")


@pytest.mark.parametrize("device", DEVICES)
def test_what_no_memory_holds_is_an_error(device: str) -> None:
    """OutOfMemory is raised where a library computes late; later runs are right."""
    graph = rlx.Graph("outer")
    x = graph.input("x", (1, 3_000_000))
    graph.set_outputs([graph.transpose(x, (1, 0)) @ x])
    feeds = {"x": np.ones((1, 3_000_000), np.float32)}  # a result of 36 TB
    with pytest.raises(OutOfMemory, match="split the batch"):
        rlx.Session(device).compile(graph).run(feeds)
    assert rlx.put(X, device).numpy().tolist() == X.tolist()


@pytest.mark.requires_jax
def test_jax_keeps_the_settings_of_its_other_users() -> None:
    """JAX has 64 bits within a run, and 32 outside of it as before."""
    graph = rlx.Graph("wide")
    graph.set_outputs([graph.input("x", 2, "f64") * 3.0])
    (out,) = rlx.Session("jax-cpu").compile(graph).run({"x": np.array([1e-300, 1.0])})
    assert out.dtype == np.float64
    assert out.tolist() == [3e-300, 3.0]
    jnp = sys.modules["jax.numpy"]
    assert jnp.zeros(1).dtype == np.float32


@pytest.mark.requires_mlx
def test_mlx_compiles_plans_whole_where_it_is_told_to() -> None:
    """MLX compiles a whole plan, each kernel by the machine's C++ compiler."""
    one = Engine("MLX", drive(open_mlx("cpu", traced=True)))
    graph = rlx.Graph("both")
    x, at = graph.input("x", (4, 5)), graph.input("i", 3, "i32")
    graph.set_outputs([graph.gather(graph.tanh(x) * x + 0.5, at)])
    feeds = {"x": np.ones((4, 5), np.float32), "i": np.array([3, 0, 1], np.int32)}
    np.testing.assert_allclose(one.run(graph, feeds)[0], np.tanh(1.0) + 0.5, rtol=1e-6)
    with pytest.raises(IndexRefused, match=r"index 4 at position \[2\]"):
        one.run(graph, feeds | {"i": np.array([3, 0, 4], np.int32)})
    # Streams belong to threads: what one compiled, another runs by its own.
    backend = one.backend
    program = drive(backend.prepare(compile_graph(graph, backend.target)))
    drive(backend.run(program, feeds))
    outs: list[Any] = []
    thread = Thread(target=lambda: outs.append(drive(backend.run(program, feeds))))
    thread.start()
    thread.join(60)
    assert len(outs) == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", OutOfMemory),
        ("RESOURCE_EXHAUSTED: Out of memory while trying", OutOfMemory),
        ("DefaultCPUAllocator: can't allocate memory", OutOfMemory),
        ("[malloc_or_wait] Unable to allocate 8 bytes", OutOfMemory),
        ("CUDA error: an illegal memory access", DeviceLost),
        ('"add_stub" not implemented for UInt32', Unsupported),
    ],
)
def test_what_a_library_raises_is_told_in_our_words(text: str, kind: type) -> None:
    """A library's error is told in our words, with its own behind."""
    error = fault_of("it", RuntimeError(text))
    assert type(error) is kind
    assert text in str(error)
