"""CPU kernels of softmax and norms.

native.py        one native function
llvm.py          LLVM code of it
wasm.py          WebAssembly, for a browser's Python
wasm_codegen.py  code of it
"""
