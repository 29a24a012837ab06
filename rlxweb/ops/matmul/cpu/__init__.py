"""CPU kernels of matrix products: LLVM, WebAssembly and web workers."""
