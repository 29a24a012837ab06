"""GPU kernels of convolutions.

plan.py           the op's own: a tile of channels by positions
implicit_gemm.py  matrix products by large blocks, windows never laid out
variants.py       table of the kernel variants
"""
