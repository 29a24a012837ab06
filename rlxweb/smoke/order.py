"""The order of the quick level: broad first, so that it may end when its time is over.

The first round has one case of every op in every family and of every kernel variant;
it is run to its end. The rounds after it go on while there is time.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlxweb.smoke.case import Case

ENOUGH_S = 18.0
"""With the start of its process, about 20 seconds each."""


def broad_first(cases: Iterable[Case]) -> tuple[list[Case], int]:
    """The same cases round by round, and how many the first round has."""
    counted: dict[tuple[str, str, str], int] = {}
    ranked: list[tuple[int, Case]] = []
    for case in cases:
        kind = (case.family, case.op, case.variant)
        counted[kind] = counted.get(kind, -1) + 1
        ranked.append((counted[kind], case))
    ranked.sort(key=lambda pair: pair[0])
    return [case for _, case in ranked], len(counted)
