"""Compiler from a graph to a Plan: rewrites, fusion, views, memory. Names no op; reads
its record.
"""
