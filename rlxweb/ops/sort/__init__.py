"""Sorting, search in sorted rows, and the positions of nonzero elements.

op.py       sort, argsort and searchsorted
topk.py     topk
nonzero.py  nonzero
methods.py  methods of Graph
cpu.py      NumPy kernels of topk and argsort
wgsl/       kernel plans for GPUs, over `shaders/sort/`
"""
