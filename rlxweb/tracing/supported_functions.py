"""Supported NumPy functions; importing this module fills the dispatch tables."""

from __future__ import annotations

from rlxweb.tracing import (
    complex_ufuncs as complex_ufuncs,
)
from rlxweb.tracing import (
    creation_and_diagonals as creation_and_diagonals,
)
from rlxweb.tracing import (
    fft as fft,
)
from rlxweb.tracing import (
    linear_systems as linear_systems,
)
from rlxweb.tracing import (
    matrix_products as matrix_products,
)
from rlxweb.tracing import (
    reductions as reductions,
)
from rlxweb.tracing import (
    reshaping_and_joining as reshaping_and_joining,
)
from rlxweb.tracing import (
    selection_and_sorting as selection_and_sorting,
)
from rlxweb.tracing import (
    statistics_and_differences as statistics_and_differences,
)
from rlxweb.tracing import (
    ufuncs as ufuncs,
)
from rlxweb.tracing.numpy_dispatch import NUMPY_FUNCTIONS, REAL_UFUNCS, numpy_name


def supported_function_names() -> list[str]:
    """Return the names of the NumPy functions that a traced function may call, in
    alphabetical order.
    """
    return sorted(
        {numpy_name(function) for function in NUMPY_FUNCTIONS}
        | {f"np.{function.__name__}" for function in REAL_UFUNCS}
    )
