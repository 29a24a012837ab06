"""Backends that run plans: NumPy, array libraries, and WGSL through a GPU port; one
file each.
"""
