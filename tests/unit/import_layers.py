"""Table of rlxweb's import layers: each package may import from itself and from lower
layers.

A room may import from itself and from the floors below its own; rooms side by side know
nothing of each other. The top file `rlxweb/__init__.py` is the room ""; a file beside
it is a room of its own name. The manual draws the house from this table.
"""

from __future__ import annotations

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("ir", "decision", "io"),
    ("graphfile", "recipes", "results"),
    ("machine",),
    ("ops", "cost", "kernels", "host"),
    ("compile", "gpu"),
    ("backends",),
    ("devices", "export"),
    ("calibration",),
    ("choose",),
    ("runtime",),
    ("tracing",),
    ("training",),
    ("signal",),
    ("jobs", "live", "onnx"),
    ("smoke", "dask", "plot", "rlx"),
    ("errors", "limits"),
    ("",),
    ("cli",),
    ("__main__",),
)
"""Layers of packages and files, the lowest first."""
