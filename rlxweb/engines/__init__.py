"""Engines that run plans: NumPy and compiled code, array libraries, and WGSL through a
GPU port.
"""
