"""Attention in one kernel, for GPUs.

plan.py  kernel plan, and the method
text.py  WGSL text
"""
