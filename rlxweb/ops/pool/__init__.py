"""Pooling: maximum of each window and its index, sum, mean and p-norm.

op.py       the ops, whose plans are those of `reduce/wgsl/` or over `shaders/pool/`
methods.py  methods of Graph
cpu.py      NumPy kernels

Gradients are in `conv/vjp.py`.
"""
