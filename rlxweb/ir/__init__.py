"""Intermediate representation: element types, op records and graphs, independent of
devices and kernels.
"""
