"""Benchmark cells of Welch peaks by every peer, from samples in memory to bins and
powers in memory.

Preset rlx: symmetric Hann, half overlap, one-sided |X|² averaged over two segments, the
16 strongest bins. float32 rows of n + n/2 samples; every row of the table starts and
ends with NumPy arrays, so the adapter's rows pay for the way there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.fft
import scipy.signal

import rlxweb as rlx
from rlxweb.engines.pool import pool
from tests.benchmarks import handwritten_welch_shader
from tests.benchmarks.benchmark_cells import (
    BenchmarkCell,
    Goal,
    PeerEntry,
    resource_growth,
)
from tests.benchmarks.machine_facts import find_lavapipe
from tests.benchmarks.raw_wgpu_device import RawDevice

K = 16
SIZES = (256, 1024)
BATCHES = (32, 1024, 8192)
FRAMED_BATCH = 1024

# The peers' page, table 1b: best library × its factor, for the shader end to end and
# for NumPy, which tells how fast that machine was. Framed rows; function arrays, which
# take 28 s to compile at n = 1024: our hand-written one has workgroup memory there.
PUBLISHED = {
    (256, 32): (0.073 * 5.30, 0.073 * 1.31),
    (256, 1024): (1.69 * 1.06, 1.69 * 2.33),
    (256, 8192): (12.3 * 0.92, 12.3 * 2.29),
    (1024, 32): (0.157 * 3.76, 0.157 * 1.40),
    (1024, 1024): (3.88 * 1.93, 3.88 * 2.88),
    (1024, 8192): (37.1 * 1.60, 37.1 * 2.69),
}

PLAIN = "plain NumPy"
PLAIN_F32 = "plain NumPy, float32 window"
RLXWEB_CPU = "rlxweb, CPU"
RLXWEB_LAVAPIPE = "rlxweb, lavapipe"
HAND_WRITTEN = "hand-written WGSL"

Peaks = tuple[np.ndarray, np.ndarray]


def works() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and a function that creates it; nothing is allocated
    before.
    """
    for n in SIZES:
        for batch in BATCHES:
            name = f"welch n={n} batch={batch}"
            yield name, lambda a=name, n=n, b=batch: _create_work(a, n, n // 2, b)
        # Segments side by side: what a user of pre-cut frames has.
        name = f"welch n={n} batch={FRAMED_BATCH} framed"
        yield name, lambda a=name, n=n: _create_work(a, n, n, FRAMED_BATCH)


def _create_work(name: str, n: int, hop: int, batch: int) -> BenchmarkCell:
    x = np.random.default_rng(n + batch).standard_normal(
        (batch, n + hop), dtype=np.float32
    )
    entries = list(_host_entries(x, n, hop))
    goals = [Goal(RLXWEB_CPU, (PLAIN, PLAIN_F32), 1.0)]
    steady: Callable[[], dict[str, Any]] | None = None
    close = _close_nothing
    facts = find_lavapipe()
    if facts is not None:
        entries.append(
            PeerEntry(
                RLXWEB_LAVAPIPE,
                facts.name,
                lambda: _rlxweb_peaks(x, n, hop, "vulkan"),
                True,
            )
        )
        hand, close = _hand_written_peaks(x, n, hop, facts.name)
        entries.append(
            PeerEntry(
                HAND_WRITTEN, facts.name, hand, published_ms=PUBLISHED[n, batch][0]
            )
        )
        goals.append(Goal(RLXWEB_LAVAPIPE, (HAND_WRITTEN,), 3.0))
        steady = partial(_later_allocations, x, n, hop)
    check = partial(_check_agreement, entries, x, n, hop)
    return BenchmarkCell(name, tuple(entries), tuple(goals), check, steady, close)


def _close_nothing() -> None:
    """Close a cell that has nothing to free."""


def _host_entries(x: np.ndarray, n: int, hop: int) -> Iterator[PeerEntry]:
    numpy_name, scipy_name = f"NumPy {np.__version__}", f"SciPy {scipy.__version__}"
    window_f64 = np.hanning(n)
    window_f32 = window_f64.astype(np.float32)
    yield PeerEntry(
        RLXWEB_CPU, numpy_name, lambda: _rlxweb_peaks(x, n, hop, "cpu"), True
    )
    yield PeerEntry(PLAIN, numpy_name, lambda: numpy_peaks(x, window_f64, hop))
    published = PUBLISHED.get((n, len(x)), (None, None))[1]
    yield PeerEntry(
        PLAIN_F32,
        numpy_name,
        lambda: numpy_peaks(x, window_f32, hop),
        published_ms=published,
    )
    yield PeerEntry(
        "scipy.fft, 2 workers",
        scipy_name,
        lambda: numpy_peaks(x, window_f32, hop, THREADED_RFFT),
    )
    yield PeerEntry(
        "scipy.signal.welch", scipy_name, lambda: scipy_peaks(x, window_f32, hop)
    )


def _rlxweb_peaks(x: np.ndarray, n: int, hop: int, device: str) -> Peaks:
    adapter = "llvmpipe" if device != "cpu" else ""
    peaks = rlx.welch_peaks(
        x, nperseg=n, k=K, noverlap=n - hop, nsegments=2, device=device, adapter=adapter
    )
    return peaks.bins, peaks.power


def strongest_bins(power: np.ndarray) -> Peaks:
    """Return the k largest values of each row, as users of NumPy write it."""
    bins = np.argpartition(power, -K, axis=1)[:, -K:]
    top = np.take_along_axis(power, bins, axis=1)
    order = np.argsort(-top, axis=1)
    return (
        np.take_along_axis(bins, order, axis=1),
        np.take_along_axis(top, order, axis=1),
    )


def numpy_peaks(
    x: np.ndarray, window: np.ndarray, hop: int, rfft: Callable[..., Any] = np.fft.rfft
) -> Peaks:
    """Compute the peaks with NumPy, straight from the formula."""
    n = len(window)
    frames = np.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, ::hop]
    spectra = rfft(frames * window, axis=-1)
    power = (np.abs(spectra) ** 2).mean(axis=1)
    power[:, 1:-1] *= 2
    return strongest_bins(power)


THREADED_RFFT = partial(scipy.fft.rfft, workers=2)
"""SciPy's transform on two threads."""


def scipy_peaks(x: np.ndarray, window: np.ndarray, hop: int) -> Peaks:
    """Return the peaks of SciPy's estimate, scaled by the sum of the window; the order
    is the same.
    """
    _, power = scipy.signal.welch(
        x,
        window=window,
        nperseg=len(window),
        noverlap=len(window) - hop,
        detrend=False,
        scaling="spectrum",
        axis=1,
    )
    return strongest_bins(power)


def _hand_written_peaks(
    x: np.ndarray, n: int, hop: int, adapter: str
) -> tuple[Callable[[], Peaks], Callable[[], None]]:
    """Return a call of the hand-written shader, with upload and read-back, and a
    function that frees it.
    """
    device = RawDevice(adapter)
    r, batch = round(n**0.5), len(x)
    lanes = 8 if n == 256 else 4
    shader = handwritten_welch_shader.welch_shader(
        r, hop, K, lanes, in_workgroup=n > 256
    )
    samples, peaks = device.storage(x.nbytes), device.storage(batch * K * 8)
    window = device.storage(np.hanning(n).astype(np.float32))
    twiddles = device.storage(handwritten_welch_shader.twiddle_factors(r))
    stage = device.staging(batch * K * 8)
    kernel = device.kernel(
        shader, (samples, window, twiddles, peaks), (batch // lanes,)
    )

    def call() -> Peaks:
        device.queue.write_buffer(samples, 0, x)
        (pairs,) = device.run([kernel], [(peaks, stage)])
        pairs = pairs.reshape(batch, K, 2)
        return pairs[:, :, 0].astype(np.int64), pairs[:, :, 1].copy()

    return call, device.close


def _check_agreement(entries: list[PeerEntry], x: np.ndarray, n: int, hop: int) -> None:
    """Check that powers agree to 1e-4, and bins where neighbours in rank are further
    apart.
    """
    expected = numpy_peaks(x.astype(np.float64), np.hanning(n), hop)[1]
    for entry in entries:
        _, power = entry.run()  # type: ignore[misc]
        power = np.asarray(power, np.float64)
        if entry.name == "scipy.signal.welch":
            power = power * np.hanning(n).astype(np.float32).sum(dtype=np.float64) ** 2
        worst = float(np.max(np.abs(power - expected) / expected.max()))
        assert worst < 1e-4, f"{entry.name}: relative error {worst:.2g}"
    bins = {e.name: np.asarray(e.run()[0]) for e in entries}  # type: ignore[index]
    is_distinct = np.abs(np.diff(expected, axis=1, prepend=np.inf)) > 1e-3 * expected
    is_distinct[:, :-1] &= is_distinct[:, 1:]
    is_distinct[:, -1] = False
    for name, peer_bins in bins.items():
        n_different = int(((peer_bins != bins[PLAIN]) & is_distinct).sum())
        assert n_different == 0, f"{name}: {n_different} bins differ"


def _later_allocations(x: np.ndarray, n: int, hop: int) -> dict[str, Any]:
    """Return what three more calls compiled and allocated on the device."""
    port = pool.engine("vulkan", "llvmpipe").port
    _rlxweb_peaks(x, n, hop, "vulkan")
    return resource_growth(port, lambda: _rlxweb_peaks(x, n, hop, "vulkan"))
