"""Build Welch specs from a length and the fields of a request, for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.welch_request import WelchRequest


def resolve_spec(
    n_samples: int | None, dtype: Any = np.float64, **fields: Any
) -> WelchSpec:
    """Return the Welch spec of a request with these fields; the other fields have
    SciPy's defaults.
    """
    return WelchRequest(**fields).spec(n_samples, dtype)
