"""Compare printed texts, and pictures as SVG, tolerating rounding."""

from __future__ import annotations

import re

_NUMBER_PATTERN = r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?"
_NUMBER = re.compile(rf"(?<![\w.]){_NUMBER_PATTERN}(?!\.?\d)")
"""Number that is no part of a name or a version; it may have commas between thousands.
"""
_COORDINATE = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TEXT_ELEMENT = re.compile(r"<text\b[^>]*>(.*?)</text>", re.DOTALL)
_CREATOR = re.compile(r"<dc:title>(.*?)</dc:title>")
_EMBEDDED_IMAGE = re.compile(r'"data:image/png;base64,[^"]*"')
_PATH_POINTS = re.compile(r'(?<=\bd=")[^"]*')
_HASHED_ID = re.compile(r"\b[mp][0-9a-f]{10}\b")
"""Id that matplotlib gives a marker or a clip path by hashing its coordinates."""
_MAX_SHIFT = 1.5
"""Largest allowed move of a point, in pixels."""
_MAX_POINT_COUNT_RATIO = 1.05
"""Largest allowed ratio of the points of two paths that are drawn alike.

Where a line is nearly straight, rounding decides which points matplotlib leaves out.
"""


def outputs_match(printed: str, shown: str) -> bool:
    """Tell whether two texts have the same words and numbers; "…" in the shown text
    stands for anything.

    A number may be off by one in the last place that is shown.
    """
    printed, shown = printed.strip(), shown.strip()
    if printed == shown:
        return True
    numbers = [float(part.replace(",", "")) for part in _NUMBER.findall(shown)]
    places = [_last_place(part) for part in _NUMBER.findall(shown)]
    patterns = (_text_pattern(part) for part in re.split("…", shown))
    match = re.fullmatch("(?:.*)".join(patterns), printed, re.DOTALL)
    if match is None:
        return False
    printed_numbers = [float(part.replace(",", "")) for part in match.groups()]
    return all(
        abs(a - b) <= 1.001 * place
        for a, b, place in zip(printed_numbers, numbers, places, strict=True)
    )


def _text_pattern(text: str) -> str:
    """Return a regular expression for the text with other numbers in their places,
    captured.
    """
    words = (
        r"\s+".join(map(re.escape, re.split(r"\s+", part)))
        for part in _NUMBER.split(text)
    )
    return f"({_NUMBER_PATTERN})".join(words)


def _last_place(number: str) -> float:
    """Return the value of one unit in the number's last decimal place, or 0 for a whole
    number.
    """
    mantissa, _, power = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(power or 0) - digits) if digits else 0.0


def picture_difference(old: str, new: str) -> str:
    """Return the first difference of two pictures, or "" if both show the same.

    Drawn by another version of matplotlib, their words are compared alone.
    """
    old_words, new_words = (_TEXT_ELEMENT.findall(svg) for svg in (old, new))
    if old_words != new_words:
        changed_words = sorted(set(old_words) ^ set(new_words))
        return f"its texts differ: {changed_words[:6]}"
    if _CREATOR.findall(old) != _CREATOR.findall(new):
        return ""
    old, new = (_EMBEDDED_IMAGE.sub('"image"', svg) for svg in (old, new))
    old, new = map(_number_ids, (old, new))
    old_paths, new_paths = _PATH_POINTS.findall(old), _PATH_POINTS.findall(new)
    old, new = (_PATH_POINTS.sub("", svg) for svg in (old, new))
    if _COORDINATE.sub("0", old) != _COORDINATE.sub("0", new):
        return "its elements differ"
    if not _close(_coordinates(old), _coordinates(new)):
        return "its coordinates differ"
    if not all(map(_paths_match, old_paths, new_paths)):
        return "its paths differ"
    return ""


def _number_ids(svg: str) -> str:
    """Replace hashed ids by their order of appearance."""
    order: dict[str, str] = {}
    return _HASHED_ID.sub(lambda m: order.setdefault(m[0], f"id{len(order)}"), svg)


def _coordinates(svg: str) -> list[float]:
    return [float(number) for number in _COORDINATE.findall(svg)]


def _close(old: list[float], new: list[float]) -> bool:
    """Tell whether numbers agree one by one within the largest allowed move."""
    # Of what is no coordinate, such as part of an id, a difference may be no number.
    return len(old) == len(new) and not any(
        abs(a - b) > _MAX_SHIFT for a, b in zip(old, new, strict=True)
    )


def _paths_match(old: str, new: str) -> bool:
    """Tell whether two paths go through the same points, or the same box with nearly as
    many points.
    """
    old_numbers, new_numbers = _coordinates(old), _coordinates(new)
    if len(old_numbers) == len(new_numbers):
        return _close(old_numbers, new_numbers)
    counts = sorted((len(old_numbers), len(new_numbers)))
    boxes = [
        [
            *numbers[:2],
            *numbers[-2:],
            *(f(numbers[k::2]) for k in (0, 1) for f in (min, max)),
        ]
        for numbers in (old_numbers, new_numbers)
        if len(numbers) >= 4
    ]
    return (
        len(boxes) == 2
        and counts[1] <= _MAX_POINT_COUNT_RATIO * counts[0]
        and _close(*boxes)
    )
