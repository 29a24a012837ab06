"""CPU kernels of matrix products: LLVM and WebAssembly.

native.py               choice of the native kernel, and tiling
llvm.py                 LLVM code of it
epilogue.py             products with an elementwise epilogue
packed_weights.py       prepacked weights
program.py              products in native programs
wasm.py                 WebAssembly, for a browser's Python
wasm_codegen.py         code of it
wasm_on_web_workers.py  products shared among web workers, with epilogues
wasm_threaded.py        code of shared products
web_worker_matmul.py    one product divided among web workers
web_workers.py          web workers in shared memory
workers.js              what each of them runs
"""
