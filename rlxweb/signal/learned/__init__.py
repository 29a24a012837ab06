"""Transforms that are trained, for one's own recordings, to compute a band alone."""
