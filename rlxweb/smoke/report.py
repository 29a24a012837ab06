"""The report of a smoke test: one JSON document, and the exit code it stands for.

Schema `rlxweb.smoke/1`. Everything that is written of a run (tables, pages, JUnit,
comparisons) is made from this document alone.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.device import Device
from rlxweb.smoke.run import EngineWord, Outcome, word_of

SCHEMA = "rlxweb.smoke/1"
RIGHT, WRONG, NOTHING, REQUIRED_MISSING, LOST, STOPPED = 0, 1, 3, 4, 75, 130
EXIT_CODES = {
    RIGHT: "everything that was to be tried ran and was right",
    WRONG: "a result was wrong, or an engine crashed, hung or ran out of memory",
    NOTHING: "there was nothing to test",
    REQUIRED_MISSING: "a required engine is missing or was not tried to the end",
    LOST: "a device was lost, and nothing else was wrong",
    STOPPED: "stopped by the user; the report holds what was done",
}
ENGINE_WORDS: dict[EngineWord, str] = {
    "right": "every case that it does not refuse is right",
    "wrong": "a case is not, or it was found and cannot be opened",
    "crashed": "its process ended by itself, or wrote what is no answer",
    "hung": "a case, or all of them together, took longer than may be",
    "out of memory": "its process took more memory than may be",
    "lost": "its device went away, or did not answer the port",
    "missing": "the machine does not have it; the reason is told",
}
COUNTED = ("right", "wrong", "refused", "known", "unexpected pass", "not run")
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the run was asked for.

    required   devices, or `device:part of an adapter's name`, that must be right
    """

    level: str
    pattern: str
    required: tuple[str, ...]
    began: str
    versions: Mapping[str, str | None]


def document(
    asked: Asked, outcomes: Sequence[Outcome], seconds: float, is_partial: bool = False
) -> Document:
    """The report. is_partial: the run was stopped before its end."""
    made: Document = {
        "schema": SCHEMA,
        "versions": dict(asked.versions),
        "machine": machine(),
        "level": asked.level,
        "pattern": asked.pattern,
        "began": asked.began,
        "seconds": round(seconds, 3),
        "partial": is_partial,
        "required": list(asked.required),
        "engines": [engine_record(outcome) for outcome in outcomes],
    }
    made["apart"] = apart(made["engines"])
    made["exit_code"] = exit_code(made)
    return made


def machine() -> dict[str, Any]:
    """What the run was on."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def engine_record(outcome: Outcome) -> dict[str, Any]:
    """One engine of the report, with all its rows."""
    word, why = word_of(outcome)
    engine = outcome.engine
    rows = list(outcome.rows.values())
    return {
        "key": engine.key,
        "device": engine.device,
        "adapter": engine.adapter,
        "kind": engine.kind,
        "backend": engine.backend,
        "vendor": engine.vendor,
        "driver": engine.driver,
        "compiler": engine.compiler,
        "software": engine.software,
        "word": word,
        "why": why,
        "seconds": round(outcome.seconds, 3),
        "counts": counts(rows),
        "rows": rows,
    }


def counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many rows have each word."""
    found = Counter(row["word"] for row in rows)
    return {word: found[word] for word in COUNTED}


def apart(engines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The random graphs on which engines disagree, and who stands apart.

    Everybody gets the same graphs. Where a few are wrong and the others right, those
    few stand apart; where all are wrong, NumPy in float64 does.
    """
    words: dict[str, dict[str, str]] = {}
    for engine in engines:
        for row in engine["rows"]:
            if row["family"] == "graphs" and row["word"] in ("right", "wrong"):
                words.setdefault(row["case"], {})[engine["key"]] = row["word"]
    found = []
    for case, by_engine in words.items():
        wrong = [key for key, word in by_engine.items() if word == "wrong"]
        if wrong and len(by_engine) > 1:
            all_wrong = len(wrong) == len(by_engine)
            who = ["NumPy in float64"] if all_wrong else wrong
            found.append({"case": case, "engines": who, "of": len(by_engine)})
    return found


def exit_code(report: Mapping[str, Any]) -> int:
    """What the process ends with: 0 only where all that was required ran, and right."""
    engines = [one for one in report["engines"] if one["word"] != "missing"]
    if report["partial"]:
        return STOPPED
    bad = ("wrong", "unexpected pass") if report.get("strict_known") else ("wrong",)
    if any(_is_wrong(engine, bad) for engine in engines):
        return WRONG
    if any(one["word"] == "lost" for one in engines):
        return LOST
    if missing_required(report):
        return REQUIRED_MISSING
    if not any(map(_judged, engines)):
        return NOTHING
    return RIGHT


def _is_wrong(engine: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Did it fail by more than the loss of its device?"""
    if engine["word"] in ("crashed", "hung", "out of memory"):
        return True
    if engine["word"] == "wrong" and not engine["rows"]:
        return True  # it was found, and could not be opened
    bad = [row for row in engine["rows"] if row["word"] in words]
    lost = ("DeviceLost", "GpuTimeout")
    return any(row["raised"] not in lost for row in bad)


def _judged(engine: Mapping[str, Any]) -> int:
    """Cases that ran to a result, as it should be or as it is known to be."""
    counts = engine["counts"]
    return int(counts["right"] + counts["known"] + counts["unexpected pass"])


def missing_required(report: Mapping[str, Any]) -> list[str]:
    """What was required and is not there, or did not run to its end."""
    there = [
        one for one in report["engines"] if one["word"] == "right" and _judged(one)
    ]
    return [
        name
        for name in report["required"]
        if not any(fits(name, one["device"], one["adapter"]) for one in there)
    ]


def fits(name: str, device: str, adapter: str) -> bool:
    """Is that engine the one, or among those, that `name` means?

    "gpu" is every adapter of wgpu's, as everywhere in rlxweb.
    """
    label, _, part = name.partition(":")
    by_wgpu = ("vulkan", "opengl", "directx", "metal")
    same = device == label or (label == Device.GPU.label and device in by_wgpu)
    return same and part.strip().lower() in adapter.lower()
