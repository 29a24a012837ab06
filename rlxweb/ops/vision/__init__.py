"""Ops on images: resize, grid sampling, RoI align and non-maximum suppression."""
