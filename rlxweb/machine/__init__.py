"""Kernels for the CPU as machine code: written as LLVM's text, compiled when wanted."""
