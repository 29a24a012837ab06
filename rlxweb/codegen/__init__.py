"""Code generation for every engine: WGSL from kernel dispatches, LLVM and WebAssembly
from the same expressions, and the JIT cache and threads that run native code.
"""
