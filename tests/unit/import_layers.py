"""Table of rlxweb's import layers: each package may import from itself and from lower
layers.

A package may import from itself and from the layers below its own; packages of one
layer know nothing of each other. The top file `rlxweb/__init__.py` is the package ""; a
file beside it is a package of its own name. The manual draws its map from this table.
"""

from __future__ import annotations

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("ir", "io"),
    ("gpu", "codegen"),
    ("cost",),
    ("ops", "results"),
    ("compiler",),
    ("engines",),
    ("select", "export"),
    ("runtime",),
    ("trace",),
    ("signal", "onnx"),
    ("batch", "live"),
    ("smoke", "plot", "rlx"),
    ("errors", "limits", "devices", "dask"),
    ("",),
    ("cli",),
    ("__main__",),
)
"""Layers of packages and files, the lowest first."""
