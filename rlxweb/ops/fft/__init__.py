"""Fourier transforms of rows, power spectra, short-time transforms and mel filters."""
