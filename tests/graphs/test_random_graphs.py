"""Random valid graphs: NumPy = WGSL = float64 = optimised = not = tiny limits.

Each engine's outputs are held against the float64 oracle (reliability.md A1).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from rlxweb.gpu.port import Want
from rlxweb.ir.verify import verify
from rlxweb.limits import shrunk
from rlxweb.smoke.grown import GrownGraph
from tests.agreement import Engine, engine
from tests.graphs.strategy import graphs
from tests.tiers import Tier, thinned

MANY = 300
PARTS = 4
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def hunt(ways: list[Engine], examples: int, part: int) -> None:
    """Draw graphs and hold each engine to them; `part` picks which graphs."""

    @seed(part)
    @given(graphs())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: GrownGraph) -> None:
        verify(case.graph)
        for one in ways:
            wrong = case.misses(one.run(case.graph, case.feeds))
            assert wrong == [], f"on {one.name}: {wrong}\n{case}"

    check()


def test_numpy_agrees_with_float64(tier: Tier) -> None:
    """NumPy agrees with float64, optimised and not."""
    examples = {"quick": MANY // 5, "default": MANY, "full": 2 * MANY}[tier]
    hunt([engine(None), engine(None, optimise=False)], examples, 0)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("part", thinned(range(PARTS), PARTS))
def test_adapter_agrees_with_float64(adapter: Want, part: int, tier: Tier) -> None:
    """An adapter agrees with float64, without variants and under tiny limits too.

    All parts are run with --full, else the first alone. In each the other adapters get
    a fifth of the graphs of the first: they share everything but the driver.
    """
    first = adapter.name == "llvmpipe" and "vulkan" in adapter.backends
    ways = [
        engine(adapter),
        engine(adapter, optimise=False, variants=False),
        engine(adapter, limits=shrunk()),
    ]
    most = (MANY if first else MANY // 5) // PARTS
    examples = {"quick": most // 3, "default": most // 2, "full": most}[tier]
    hunt(ways, examples, part + 1)
