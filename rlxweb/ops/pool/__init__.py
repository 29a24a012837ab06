"""Pooling: maximum of each window and its index, sum, mean and p-norm.

op.py       the ops
windows.py  windows of pools, over those of `conv/windows.py`
methods.py  methods of Graph
vjp.py      gradients
cpu.py      NumPy kernels
wgsl.py     kernel plans for GPUs, over `shaders/pool/` and `shaders/reduce/`
"""
