"""CPU kernels of spectral estimates: NumPy and LLVM."""
