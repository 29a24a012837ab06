"""The versions of other packages that rlxweb needs, read from its own metadata.

`pyproject.toml` is the one place that states them; installed, they are the lines
"Requires-Dist" of the distribution.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)")
_BOUND = re.compile(r"(>=|<)\s*([0-9][0-9A-Za-z.+!-]*)")


def version_problem(version: object, *distributions: str) -> str:
    """Why a version does not serve: "0.1.0 found, 13.4 or newer needed"; "" if it does.

    Parameters
    ----------
    version
        The version that was found. Text that is no version counts as one that serves.
    distributions
        Names under which the library is published. The bounds are those of the first
        that is installed, else those of the first.
    """
    release = _release(version) if isinstance(version, str) else ()
    if not release:
        return ""
    bounds = _bounds()
    known = [name for name in map(_normal, distributions) if name in bounds]
    name = next(filter(installed_version, known), next(iter(known), ""))
    for sign, bound in bounds.get(name, ()):
        if sign == ">=" and release < _release(bound):
            return f"{version} found, {bound} or newer needed"
        if sign == "<" and release >= _release(bound):
            return f"{version} found, a version before {bound} needed"
    return ""


def installed_version(distribution: str) -> str:
    """The version of an installed distribution; "" where there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except (PackageNotFoundError, ValueError):  # the latter for an empty name
        return ""


@cache
def _bounds() -> dict[str, tuple[tuple[str, str], ...]]:
    """The bounds of every required package, by its normalised name."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("rlxweb") or []
    except PackageNotFoundError:  # a source tree that is not installed
        lines = []
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for line in lines:
        matched = _REQUIREMENT.match(line)
        if matched:
            name = _normal(matched[1])
            found[name] = (*found.get(name, ()), *_BOUND.findall(matched[2]))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without trailing zeros: (2, 6) of "2.6.0rc1+cu130"."""
    text = version.partition("+")[0]
    numbers = []
    for part in text.split("."):
        digits = "".join(takewhile(str.isdigit, part))
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
