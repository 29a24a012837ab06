"""Linear systems, determinants, triangular systems and Cholesky factors.

op.py          solve, det and slogdet
triangular.py  solve_triangular and cholesky
methods.py     methods of Graph
vjp.py         gradients
wgsl/          kernel plans for GPUs, over `shaders/linalg/`

The CPU computes them by their references.
"""
