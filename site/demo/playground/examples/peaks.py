"""Welch peaks: from rows of samples to the strongest rhythms of each.

Four channels of a made-up EEG. Each has a rhythm of its own under noise.
"""

import numpy as np
from playground import plot

import rlxweb as rlx

fs = 256
t = np.arange(60 * fs) / fs
rng = np.random.default_rng(7)
rhythms = {"delta": 2.5, "theta": 6, "alpha": 10.2, "beta": 21}
eeg = np.stack(
    [
        20e-6 * np.sin(2 * np.pi * hz * t) + 15e-6 * rng.standard_normal(t.size)
        for hz in rhythms.values()
    ]
).astype(np.float32)

# local maxima of SciPy's density; the async form runs in every browser
peaks = await rlx.welch_peaks_async(
    eeg, fs=fs, nperseg=512, k=3, mode="peaks", preset="scipy"
)
for name, hz, power in zip(rhythms, peaks.hz, peaks.power, strict=True):
    print(f"{name:6} {hz[0]:6.2f} Hz, {power[0] * 1e12:.3g} µV²/Hz")
print(peaks.explain())

# the spectrum itself, in scipy's terms, to see where the peaks lie
freqs, density = rlx.welch(eeg, fs=fs, nperseg=512, device="cpu")
keep = freqs <= 40
tops = peaks.hz[:, 0]
heights = [np.interp(hz, freqs, row) for hz, row in zip(tops, density, strict=True)]
plot(
    freqs[keep],
    density[:, keep] * 1e12,
    title="Power spectral density",
    xlabel="Hz",
    ylabel="µV²/Hz",
    labels=list(rhythms),
    marks=(tops, np.array(heights) * 1e12),
    log="y",
)
