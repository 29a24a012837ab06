"""The figures of the format that `Graph.save` writes and `rlxweb.load` reads."""

FORMAT = 1
VARYING = 2
"""The format of a graph whose sizes vary, which holds calls beside nodes."""
KEY = "rlxweb.graph"
"""Where in the metadata of a safetensors file the graph is."""

MOST_HEADER = 16 << 20
MOST_NODES = 100_000
MOST_INLINE = 64
"""Bytes of a constant that is written among the nodes, not among the tensors."""
MOST_OPERANDS = 100_000
