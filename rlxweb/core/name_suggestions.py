"""Suggestions of known names for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

_MAX_COMPARED_CHARS, _MAX_COMPARED_NAMES = 100, 2000


def did_you_mean(
    name: str, known: Iterable[str], most: int = 3, least: float = 0.6
) -> str:
    """Return a hint that names the nearest matches; "" when nothing is near.

    Upper and lower case are alike. Very long names, and what comes after the first
    thousands of them, are not compared: a hint is not worth seconds.

    most   how many are named
    least  how alike they must be (difflib's ratio, 0 to 1)
    """
    matches = near(name, known, most, least)
    return f"did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def near(
    name: str, known: Iterable[str], most: int = 3, least: float = 0.6
) -> list[str]:
    """Return the known names most similar to `name`, nearest first."""
    from difflib import get_close_matches  # of no use until something is wrong

    if len(name) > _MAX_COMPARED_CHARS:
        return []
    candidates = (
        candidate
        for candidate in islice(known, _MAX_COMPARED_NAMES)
        if len(candidate) <= _MAX_COMPARED_CHARS
    )
    folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = get_close_matches(name.casefold(), list(folded), most, least)
    return [folded[candidate] for candidate in matches]
