"""GPU kernels of object detection.

non_max_suppression.py  the op of the same name
roi_align.py            the op of the same name
"""
