"""Picture of the front page: a spectrum that rlxweb computes at every build."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import svg_drawing

import rlxweb as rlx

_FS = 256
_RHYTHMS = ((6.0, 0.8), (10.2, 2.2), (21.3, 0.6))
_MAX_HZ = 32.0
_SIZE = (1200, 250)
_NFFT = 4096  # padded: a smooth line


def poster() -> str:
    """Return the Welch spectrum of a synthetic EEG, its strongest peaks marked."""
    x = _eeg()
    hz, power = rlx.welch(x, _FS, nperseg=512, nfft=_NFFT, device="cpu")
    peaks = rlx.welch_peaks(
        x, _FS, 512, k=3, preset="scipy", mode="peaks", prominence=0.1, device="cpu"
    )
    in_range = (hz >= 1) & (hz <= _MAX_HZ)
    level = 10 * np.log10(power[in_range])
    width, height = _SIZE
    x_scale = svg_drawing.Scale(float(hz[in_range][0]), _MAX_HZ, 0, width)
    floor, top = float(level.min()) - 3, float(level.max()) + 9
    y_scale = svg_drawing.Scale(floor, top, height - 34, 0)
    points = [
        (x_scale(f), y_scale(v)) for f, v in zip(hz[in_range], level, strict=True)
    ]
    parts = [
        svg_drawing.curve(points, "rlx-area", floor=height - 34),
        svg_drawing.curve(points, "rlx-curve"),
    ]
    for peak_hz, peak_power in zip(peaks.hz, peaks.power, strict=True):
        x_at, y_at = x_scale(float(peak_hz)), y_scale(10 * float(np.log10(peak_power)))
        parts.append(svg_drawing.dot(x_at, y_at, 5, "rlx-peak"))
        parts.append(
            svg_drawing.text(
                x_at, y_at - 14, f"{peak_hz:.1f} Hz", "rlx-strong", "middle"
            )
        )
    parts += [
        svg_drawing.text(x_scale(f), height - 8, f"{f:g}", "rlx-quiet", "middle")
        for f in (5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
    ]
    peaks_text = " and ".join(f"{peak_hz:.1f} Hz" for peak_hz in sorted(peaks.hz))
    return svg_drawing.svg_image(
        width, height, f"A spectrum with peaks at {peaks_text}", parts
    )


def _eeg() -> npt.NDArray[np.float32]:
    """Return half a minute of three rhythms that come and go in falling noise."""
    random = np.random.default_rng(7)
    t = np.arange(32 * _FS) / _FS
    noise = np.fft.rfft(random.standard_normal(t.size))
    noise /= np.sqrt(1 + np.arange(noise.size) / 64)
    x = np.fft.irfft(noise, t.size)
    for rhythm_hz, amplitude in _RHYTHMS:
        drift = np.cumsum(random.standard_normal(t.size)) * 0.02
        x += amplitude * np.sin(2 * np.pi * rhythm_hz * t + drift)
    return x.astype(np.float32)
