"""Files of known failures in TOML: the packaged one and the user's own.

Owns the form of the file, `[[failure]]` tables, and errors that name the line. What an
entry means is in `known_failure_matching.py`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rlxweb.core.errors import RecordingError, UsageError, did_you_mean
from rlxweb.smoke.known_failure_matching import (
    CASE_KEYS,
    ENGINE_KEYS,
    ENTRY_KEYS,
    VERSION_COMPARISON,
    KnownFailure,
)

PACKAGED_FILE = "known-failures.toml"
"""Name of the packaged file, next to this module."""


def load_known_failures(paths: Sequence[str] = ()) -> list[KnownFailure]:
    """Load the entries of the packaged file and of the given files.

    paths   paths; "none" among them leaves the shipped file out

    Errors   RecordingError for a file that cannot be read; UsageError, with the line,
             for one that makes no sense.
    """
    failures = [] if "none" in paths else packaged_failures()
    for path in paths:
        if path != "none":
            failures += read_known_failures(path)
    return failures


def packaged_failures() -> list[KnownFailure]:
    """Return the packaged entries."""
    text = (resources.files("rlxweb") / "smoke" / PACKAGED_FILE).read_text("utf-8")
    return parse_known_failures(text, PACKAGED_FILE)


def read_known_failures(path: str) -> list[KnownFailure]:
    """Read the entries of one file. Raises RecordingError or UsageError."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = (
            'pass a TOML file, or "none" to ignore the known failures packaged with '
            "rlxweb"
        )
        raise RecordingError(f"reading {path!r}", reason, hint=hint) from error
    return parse_known_failures(text, path)


def parse_known_failures(text: str, source_name: str) -> list[KnownFailure]:
    """Parse the entries of a TOML text. Raises UsageError that names the line."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"reading {source_name!r}", f"invalid TOML: {error}"
        ) from error
    for name in tables:
        if name != "failure":
            raise _file_error(
                source_name,
                _first_matching_line(text, rf"\s*\[*\s*{re.escape(name)}\b"),
                f"unexpected {name!r}",
                "the file must contain only [[failure]] tables",
            )
    entries = tables.get("failure", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        line = _first_matching_line(text, r"\s*\[?\s*failure\b")
        raise _file_error(
            source_name,
            line,
            "'failure' must be a list of tables",
            "write each known failure as a [[failure]] table",
        )
    # Tables written in another way (failure = [{…}]) are all told by the first line.
    starts = _matching_lines(text, r"\s*\[\[\s*failure\s*\]\]")
    starts += [min(starts, default=1)] * (len(entries) - len(starts))
    return [
        _parse_entry(entry, text, source_name, line_number)
        for entry, line_number in zip(entries, starts, strict=False)
    ]


def _parse_entry(
    entry: dict[str, Any], text: str, source_name: str, start: int
) -> KnownFailure:
    """Validate one table and return its entry."""
    for name, value in entry.items():
        line_number = _first_matching_line(text, rf"\s*{re.escape(name)}\s*=", start)
        if name not in ENTRY_KEYS:
            hint = (
                did_you_mean(name, ENTRY_KEYS) or f"known keys: {', '.join(ENTRY_KEYS)}"
            )
            raise _file_error(
                source_name, line_number, f"unknown key {name!r}", "", hint
            )
        value_type = bool if name == "flaky" else str
        if not isinstance(value, value_type) or value == "":
            rule = "true or false" if value_type is bool else "a non-empty string"
            raise _file_error(
                source_name,
                line_number,
                f"{name} = {value!r}",
                f"{name} must be {rule}",
            )
        if name == "versions" and VERSION_COMPARISON.sub("", str(value)).strip(" ,"):
            raise _file_error(
                source_name,
                line_number,
                f"versions = {value!r}",
                'versions must have the form ">=22.3, <23"',
            )
    for name in ("reason", "evidence"):
        if name not in entry:
            raise _file_error(
                source_name,
                start,
                f"this [[failure]] table has no key {name!r}",
                f"the key {name!r} is required",
            )
    for names, subject in ((ENGINE_KEYS, "an engine"), (CASE_KEYS, "a case")):
        if not any(name in entry for name in names):
            raise _file_error(
                source_name,
                start,
                f"this [[failure]] table has no key that selects {subject}",
                "",
                f"add one of these keys: {', '.join(names)}",
            )
    return KnownFailure(**entry, where=f"{source_name}:{start}")


def _file_error(
    source_name: str, line: int, problem: str, rule: str, hint: str = ""
) -> UsageError:
    """Return the error for a line of the file."""
    return UsageError(f"reading {source_name!r}, line {line}", problem, rule, hint)


def _matching_lines(text: str, pattern: str) -> list[int]:
    """Return the numbers of the lines that begin with the pattern."""
    regex = re.compile(pattern)
    return [
        number for number, line in enumerate(text.splitlines(), 1) if regex.match(line)
    ]


def _first_matching_line(text: str, pattern: str, start: int = 1) -> int:
    """Return the first line at or after `start` that begins with the pattern, else
    `start`.
    """
    return next(
        (number for number in _matching_lines(text, pattern) if number >= start), start
    )
