"""Calibration: measurement of engines, storage of results, and corrections from
observed runs.
"""
