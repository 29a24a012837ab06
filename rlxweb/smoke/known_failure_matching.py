"""Known failures matched to a report's rows: documented wrong results of drivers do not
fail a smoke test.

An entry names an engine and cases by patterns, says why they are wrong and where the
evidence lies. A wrong result that one of them covers is reported as known; a right one
as an unexpected pass, so that an entry goes when the driver is mended. Crashes, hangs
and lost devices are never excused. Knows the report document; files of entries are read
by `known_failure_files.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Any

UNEXCUSED_ERRORS = ("crashed", "hung", "out of memory", "DeviceLost", "GpuTimeout")
"""Errors of a case that no known failure excuses."""
ENGINE_KEYS = ("device", "backend", "adapter", "vendor", "driver", "compiler", "kind")
CASE_KEYS = ("family", "op", "variant", "case")
VERSION_COMPARISON = re.compile(r"(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+)*)")
_VERSION_PATTERN = re.compile(r"\d+(?:\.\d+)+|\d+")


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """Entry of a known failures file. Its patterns are globs that ignore case; one left
    out matches everything.

    driver    also a plain part of the driver's text
    versions  ">=22.3, <23": of the first version in the driver's text, or the first
              after the text that `driver` names
    reason    why it is wrong
    evidence  where that can be seen: a report, a shader, what was tried
    flaky     it is wrong only sometimes: a right result is none to be told
    """

    reason: str
    evidence: str
    device: str = "*"
    backend: str = "*"
    adapter: str = "*"
    vendor: str = "*"
    driver: str = "*"
    versions: str = ""
    compiler: str = "*"
    kind: str = "*"
    family: str = "*"
    op: str = "*"
    variant: str = "*"
    case: str = "*"
    flaky: bool = False
    where: str = ""

    def covers_engine(self, engine: Mapping[str, Any]) -> bool:
        """Return whether the entry applies to this engine."""
        pattern_names = [name for name in ENGINE_KEYS if name != "driver"]
        text = str(engine.get("driver") or "")
        return (
            all(
                _matches(getattr(self, name), engine.get(name))
                for name in pattern_names
            )
            and (_matches(self.driver, text) or self.driver.lower() in text.lower())
            and self._covers_version(text)
        )

    def covers_case(self, row: Mapping[str, Any]) -> bool:
        """Return whether the entry applies to this case."""
        return all(_matches(getattr(self, name), row.get(name)) for name in CASE_KEYS)

    def _covers_version(self, driver: str) -> bool:
        """Return whether the driver's version satisfies the entry's comparisons."""
        if not self.versions:
            return True
        driver_name = self.driver.strip("*").lower()
        version_text = (
            driver.lower().partition(driver_name)[2] if driver_name else driver
        )
        match = _VERSION_PATTERN.search(version_text)
        if match is None:
            return False
        return all(
            _satisfies(_version_parts(match[0]), sign, _version_parts(limit))
            for sign, limit in VERSION_COMPARISON.findall(self.versions)
        )


ENTRY_KEYS = tuple(one.name for one in fields(KnownFailure) if one.name != "where")


def _matches(pattern: str, value: Any) -> bool:
    """Match a value against a file name pattern, ignoring case."""
    return fnmatchcase(str(value or "").lower(), pattern.lower())


def _version_parts(version: str) -> tuple[int, ...]:
    """Split a version into its numbers."""
    return tuple(map(int, version.split(".")))


def _satisfies(version: tuple[int, ...], operator: str, limit: tuple[int, ...]) -> bool:
    """Compare two versions of any length with an operator."""
    pairs = list(zip_longest(version, limit, fillvalue=0))
    a, b = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    results = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b}
    return results.get(operator, a != b)


def mark_known_failures(
    document: dict[str, Any], failures: Iterable[KnownFailure]
) -> dict[str, Any]:
    """Return a new report in which known failures are marked as known.

    Rows that change carry `known`: the reason, the evidence and where both are written.
    An engine whose wrong results are all known is right. The exit code is the caller's.
    """
    failures = list(failures)
    return document | {
        "engines": [_mark_engine(engine, failures) for engine in document["engines"]]
    }


def _mark_engine(
    engine: dict[str, Any], failures: Sequence[KnownFailure]
) -> dict[str, Any]:
    """Return the engine's entry with known failures marked."""
    matching = [failure for failure in failures if failure.covers_engine(engine)]
    if not matching:
        return engine
    rows = [_mark_row(row, matching) for row in engine["rows"]]
    words = Counter(row["word"] for row in rows)
    counts = {name: words.get(name, 0) for name in engine["counts"]}
    changed = engine | {"rows": rows, "counts": counts}
    if not words["wrong"] and _failed_by_case(engine):
        changed |= {"word": "right", "why": ""}
    return changed


def _failed_by_case(engine: Mapping[str, Any]) -> bool:
    """Return whether a single case made the engine wrong, rather than its opening."""
    wrong = (row["case"] for row in engine["rows"] if row["word"] == "wrong")
    first = next(wrong, None)
    return engine["word"] == "wrong" and str(engine["why"]).startswith(f"{first}: ")


def _mark_row(row: dict[str, Any], failures: Sequence[KnownFailure]) -> dict[str, Any]:
    """Return the row, marked as known or as an unexpected pass if an entry covers
    it.
    """
    if row["word"] not in ("wrong", "right") or row["raised"] in UNEXCUSED_ERRORS:
        return row
    matching = [failure for failure in failures if failure.covers_case(row)]
    if not matching:
        return row
    known = {
        name: getattr(matching[0], name) for name in ("reason", "evidence", "where")
    }
    if row["word"] == "wrong":
        return row | {"word": "known", "known": known}
    if all(failure.flaky for failure in matching):
        return row
    reason = (
        f"this case is listed as a known failure: {known['reason']} ({known['where']})"
    )
    return row | {"word": "unexpected pass", "why": reason, "known": known}
