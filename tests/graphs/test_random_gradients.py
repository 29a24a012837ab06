"""Check that gradients of random graphs are the same on every engine: NumPy, compiled,
WGSL.

What each may be off by is measured, see `random_gradient_graph.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from rlxweb.core.limits import tiny_limits
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.verify import verify
from rlxweb.smoke.random_graph_builder import RandomGraph
from tests.engines_under_test import EngineUnderTest, engine
from tests.graphs.random_gradient_graph import differentiate_graph
from tests.graphs.random_graph_strategy import graphs

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def check_engines(engines: list[EngineUnderTest], examples: int, part: int) -> None:
    """Draw graphs and compare the gradients of each engine with float64's."""
    counts = [0, 0]

    @seed(part)
    @given(graphs())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: RandomGraph) -> None:
        gradient_graph = differentiate_graph(case)
        if gradient_graph is None:
            return
        verify(gradient_graph.graph)
        for index, count in enumerate(gradient_graph.sharp_counts):
            counts[index] += count
        for runner in engines:
            wrong = gradient_graph.output_errors(
                runner.run(gradient_graph.graph, gradient_graph.feeds)
            )
            assert wrong == [], f"on {runner.name}: {wrong}\n{gradient_graph}"

    check()
    sharp, every = counts
    assert sharp > 0.7 * every > 0, "allowances are too wide to see anything"


def test_numpy_agrees_with_float64(is_full_tier: bool) -> None:
    """Check NumPy optimised, with compiled code where there is a compiler, and
    unoptimised.
    """
    examples = 100 if is_full_tier else 60
    check_engines(
        [engine(None), engine(None, optimise=False, variants=False)], examples, 20
    )


@pytest.mark.requires_torch
@pytest.mark.requires_jax
def test_array_libraries_agree_with_float64() -> None:
    check_engines([engine("torch-cpu"), engine("jax-cpu")], 12, 21)


@pytest.mark.requires_wgpu
def test_adapter_agrees_with_float64(
    adapter: AdapterRequest, is_full_tier: bool
) -> None:
    """The first adapter gets more, and tiny limits as well."""
    first = adapter.name == "llvmpipe" and "vulkan" in adapter.backends
    engines = [engine(adapter)]
    if first:
        engines.append(engine(adapter, limits=tiny_limits()))
    examples = 80 if first else 40
    divisor = 6 if first else 8
    check_engines(engines, examples if is_full_tier else examples // divisor, 22)
