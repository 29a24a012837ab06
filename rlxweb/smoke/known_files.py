"""Files of known failures, in TOML: the one of the package, and a user's own.

Owns the form of the file, `[[failure]]` tables, and errors that name the line. What an
entry means is in `known.py`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rlxweb.errors import RecordingError, UsageError, did_you_mean
from rlxweb.smoke.known import CASE, COMPARED, ENGINE, KEYS, KnownFailure

SHIPPED = "known-failures.toml"
"""The file that comes with the package, beside this one."""


def known_failures(given: Sequence[str] = ()) -> list[KnownFailure]:
    """The entries of the shipped file and of those given.

    given   paths; "none" among them leaves the shipped file out

    Errors   RecordingError for a file that cannot be read; UsageError, with the line,
             for one that makes no sense.
    """
    found = [] if "none" in given else shipped()
    for path in given:
        if path != "none":
            found += read_known_failures(path)
    return found


def shipped() -> list[KnownFailure]:
    """The entries that come with the package."""
    text = (resources.files("rlxweb") / "smoke" / SHIPPED).read_text("utf-8")
    return parsed(text, SHIPPED)


def read_known_failures(path: str) -> list[KnownFailure]:
    """The entries of one file. Errors  those of `known_failures`."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = 'a file of TOML is wanted; "none" leaves out the one of the package'
        raise RecordingError(f"reading {path!r}", why, hint=hint) from error
    return parsed(text, path)


def parsed(text: str, named: str) -> list[KnownFailure]:
    """The entries of a text in TOML. Errors  UsageError, with the line."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"reading {named!r}", f"it is no TOML: {error}") from error
    for name in tables:
        if name != "failure":
            raise _wrong(
                named,
                _line(text, rf"\s*\[*\s*{re.escape(name)}\b"),
                f"it has {name!r}",
                "a file is made of [[failure]] tables",
            )
    entries = tables.get("failure", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        line = _line(text, r"\s*\[?\s*failure\b")
        raise _wrong(named, line, "failure is no list of tables", "write [[failure]]")
    # Tables written in another way (failure = [{…}]) are all told by the first line.
    starts = _lines(text, r"\s*\[\[\s*failure\s*\]\]")
    starts += [min(starts, default=1)] * (len(entries) - len(starts))
    return [
        _entry(entry, text, named, at)
        for entry, at in zip(entries, starts, strict=False)
    ]


def _entry(entry: dict[str, Any], text: str, named: str, start: int) -> KnownFailure:
    for name, value in entry.items():
        at = _line(text, rf"\s*{re.escape(name)}\s*=", start)
        if name not in KEYS:
            hint = did_you_mean(name, KEYS) or f"known: {', '.join(KEYS)}"
            raise _wrong(named, at, f"no such key {name!r}", "", hint)
        kind = bool if name == "flaky" else str
        if not isinstance(value, kind) or value == "":
            rule = "true or false" if kind is bool else "a text that is not empty"
            raise _wrong(named, at, f"{name} = {value!r}", f"it must be {rule}")
        if name == "versions" and COMPARED.sub("", str(value)).strip(" ,"):
            raise _wrong(
                named, at, f"versions = {value!r}", 'it must be like ">=22.3, <23"'
            )
    for name in ("reason", "evidence"):
        if name not in entry:
            raise _wrong(named, start, f"this failure has no {name}", "it needs one")
    for names, what in ((ENGINE, "an engine"), (CASE, "a case")):
        if not any(name in entry for name in names):
            raise _wrong(
                named,
                start,
                f"this failure names no part of {what}",
                "",
                f"give one of {', '.join(names)}",
            )
    return KnownFailure(**entry, where=f"{named}:{start}")


def _wrong(
    named: str, line: int, problem: str, rule: str, hint: str = ""
) -> UsageError:
    return UsageError(f"reading {named!r}, line {line}", problem, rule, hint)


def _lines(text: str, pattern: str) -> list[int]:
    wanted = re.compile(pattern)
    return [k for k, line in enumerate(text.splitlines(), 1) if wanted.match(line)]


def _line(text: str, pattern: str, start: int = 1) -> int:
    """The first line at or after `start` that begins so; else `start`."""
    return next((k for k in _lines(text, pattern) if k >= start), start)
