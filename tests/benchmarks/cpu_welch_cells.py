"""Benchmark cells of Welch peaks on the CPU: NumPy, compiled code and shaders against
libraries.

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
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.machine_facts import find_lavapipe
from tests.benchmarks.peer_libraries import (
    COMPILED_PEER,
    NUMPY_PEER,
    THREADS,
    jax_on_cpu,
    load_library,
    our_engines,
    with_jit_mode,
)
from tests.benchmarks.welch_cells import K, Peaks, strongest_bins

MIN_SHADER_ROWS = 1024
"""Number of rows from which on shaders on the same two cores are compared."""
SHADER_PEER = "rlxweb, lavapipe"
# (n, segments, rows)
SIZES = (
    *((n, 2, rows) for n in (256, 1024, 4096) for rows in (1, 32, 1024)),
    *((n, 2, MIN_SHADER_ROWS) for n in (512, 2048)),
    (256, 64, 32),
    (1000, 3, 256),
    (1009, 2, 32),
    (777, 2, 1024),
)


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory."""
    for n, segments, rows in SIZES:
        name = f"cpu welch n={n} segments={segments} batch={rows}"
        yield name, partial(_welch_cell, name, n, segments, rows)


def _mean_power(spectra: np.ndarray, rows: int) -> np.ndarray:
    squares = spectra.real * spectra.real
    squares += spectra.imag * spectra.imag
    return squares.reshape(rows, -1, squares.shape[-1]).mean(axis=1)


def _peaks_by(
    rfft: Callable[..., Any], frames: np.ndarray, window: Any, rows: int
) -> Peaks:
    return strongest_bins(_mean_power(np.asarray(rfft(frames * window)), rows))


def _peaks_in_blocks(
    rfft: Callable[..., Any], frames: np.ndarray, window: Any, rows: int
) -> Peaks:
    """Compute the peaks by the same library in blocks that stay in the cache."""
    segments_per_row = len(frames) // rows
    rows_per_block = max(1, (512 << 10) // (4 * segments_per_row * frames.shape[1]))
    bins, power = np.empty((rows, K), np.int64), np.empty((rows, K), np.float32)
    for start in range(0, rows, rows_per_block):
        end = min(rows, start + rows_per_block)
        block = frames[start * segments_per_row : end * segments_per_row]
        bins[start:end], power[start:end] = _peaks_by(rfft, block, window, end - start)
    return bins, power


def _library_peers(
    frames: np.ndarray, window: np.ndarray, rows: int
) -> Iterator[tuple[str, Callable[[], Peaks]]]:
    """Yield each library's name and the function that computes the peaks with it."""
    yield "NumPy", partial(_peaks_by, np.fft.rfft, frames, window, rows)
    scipy_rfft = partial(scipy.fft.rfft, workers=THREADS)
    yield "scipy.fft, 2 workers", partial(_peaks_by, scipy_rfft, frames, window, rows)
    ducc, mkl, fftw, torch = map(load_library, ("ducc0", "mkl_fft", "pyfftw", "torch"))
    if not isinstance(ducc, str):
        ducc_rfft = partial(ducc.fft.r2c, axes=(1,), nthreads=THREADS)
        yield "ducc0", partial(_peaks_by, ducc_rfft, frames, window, rows)
        ducc_rfft = partial(ducc.fft.r2c, axes=(1,), nthreads=1)
        yield (
            "ducc0, in blocks",
            partial(_peaks_in_blocks, ducc_rfft, frames, window, rows),
        )
    if not isinstance(mkl, str):
        yield "MKL FFT", partial(_peaks_by, mkl.rfft, frames, window, rows)
        yield (
            "MKL FFT, in blocks",
            partial(_peaks_in_blocks, mkl.rfft, frames, window, rows),
        )
    if not isinstance(fftw, str):
        yield "FFTW", _fftw_peaks(fftw, frames, window, rows)
    if not isinstance(torch, str):
        yield "PyTorch", _torch_peaks(torch, frames, window, rows)
    jax = load_library("jax")
    if not isinstance(jax, str):
        yield "JAX", _jax_peaks(jax, frames, window, rows)


def _fftw_peaks(
    fftw: Any, frames: np.ndarray, window: np.ndarray, rows: int
) -> Callable[[], Peaks]:
    fft_input = fftw.empty_aligned(frames.shape, "float32")
    spectra = fftw.empty_aligned((len(frames), frames.shape[1] // 2 + 1), "complex64")
    threads = THREADS if len(frames) > 1 else 1
    plan = fftw.FFTW(fft_input, spectra, axes=(1,), threads=threads)

    def call() -> Peaks:
        np.multiply(frames, window, out=fft_input)
        plan()
        return strongest_bins(_mean_power(spectra, rows))

    return call


def _torch_peaks(
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


def _jax_peaks(
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


def _welch_cell(name: str, n: int, segments: int, rows: int) -> BenchmarkCell:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((rows, segments * n), dtype=np.float32)
    frames = x.reshape(rows * segments, n)
    window_f64 = scipy.signal.get_window("hann", n)
    window = window_f64.astype(np.float32)

    def ours(device: str = "cpu", adapter: str = "") -> Peaks:
        peaks = rlx.welch_peaks(
            x,
            1.0,
            n,
            K,
            noverlap=0,
            window="hann",
            device=device,
            adapter=adapter,
        )
        return peaks.bins, peaks.power

    entries = [
        PeerEntry(our_name, engine, with_jit_mode(mode, ours), True)
        for our_name, engine, mode in our_engines()
    ]
    facts = find_lavapipe() if rows >= MIN_SHADER_ROWS else None
    if facts is not None:
        on_lavapipe = partial(ours, "vulkan", "llvmpipe")
        entries.append(PeerEntry(SHADER_PEER, facts.name, on_lavapipe, True))
    others = [
        PeerEntry(peer, peer, call)
        for peer, call in _library_peers(frames, window, rows)
    ]
    names = tuple(entry.name for entry in others)
    compiled_limit = 0.6 if rows >= 256 else 0.9 if rows >= 32 else 1.2
    numpy_limit = 1.1 if rows >= 1000 else 1.5
    goals = (Goal(COMPILED_PEER, names, compiled_limit),)
    if rows > 1:
        goals = (*goals, Goal(NUMPY_PEER, names, numpy_limit))
    if facts is not None:
        goals = (*goals, Goal(SHADER_PEER, names, 0.9 if n <= 256 else 1.3))

    def check() -> None:
        spectra = np.fft.rfft(
            frames.astype(np.float64) * scipy.signal.get_window("hann", n)
        )
        power = _mean_power(spectra, rows)
        expected = strongest_bins(power)[1]
        doubled = power.copy()
        doubled[:, 1 : (n + 1) // 2] *= 2
        for entry in (*entries, *others):
            want = strongest_bins(doubled)[1] if entry.is_ours else expected
            actual = np.asarray(entry.run()[1], np.float64)  # type: ignore[index]
            worst = float(np.max(np.abs(actual - want) / want.max()))
            assert worst < 1e-4, f"{entry.name}: relative error {worst:.2g}"

    return BenchmarkCell(name, (*entries, *others), goals, check)
