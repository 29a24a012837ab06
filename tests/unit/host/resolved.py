"""A Welch estimate from a length and a request's fields, for tests of what it does."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.host.spec import WelchSpec
from rlxweb.signal.request import WelchRequest


def resolve(n_samples: int | None, dtype: Any = np.float64, **fields: Any) -> WelchSpec:
    """The estimate of a request with these fields; the others as scipy has them."""
    return WelchRequest(**fields).spec(n_samples, dtype)
