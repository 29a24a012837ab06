"""Engines that run plans: NumPy, WGSL through a GPU port. One file each."""
