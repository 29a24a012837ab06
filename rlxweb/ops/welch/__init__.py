"""Welch estimates, segment spectra and the strongest peaks.

op.py                  welch_power, welch_row_peaks and others on rows
segment_spectra.py     spectra of segments
spec.py                specification of an estimate
parameters.py          its parameters, and their validation
graph.py               graph of one estimate
decimation_filters.py  low-pass filters for low bins
samples.py             cases that every engine must get right
cpu/                   kernels for the CPU
wgsl/                  kernels for GPUs, over `shaders/welch/` and generated text
"""
