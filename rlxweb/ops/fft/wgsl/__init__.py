"""GPU kernels of Fourier transforms.

plan.py               the op's own: row layouts and dispatches that all share
variants.py           a workgroup for each row, or unrolled passes
in_place.py           WGSL text of a transform in workgroup memory
cooperative_plans.py  a group of lanes for each row, in registers
cooperative.py        WGSL text of it
"""
