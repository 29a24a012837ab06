"""What ICLabel looks at of a component: its map, its spectrum, its autocorrelation.

The numbers are those of mne-icalabel, which are EEGLAB's: a map of 32 × 32 by a
biharmonic spline, decibels of 1 to 100 Hz, one second of autocorrelation at 100 Hz.

Source   Pion-Tonachini, Kreutz-Delgado & Makeig 2019, ICLabel: an automated
electroencephalographic independent component classifier; Sandwell 1987 (the spline)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import number
from rlxweb.errors import NotFinite, ShapeError, UsageError
from rlxweb.given import array_of

Array = npt.NDArray[Any]

SIDE = 32
"""Of a map, in pixels."""
BINS = 100
_SHARE = 0.99
_RIM = 0.5
"""Where the head ends."""
_MAINS = (50, 60)
_NOTCH_DB = 5.0
_LONG_S = 5
_DOING = "features of components"


@dataclass(frozen=True, slots=True)
class ComponentFeatures:
    """Of N components, each float32.

    topo             (N, 32, 32): from the back to the nose down the rows, from the left
                     ear to the right along them; the strongest is ±0.99
    psd              (N, 100): dB of 1 to 100 Hz over the largest of them
    autocorrelation  (N, 100): of lags 0.01 to 1 s
    """

    topo: Array
    psd: Array
    autocorrelation: Array


def component_features(
    mixing: Any,
    activations: Any,
    fs: float,
    positions: Any,
    *,
    epochs: bool | None = None,
) -> ComponentFeatures:
    """The features of components.

    mixing       (C, N), the map of each component a column
    activations  (N, T), or (N, T, E) of epochs; in µV where `mixing` has no unit
    fs           Hz
    positions    (C, 3) of the electrodes: x to the right ear, y to the nose, z up, from
                 the middle of the head, in any unit
    epochs       they are of epochs, though there is one; None: if they have 3 axes
    Errors   ShapeError, UsageError, NotFinite for what is given
    """
    a, x, at = _checked(mixing, activations, positions)
    rate = number("fs", fs, _DOING)
    if rate < 2:
        raise UsageError(_DOING, f"fs is {rate:g} Hz", "2 at least")
    least = 2 * min(int(rate / 2), BINS)
    if x.shape[1] < least:
        problem = f"there are {x.shape[1]} samples at {rate:g} Hz"
        raise UsageError(_DOING, problem, f"{least} at least")
    cut = x.ndim == 3 if epochs is None else epochs
    x = x[:, :, None] if x.ndim == 2 else x
    parts = maps_of(a, at), _spectra(x, rate), _autocorrelations(x, rate, cut)
    topo, psd, correlation = (
        np.asarray(one.astype(np.float32) * np.float32(_SHARE)) for one in parts
    )
    return ComponentFeatures(topo, psd, correlation)


def _checked(
    mixing: Any, activations: Any, positions: Any
) -> tuple[Array, Array, Array]:
    a, x, at = (
        array_of(one, _DOING).astype(np.float64, copy=False)
        for one in (mixing, activations, positions)
    )
    if a.ndim != 2 or x.ndim not in (2, 3) or a.shape[1] != x.shape[0] or not x.size:
        said = f"mixing is {list(a.shape)}, activations are {list(x.shape)}"
        raise ShapeError(_DOING, said, "(C, N) and (N, T) or (N, T, E)")
    if at.shape != (a.shape[0], 3):
        said = f"positions are {list(at.shape)}"
        raise ShapeError(_DOING, said, f"({a.shape[0]}, 3), one of each channel")
    for name, one in (("mixing", a), ("activations", x), ("positions", at)):
        if not np.isfinite(one).all():
            hint = "leave out channels without a place" if name == "positions" else ""
            problem = f"{name} are not finite" if name[-1] == "s" else f"{name} is not"
            raise NotFinite(_DOING, problem, "every number must be finite", hint)
    flat = np.flatnonzero(np.abs(x).max(axis=tuple(range(1, x.ndim))) == 0)
    if flat.size:
        problem = f"component {flat[0]} is 0 throughout"
        raise UsageError(_DOING, problem, "a component has a signal")
    return a, x, at


# --- maps -----------------------------------------------------------------------------


def maps_of(mixing: Array, positions: Array) -> Array:
    """(N, 32, 32), the strongest ±1; 0 outside the head."""
    x, y = _seen_from_above(positions)
    places, merged = _merged(np.column_stack([x, y]), mixing)
    weights = np.linalg.lstsq(_green(places, places), merged, rcond=-1)[0]
    ends = min(-_RIM, x.min(), y.min()), max(_RIM, x.max(), y.max())
    across = np.linspace(*ends, SIDE)
    grid = np.stack(np.meshgrid(across, across, indexing="ij"), -1).reshape(-1, 2)
    level = (_green(grid, places) @ weights).T.reshape(-1, SIDE, SIDE)
    level[:, np.hypot(*grid.T).reshape(SIDE, SIDE) > _RIM] = 0.0
    most = np.abs(level).max(axis=(1, 2), keepdims=True)
    found: Array = level / np.where(most > 0, most, 1.0)
    return found


def _seen_from_above(positions: Array) -> tuple[Array, Array]:
    """X to the nose and y to the right ear, all within the head."""
    right, front, up = positions.T
    far = np.hypot(right, front)
    radius = (np.pi / 2 - np.arctan2(up, far)) / np.pi
    most = max(min(1.0, float(radius.max()) * 1.02), _RIM)
    angle = np.arctan2(right, front)
    radius = radius * (_RIM / most)
    return radius * np.cos(angle), radius * np.sin(angle)


def _merged(places: Array, mixing: Array) -> tuple[Array, Array]:
    """Electrodes in one place are one, with the mean of both."""
    near = np.spacing(np.ptp(places, axis=0) / 2) ** (1 / 3)
    left = list(range(len(places)))
    rows = []
    while left:
        own = places[left[0]]
        same = [at for at in left if bool((np.abs(places[at] - own) < near).all())]
        left = [at for at in left if at not in same]
        rows.append((places[same].mean(axis=0), mixing[same].mean(axis=0)))
    return np.array([p for p, _ in rows]), np.array([m for _, m in rows])


def _green(a: Array, b: Array) -> Array:
    far = np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where(far > 1e-8, far**2 * (np.log(far) - 1.0), 0.0)
    return found


# --- spectra --------------------------------------------------------------------------


def _starts(n_samples: int, length: int) -> Array:
    """Where segments begin, each half over the one before it."""
    whole = n_samples // length * length
    begins: Array = np.ceil(np.arange(0, whole - length / 2, length / 2))
    return begins.astype(int)


def _spectra(x: Array, fs: float) -> Array:
    """(N, 100): dB over the largest, of the median over all segments."""
    length = min(x.shape[1], int(fs))
    nyquist = int(fs / 2)
    bins = min(nyquist, BINS)
    window = np.hamming(length)
    starts = _starts(x.shape[1], length)
    level = np.zeros((len(x), bins))
    for at, own in enumerate(x):
        rows = np.lib.stride_tricks.sliding_window_view(own, length, axis=0)[starts]
        found = np.fft.rfft(rows * window, axis=-1)[..., 1 : bins + 1]
        power = (np.abs(found) ** 2).reshape(-1, found.shape[-1])
        level[at] = np.median(power, axis=0)
    level *= 2 / (fs * (window**2).sum())
    if bins == nyquist:
        level[:, -1] /= 2
    # Twice the decibels that others count, as EEGLAB has it.
    level = 20 * np.log10(np.maximum(level, np.finfo(np.float64).tiny))
    level = np.pad(level, ((0, 0), (0, BINS - bins)), mode="edge")
    for hz in _MAINS:
        around = level[:, [hz - 2, hz]]
        dip = (around - level[:, [hz - 1]] > _NOTCH_DB).all(axis=1)
        level[dip, hz - 1] = around[dip].mean(axis=1)
    shares: Array = level / np.abs(level).max(axis=1, keepdims=True)
    return shares


# --- autocorrelations -----------------------------------------------------------------


def _autocorrelations(x: Array, fs: float, cut: bool) -> Array:
    """(N, 100) of lags up to a second; of what is long the mean over pieces of 3 s."""
    total, second = x.shape[1], int(fs)
    long = not cut and total / fs > _LONG_S
    length = min(total, int(3 * fs)) if long else total
    starts = _starts(total, length) if long else np.zeros(1, int)
    size = 1 << (2 * length - 2).bit_length() if length > 1 else 1
    made = np.zeros((len(x), second + 1))
    for at, own in enumerate(x):
        rows = np.lib.stride_tricks.sliding_window_view(own, length, axis=0)[starts]
        power = np.abs(np.fft.rfft(rows, size, axis=-1)) ** 2
        lags = np.fft.irfft(power.reshape(-1, power.shape[-1]).mean(axis=0), size)
        there = min(length, second + 1)
        made[at, :there] = lags[:there] / lags[0]
    if long:
        made /= np.maximum(1, length - np.arange(second + 1)) / length
    return _at_100_hz(made, fs)[:, 1:]


def _at_100_hz(x: Array, fs: float) -> Array:
    """(N, 101) of (N, lags): SciPy's `resample_poly`, 100 for each second."""
    down = int(fs)
    if x.shape[1] * BINS / down > BINS + 1:
        down += 1
    common = gcd(BINS, down)
    up, down = BINS // common, down // common
    half = 10 * max(up, down)
    reach = np.arange(-half, half + 1)
    taps = np.sinc(reach / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
    taps *= up / taps.sum()
    count = -(-x.shape[1] * up // down)
    place = np.arange(count)[None] * down - np.arange(x.shape[1])[:, None] * up
    inside = np.abs(place) <= half
    matrix = np.where(inside, taps[np.clip(place + half, 0, 2 * half)], 0.0)
    found: Array = x @ matrix
    return found
