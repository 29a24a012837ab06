"""GPU kernels of reductions.

plan.py      the ops' own
variants.py  many invocations for each result
"""
