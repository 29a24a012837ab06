"""The floors of the house: which room of rlxweb may import from which.

A room may import from itself and from the floors below its own; rooms side by side know
nothing of each other. The top file `rlxweb/__init__.py` is the room ""; a file beside
it is a room of its own name. The manual draws the house from this table.
"""

from __future__ import annotations

FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "advice",
        "bfloat16",
        "callers",
        "forked",
        "limits",
        "names",
        "printable",
        "spelling",
        "stopping",
        "streams",
    ),
    ("errors", "kept"),
    (
        "arguments",
        "device",
        "given",
        "named_files",
        "packed_weights",
        "pages",
        "whole_file",
    ),
    ("library_versions",),
    ("library_probe",),
    ("digital",),
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
    ("",),
    ("cli",),
    ("__main__",),
)
"""The ground first."""
