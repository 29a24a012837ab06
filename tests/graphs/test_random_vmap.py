"""Check that vectorized random graphs give what the graphs give for one example after
another.

Some float inputs vary from example to example, by the same numbers in another order, so
that every op stays in its domain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, seed, settings

from rlxweb.smoke.random_graph_builder import RandomGraph
from tests.engines_under_test import engine
from tests.graphs.random_graph_strategy import graphs

COUNT = 3
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def check_vectorized(case: RandomGraph) -> None:
    """Check that the vectorized outputs are those of the graph for one example after
    another.
    """
    g, rng = case.graph, np.random.default_rng(0)
    leaves = {**g.named("input"), **g.named("param")}
    floats = [n for n, leaf in leaves.items() if leaf.type.dtype.is_float]
    names = floats[::2]
    assume(names)
    batches = {n: _shuffle_examples(rng, case.feeds[n]) for n in names}
    cpu = engine(None, optimise=False, variants=False)
    example_outputs = [
        cpu.run(g, case.feeds | {n: x[at] for n, x in batches.items()})
        for at in range(COUNT)
    ]
    outputs = [g.tensor(at) for at in g.outputs]
    example_inputs = [g.tensor(leaves[n].id) for n in names]
    batched_inputs = [g.input(f"all_{n}", x.shape, x.dtype) for n, x in batches.items()]
    g.set_outputs(g.vectorized(outputs, example_inputs, batched_inputs))
    got = cpu.run(g, case.feeds | {f"all_{n}": x for n, x in batches.items()})
    for at, (output, value) in enumerate(zip(got, case.outputs, strict=True)):
        want = np.stack([out[at] for out in example_outputs])
        # Sums of other lengths are added up in another order, from which steps differ.
        tolerance = 1e-4 * max(value.max_magnitude, 1.0) + 4 * value.max_error
        assert output.shape == want.shape
        np.testing.assert_allclose(
            output, want, rtol=1e-5, atol=tolerance, err_msg=f"{case}"
        )


def _shuffle_examples(rng: np.random.Generator, x: Any) -> Any:
    x = np.asarray(x)
    return np.stack([rng.permutation(x.ravel()).reshape(x.shape) for _ in range(COUNT)])


def test_vectorized_random_graphs() -> None:
    @seed(30)
    @given(graphs())
    @settings(max_examples=150, suppress_health_check=QUIET)
    def check(case: RandomGraph) -> None:
        check_vectorized(case)

    check()
