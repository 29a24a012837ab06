"""Table of rlxweb's import layers: each package may import from itself and from lower
layers.

A room may import from itself and from the floors below its own; rooms side by side know
nothing of each other. The top file `rlxweb/__init__.py` is the room ""; a file beside
it is a room of its own name. The manual draws the house from this table.
"""

from __future__ import annotations

LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "argument_hints",
        "bfloat16",
        "warning_stacklevel",
        "fork_safety",
        "limits",
        "lazy_names",
        "printable",
        "name_suggestions",
        "cancellation",
        "output_streams",
    ),
    ("errors", "lru_cache"),
    (
        "argument_validation",
        "device",
        "array_coercion",
        "safe_file_opening",
        "quantized_weights",
        "pages",
        "atomic_file",
    ),
    ("required_library_versions",),
    ("library_crash_probe",),
    ("adc_samples",),
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
"""Layers of packages and files, the lowest first."""
