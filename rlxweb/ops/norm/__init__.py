"""Softmax, layer norm, RMS norm and their fusions with a sum."""
