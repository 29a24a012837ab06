"""Ops and transforms on lavapipe against runtimes that others wrote.

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

from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.machine import lavapipe
from tests.benchmarks.op_cells import Prepared

LENGTHS = (64, 256, 1024, 4096, 1000, 1009)
VALUES = 1 << 20
"""Complex values of a batch of transforms."""


def _noise(*shape: int) -> np.ndarray:
    """Noise, the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


@cache
def tinygrad() -> Any:
    """The module, set to Dawn, or why it is not there."""
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
def vkdispatch() -> Any:
    """The module with a context on the first device, or why it is not there."""
    try:
        import vkdispatch as module

        module.make_context(device_ids=[0])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return module


def missing() -> dict[str, str]:
    """Runtimes that cannot run here, with the reasons."""
    if lavapipe() is None:
        return {}
    found = {"tinygrad": tinygrad(), "vkdispatch": vkdispatch()}
    return {name: why for name, why in found.items() if isinstance(why, str)}


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it; none without the adapter."""
    if lavapipe() is None:
        return
    for name, make in OPS.items():
        yield f"tinygrad {name}", partial(_op, f"tinygrad {name}", make)
    for n in LENGTHS:
        name = f"fft n={n} batch={VALUES // n}"
        yield name, partial(_fft, name, n, VALUES // n)


# --- ops against tinygrad

Op = tuple[dict[str, np.ndarray], Callable[..., Any], Callable[..., Any]]


def _product(m: int, k: int, n: int) -> Op:
    a, (_, b) = _noise(m, k), _noise(2, k, n)  # not the same where both are square
    return (
        {"a": a, "b": b},
        lambda g, a, b: g.matmul(a, b),
        lambda a, b: a @ b,
    )


def _norm() -> Op:
    def theirs(x: Any, a: Any, b: Any) -> Any:
        return x.layernorm() * a + b

    a, b = _noise(2, 768)
    return (
        {"x": _noise(1024, 768), "a": a, "b": b},
        lambda g, x, a, b: g.layer_norm(x, a, b),
        theirs,
    )


def _attention() -> Op:
    q, k, v = _noise(3, 1, 12, 128, 64)
    how = {"num_heads": 12, "head_dim": 64}
    return (
        {"q": q, "k": k, "v": v},
        lambda g, q, k, v: g.apply("attention", q, k, v, **how),
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
    )


def _chain() -> Op:
    x, y = _noise(2, 4 << 20)
    return (
        {"x": x, "y": y},
        lambda g, x, y: g.gelu_approx(x * 2.0 + 1.0) * y,
        lambda x, y: (x * 2.0 + 1.0).gelu() * y,
    )


def _adds() -> Op:
    def sums(*given: Any) -> Any:
        x = given[-1]
        for _ in range(100):
            x = x + 1.0
        return x

    return {"x": _noise(1024)}, lambda g, x: sums(x), sums


def _losses() -> Op:
    """Losses of 512 examples of 1,000 classes, written out: no library's own op."""

    def ours(g: Any, z: Any, y: Any) -> Any:
        low = z - g.max(z, -1, keep_dim=True)
        return g.sum((low - g.log(g.sum(g.exp(low), -1, keep_dim=True))) * y, -1)

    def theirs(z: Any, y: Any) -> Any:
        low = z - z.max(-1, keepdim=True)
        return ((low - low.exp().sum(-1, keepdim=True).log()) * y).sum(-1)

    z, y = _noise(2, 512, 1000)
    return {"z": z, "y": y}, ours, theirs


def _standard() -> Op:
    """Rows less their mean, by their deviation, written out."""

    def ours(g: Any, x: Any) -> Any:
        low = x - g.mean(x, -1, keep_dim=True)
        return low / g.sqrt(g.mean(low * low, -1, keep_dim=True) + 1e-5)

    def theirs(x: Any) -> Any:
        low = x - x.mean(-1, keepdim=True)
        return low / ((low * low).mean(-1, keepdim=True) + 1e-5).sqrt()

    return {"x": _noise(1024, 768)}, ours, theirs


OPS: dict[str, Callable[[], Op]] = {
    "matmul 256": partial(_product, 256, 256, 256),
    "matmul 512": partial(_product, 512, 512, 512),
    "matmul 1024": partial(_product, 1024, 1024, 1024),
    "matmul 128x768x3072": partial(_product, 128, 768, 3072),
    "softmax [1024, 1024]": lambda: (
        {"x": _noise(1024, 1024)},
        lambda g, x: g.softmax(x),
        lambda x: x.softmax(-1),
    ),
    "layer norm [1024, 768]": _norm,
    "losses written out [512, 1000]": _losses,
    "standardised rows [1024, 768]": _standard,
    "attention [1, 12, 128, 64]": _attention,
    "chain gelu(2x+1)·y of 4M": _chain,
    "100 dependent adds [1024]": _adds,
}


def _op(name: str, make: Callable[[], Op]) -> Work:
    facts = lavapipe()
    assert facts is not None
    arrays, ours, theirs = make()
    prepared = Prepared(lambda g, **given: ours(g, **given), arrays)
    entries = [
        Entry("rlxweb, resident", facts.name, prepared.resident, True),
        Entry("rlxweb, call", facts.name, prepared.call, True),
    ]
    tiny = tinygrad()
    if not isinstance(tiny, str):
        device = tiny.Device[tiny.Device.DEFAULT]
        there = [tiny.Tensor(one).realize() for one in arrays.values()]
        run = tiny.TinyJit(lambda *given: theirs(*given).realize())

        def resident() -> None:
            run(*there)
            device.synchronize()

        def call() -> Any:
            given = [tiny.Tensor(one).realize() for one in arrays.values()]
            return run(*given).numpy()

        entries += [
            Entry("tinygrad, resident", "tinygrad on Dawn", resident),
            Entry("tinygrad, call", "tinygrad on Dawn", call),
        ]
    goals = tuple(
        Goal(f"rlxweb, {kind}", (f"tinygrad, {kind}",), 0.5)
        for kind in ("resident", "call")
    )

    def check() -> None:
        right = np.asarray(prepared.call(), np.float64)
        for entry in entries[2:]:
            found = entry.peer()
            if found is not None:
                far = np.max(np.abs(np.asarray(found, np.float64) - right))
                worst = float(far / np.max(np.abs(right)))
                assert worst < 1e-4, f"{entry.name}: relative error {worst:.2g}"

    return Work(name, tuple(entries), goals, check, prepared.steady, prepared.close)


# --- transforms against vkdispatch


def _fft(name: str, n: int, rows: int) -> Work:
    facts = lavapipe()
    assert facts is not None
    planar = _noise(rows, 2 * n)
    prepared = Prepared(lambda g, x: g.fft(x), {"x": planar})
    x = (planar[:, :n] + 1j * planar[:, n:]).astype(np.complex64)
    right = np.fft.fft(x.astype(np.complex128))
    entries = [Entry("rlxweb, resident", facts.name, prepared.resident, True)]
    results: list[Callable[[], np.ndarray]] = []
    vk = vkdispatch()
    for title in ("fft", "vkfft") if not isinstance(vk, str) else ():
        transform = vk.fft.fft if title == "fft" else vk.vkfft.fft
        made = _by_vkdispatch(vk, transform, x)
        if made is not None:
            run, result = made
            entries.append(Entry(f"vkdispatch, {title}", "vkdispatch", run))
            results.append(result)
    names = tuple(entry.name for entry in entries[1:])

    def check() -> None:
        found = prepared.call()
        ours = found[:, :n] + 1j * found[:, n:]
        made = {name: result() for name, result in zip(names, results, strict=True)}
        for title, one in {"rlxweb": ours, **made}.items():
            worst = float(np.max(np.abs(one - right)) / np.max(np.abs(right)))
            assert worst < 1e-5, f"{title}: relative error {worst:.2g}"

    goals = (Goal("rlxweb, resident", names, 0.8),)
    return Work(name, tuple(entries), goals, check, prepared.steady, prepared.close)


def _by_vkdispatch(
    vk: Any, transform: Callable[..., Any], x: np.ndarray
) -> tuple[Callable[[], None], Callable[[], np.ndarray]] | None:
    """A transform in place and its answer; None for a length that it refuses."""
    buffer, once = vk.asbuffer(x), vk.asbuffer(x)

    def run() -> None:
        transform(buffer)
        vk.queue_wait_idle()

    def result() -> np.ndarray:
        once.write(x)
        transform(once)
        return np.asarray(once.read(0))

    try:
        result()
    except Exception:
        return None
    return run, result
