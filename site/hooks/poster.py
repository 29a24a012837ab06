"""The picture of the front page: a spectrum that rlxweb computes at every build."""

from __future__ import annotations

import drawing
import numpy as np
import numpy.typing as npt

import rlxweb as rlx

_FS = 256
_RHYTHMS = ((6.0, 0.8), (10.2, 2.2), (21.3, 0.6))
_SHOWN_HZ = 32.0
_SIZE = (1200, 250)
_NFFT = 4096  # padded: a smooth line


def poster() -> str:
    """Welch spectrum of a made EEG with its strongest peaks marked."""
    x = _eeg()
    hz, power = rlx.welch(x, _FS, nperseg=512, nfft=_NFFT, device="cpu")
    peaks = rlx.welch_peaks(
        x, _FS, 512, k=3, preset="scipy", mode="peaks", prominence=0.1, device="cpu"
    )
    shown = (hz >= 1) & (hz <= _SHOWN_HZ)
    level = 10 * np.log10(power[shown])
    width, height = _SIZE
    across = drawing.Scale(float(hz[shown][0]), _SHOWN_HZ, 0, width)
    floor, top = float(level.min()) - 3, float(level.max()) + 9
    up = drawing.Scale(floor, top, height - 34, 0)
    points = [(across(f), up(v)) for f, v in zip(hz[shown], level, strict=True)]
    parts = [
        drawing.curve(points, "rlx-area", floor=height - 34),
        drawing.curve(points, "rlx-curve"),
    ]
    for at, strength in zip(peaks.hz, peaks.power, strict=True):
        x_at, y_at = across(float(at)), up(10 * float(np.log10(strength)))
        parts.append(drawing.dot(x_at, y_at, 5, "rlx-peak"))
        parts.append(
            drawing.text(x_at, y_at - 14, f"{at:.1f} Hz", "rlx-strong", "middle")
        )
    parts += [
        drawing.text(across(f), height - 8, f"{f:g}", "rlx-quiet", "middle")
        for f in (5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
    ]
    found = " and ".join(f"{at:.1f} Hz" for at in sorted(peaks.hz))
    return drawing.picture(width, height, f"A spectrum with peaks at {found}", parts)


def _eeg() -> npt.NDArray[np.float32]:
    """Half a minute of three rhythms that come and go in falling noise."""
    random = np.random.default_rng(7)
    t = np.arange(32 * _FS) / _FS
    noise = np.fft.rfft(random.standard_normal(t.size))
    noise /= np.sqrt(1 + np.arange(noise.size) / 64)
    x = np.fft.irfft(noise, t.size)
    for at, size in _RHYTHMS:
        drift = np.cumsum(random.standard_normal(t.size)) * 0.02
        x += size * np.sin(2 * np.pi * at * t + drift)
    return x.astype(np.float32)
