"""Hypothesis strategy for random graphs: it picks the seed and which steps are made."""

from __future__ import annotations

from hypothesis import strategies as st

from rlxweb.smoke.random_graph_builder import RandomGraph
from rlxweb.smoke.random_graphs import MAX_STEPS, random_graph


@st.composite
def graphs(draw: st.DrawFn) -> RandomGraph:
    """Draw a random graph without some of its steps, so that a failure shrinks to the
    fewest that show it.
    """
    seed = draw(st.integers(0, 1 << 20))
    steps = draw(st.lists(st.integers(0, MAX_STEPS - 1), min_size=3, unique=True))
    return random_graph(seed, steps)
