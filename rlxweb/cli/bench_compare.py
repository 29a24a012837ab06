"""`rlxweb bench --compare`: two records of `rlxweb bench` side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlxweb.errors import UsageError

SCHEMA = "rlxweb.bench.engines/1"
HEADS = ("case", "engine", "A", "B", "A / B")
FASTEST = "the fastest"
Times = dict[str, dict[str, float | None]]
"""ns by case and engine; None for an engine that failed."""


def read_record(path: str) -> dict[str, Any]:
    """A record of `rlxweb bench --json`. Errors  UsageError for any other file."""
    try:
        record = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, f"it cannot be read: {error}") from None
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != SCHEMA:
        raise _refused(path, f"its schema is {schema!r}, not {SCHEMA!r}")
    try:
        times_of(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refused(path, f"it is damaged: {error!r}") from None
    return dict(record)


def _refused(path: str, why: str) -> UsageError:
    return UsageError(
        f"--compare {path!r}", why, "both files are those of `rlxweb bench --json`"
    )


def times_of(record: Mapping[str, Any]) -> Times:
    """The times of a record, that of its fastest engine first."""
    found: Times = {}
    for case in record["cases"]:
        label = f"{case['case']} {case['shape']}, {case['data']} memory"
        rows = {
            str(row["engine"]): None if row["ns"] is None else float(row["ns"])
            for row in case["rows"]
        }
        timed = [ns for ns in rows.values() if ns is not None]
        found[label] = {FASTEST: min(timed, default=None), **rows}
    return found


def comparison(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> list[tuple[str, str, float | None, float | None]]:
    """(case, engine, ns of A, ns of B) of all cases that both have.

    Errors   UsageError where there is none.
    """
    left, right = times_of(a), times_of(b)
    rows = [
        (case, engine, left[case].get(engine), right[case].get(engine))
        for case in left
        if case in right
        for engine in {**left[case], **right[case]}
    ]
    if not rows:
        raise UsageError(
            "--compare",
            "the files have no case in common",
            "--quick times other sizes; compare two of a kind",
        )
    return rows
