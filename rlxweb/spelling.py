"""Names that a misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

_COMPARED_CHARS, _COMPARED_NAMES = 100, 2000


def did_you_mean(
    name: str, known: Iterable[str], most: int = 3, least: float = 0.6
) -> str:
    """A hint that names the nearest matches; "" when nothing is near.

    Upper and lower case are alike. Very long names, and what comes after the first
    thousands of them, are not compared: a hint is not worth seconds.

    most   how many are named
    least  how alike they must be (difflib's ratio, 0 to 1)
    """
    found = near(name, known, most, least)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


def near(
    name: str, known: Iterable[str], most: int = 3, least: float = 0.6
) -> list[str]:
    """The names most like `name`, nearest first."""
    from difflib import get_close_matches  # of no use until something is wrong

    if len(name) > _COMPARED_CHARS:
        return []
    kept = (
        one for one in islice(known, _COMPARED_NAMES) if len(one) <= _COMPARED_CHARS
    )
    folded = {one.casefold(): one for one in kept}
    found = get_close_matches(name.casefold(), list(folded), most, least)
    return [folded[one] for one in found]
