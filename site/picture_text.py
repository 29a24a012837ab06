"""Whether two texts, or two pictures as SVG, say the same."""

from __future__ import annotations

import re

_PLAIN = r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?"
_NUMBER = re.compile(rf"(?<![\w.]){_PLAIN}(?!\.?\d)")
"""With commas between thousands; no part of a name or a version."""
_POINT = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_WORDS = re.compile(r"<text\b[^>]*>(.*?)</text>", re.DOTALL)
_MADE_BY = re.compile(r"<dc:title>(.*?)</dc:title>")
_IMAGE = re.compile(r'"data:image/png;base64,[^"]*"')
_PIXELS = 1.5
"""By which a point may stand elsewhere."""


def alike(now: str, shown: str) -> bool:
    """The same words and numbers; "…" of what is shown stands for anything.

    A number may be off by one in the last place that is shown.
    """
    now, shown = now.strip(), shown.strip()
    if now == shown:
        return True
    numbers = [float(one.replace(",", "")) for one in _NUMBER.findall(shown)]
    places = [_place(one) for one in _NUMBER.findall(shown)]
    parts = (_pattern(one) for one in re.split("…", shown))
    found = re.fullmatch("(?:.*)".join(parts), now, re.DOTALL)
    if found is None:
        return False
    given = [float(one.replace(",", "")) for one in found.groups()]
    return all(
        abs(a - b) <= 1.001 * place
        for a, b, place in zip(given, numbers, places, strict=True)
    )


def _pattern(text: str) -> str:
    """Matches the text with other numbers in their places, captured."""
    words = (
        r"\s+".join(map(re.escape, re.split(r"\s+", own)))
        for own in _NUMBER.split(text)
    )
    return f"({_PLAIN})".join(words)


def _place(number: str) -> float:
    """What one in the last place of it is worth; nothing of a whole number."""
    mantissa, _, power = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(power or 0) - digits) if digits else 0.0


def differs(kept: str, drawn: str) -> str:
    """Why the second picture is another; "" where both show the same.

    Drawn by another version of matplotlib, their words are compared alone.
    """
    words, new_words = (_WORDS.findall(svg) for svg in (kept, drawn))
    if words != new_words:
        odd = sorted(set(words) ^ set(new_words))
        return f"its words are others: {odd[:6]}"
    if _MADE_BY.findall(kept) != _MADE_BY.findall(drawn):
        return ""
    kept, drawn = (_IMAGE.sub('"image"', svg) for svg in (kept, drawn))
    if _POINT.sub("0", kept) != _POINT.sub("0", drawn):
        return "its parts are others"
    pairs = zip(_POINT.findall(kept), _POINT.findall(drawn), strict=True)
    if any(abs(float(a) - float(b)) > _PIXELS for a, b in pairs):
        return "its lines are elsewhere"
    return ""
