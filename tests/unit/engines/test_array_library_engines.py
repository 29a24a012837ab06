"""Array-library engines behind the public calls: sessions, Welch, device arrays."""

from __future__ import annotations

import sys
from threading import Thread
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceLost,
    IndexRefused,
    OutOfMemory,
    Unsupported,
)
from rlxweb.engines.array_library import translate_error
from rlxweb.engines.mlx_engine import open_mlx
from rlxweb.engines.pool import pool
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.op import registry
from tests.engines_under_test import EngineUnderTest

DEVICES = ("torch-cpu", "jax-cpu", "mlx")
X = np.random.default_rng(0).normal(size=(6, 2048)).astype(np.float32)


def dense_layer_graph() -> rlx.Graph:
    graph = rlx.Graph("dense")
    x, w = graph.input("x", (4, 8)), graph.param("w", (8, 3))
    graph.set_outputs([graph.gelu(x @ w)])
    return graph


@pytest.mark.parametrize("device", DEVICES)
def test_welch_matches_numpy(device: str) -> None:
    """Welch estimates and peaks match NumPy's, segment for segment."""
    _, got = rlx.welch(X, fs=256, device=device)
    _, want = rlx.welch(X, fs=256, device="cpu")
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-9)
    options: dict[str, Any] = {"fs": 256, "nperseg": 256, "k": 8}
    got_peaks = rlx.welch_peaks(X, **options, device=device)
    want_peaks = rlx.welch_peaks(X, **options, device="cpu")
    np.testing.assert_array_equal(got_peaks.bins, want_peaks.bins)
    np.testing.assert_allclose(got_peaks.power, want_peaks.power, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_device_arrays_are_shared_by_threads(device: str) -> None:
    """Params, uploaded inputs and kept results stay on the device; four threads share
    them.
    """
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
    x = np.ones((4, 8), np.float32)
    compiled = rlx.Session(device).compile(dense_layer_graph())
    compiled.set_param("w", w)
    (want,) = compiled.run({"x": x})
    device_array = rlx.put(x, device)
    errors: list[object] = []

    def work() -> None:
        try:
            for _ in range(5):
                (output,) = compiled.run({"x": device_array}, keep=True)
                np.testing.assert_array_equal(np.asarray(output), want)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_outside_its_table_is_refused(device: str) -> None:
    """A bad index raises the error of NumPy's engine, also in a compiled plan."""
    graph = rlx.Graph("rows")
    table, indices = graph.input("t", (4, 2)), graph.input("i", (2, 3), "i32")
    graph.set_outputs([graph.gather(table, indices) + 1.0])
    feeds = {"t": np.ones((4, 2), np.float32), "i": np.array([[0, 1, 2], [3, -5, 9]])}
    feeds["i"] = feeds["i"].astype(np.int32)
    messages = []
    for label in ("cpu", device):
        with pytest.raises(IndexRefused) as caught:
            rlx.Session(label).compile(graph).run(feeds)
        messages.append((caught.value.problem, caught.value.rule))
    assert messages[0] == messages[1]
    assert messages[0][0] == "index -5 at position [1, 1]"


@pytest.mark.parametrize("device", DEVICES)
def test_custom_reference_on_array_library(device: str) -> None:
    """A reference that uses functions of xp runs; one that needs NumPy alone is
    refused.
    """
    portable = rlx.register_custom(
        "halved_for_test", arity=1, reference=lambda xp, attrs, x: xp.abs(x) / 2
    )
    numpy_only = rlx.register_custom(
        "kept_for_test", arity=1, reference=lambda xp, attrs, x: x.no_such_method()
    )
    try:
        graphs = []
        for op in (portable, numpy_only):
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
        registry.unregister(numpy_only.name)


@pytest.mark.parametrize("device", DEVICES)
def test_unknown_adapter_is_refused_by_name(device: str) -> None:
    """An adapter that does not exist is refused by name; the engine's own is
    accepted.
    """
    device_array = rlx.put(X, device)
    name = pool.engine(device).identity.adapter
    assert rlx.put(X, device, name).engine == device_array.engine
    with pytest.raises(
        AdapterMissing, match=rf"contains 'nvidia'; available: \['{name}"
    ):
        rlx.put(X, device, "nvidia")


@pytest.mark.parametrize("device", DEVICES)
def test_result_beyond_memory_raises_out_of_memory(device: str) -> None:
    """OutOfMemory is raised where a library computes lazily; later runs are right."""
    graph = rlx.Graph("outer")
    x = graph.input("x", (1, 3_000_000))
    graph.set_outputs([graph.transpose(x, (1, 0)) @ x])
    feeds = {"x": np.ones((1, 3_000_000), np.float32)}  # a result of 36 TB
    with pytest.raises(OutOfMemory, match="split the batch"):
        rlx.Session(device).compile(graph).run(feeds)
    assert rlx.put(X, device).numpy().tolist() == X.tolist()


@pytest.mark.requires_jax
def test_jax_x64_setting_is_restored() -> None:
    """JAX has 64 bits within a run, and 32 outside it as before."""
    graph = rlx.Graph("wide")
    graph.set_outputs([graph.input("x", 2, "f64") * 3.0])
    (out,) = rlx.Session("jax-cpu").compile(graph).run({"x": np.array([1e-300, 1.0])})
    assert out.dtype == np.float64
    assert out.tolist() == [3e-300, 3.0]
    jnp = sys.modules["jax.numpy"]
    assert jnp.zeros(1).dtype == np.float32


@pytest.mark.requires_mlx
def test_traced_mlx_compiles_whole_plans() -> None:
    """Traced MLX compiles a whole plan, each kernel with the machine's C++ compiler."""
    runner = EngineUnderTest("MLX", run_blocking(open_mlx("cpu", trace_plans=True)))
    graph = rlx.Graph("both")
    x, indices = graph.input("x", (4, 5)), graph.input("i", 3, "i32")
    graph.set_outputs([graph.gather(graph.tanh(x) * x + 0.5, indices)])
    feeds = {"x": np.ones((4, 5), np.float32), "i": np.array([3, 0, 1], np.int32)}
    np.testing.assert_allclose(
        runner.run(graph, feeds)[0], np.tanh(1.0) + 0.5, rtol=1e-6
    )
    with pytest.raises(IndexRefused, match=r"index 4 at position \[2\]"):
        runner.run(graph, feeds | {"i": np.array([3, 0, 4], np.int32)})
    # Streams belong to threads: what one compiled, another runs by its own.
    engine = runner.engine
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    run_blocking(engine.run(program, feeds))
    outs: list[Any] = []
    thread = Thread(
        target=lambda: outs.append(run_blocking(engine.run(program, feeds)))
    )
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
def test_library_errors_are_translated(text: str, kind: type) -> None:
    """A library's error becomes one of ours, which includes its text."""
    error = translate_error("it", RuntimeError(text))
    assert type(error) is kind
    assert text in str(error)
