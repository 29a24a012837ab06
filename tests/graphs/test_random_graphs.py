"""Check random valid graphs against NumPy in float64: NumPy and WGSL engines, optimised
or not, under tiny limits.

Each engine's outputs are held against the float64 oracle (reliability.md A1).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from rlxweb.core.limits import tiny_limits
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.verify import verify
from rlxweb.smoke.random_graph_builder import RandomGraph
from tests.engines_under_test import EngineUnderTest, engine
from tests.graphs.random_graph_strategy import graphs
from tests.suite_tiers import Tier, thin_out_cases

DEFAULT_EXAMPLES = 300
PARTS = 4
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def check_engines(engines: list[EngineUnderTest], examples: int, part: int) -> None:
    """Draw graphs and compare each engine with float64; `part` is the seed."""

    @seed(part)
    @given(graphs())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: RandomGraph) -> None:
        verify(case.graph)
        for runner in engines:
            wrong = case.output_errors(runner.run(case.graph, case.feeds))
            assert wrong == [], f"on {runner.name}: {wrong}\n{case}"

    check()


def test_numpy_agrees_with_float64(tier: Tier) -> None:
    """NumPy agrees with float64, optimised and not."""
    examples = {
        "quick": DEFAULT_EXAMPLES // 5,
        "default": DEFAULT_EXAMPLES,
        "full": 2 * DEFAULT_EXAMPLES,
    }[tier]
    check_engines([engine(None), engine(None, optimise=False)], examples, 0)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("part", thin_out_cases(range(PARTS), PARTS))
def test_adapter_agrees_with_float64(
    adapter: AdapterRequest, part: int, tier: Tier
) -> None:
    """An adapter agrees with float64, without variants and under tiny limits too.

    All parts are run with --full, else the first alone. In each the other adapters get
    a fifth of the graphs of the first: they share everything but the driver.
    """
    first = adapter.name == "llvmpipe" and "vulkan" in adapter.backends
    engines = [
        engine(adapter),
        engine(adapter, optimise=False, variants=False),
        engine(adapter, limits=tiny_limits()),
    ]
    max_examples = (DEFAULT_EXAMPLES if first else DEFAULT_EXAMPLES // 5) // PARTS
    examples = {
        "quick": max_examples // 3,
        "default": max_examples // 2,
        "full": max_examples,
    }[tier]
    check_engines(engines, examples, part + 1)
