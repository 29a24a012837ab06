"""Transforms that are trained on a user's recordings to compute a band alone."""
