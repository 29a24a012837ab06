"""The gradients of random graphs are the same on every engine: NumPy, compiled, WGSL.

What each may be off by is measured, see `differentiated.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from rlxweb.gpu.port import Want
from rlxweb.ir.verify import verify
from rlxweb.limits import shrunk
from rlxweb.smoke.grown import GrownGraph
from tests.agreement import Engine, engine
from tests.graphs.differentiated import differentiated
from tests.graphs.strategy import graphs

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def hunt(ways: list[Engine], examples: int, part: int) -> None:
    """Draw graphs and hold the gradients of each engine to float64's."""
    judged = [0, 0]

    @seed(part)
    @given(graphs())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: GrownGraph) -> None:
        made = differentiated(case)
        if made is None:
            return
        verify(made.graph)
        for at, count in enumerate(made.judged):
            judged[at] += count
        for one in ways:
            wrong = made.misses(one.run(made.graph, made.feeds))
            assert wrong == [], f"on {one.name}: {wrong}\n{made}"

    check()
    sharp, every = judged
    assert sharp > 0.7 * every > 0, "allowances are too wide to see anything"


def test_numpy_agrees_with_float64(is_full_tier: bool) -> None:
    """Optimised, with compiled code where there is a compiler, and not."""
    examples = 100 if is_full_tier else 60
    hunt([engine(None), engine(None, optimise=False, variants=False)], examples, 20)


@pytest.mark.requires_torch
@pytest.mark.requires_jax
def test_array_libraries_agree_with_float64() -> None:
    hunt([engine("torch-cpu"), engine("jax-cpu")], 12, 21)


@pytest.mark.requires_wgpu
def test_adapter_agrees_with_float64(adapter: Want, is_full_tier: bool) -> None:
    """The first adapter gets more, and tiny limits as well."""
    first = adapter.name == "llvmpipe" and "vulkan" in adapter.backends
    ways = [engine(adapter)]
    if first:
        ways.append(engine(adapter, limits=shrunk()))
    examples = 80 if first else 40
    fewer = 6 if first else 8
    hunt(ways, examples if is_full_tier else examples // fewer, 22)
