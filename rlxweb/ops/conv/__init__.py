"""Convolutions: plain, grouped, transposed and deformable."""
