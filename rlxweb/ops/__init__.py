"""The vocabulary: one record per op, declared once. Importing this registers them."""

from importlib import import_module

FAMILIES = (
    "leaf",
    "elementwise",
    "activation",
    "movement",
    "reduce",
    "select",
    "linalg",
    "norm",
    "nn",
    "spectral",
    "mel",
    "welch",
)

for _family in FAMILIES:
    import_module(f"rlxweb.ops.{_family}")
