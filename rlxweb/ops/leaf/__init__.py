"""Leaf ops input, param and constant: their values are supplied, not computed."""
