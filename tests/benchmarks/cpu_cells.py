"""Welch peaks and ops on the CPU, by NumPy and by compiled code, against libraries.

Every peer starts and ends with arrays in memory and may use two threads. A library that
is not installed is named with the reason and leaves no row; `pip install
'rlxweb[bench]'` brings them. Windows and thresholds are the same for all; rlxweb also
looks its rows over, which the libraries do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import scipy.fft
import scipy.signal

import rlxweb as rlx
from rlxweb.machine.library import is_installed, processor
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.welch_cells import K, Peaks, strongest

THREADS = 2
BASE, COMPILED = "rlxweb, NumPy", "rlxweb, compiled"
# (n, segments, rows)
SIZES = (
    *((n, 2, rows) for n in (256, 1024, 4096) for rows in (1, 32, 1024)),
    (256, 64, 32),
    (1000, 3, 256),
    (1009, 2, 32),
    (777, 2, 1024),
)
RNG = np.random.default_rng(2)


@cache
def library(name: str) -> Any:
    """The module, or why it is not there."""
    try:
        return import_module(name)
    except Exception as error:  # a library may break in ways of its own
        return f"{type(error).__name__}: {error}"


def missing() -> dict[str, str]:
    """Peers that cannot run here, with the reasons."""
    found = {name: library(name) for name in ("ducc0", "mkl_fft", "pyfftw", "torch")}
    reasons = {name: why for name, why in found.items() if isinstance(why, str)}
    if not is_installed():
        reasons["llvmlite"] = "it is not installed"
    return reasons


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it."""
    for n, segments, rows in SIZES:
        name = f"cpu welch n={n} segments={segments} batch={rows}"
        yield name, partial(_welch, name, n, segments, rows)
    for name, make in OPS.items():
        yield f"cpu {name}", partial(_op, f"cpu {name}", make)


def in_mode(mode: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call under RLX_FAST=mode."""

    def run() -> Any:
        os.environ["RLX_FAST"] = mode
        return call()

    return run


def _engines() -> Iterator[tuple[str, str, str]]:
    yield BASE, f"NumPy {np.__version__}", "off"
    if is_installed():
        yield COMPILED, processor().words, "wait"


# --- Welch peaks


def _power(spectra: np.ndarray, rows: int) -> np.ndarray:
    squares = spectra.real * spectra.real
    squares += spectra.imag * spectra.imag
    return squares.reshape(rows, -1, squares.shape[-1]).mean(axis=1)


def _by(rfft: Callable[..., Any], frames: np.ndarray, window: Any, rows: int) -> Peaks:
    return strongest(_power(np.asarray(rfft(frames * window)), rows))


def _in_blocks(
    rfft: Callable[..., Any], frames: np.ndarray, window: Any, rows: int
) -> Peaks:
    """The same library walked in blocks that stay in the cache: used well."""
    each = len(frames) // rows
    step = max(1, (512 << 10) // (4 * each * frames.shape[1]))
    bins, top = np.empty((rows, K), np.int64), np.empty((rows, K), np.float32)
    for at in range(0, rows, step):
        end = min(rows, at + step)
        some = frames[at * each : end * each]
        bins[at:end], top[at:end] = _by(rfft, some, window, end - at)
    return bins, top


def _peers(
    frames: np.ndarray, window: np.ndarray, rows: int
) -> Iterator[tuple[str, Callable[[], Peaks]]]:
    """Each library's name and what it computes the peaks by."""
    yield "NumPy", partial(_by, np.fft.rfft, frames, window, rows)
    two = partial(scipy.fft.rfft, workers=THREADS)
    yield "scipy.fft, 2 workers", partial(_by, two, frames, window, rows)
    ducc, mkl, fftw, torch = map(library, ("ducc0", "mkl_fft", "pyfftw", "torch"))
    if not isinstance(ducc, str):
        own = partial(ducc.fft.r2c, axes=(1,), nthreads=THREADS)
        yield "ducc0", partial(_by, own, frames, window, rows)
        own = partial(ducc.fft.r2c, axes=(1,), nthreads=1)
        yield "ducc0, in blocks", partial(_in_blocks, own, frames, window, rows)
    if not isinstance(mkl, str):
        yield "MKL FFT", partial(_by, mkl.rfft, frames, window, rows)
        yield "MKL FFT, in blocks", partial(_in_blocks, mkl.rfft, frames, window, rows)
    if not isinstance(fftw, str):
        yield "FFTW", _by_fftw(fftw, frames, window, rows)
    if not isinstance(torch, str):
        yield "PyTorch", _by_torch(torch, frames, window, rows)


def _by_fftw(
    fftw: Any, frames: np.ndarray, window: np.ndarray, rows: int
) -> Callable[[], Peaks]:
    given = fftw.empty_aligned(frames.shape, "float32")
    spectra = fftw.empty_aligned((len(frames), frames.shape[1] // 2 + 1), "complex64")
    threads = THREADS if len(frames) > 1 else 1
    plan = fftw.FFTW(given, spectra, axes=(1,), threads=threads)

    def call() -> Peaks:
        np.multiply(frames, window, out=given)
        plan()
        return strongest(_power(spectra, rows))

    return call


def _by_torch(
    torch: Any, frames: np.ndarray, window: np.ndarray, rows: int
) -> Callable[[], Peaks]:
    torch.set_num_threads(THREADS)
    x, w = torch.from_numpy(frames), torch.from_numpy(window)

    def call() -> Peaks:
        spectra = torch.view_as_real(torch.fft.rfft(x * w, dim=1))
        power = spectra.square().sum(-1)
        power = power.view(rows, -1, power.shape[-1]).mean(1)
        top, bins = torch.topk(power, K, dim=1)
        return bins.numpy(), top.numpy()

    return call


def _welch(name: str, n: int, segments: int, rows: int) -> Work:
    x = RNG.standard_normal((rows, segments * n), dtype=np.float32)
    frames = x.reshape(rows * segments, n)
    wide = scipy.signal.get_window("hann", n)
    window = wide.astype(np.float32)

    def ours() -> Peaks:
        found = rlx.welch_peaks(x, 1.0, n, K, noverlap=0, window="hann", device="cpu")
        return found.bins, found.power

    entries = [
        Entry(own, engine, in_mode(mode, ours), True)
        for own, engine, mode in _engines()
    ]
    others = [Entry(peer, peer, call) for peer, call in _peers(frames, window, rows)]
    names = tuple(entry.name for entry in others)
    compiled = 0.6 if rows >= 256 else 0.9 if rows >= 32 else 1.2
    base = 1.1 if rows >= 1000 else 1.5
    goals = (Goal(COMPILED, names, compiled),)
    if rows > 1:
        goals = (*goals, Goal(BASE, names, base))

    def check() -> None:
        wide = np.fft.rfft(
            frames.astype(np.float64) * scipy.signal.get_window("hann", n)
        )
        power = _power(wide, rows)
        right = strongest(power)[1]
        doubled = power.copy()
        doubled[:, 1 : (n + 1) // 2] *= 2
        for entry in (*entries, *others):
            want = strongest(doubled)[1] if entry.ours else right
            top = np.asarray(entry.peer()[1], np.float64)  # type: ignore[index]
            worst = float(np.max(np.abs(top - want) / want.max()))
            assert worst < 1e-4, f"{entry.name}: relative error {worst:.2g}"

    return Work(name, (*entries, *others), goals, check)


# --- ops


def _softmax() -> tuple[Any, dict[str, np.ndarray], Any]:
    x = RNG.standard_normal((1024, 1024), dtype=np.float32)
    return lambda g, x: g.softmax(x), {"x": x}, lambda t, x: t.softmax(x, -1)


def _norm() -> tuple[Any, dict[str, np.ndarray], Any]:
    x = RNG.standard_normal((1024, 768), dtype=np.float32)
    a, b = RNG.standard_normal((2, 768), dtype=np.float32)
    return (
        lambda g, x, a, b: g.layer_norm(x, a, b),
        {"x": x, "a": a, "b": b},
        lambda t, x, a, b: t.nn.functional.layer_norm(x, (768,), a, b),
    )


def _chain() -> tuple[Any, dict[str, np.ndarray], Any]:
    x, y = RNG.standard_normal((2, 4 << 20), dtype=np.float32)
    return (
        lambda g, x, y: g.gelu(x * 2.0 + 1.0) * y,
        {"x": x, "y": y},
        lambda t, x, y: t.nn.functional.gelu(x * 2.0 + 1.0) * y,
    )


def _attention() -> tuple[Any, dict[str, np.ndarray], Any]:
    q, k, v = RNG.standard_normal((3, 1, 12, 128, 64), dtype=np.float32)
    how = {"num_heads": 12, "head_dim": 64}
    return (
        lambda g, q, k, v: g.apply("attention", q, k, v, **how),
        {"q": q, "k": k, "v": v},
        lambda t, *qkv: t.nn.functional.scaled_dot_product_attention(*qkv),
    )


def _adds() -> tuple[Any, dict[str, np.ndarray], Any]:
    def sums(g: Any, x: Any) -> Any:
        for _ in range(100):
            x = x + 1.0
        return x

    return sums, {"x": RNG.standard_normal(1024, dtype=np.float32)}, sums


OPS: dict[str, Callable[[], tuple[Any, dict[str, np.ndarray], Any]]] = {
    "softmax [1024, 1024]": _softmax,
    "layer norm [1024, 768]": _norm,
    "chain gelu(2x+1)·y of 4M": _chain,
    "attention [1, 12, 128, 64]": _attention,
    "100 dependent adds [1024]": _adds,
}


def _op(name: str, make: Callable[[], tuple[Any, dict[str, np.ndarray], Any]]) -> Work:
    build, arrays, by_torch = make()
    graph = rlx.Graph("bench")
    inputs = {n: graph.input(n, one.shape) for n, one in arrays.items()}
    graph.set_outputs([build(graph, **inputs)])
    entries, closing = [], []
    for own, engine, mode in _engines():
        os.environ["RLX_FAST"] = mode
        compiled = rlx.Session("cpu").compile(graph)
        closing.append(compiled.close)
        call = partial(lambda c: c.run(arrays)[0], compiled)
        entries.append(Entry(own, engine, in_mode(mode, call), True))
    torch = library("torch")
    if not isinstance(torch, str):
        torch.set_num_threads(THREADS)
        given = [torch.from_numpy(one) for one in arrays.values()]
        entries.append(
            Entry("PyTorch", "PyTorch", lambda: by_torch(torch, *given).numpy())
        )

    def check() -> None:
        right = np.asarray(entries[0].peer(), np.float64)
        for entry in entries[1:]:
            found = np.asarray(entry.peer(), np.float64)
            worst = float(np.max(np.abs(found - right)) / np.max(np.abs(right)))
            assert worst < 2e-5, f"{entry.name}: relative error {worst:.2g}"

    def close() -> None:
        for one in closing:
            one()

    goals = (Goal(COMPILED, ("PyTorch",), 1.1),)
    return Work(name, tuple(entries), goals, check, close=close)
