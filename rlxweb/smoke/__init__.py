"""Smoke test: check every engine of the machine for correctness and measure its speed.

The tests, the command line and the site's check page judge by what is written here.
"""
