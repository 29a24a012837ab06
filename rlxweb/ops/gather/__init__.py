"""Gather and scatter by index, top-k, and cumulative sums and products."""
