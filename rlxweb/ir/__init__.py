"""WHAT to compute: types, ops as records, graphs. Knows no device and no kernel."""
