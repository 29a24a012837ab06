"""Softmax, layer norm, RMS norm and their fusions with a sum.

op.py        the ops, and their plans over `shaders/norm/`
add_norm.py  residual sum and norm in one op
methods.py   methods of Graph: batch, group and instance norms too
cpu.py       kernels for processors and WebAssembly
wgsl/        kernel variants for GPUs
"""
