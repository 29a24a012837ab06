"""Elementwise ops: each result from one element of each operand."""
