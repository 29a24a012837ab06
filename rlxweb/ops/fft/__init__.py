"""Fourier transforms of rows, power spectra, short-time transforms and mel filters.

op.py           fft, rfft, irfft and power spectra
frames_stft.py  overlapping frames, and their transform
mel.py          log-mel features
by_matmul.py    transforms by matrix products, for small devices
methods.py      methods of Graph
vjp.py          gradients
cpu/            kernels for the CPU
wgsl/           kernels for GPUs, over `shaders/fft/` and generated text
"""
