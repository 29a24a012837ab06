"""How near two answers are, and where a call is asked to run."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.gpu.port import Want


def close(got: Any, want: Any, most: float = 1e-12) -> None:
    """Within so much of the largest value; empty arrays are alike."""
    assert got.shape == want.shape
    peak = np.abs(want).max(initial=0.0)
    # What rounding alone leaves of a segment of its own mean is nothing on both sides.
    np.testing.assert_allclose(got, want, rtol=0, atol=most * max(peak, 0.1))


def by_name(adapter: Want) -> dict[str, Any]:
    """The arguments that ask for an adapter of the fixture."""
    return {"device": adapter.backends[0], "adapter": adapter.name}
