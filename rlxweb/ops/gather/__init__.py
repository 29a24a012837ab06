"""Gather and scatter by index, and cumulative sums and products.

op.py                  gather, cumsum and cumprod
scatter.py             gather and scatter by elements or index tuples
reference_scatter.py   scatter for references
index_validation.py    indices out of range are refused
methods.py             methods of Graph
vjp.py                 gradients
cumsum_cumprod_vjp.py  gradients of cumsum and cumprod
cpu.py                 NumPy kernels
wgsl/                  kernel plans for GPUs, over `shaders/gather/`
"""
