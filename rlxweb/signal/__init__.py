"""Welch spectra and their peaks: what is computed, and where."""
