"""Comparison of two smoke reports: cases that became wrong, right, slower or faster.

Engines are met by their key, cases by name and variant. Whatever one run did not try is
no change of the other: a case "disappeared" only where its engine ran to its end in
both. Times are compared where both are over a noise floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any, Literal

ChangeKind = Literal[
    "became wrong",
    "became right",
    "became a known failure",
    "now refused",
    "no longer refused",
    "became slower",
    "became faster",
    "appeared",
    "disappeared",
    "other driver",
]
CHANGE_ORDER: tuple[ChangeKind, ...] = ChangeKind.__args__  # type: ignore[attr-defined]
SLOWDOWN_RATIO = 1.5
NOISE_FLOOR_MS = 1.0
_FAILED_WORDS = ("wrong", "crashed", "hung", "out of memory", "lost")
_DRIVER_FIELDS = ("adapter", "backend", "vendor", "driver", "compiler")
_COMPLETED_WORDS = ("right", "wrong")


@dataclass(frozen=True, slots=True)
class ReportChange:
    """One difference between the two reports.

    subject   the case; "" where it is the engine itself
    """

    what: ChangeKind
    engine: str
    subject: str
    said: str


def compare_reports(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    ratio: float = SLOWDOWN_RATIO,
    floor_ms: float = NOISE_FLOOR_MS,
) -> dict[str, Any]:
    """Compare two reports; return the comparison part of the new report's document.

    ratio     how many times as long a warm run must take to be called slower
    floor_ms  times under this are noise; they count as this long

    `lines` are the changes, most important first; `counts` how many there are of each;
    `time_ratios` the geometric mean of new/old over the cases of each engine that took
    longer than the floor; `exit_code` is 1 if something became wrong.
    """
    old_engines = {engine["key"]: engine for engine in old["engines"]}
    new_engines = {engine["key"]: engine for engine in new["engines"]}
    changes = list(_engine_changes(old_engines, new_engines))
    time_ratios: dict[str, float] = {}
    for key in (key for key in new_engines if key in old_engines):
        changes += _case_changes(old_engines[key], new_engines[key])
        slower, mean = _time_changes(
            old_engines[key], new_engines[key], ratio, floor_ms
        )
        changes += slower
        if mean:
            time_ratios[key] = mean
    changes.sort(key=lambda change: CHANGE_ORDER.index(change.what))
    counts = {what: sum(c.what == what for c in changes) for what in CHANGE_ORDER}
    header_fields = ("versions", "machine", "level", "pattern", "began")
    return {
        "old": {name: old.get(name) for name in header_fields},
        "ratio": ratio,
        "floor_ms": floor_ms,
        "counts": counts,
        "times": time_ratios,
        "lines": [asdict(change) for change in changes],
        "exit_code": int(counts["became wrong"] > 0),
    }


# --- engines --------------------------------------------------------------------


def _engine_changes(
    old_engines: Mapping[str, Mapping[str, Any]],
    new_engines: Mapping[str, Mapping[str, Any]],
) -> Iterator[ReportChange]:
    """Yield the changes of whole engines."""
    for key, engine in new_engines.items():
        old_engine = old_engines.get(key, {"word": "missing"})
        word, old_word = engine["word"], old_engine["word"]
        message = f"{word}, was {old_word}" + _reason_suffix(engine)
        if old_word == "missing" and word != "missing":
            yield ReportChange("appeared", key, "", engine.get("adapter") or word)
        elif word == "missing" and old_word != "missing":
            yield ReportChange("disappeared", key, "", engine.get("why") or "missing")
        elif _has_engine_failure(engine) and not (
            _has_engine_failure(old_engine) and word == old_word
        ):
            yield ReportChange("became wrong", key, "", message)
        elif (
            _has_engine_failure(old_engine)
            and word in _COMPLETED_WORDS
            and not _has_engine_failure(engine)
        ):
            yield ReportChange("became right", key, "", message)
        yield from _driver_changes(key, old_engine, engine)
    for key, old_engine in old_engines.items():
        if key not in new_engines and old_engine["word"] != "missing":
            yield ReportChange("disappeared", key, "", "not in this run")


def _has_engine_failure(engine: Mapping[str, Any]) -> bool:
    """Return whether the engine failed as a whole, not only in single cases."""
    if engine["word"] == "wrong":
        return not any(row["word"] == "wrong" for row in engine["rows"])
    return engine["word"] in _FAILED_WORDS


def _driver_changes(
    key: str, old_engine: Mapping[str, Any], engine: Mapping[str, Any]
) -> Iterator[ReportChange]:
    """Yield a change for each differing adapter, driver or compiler field."""
    for name in _DRIVER_FIELDS:
        old, new = old_engine.get(name), engine.get(name)
        if old and new and old != new:
            yield ReportChange("other driver", key, "", f"{name} {new}, was {old}")


def _reason_suffix(record: Mapping[str, Any]) -> str:
    """Return the record's reason as a suffix of a message; "" if it has none."""
    return f": {record['why']}" if record.get("why") else ""


# --- cases ----------------------------------------------------------------------


def _rows_by_case(
    engine: Mapping[str, Any],
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the engine's rows by case name and kernel variant."""
    return {(row["case"], row.get("variant") or ""): row for row in engine["rows"]}


def _case_label(case: tuple[str, str]) -> str:
    """Return the case name with its kernel variant."""
    return f"{case[0]} ({case[1]})" if case[1] else case[0]


def _case_changes(
    old_engine: Mapping[str, Any], new_engine: Mapping[str, Any]
) -> Iterator[ReportChange]:
    """Yield the changes of an engine's cases."""
    old, new = _rows_by_case(old_engine), _rows_by_case(new_engine)
    for case, row in new.items():
        old_row = old.get(case)
        what = (
            None if old_row is None else _case_change_kind(old_row["word"], row["word"])
        )
        if old_row is not None and what:
            message = f"{row['word']}, was {old_row['word']}" + _reason_suffix(row)
            yield ReportChange(what, new_engine["key"], _case_label(case), message)
    if (
        old_engine["word"] in _COMPLETED_WORDS
        and new_engine["word"] in _COMPLETED_WORDS
    ):
        for case in new.keys() - old.keys():
            message = new[case]["word"] + _reason_suffix(new[case])
            yield ReportChange(
                "appeared", new_engine["key"], _case_label(case), message
            )
        for case in old.keys() - new.keys():
            message = f"was {old[case]['word']}"
            yield ReportChange(
                "disappeared", new_engine["key"], _case_label(case), message
            )


def _case_change_kind(old: str, new: str) -> ChangeKind | None:
    """Return the kind of change of a case; None if it needs no line."""
    good = ("right", "unexpected pass")
    if old == new or "not run" in (old, new) or (old in good and new in good):
        return None
    if new == "wrong":
        return "became wrong"
    if new == "known":
        return "became a known failure"
    if new == "refused":
        return "now refused"
    return "no longer refused" if old == "refused" else "became right"


# --- times ----------------------------------------------------------------------


def _time_changes(
    old_engine: Mapping[str, Any],
    new_engine: Mapping[str, Any],
    ratio: float,
    floor_ms: float,
) -> tuple[list[ReportChange], float]:
    """Return the changes of cases beyond `ratio`, and the geometric mean ratio of all
    times.
    """
    old, changes, logs = _rows_by_case(old_engine), [], []
    for case, row in _rows_by_case(new_engine).items():
        old_ms, new_ms = _warm_ms(old.get(case)), _warm_ms(row)
        if not old_ms or not new_ms or max(old_ms, new_ms) < floor_ms:
            continue
        time_ratio = max(new_ms, floor_ms) / max(old_ms, floor_ms)
        logs.append(log(time_ratio))
        what: ChangeKind = "became slower" if time_ratio > 1 else "became faster"
        if max(time_ratio, 1 / time_ratio) >= ratio:
            message = f"{new_ms:.3g} ms, was {old_ms:.3g} ms ({time_ratio:.2f} ×)"
            changes.append(
                ReportChange(what, new_engine["key"], _case_label(case), message)
            )
    mean = exp(sum(logs) / len(logs)) if logs else 0.0
    return changes, round(mean, 4)


def _warm_ms(row: Mapping[str, Any] | None) -> float:
    """Return the row's warm time in ms; 0 if it has none."""
    value = (row or {}).get("warm_ms")
    return float(value) if isinstance(value, int | float) else 0.0
