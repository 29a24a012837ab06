"""Signals that are still running: where they come from, and what is told of them."""
