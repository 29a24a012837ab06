"""Known failures: wrong results of drivers that somebody looked into and wrote down.

An entry names an engine and cases by patterns, says why they are wrong and where the
evidence lies. A wrong result that one of them covers is reported as known; a right one
as an unexpected pass, so that an entry goes when the driver is mended. Crashes, hangs
and lost devices are never excused. Knows the report document; files of entries are read
by `known_files.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Any

NEVER = ("crashed", "hung", "out of memory", "DeviceLost", "GpuTimeout")
"""What a case may raise that nothing excuses."""
ENGINE = ("device", "backend", "adapter", "vendor", "driver", "compiler", "kind")
CASE = ("family", "op", "variant", "case")
COMPARED = re.compile(r"(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+)*)")
_VERSION = re.compile(r"\d+(?:\.\d+)+|\d+")


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One entry of a file. Patterns are those of file names (`*`, `?`, `[…]`), in any
    case; what is left out matches everything.

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
        """Is this an engine of the entry?"""
        named = [name for name in ENGINE if name != "driver"]
        text = str(engine.get("driver") or "")
        return (
            all(_matches(getattr(self, name), engine.get(name)) for name in named)
            and (_matches(self.driver, text) or self.driver.lower() in text.lower())
            and self._covers_version(text)
        )

    def covers_case(self, row: Mapping[str, Any]) -> bool:
        """Is this a case of the entry?"""
        return all(_matches(getattr(self, name), row.get(name)) for name in CASE)

    def _covers_version(self, driver: str) -> bool:
        if not self.versions:
            return True
        named = self.driver.strip("*").lower()
        after = driver.lower().partition(named)[2] if named else driver
        found = _VERSION.search(after)
        if found is None:
            return False
        return all(
            _holds(_parts(found[0]), sign, _parts(limit))
            for sign, limit in COMPARED.findall(self.versions)
        )


KEYS = tuple(one.name for one in fields(KnownFailure) if one.name != "where")


def _matches(pattern: str, value: Any) -> bool:
    return fnmatchcase(str(value or "").lower(), pattern.lower())


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _holds(have: tuple[int, ...], sign: str, limit: tuple[int, ...]) -> bool:
    pairs = list(zip_longest(have, limit, fillvalue=0))
    a, b = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    signs = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b}
    return signs.get(sign, a != b)


def with_known(
    document: dict[str, Any], failures: Iterable[KnownFailure]
) -> dict[str, Any]:
    """The report, with what is known called so: a new document.

    Rows that change carry `known`: the reason, the evidence and where both are written.
    An engine whose wrong results are all known is right. The exit code is the caller's.
    """
    failures = list(failures)
    return document | {
        "engines": [_engine(engine, failures) for engine in document["engines"]]
    }


def _engine(engine: dict[str, Any], failures: Sequence[KnownFailure]) -> dict[str, Any]:
    here = [one for one in failures if one.covers_engine(engine)]
    if not here:
        return engine
    rows = [_row(row, here) for row in engine["rows"]]
    words = Counter(row["word"] for row in rows)
    counts = {name: words.get(name, 0) for name in engine["counts"]}
    changed = engine | {"rows": rows, "counts": counts}
    if not words["wrong"] and _was_a_case(engine):
        changed |= {"word": "right", "why": ""}
    return changed


def _was_a_case(engine: Mapping[str, Any]) -> bool:
    """Is the engine wrong for a case, and not because it cannot be opened, say?"""
    wrong = (row["case"] for row in engine["rows"] if row["word"] == "wrong")
    first = next(wrong, None)
    return engine["word"] == "wrong" and str(engine["why"]).startswith(f"{first}: ")


def _row(row: dict[str, Any], failures: Sequence[KnownFailure]) -> dict[str, Any]:
    if row["word"] not in ("wrong", "right") or row["raised"] in NEVER:
        return row
    found = [one for one in failures if one.covers_case(row)]
    if not found:
        return row
    known = {name: getattr(found[0], name) for name in ("reason", "evidence", "where")}
    if row["word"] == "wrong":
        return row | {"word": "known", "known": known}
    if all(one.flaky for one in found):
        return row
    why = f"it is known to fail: {known['reason']} ({known['where']})"
    return row | {"word": "unexpected pass", "why": why, "known": known}
