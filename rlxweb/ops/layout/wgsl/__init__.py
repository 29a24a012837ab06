"""GPU kernels that move data.

index_map.py  one pass through an index table per axis
padding.py    padding without tables
transpose.py  copies that transpose
"""
