"""Hypothesis strategy for random valid graphs, their feeds and their error bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from rlxweb.ir.graph import Graph
from tests.agreement import Array
from tests.graphs.grown import MOST_NODES, Grown
from tests.graphs.moves import MOVES

KINDS = ("real", "real", "real", "whole", "whole", "i32", "u32", "bool")


@dataclass(frozen=True, slots=True)
class Case:
    """A graph to run, what to feed it, and how far each output may be off."""

    graph: Graph
    feeds: dict[str, Array]
    errors: tuple[float, ...]

    def __repr__(self) -> str:
        return f"{self.graph}\nfeeds {sorted(self.feeds)}, errors {self.errors}"


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Up to five axes, mostly short; now and then an empty or a long one."""
    kind = draw(st.integers(0, 11))
    if kind == 0:
        return (draw(st.sampled_from([0, 997, 2048])),)
    if kind == 1:
        return (3, 0, 2)
    return tuple(draw(st.lists(st.integers(1, 6), max_size=4)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Inputs, then moves until MOST_NODES, then one to four outputs.

    Each move has a generator of its own, so a failure shrinks to the fewest moves that
    show it.
    """
    seed = draw(st.integers(0, 1 << 20))
    grown = Grown(np.random.default_rng(seed))
    for _ in range(draw(st.integers(1, 3))):
        grown.leaf(draw(shapes()), draw(st.sampled_from(KINDS)))
    for at in range(draw(st.integers(3, 30))):
        if len(grown.graph) < MOST_NODES:
            grown.rng = np.random.default_rng((seed, at))
            grown.keep(grown.one_of(*MOVES)(grown))
    most = min(len(grown.values), 12)
    others = draw(st.lists(st.integers(1, most), max_size=3))
    outputs = [grown.values[-1], *(grown.values[-k] for k in others)]
    grown.graph.set_outputs([v.tensor for v in outputs])
    return Case(grown.graph, grown.feeds, tuple(v.error for v in outputs))
