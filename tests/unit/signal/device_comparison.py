"""Helpers of device tests: closeness of two results, and the arguments that name an
adapter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.gpu.port_protocol import AdapterRequest


def assert_close(got: Any, want: Any, max_error: float = 1e-12) -> None:
    """Compare within a share of the largest value; empty arrays are equal."""
    assert got.shape == want.shape
    peak = np.abs(want).max(initial=0.0)
    # What rounding alone leaves of a segment of its own mean is nothing on both sides.
    np.testing.assert_allclose(got, want, rtol=0, atol=max_error * max(peak, 0.1))


def adapter_arguments(adapter: AdapterRequest) -> dict[str, Any]:
    """Return the arguments that ask for an adapter of the fixture."""
    return {"device": adapter.backends[0], "adapter": adapter.name}
