"""GPU kernels of gather, scatter and cumulative sums.

plan.py     gather, cumsum and cumprod
scatter.py  gather and scatter by indices of several axes
rows.py     gather of four neighbours of a row at a time
"""
