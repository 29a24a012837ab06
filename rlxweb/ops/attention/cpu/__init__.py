"""CPU kernels of attention in float32.

native.py        native code, or BLAS products with a native softmax
llvm.py          LLVM code of it
wasm.py          WebAssembly, for a browser's Python
wasm_codegen.py  code of it
"""
