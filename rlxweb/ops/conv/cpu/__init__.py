"""CPU kernels of convolutions: NumPy, LLVM and WebAssembly."""
