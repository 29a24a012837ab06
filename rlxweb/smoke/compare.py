"""Two reports of the same machine, or of two: what became wrong, right, slower.

Engines are met by their key, cases by name and variant. Whatever one run did not try is
no change of the other: a case "disappeared" only where its engine ran to its end in
both. Times are compared where both are over a noise floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any, Literal

What = Literal[
    "became wrong",
    "became right",
    "became known",
    "is refused now",
    "is not refused any more",
    "became slower",
    "became faster",
    "appeared",
    "disappeared",
    "other driver",
]
ORDER: tuple[What, ...] = What.__args__  # type: ignore[attr-defined]
RATIO = 1.5
FLOOR_MS = 1.0
_FAILED = ("wrong", "crashed", "hung", "out of memory", "lost")
_FACTS = ("adapter", "backend", "vendor", "driver", "compiler")
_RAN = ("right", "wrong")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was.

    subject   the case; "" where it is the engine itself
    """

    what: What
    engine: str
    subject: str
    said: str


def comparison(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    ratio: float = RATIO,
    floor_ms: float = FLOOR_MS,
) -> dict[str, Any]:
    """What changed from one report to the next, as a part of the new one's document.

    ratio     how many times as long a warm run must take to be called slower
    floor_ms  times under this are noise; they count as this long

    `lines` are the changes, most important first; `counts` how many there are of each;
    `times` the geometric mean of new/old over the cases of each engine that took longer
    than the floor; `exit_code` is 1 if something became wrong.
    """
    was = {engine["key"]: engine for engine in old["engines"]}
    now = {engine["key"]: engine for engine in new["engines"]}
    changes = list(_engines(was, now))
    times: dict[str, float] = {}
    for key in (key for key in now if key in was):
        changes += _cases(was[key], now[key])
        slower, mean = _slower(was[key], now[key], ratio, floor_ms)
        changes += slower
        if mean:
            times[key] = mean
    changes.sort(key=lambda change: ORDER.index(change.what))
    counts = {what: sum(c.what == what for c in changes) for what in ORDER}
    about = ("versions", "machine", "level", "pattern", "began")
    return {
        "old": {name: old.get(name) for name in about},
        "ratio": ratio,
        "floor_ms": floor_ms,
        "counts": counts,
        "times": times,
        "lines": [asdict(change) for change in changes],
        "exit_code": int(counts["became wrong"] > 0),
    }


# --- engines --------------------------------------------------------------------


def _engines(
    was: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> Iterator[Change]:
    for key, engine in now.items():
        before = was.get(key, {"word": "missing"})
        word, old_word = engine["word"], before["word"]
        said = f"{word}, was {old_word}" + _why(engine)
        if old_word == "missing" and word != "missing":
            yield Change("appeared", key, "", engine.get("adapter") or word)
        elif word == "missing" and old_word != "missing":
            yield Change("disappeared", key, "", engine.get("why") or "missing")
        elif _is_down(engine) and not (_is_down(before) and word == old_word):
            yield Change("became wrong", key, "", said)
        elif _is_down(before) and word in _RAN and not _is_down(engine):
            yield Change("became right", key, "", said)
        yield from _facts(key, before, engine)
    for key, before in was.items():
        if key not in now and before["word"] != "missing":
            yield Change("disappeared", key, "", "it is not in this run")


def _is_down(engine: Mapping[str, Any]) -> bool:
    """Is it wrong by more than its cases: crashed, say, or not to be opened?"""
    if engine["word"] == "wrong":
        return not any(row["word"] == "wrong" for row in engine["rows"])
    return engine["word"] in _FAILED


def _facts(
    key: str, before: Mapping[str, Any], engine: Mapping[str, Any]
) -> Iterator[Change]:
    for name in _FACTS:
        old, new = before.get(name), engine.get(name)
        if old and new and old != new:
            yield Change("other driver", key, "", f"{name} {new}, was {old}")


def _why(record: Mapping[str, Any]) -> str:
    return f": {record['why']}" if record.get("why") else ""


# --- cases ----------------------------------------------------------------------


def _rows(engine: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["case"], row.get("variant") or ""): row for row in engine["rows"]}


def _named(case: tuple[str, str]) -> str:
    return f"{case[0]} ({case[1]})" if case[1] else case[0]


def _cases(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    old, new = _rows(was), _rows(now)
    for case, row in new.items():
        before = old.get(case)
        what = None if before is None else _turned(before["word"], row["word"])
        if before is not None and what:
            said = f"{row['word']}, was {before['word']}" + _why(row)
            yield Change(what, now["key"], _named(case), said)
    if was["word"] in _RAN and now["word"] in _RAN:
        for case in new.keys() - old.keys():
            said = new[case]["word"] + _why(new[case])
            yield Change("appeared", now["key"], _named(case), said)
        for case in old.keys() - new.keys():
            said = f"was {old[case]['word']}"
            yield Change("disappeared", now["key"], _named(case), said)


def _turned(old: str, new: str) -> What | None:
    """What a case did, if that is worth a line."""
    good = ("right", "unexpected pass")
    if old == new or "not run" in (old, new) or (old in good and new in good):
        return None
    if new == "wrong":
        return "became wrong"
    if new == "known":
        return "became known"
    if new == "refused":
        return "is refused now"
    return "is not refused any more" if old == "refused" else "became right"


# --- times ----------------------------------------------------------------------


def _slower(
    was: Mapping[str, Any], now: Mapping[str, Any], ratio: float, floor_ms: float
) -> tuple[list[Change], float]:
    """The cases that take much longer or shorter, and the mean ratio of all."""
    old, changes, logs = _rows(was), [], []
    for case, row in _rows(now).items():
        before, after = _warm(old.get(case)), _warm(row)
        if not before or not after or max(before, after) < floor_ms:
            continue
        times = max(after, floor_ms) / max(before, floor_ms)
        logs.append(log(times))
        what: What = "became slower" if times > 1 else "became faster"
        if max(times, 1 / times) >= ratio:
            said = f"{after:.3g} ms, was {before:.3g} ms ({times:.2f} ×)"
            changes.append(Change(what, now["key"], _named(case), said))
    mean = exp(sum(logs) / len(logs)) if logs else 0.0
    return changes, round(mean, 4)


def _warm(row: Mapping[str, Any] | None) -> float:
    value = (row or {}).get("warm_ms")
    return float(value) if isinstance(value, int | float) else 0.0
