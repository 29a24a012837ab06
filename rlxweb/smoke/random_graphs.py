"""Random valid graphs by seed, identical for every engine and machine.

A graph begins with a few values and grows move by move. Each move draws from a
generator of its own, so that a graph without some of its moves is still made of the
others: so a failure is brought down to the moves that show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.engines.reference_comparison import ComparisonResult
from rlxweb.smoke.case import PreparedCase, SmokeCase
from rlxweb.smoke.random_graph_builder import (
    LEAF_KINDS,
    MAX_NODES,
    RandomGraph,
    RandomGraphBuilder,
)
from rlxweb.smoke.random_ops import OP_GENERATORS

MAX_STEPS = 30


def random_graph(seed: int, steps: Sequence[int] | None = None) -> RandomGraph:
    """Return the random graph of a seed: leaves, up to MAX_NODES nodes, one to four
    outputs.

    steps   the numbers of the moves it is grown by; None: the first few, as drawn
    """
    builder = RandomGraphBuilder(np.random.default_rng(seed))
    for _ in range(builder.random_integer(1, 3)):
        builder.add_leaf(_random_shape(builder), builder.choose(*LEAF_KINDS))
    n_more_outputs = builder.random_integer(0, 3)
    if steps is None:
        steps = range(builder.random_integer(3, MAX_STEPS))
    for step in steps:
        if len(builder.graph) < MAX_NODES:
            builder.rng = np.random.default_rng((seed, step))
            builder.offer_value(builder.choose(*OP_GENERATORS)(builder))
    max_outputs = min(len(builder.values), 12)
    builder.rng = np.random.default_rng((seed, MAX_STEPS))
    return builder.build_graph(
        -1, *(-builder.random_integer(1, max_outputs) for _ in range(n_more_outputs))
    )


def _random_shape(builder: RandomGraphBuilder) -> tuple[int, ...]:
    """Return a shape of up to four mostly short axes, sometimes an empty or a long
    one.
    """
    kind = builder.random_integer(0, 11)
    if kind == 0:
        return (int(builder.choose(0, 997, 2048)),)
    if kind == 1:
        return (3, 0, 2)
    return tuple(
        builder.random_integer(1, 6) for _ in range(builder.random_integer(0, 4))
    )


def _prepare(seed: int) -> PreparedCase:
    """Prepare the random graph of a seed."""
    generated = random_graph(seed)

    def judge(outputs: Sequence[Any]) -> ComparisonResult:
        return generated.worst_comparison(outputs)

    return PreparedCase(generated.graph, generated.feeds, judge)


def graph_cases(count: int) -> Iterator[SmokeCase]:
    """Yield the cases of the graphs with the seeds 0 to `count` - 1."""
    for seed in range(count):
        yield SmokeCase(f"graphs/{seed}", "graphs", "", partial(_prepare, seed))
