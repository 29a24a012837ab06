"""Native CPU and WebAssembly code generation: kernels as LLVM IR or WebAssembly bytes,
compiled on demand.
"""
