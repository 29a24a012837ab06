"""Random valid graphs by number: every engine gets the same, on every machine.

A graph begins with a few values and grows move by move. Each move draws from a
generator of its own, so that a graph without some of its moves is still made of the
others: so a failure is brought down to the moves that show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.agreement import Agreement
from rlxweb.smoke.case import Case, Trial
from rlxweb.smoke.grown import KINDS, MOST_NODES, Grown, GrownGraph
from rlxweb.smoke.moves import MOVES

MOST_MOVES = 30


def grown_graph(seed: int, moves: Sequence[int] | None = None) -> GrownGraph:
    """Graph number `seed`: inputs, moves until MOST_NODES, one to four outputs.

    moves   the numbers of the moves it is grown by; None: the first few, as drawn
    """
    grown = Grown(np.random.default_rng(seed))
    for _ in range(grown.integer(1, 3)):
        grown.leaf(_shape(grown), grown.one_of(*KINDS))
    n_others = grown.integer(0, 3)
    if moves is None:
        moves = range(grown.integer(3, MOST_MOVES))
    for at in moves:
        if len(grown.graph) < MOST_NODES:
            grown.rng = np.random.default_rng((seed, at))
            grown.keep(grown.one_of(*MOVES)(grown))
    most = min(len(grown.values), 12)
    grown.rng = np.random.default_rng((seed, MOST_MOVES))
    return grown.made(-1, *(-grown.integer(1, most) for _ in range(n_others)))


def _shape(grown: Grown) -> tuple[int, ...]:
    """Up to four axes, mostly short; now and then an empty or a long one."""
    kind = grown.integer(0, 11)
    if kind == 0:
        return (int(grown.one_of(0, 997, 2048)),)
    if kind == 1:
        return (3, 0, 2)
    return tuple(grown.integer(1, 6) for _ in range(grown.integer(0, 4)))


def _trial(seed: int) -> Trial:
    made = grown_graph(seed)

    def judge(outs: Sequence[Any]) -> Agreement:
        return made.agreement(outs)

    return Trial(made.graph, made.feeds, judge)


def graph_cases(count: int) -> Iterator[Case]:
    """The graphs 0, 1, … of `count`."""
    for seed in range(count):
        yield Case(f"graphs/{seed}", "graphs", "", partial(_trial, seed))
