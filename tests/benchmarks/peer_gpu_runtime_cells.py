"""Benchmark cells of ops and transforms on lavapipe against other GPU runtimes:
tinygrad and vkdispatch.

tinygrad runs its own WGSL through Dawn, compiled once (TinyJit); vkdispatch makes
shaders for Vulkan, and has VkFFT beside its own transform. Resident: inputs lie on the
device, the end of the work is awaited. As a call: upload, run, read back. A runtime
that is not installed, or refuses a size, leaves no row and is named with its reason.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.handwritten_op_cells import LavapipeGraph
from tests.benchmarks.machine_facts import find_lavapipe

FFT_LENGTHS = (64, 256, 1024, 4096, 1000, 1009)
FFT_VALUES = 1 << 20
"""Number of complex values of a batch of transforms."""


def _noise(*shape: int) -> np.ndarray:
    """Return noise that is the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


@cache
def load_tinygrad() -> Any:
    """Return the module, set to Dawn, or the reason why it cannot be used."""
    folder = Path(sysconfig.get_paths()["purelib"], "pydawn", "lib")
    for library in folder.glob(f"libwebgpu_dawn_{platform.machine()}.so"):
        os.environ.setdefault("WEBGPU_PATH", str(library))
    os.environ.setdefault("DEV", "WEBGPU")
    try:
        import tinygrad as module

        module.Device[module.Device.DEFAULT].synchronize()
    except Exception as error:  # it may find no library, no adapter, no feature
        return f"{type(error).__name__}: {error}"
    return module


@cache
def load_vkdispatch() -> Any:
    """Return the module with a context on the first device, or the reason why it cannot
    be used.
    """
    try:
        import vkdispatch as module

        module.make_context(device_ids=[0])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return module


def missing_runtimes() -> dict[str, str]:
    """Return the runtimes that cannot run here, with the reasons."""
    if find_lavapipe() is None:
        return {}
    modules = {"tinygrad": load_tinygrad(), "vkdispatch": load_vkdispatch()}
    return {name: reason for name, reason in modules.items() if isinstance(reason, str)}


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory; none without the adapter."""
    if find_lavapipe() is None:
        return
    for name, make in OPS.items():
        yield f"tinygrad {name}", partial(_op_cell, f"tinygrad {name}", make)
    for n in FFT_LENGTHS:
        name = f"fft n={n} batch={FFT_VALUES // n}"
        yield name, partial(_fft_cell, name, n, FFT_VALUES // n)


# --- ops against tinygrad

RuntimeOpCase = tuple[dict[str, np.ndarray], Callable[..., Any], Callable[..., Any]]


def _matmul(m: int, k: int, n: int) -> RuntimeOpCase:
    a, (_, b) = _noise(m, k), _noise(2, k, n)  # not the same where both are square
    return (
        {"a": a, "b": b},
        lambda g, a, b: g.matmul(a, b),
        lambda a, b: a @ b,
    )


def _norm() -> RuntimeOpCase:
    def theirs(x: Any, a: Any, b: Any) -> Any:
        return x.layernorm() * a + b

    a, b = _noise(2, 768)
    return (
        {"x": _noise(1024, 768), "a": a, "b": b},
        lambda g, x, a, b: g.layer_norm(x, a, b),
        theirs,
    )


def _attention() -> RuntimeOpCase:
    q, k, v = _noise(3, 1, 12, 128, 64)
    attrs = {"num_heads": 12, "head_dim": 64}
    return (
        {"q": q, "k": k, "v": v},
        lambda g, q, k, v: g.apply("attention", q, k, v, **attrs),
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
    )


def _chain() -> RuntimeOpCase:
    x, y = _noise(2, 4 << 20)
    return (
        {"x": x, "y": y},
        lambda g, x, y: g.gelu_approx(x * 2.0 + 1.0) * y,
        lambda x, y: (x * 2.0 + 1.0).gelu() * y,
    )


def _adds() -> RuntimeOpCase:
    def add_repeatedly(*operands: Any) -> Any:
        x = operands[-1]
        for _ in range(100):
            x = x + 1.0
        return x

    return {"x": _noise(1024)}, lambda g, x: add_repeatedly(x), add_repeatedly


def _cross_entropy() -> RuntimeOpCase:
    """Cross-entropy losses of 512 examples of 1,000 classes, written out: no library's
    own op.
    """

    def ours(g: Any, z: Any, y: Any) -> Any:
        shifted = z - g.max(z, -1, keep_dim=True)
        return g.sum(
            (shifted - g.log(g.sum(g.exp(shifted), -1, keep_dim=True))) * y, -1
        )

    def theirs(z: Any, y: Any) -> Any:
        shifted = z - z.max(-1, keepdim=True)
        return ((shifted - shifted.exp().sum(-1, keepdim=True).log()) * y).sum(-1)

    z, y = _noise(2, 512, 1000)
    return {"z": z, "y": y}, ours, theirs


def _standardize() -> RuntimeOpCase:
    """Rows less their mean, divided by their deviation, written out."""

    def ours(g: Any, x: Any) -> Any:
        centered = x - g.mean(x, -1, keep_dim=True)
        return centered / g.sqrt(g.mean(centered * centered, -1, keep_dim=True) + 1e-5)

    def theirs(x: Any) -> Any:
        centered = x - x.mean(-1, keepdim=True)
        return centered / ((centered * centered).mean(-1, keepdim=True) + 1e-5).sqrt()

    return {"x": _noise(1024, 768)}, ours, theirs


OPS: dict[str, Callable[[], RuntimeOpCase]] = {
    "matmul 256": partial(_matmul, 256, 256, 256),
    "matmul 512": partial(_matmul, 512, 512, 512),
    "matmul 1024": partial(_matmul, 1024, 1024, 1024),
    "matmul 128x768x3072": partial(_matmul, 128, 768, 3072),
    "softmax [1024, 1024]": lambda: (
        {"x": _noise(1024, 1024)},
        lambda g, x: g.softmax(x),
        lambda x: x.softmax(-1),
    ),
    "layer norm [1024, 768]": _norm,
    "losses written out [512, 1000]": _cross_entropy,
    "standardised rows [1024, 768]": _standardize,
    "attention [1, 12, 128, 64]": _attention,
    "chain gelu(2x+1)·y of 4M": _chain,
    "100 dependent adds [1024]": _adds,
}


def _op_cell(name: str, make: Callable[[], RuntimeOpCase]) -> BenchmarkCell:
    facts = find_lavapipe()
    assert facts is not None
    arrays, ours, theirs = make()
    prepared = LavapipeGraph(lambda g, **inputs: ours(g, **inputs), arrays)
    entries = [
        PeerEntry("rlxweb, resident", facts.name, prepared.run_on_device, True),
        PeerEntry("rlxweb, call", facts.name, prepared.run_call, True),
    ]
    tiny = load_tinygrad()
    if not isinstance(tiny, str):
        device = tiny.Device[tiny.Device.DEFAULT]
        device_tensors = [tiny.Tensor(array).realize() for array in arrays.values()]
        run = tiny.TinyJit(lambda *inputs: theirs(*inputs).realize())

        def run_on_device() -> None:
            run(*device_tensors)
            device.synchronize()

        def run_call() -> Any:
            tensors = [tiny.Tensor(array).realize() for array in arrays.values()]
            return run(*tensors).numpy()

        entries += [
            PeerEntry("tinygrad, resident", "tinygrad on Dawn", run_on_device),
            PeerEntry("tinygrad, call", "tinygrad on Dawn", run_call),
        ]
    goals = tuple(
        Goal(f"rlxweb, {kind}", (f"tinygrad, {kind}",), 0.5)
        for kind in ("resident", "call")
    )

    def check() -> None:
        expected = np.asarray(prepared.run_call(), np.float64)
        for entry in entries[2:]:
            actual = entry.run()
            if actual is not None:
                max_difference = np.max(
                    np.abs(np.asarray(actual, np.float64) - expected)
                )
                worst = float(max_difference / np.max(np.abs(expected)))
                assert worst < 1e-4, f"{entry.name}: relative error {worst:.2g}"

    return BenchmarkCell(
        name, tuple(entries), goals, check, prepared.resource_growth, prepared.close
    )


# --- transforms against vkdispatch


def _fft_cell(name: str, n: int, rows: int) -> BenchmarkCell:
    facts = find_lavapipe()
    assert facts is not None
    planar = _noise(rows, 2 * n)
    prepared = LavapipeGraph(lambda g, x: g.fft(x), {"x": planar})
    x = (planar[:, :n] + 1j * planar[:, n:]).astype(np.complex64)
    expected = np.fft.fft(x.astype(np.complex128))
    entries = [PeerEntry("rlxweb, resident", facts.name, prepared.run_on_device, True)]
    results: list[Callable[[], np.ndarray]] = []
    vk = load_vkdispatch()
    for title in ("fft", "vkfft") if not isinstance(vk, str) else ():
        transform = vk.fft.fft if title == "fft" else vk.vkfft.fft
        run_and_result = _vkdispatch_run(vk, transform, x)
        if run_and_result is not None:
            run, result = run_and_result
            entries.append(PeerEntry(f"vkdispatch, {title}", "vkdispatch", run))
            results.append(result)
    names = tuple(entry.name for entry in entries[1:])

    def check() -> None:
        planar_output = prepared.run_call()
        ours = planar_output[:, :n] + 1j * planar_output[:, n:]
        outputs = {name: result() for name, result in zip(names, results, strict=True)}
        for title, output in {"rlxweb": ours, **outputs}.items():
            worst = float(np.max(np.abs(output - expected)) / np.max(np.abs(expected)))
            assert worst < 1e-5, f"{title}: relative error {worst:.2g}"

    goals = (Goal("rlxweb, resident", names, 0.8),)
    return BenchmarkCell(
        name, tuple(entries), goals, check, prepared.resource_growth, prepared.close
    )


def _vkdispatch_run(
    vk: Any, transform: Callable[..., Any], x: np.ndarray
) -> tuple[Callable[[], None], Callable[[], np.ndarray]] | None:
    """Return a transform in place and its answer; None for a length that is not
    supported.
    """
    buffer, result_buffer = vk.asbuffer(x), vk.asbuffer(x)

    def run() -> None:
        transform(buffer)
        vk.queue_wait_idle()

    def result() -> np.ndarray:
        result_buffer.write(x)
        transform(result_buffer)
        return np.asarray(result_buffer.read(0))

    try:
        result()
    except Exception:
        return None
    return run, result
