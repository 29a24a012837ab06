"""Welch peaks, from samples in memory to bins and powers in memory, by every peer.

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
from rlxweb.backends.pool import pool
from tests.benchmarks import hand_welch
from tests.benchmarks.cells import Entry, Goal, Work, three_more
from tests.benchmarks.machine import lavapipe
from tests.benchmarks.raw_device import RawDevice

K = 16
SIZES = (256, 1024)
BATCHES = (32, 1024, 8192)
FRAMED = 1024

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
OURS = "rlxweb, CPU"
OURS_GPU = "rlxweb, lavapipe"
HAND = "hand-written WGSL"

Peaks = tuple[np.ndarray, np.ndarray]


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it; nothing is allocated before."""
    for n in SIZES:
        for batch in BATCHES:
            name = f"welch n={n} batch={batch}"
            yield name, lambda a=name, n=n, b=batch: _work(a, n, n // 2, b)
        # Segments side by side: what a user of pre-cut frames has.
        name = f"welch n={n} batch={FRAMED} framed"
        yield name, lambda a=name, n=n: _work(a, n, n, FRAMED)


def _work(name: str, n: int, hop: int, batch: int) -> Work:
    x = np.random.default_rng(n + batch).standard_normal(
        (batch, n + hop), dtype=np.float32
    )
    entries = list(_host_entries(x, n, hop))
    goals = [Goal(OURS, (PLAIN, PLAIN_F32), 1.0)]
    steady: Callable[[], dict[str, Any]] | None = None
    close = _nothing
    facts = lavapipe()
    if facts is not None:
        entries.append(
            Entry(OURS_GPU, facts.name, lambda: _ours(x, n, hop, "vulkan"), True)
        )
        hand, close = _by_hand(x, n, hop, facts.name)
        entries.append(Entry(HAND, facts.name, hand, published=PUBLISHED[n, batch][0]))
        goals.append(Goal(OURS_GPU, (HAND,), 3.0))
        steady = partial(_steady, x, n, hop)
    check = partial(_check, entries, x, n, hop)
    return Work(name, tuple(entries), tuple(goals), check, steady, close)


def _nothing() -> None:
    """Close a cell that has nothing to free."""


def _host_entries(x: np.ndarray, n: int, hop: int) -> Iterator[Entry]:
    numpy, scipy_ = f"NumPy {np.__version__}", f"SciPy {scipy.__version__}"
    wide = np.hanning(n)
    narrow = wide.astype(np.float32)
    yield Entry(OURS, numpy, lambda: _ours(x, n, hop, "cpu"), True)
    yield Entry(PLAIN, numpy, lambda: plain(x, wide, hop))
    published = PUBLISHED.get((n, len(x)), (None, None))[1]
    yield Entry(PLAIN_F32, numpy, lambda: plain(x, narrow, hop), published=published)
    yield Entry("scipy.fft, 2 workers", scipy_, lambda: plain(x, narrow, hop, FAST))
    yield Entry("scipy.signal.welch", scipy_, lambda: by_scipy_welch(x, narrow, hop))


def _ours(x: np.ndarray, n: int, hop: int, device: str) -> Peaks:
    adapter = "llvmpipe" if device != "cpu" else ""
    found = rlx.welch_peaks(
        x, nperseg=n, k=K, noverlap=n - hop, nsegments=2, device=device, adapter=adapter
    )
    return found.bins, found.power


def strongest(power: np.ndarray) -> Peaks:
    """The k largest of each row, the way NumPy's users write it."""
    bins = np.argpartition(power, -K, axis=1)[:, -K:]
    top = np.take_along_axis(power, bins, axis=1)
    order = np.argsort(-top, axis=1)
    return (
        np.take_along_axis(bins, order, axis=1),
        np.take_along_axis(top, order, axis=1),
    )


def plain(
    x: np.ndarray, window: np.ndarray, hop: int, rfft: Callable[..., Any] = np.fft.rfft
) -> Peaks:
    """What one writes from the formula."""
    n = len(window)
    frames = np.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, ::hop]
    spectra = rfft(frames * window, axis=-1)
    power = (np.abs(spectra) ** 2).mean(axis=1)
    power[:, 1:-1] *= 2
    return strongest(power)


FAST = partial(scipy.fft.rfft, workers=2)
"""SciPy's transform on two threads."""


def by_scipy_welch(x: np.ndarray, window: np.ndarray, hop: int) -> Peaks:
    """SciPy's estimate, scaled by the sum of the window; the order is the same."""
    _, power = scipy.signal.welch(
        x,
        window=window,
        nperseg=len(window),
        noverlap=len(window) - hop,
        detrend=False,
        scaling="spectrum",
        axis=1,
    )
    return strongest(power)


def _by_hand(
    x: np.ndarray, n: int, hop: int, adapter: str
) -> tuple[Callable[[], Peaks], Callable[[], None]]:
    """The hand-made shader with upload and read-back, and how to free it."""
    device = RawDevice(adapter)
    r, batch = round(n**0.5), len(x)
    lanes = 8 if n == 256 else 4
    shader = hand_welch.source(r, hop, K, lanes, in_workgroup=n > 256)
    samples, peaks = device.storage(x.nbytes), device.storage(batch * K * 8)
    window = device.storage(np.hanning(n).astype(np.float32))
    turns = device.storage(hand_welch.turns(r))
    stage = device.staging(batch * K * 8)
    kernel = device.kernel(shader, (samples, window, turns, peaks), (batch // lanes,))

    def call() -> Peaks:
        device.queue.write_buffer(samples, 0, x)
        (pairs,) = device.run([kernel], [(peaks, stage)])
        pairs = pairs.reshape(batch, K, 2)
        return pairs[:, :, 0].astype(np.int64), pairs[:, :, 1].copy()

    return call, device.close


def _check(entries: list[Entry], x: np.ndarray, n: int, hop: int) -> None:
    """Powers agree to 1e-4, and bins where neighbours in rank are further apart."""
    right = plain(x.astype(np.float64), np.hanning(n), hop)[1]
    for entry in entries:
        _, power = entry.peer()  # type: ignore[misc]
        power = np.asarray(power, np.float64)
        if entry.name == "scipy.signal.welch":
            power = power * np.hanning(n).astype(np.float32).sum(dtype=np.float64) ** 2
        worst = float(np.max(np.abs(power - right) / right.max()))
        assert worst < 1e-4, f"{entry.name}: relative error {worst:.2g}"
    bins = {e.name: np.asarray(e.peer()[0]) for e in entries}  # type: ignore[index]
    clear = np.abs(np.diff(right, axis=1, prepend=np.inf)) > 1e-3 * right
    clear[:, :-1] &= clear[:, 1:]
    clear[:, -1] = False
    for name, found in bins.items():
        differ = int(((found != bins[PLAIN]) & clear).sum())
        assert differ == 0, f"{name}: {differ} bins differ"


def _steady(x: np.ndarray, n: int, hop: int) -> dict[str, Any]:
    """What three more calls compiled and allocated on the device."""
    port = pool.backend("vulkan", "llvmpipe").port
    _ours(x, n, hop, "vulkan")
    return three_more(port, lambda: _ours(x, n, hop, "vulkan"))
