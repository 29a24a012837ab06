"""A spectrogram: frames of a chirp, a window, a Fourier transform, log power."""

import numpy as np
from playground import heat

import rlxweb as rlx

fs, seconds = 1000, 4
t = np.arange(fs * seconds) / fs
rng = np.random.default_rng(1)
chirp = np.sin(2 * np.pi * (20 * t + 45 * t**2)) + 0.3 * np.sin(2 * np.pi * 310 * t)
signal = (chirp + 0.1 * rng.standard_normal(t.size)).astype(np.float32)

size, hop = 256, 32
g = rlx.Graph("spectrogram")
frames = g.frame(g.input("x", (t.size,)), size, hop)
window = g.constant(np.hanning(size).astype(np.float32))
re, im = g.rfft(frames * window)
g.set_outputs([g.log(g.psd(re, im) + 1e-6)])
print(g)

compiled = await rlx.Session("auto").compile_async(g)
(power,) = await compiled.run_async({"x": signal})
print("on", compiled.engine, "→", power.shape)

heat(
    power.T,
    title="A chirp from 20 to 380 Hz over a tone of 310 Hz",
    xlabel="s",
    ylabel="Hz",
    x=(0, seconds),
    y=(0, fs / 2),
)
