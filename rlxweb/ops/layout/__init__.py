"""Ops that move data and compute nothing: reshape, transpose, slice, pad, tile."""
