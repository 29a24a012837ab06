"""Python functions on arrays, traced into graphs: what NumPy calls do to a graph."""
