"""Welch peaks on the CPU, by NumPy, compiled code and shaders, against libraries.

Every peer starts and ends with arrays in memory. Windows and thresholds are the same
for all; rlxweb also looks its rows over, which the libraries do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.fft
import scipy.signal

import rlxweb as rlx
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import (
    BASE,
    COMPILED,
    THREADS,
    engines,
    in_mode,
    jax_on_cpu,
    library,
)
from tests.benchmarks.machine import lavapipe
from tests.benchmarks.welch_cells import K, Peaks, strongest

MANY = 1024
"""Rows from which on shaders on the same two cores are to keep up."""
SHADERS = "rlxweb, lavapipe"
# (n, segments, rows)
SIZES = (
    *((n, 2, rows) for n in (256, 1024, 4096) for rows in (1, 32, 1024)),
    *((n, 2, MANY) for n in (512, 2048)),
    (256, 64, 32),
    (1000, 3, 256),
    (1009, 2, 32),
    (777, 2, 1024),
)


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it."""
    for n, segments, rows in SIZES:
        name = f"cpu welch n={n} segments={segments} batch={rows}"
        yield name, partial(_welch, name, n, segments, rows)


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
    jax = library("jax")
    if not isinstance(jax, str):
        yield "JAX", _by_jax(jax, frames, window, rows)


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


def _by_jax(
    jax: Any, frames: np.ndarray, window: np.ndarray, rows: int
) -> Callable[[], Peaks]:
    def peaks(frames: Any, window: Any) -> Any:
        spectra = jax.numpy.fft.rfft(frames * window)
        power = spectra.real**2 + spectra.imag**2
        return jax.lax.top_k(power.reshape(rows, -1, power.shape[-1]).mean(1), K)

    run = jax_on_cpu(jax, peaks)

    def call() -> Peaks:
        top, bins = run(frames, window)
        return np.asarray(bins), np.asarray(top)

    return call


def _welch(name: str, n: int, segments: int, rows: int) -> Work:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((rows, segments * n), dtype=np.float32)
    frames = x.reshape(rows * segments, n)
    wide = scipy.signal.get_window("hann", n)
    window = wide.astype(np.float32)

    def ours(device: str = "cpu", adapter: str = "") -> Peaks:
        found = rlx.welch_peaks(
            x,
            1.0,
            n,
            K,
            noverlap=0,
            window="hann",
            device=device,
            adapter=adapter,
        )
        return found.bins, found.power

    entries = [
        Entry(own, engine, in_mode(mode, ours), True) for own, engine, mode in engines()
    ]
    facts = lavapipe() if rows >= MANY else None
    if facts is not None:
        there = partial(ours, "vulkan", "llvmpipe")
        entries.append(Entry(SHADERS, facts.name, there, True))
    others = [Entry(peer, peer, call) for peer, call in _peers(frames, window, rows)]
    names = tuple(entry.name for entry in others)
    compiled = 0.6 if rows >= 256 else 0.9 if rows >= 32 else 1.2
    base = 1.1 if rows >= 1000 else 1.5
    goals = (Goal(COMPILED, names, compiled),)
    if rows > 1:
        goals = (*goals, Goal(BASE, names, base))
    if facts is not None:
        goals = (*goals, Goal(SHADERS, names, 0.9 if n <= 256 else 1.3))

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
