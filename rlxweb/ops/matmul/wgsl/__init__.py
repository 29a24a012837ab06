"""GPU kernels of matrix products, besides the op's own.

blocked.py   large blocks: plan and WGSL text
variants.py  shared tiles: a table of kernel variants
"""
