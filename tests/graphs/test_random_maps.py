"""Random graphs for many examples at once are what they are for one after the other.

Some float inputs vary from example to example, by the same numbers in another order, so
that every op stays in its domain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, seed, settings

from rlxweb.smoke.grown import GrownGraph
from tests.agreement import engine
from tests.graphs.strategy import graphs

COUNT = 3
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def mapped(case: GrownGraph) -> None:
    """The outputs of the map are those of the graph, one example after the other."""
    g, rng = case.graph, np.random.default_rng(0)
    leaves = {**g.named("input"), **g.named("param")}
    floats = [n for n, leaf in leaves.items() if leaf.type.dtype.is_float]
    names = floats[::2]
    assume(names)
    every = {n: _shuffled(rng, case.feeds[n]) for n in names}
    cpu = engine(None, optimise=False, variants=False)
    each = [
        cpu.run(g, case.feeds | {n: x[at] for n, x in every.items()})
        for at in range(COUNT)
    ]
    outs = [g.tensor(at) for at in g.outputs]
    ones = [g.tensor(leaves[n].id) for n in names]
    wholes = [g.input(f"all_{n}", x.shape, x.dtype) for n, x in every.items()]
    g.set_outputs(g.vectorized(outs, ones, wholes))
    got = cpu.run(g, case.feeds | {f"all_{n}": x for n, x in every.items()})
    for at, (have, value) in enumerate(zip(got, case.outputs, strict=True)):
        want = np.stack([out[at] for out in each])
        # Sums of other lengths are added up in another order, from which steps differ.
        near = 1e-4 * max(value.size, 1.0) + 4 * value.error
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=near, err_msg=f"{case}")


def _shuffled(rng: np.random.Generator, x: Any) -> Any:
    x = np.asarray(x)
    return np.stack([rng.permutation(x.ravel()).reshape(x.shape) for _ in range(COUNT)])


def test_maps_of_random_graphs() -> None:
    @seed(30)
    @given(graphs())
    @settings(max_examples=150, suppress_health_check=QUIET)
    def check(case: GrownGraph) -> None:
        mapped(case)

    check()
