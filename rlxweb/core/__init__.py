"""Foundations that every package may use: errors, limits, devices' names, input
coercion, caches, fork safety, cancellation and atomic files.
"""
