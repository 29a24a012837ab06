"""NumPy and native CPU kernels: Welch estimates, peak searches, convolutions and
blocked ops.
"""
