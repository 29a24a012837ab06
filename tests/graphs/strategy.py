"""Hypothesis strategy for random valid graphs, their feeds and their error bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.graphs.grown import KINDS, MOST_NODES, Case, Grown
from tests.graphs.moves import MOVES


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
    return grown.case(-1, *(-k for k in others))
