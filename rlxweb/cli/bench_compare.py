"""`rlxweb bench --compare`: show two benchmark result files side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlxweb.core.errors import UsageError

SCHEMA = "rlxweb.bench.engines/1"
HEADS = ("case", "engine", "A", "B", "A / B")
FASTEST = "fastest"
CaseTimes = dict[str, dict[str, float | None]]
"""ns by case and engine; None for an engine that failed."""


def read_benchmark_result(path: str) -> dict[str, Any]:
    """Read a result file of `rlxweb bench --json`. Raises UsageError for any other
    file.
    """
    try:
        result = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _file_error(path, f"the file cannot be read ({error})") from None
    schema = result.get("schema") if isinstance(result, dict) else None
    if schema != SCHEMA:
        raise _file_error(
            path, f"the entry 'schema' must be {SCHEMA!r}, got {schema!r}"
        )
    try:
        case_times(result)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _file_error(path, f"the file is damaged ({error!r})") from None
    return dict(result)


def _file_error(path: str, reason: str) -> UsageError:
    """Return the error for a file that is no benchmark result."""
    return UsageError(
        f"--compare {path!r}",
        reason,
        "both files must be written by `rlxweb bench --json`",
    )


def case_times(result: Mapping[str, Any]) -> CaseTimes:
    """Return the times of a result by case and engine, the fastest engine first."""
    times: CaseTimes = {}
    for case in result["cases"]:
        label = f"{case['case']} {case['shape']}, {case['data']} memory"
        rows = {
            str(row["engine"]): None if row["ns"] is None else float(row["ns"])
            for row in case["rows"]
        }
        known_times = [ns for ns in rows.values() if ns is not None]
        times[label] = {FASTEST: min(known_times, default=None), **rows}
    return times


def compare_times(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> list[tuple[str, str, float | None, float | None]]:
    """Return (case, engine, ns of A, ns of B) for all cases that both results have.

    Errors   UsageError where there is none.
    """
    left, right = case_times(a), case_times(b)
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
            "runs with and without --quick use different sizes",
            "compare two runs with the same options",
        )
    return rows
