"""Hypothesis strategy for random graphs: it picks seeds, and which moves are made."""

from __future__ import annotations

from hypothesis import strategies as st

from rlxweb.smoke.grown import GrownGraph
from rlxweb.smoke.random_graphs import MOST_MOVES, grown_graph


@st.composite
def graphs(draw: st.DrawFn) -> GrownGraph:
    """A graph of the package's, without some of its moves: so a failure shrinks to the
    fewest that show it.
    """
    seed = draw(st.integers(0, 1 << 20))
    moves = draw(st.lists(st.integers(0, MOST_MOVES - 1), min_size=3, unique=True))
    return grown_graph(seed, moves)
