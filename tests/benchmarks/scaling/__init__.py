"""Scaling over many workers: measured at one and two, simulated up to a thousand."""
