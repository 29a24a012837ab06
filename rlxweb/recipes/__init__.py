"""Kernel plans: the arithmetic, shared by ops and backends, that cuts an op into
dispatches. Knows no device.
"""
