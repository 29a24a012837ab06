"""CPU kernels of convolutions: NumPy, LLVM and WebAssembly.

native.py              which native kernel, or matrix products over the windows
llvm.py                LLVM code of a convolution
im2col.py              matrix products over gathered windows
phase_split.py         arrays split by the phases of a stride
native_phase_split.py  the same by native code
llvm_phase_split.py    LLVM code of it
numpy.py               im2col in blocks, multiplied by BLAS
program.py             convolutions in native programs
wasm.py                WebAssembly, for a browser's Python
wasm_codegen.py        code of it
"""
