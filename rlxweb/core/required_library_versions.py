"""Versions of other packages that rlxweb needs, read from its own metadata.

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
    """Return why a version is not supported: "0.1.0 found, 13.4 or newer required"; ""
    if it is.

    Parameters
    ----------
    version
        The version that was found. Text that is no version counts as one that serves.
    distributions
        Names under which the library is published. The bounds are those of the first
        that is installed, else those of the first.
    """
    release = _release_numbers(version) if isinstance(version, str) else ()
    if not release:
        return ""
    bounds = _version_bounds()
    required = [name for name in map(_normalized_name, distributions) if name in bounds]
    name = next(filter(installed_version, required), next(iter(required), ""))
    for operator, bound in bounds.get(name, ()):
        if operator == ">=" and release < _release_numbers(bound):
            return f"{version} found, {bound} or newer required"
        if operator == "<" and release >= _release_numbers(bound):
            return f"{version} found, a version before {bound} required"
    return ""


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except (PackageNotFoundError, ValueError):  # the latter for an empty name
        return ""


@cache
def _version_bounds() -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the version bounds of every required package by its normalised name."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("rlxweb") or []
    except PackageNotFoundError:  # a source tree that is not installed
        lines = []
    bounds: dict[str, tuple[tuple[str, str], ...]] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match:
            name = _normalized_name(match[1])
            bounds[name] = (*bounds.get(name, ()), *_BOUND.findall(match[2]))
    return bounds


def _normalized_name(name: str) -> str:
    """Return a distribution name in normalised form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _release_numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers without trailing zeros: (2, 6) for
    "2.6.0rc1+cu130".
    """
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
