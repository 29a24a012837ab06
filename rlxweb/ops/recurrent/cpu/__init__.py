"""CPU kernels of recurrent networks in float32.

native.py  native code, and how threads share rows
llvm.py    LLVM code of the steps
numpy.py   one matrix product for each step
"""
