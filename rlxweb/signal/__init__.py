"""Welch spectra, their peaks, and the choice of the engine that computes them."""
