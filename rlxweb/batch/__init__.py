"""Runs over recordings: settings, the analysis of each file, and results."""
