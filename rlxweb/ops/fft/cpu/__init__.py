"""CPU kernels of Fourier transforms.

numpy.py  the references on blocks of rows in cache
llvm.py   complex transforms as LLVM code, for compiled Welch estimates
"""
