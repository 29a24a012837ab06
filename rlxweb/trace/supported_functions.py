"""Supported NumPy functions; importing this module fills the dispatch tables."""

from __future__ import annotations

from rlxweb.trace import (  # noqa: F401  # each fills the dispatch tables
    complex_ufuncs,
    creation_and_diagonals,
    fft,
    linear_systems,
    matrix_products,
    reductions,
    reshaping_and_joining,
    selection_and_sorting,
    statistics_and_differences,
    ufuncs,
)
from rlxweb.trace.numpy_dispatch import NUMPY_FUNCTIONS, REAL_UFUNCS, numpy_name


def supported_function_names() -> list[str]:
    """Return the names of the NumPy functions that a traced function may call, in
    alphabetical order.
    """
    return sorted(
        {numpy_name(function) for function in NUMPY_FUNCTIONS}
        | {f"np.{function.__name__}" for function in REAL_UFUNCS}
    )
