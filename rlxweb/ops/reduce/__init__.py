"""Reductions over any axes: sum, mean, max, min, prod, argmax and argmin.

op.py         sum, mean, max, min and prod
argminmax.py  argmax and argmin
methods.py    methods of Graph: var, std, norms too
cpu/          kernels for the CPU
wgsl/         kernel plans for GPUs, over `shaders/reduce/`
"""
