"""Transforms that were trained to compute a band of a spectrum and no more."""
