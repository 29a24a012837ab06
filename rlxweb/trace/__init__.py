"""Tracing of Python functions on arrays into graphs: NumPy calls become graph ops."""
