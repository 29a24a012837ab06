"""Welch estimates, segment spectra and the strongest peaks."""
