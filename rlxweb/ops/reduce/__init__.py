"""Reductions over any axes: sum, mean, max, min, prod, argmax and argmin."""
