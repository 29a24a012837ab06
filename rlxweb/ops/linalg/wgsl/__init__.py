"""GPU kernels of linear algebra.

plan.py        Gaussian elimination: solve, det and slogdet
triangular.py  solve_triangular and cholesky
"""
