"""Sorting, search in sorted rows, and the positions of nonzero elements."""
