"""Constants of the format that `Graph.save` writes and `rlxweb.load` reads."""

STATIC_FORMAT = 1
DYNAMIC_FORMAT = 2
"""Format of a graph with dynamic shapes, which holds calls beside nodes."""
GRAPH_KEY = "rlxweb.graph"
"""Key of the graph's text in the metadata of a safetensors file."""

MAX_HEADER_BYTES = 16 << 20
MAX_NODES = 100_000
MAX_INLINE_BYTES = 64
"""Bytes of a constant that is written among the nodes, not among the tensors."""
MAX_OPERANDS = 100_000
