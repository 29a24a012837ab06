"""Leaf ops input, param and constant: their values are supplied, not computed.

op.py       the ops
methods.py  methods of Graph that create tensors
"""
