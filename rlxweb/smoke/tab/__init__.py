"""Smoke test in a browser tab or under Node: Pyodide and this package, served
locally.
"""
