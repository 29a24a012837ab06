"""CPU kernels of reductions in float32.

native.py   native code, along rows or down columns
llvm.py     LLVM code of it
numpy.py    fast sums and means
program.py  sums and means in native programs
rows.py     WebAssembly, along rows
"""
