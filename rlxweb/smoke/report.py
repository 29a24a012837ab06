"""Report document of a smoke test (schema `rlxweb.smoke/1`) and its exit code.

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

from rlxweb.core.device import Device
from rlxweb.smoke.engine_run import EngineOutcome, EngineStatus, engine_status

SCHEMA = "rlxweb.smoke/1"
EXIT_RIGHT = 0
EXIT_WRONG = 1
EXIT_NOTHING_TESTED = 3
EXIT_REQUIRED_MISSING = 4
EXIT_DEVICE_LOST = 75
EXIT_INTERRUPTED = 130
EXIT_CODES = {
    EXIT_RIGHT: "all selected cases ran and were right",
    EXIT_WRONG: "a result was wrong, or an engine crashed, hung or ran out of memory",
    EXIT_NOTHING_TESTED: "there was nothing to test",
    EXIT_REQUIRED_MISSING: "a required engine is missing or did not finish",
    EXIT_DEVICE_LOST: "a device was lost; nothing else was wrong",
    EXIT_INTERRUPTED: "interrupted by the user; the report is partial",
}
ENGINE_WORDS: dict[EngineStatus, str] = {
    "right": "all cases that it supports are right",
    "wrong": "a case is wrong, or the engine was found but cannot be opened",
    "crashed": "its process ended unexpectedly or wrote an invalid message",
    "hung": "one case, or all cases together, exceeded the time limit",
    "out of memory": "its process exceeded the memory limit",
    "lost": "its device was lost, or did not respond",
    "missing": "not available on this machine; the reason is shown",
}
COUNTED_WORDS = ("right", "wrong", "refused", "known", "unexpected pass", "not run")
ReportDocument = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Options of the run that the report records.

    required   devices, or `device:part of an adapter's name`, that must be right
    """

    level: str
    pattern: str
    required: tuple[str, ...]
    began: str
    versions: Mapping[str, str | None]


def build_report(
    request: ReportRequest,
    outcomes: Sequence[EngineOutcome],
    seconds: float,
    is_partial: bool = False,
) -> ReportDocument:
    """Build the report document; `is_partial` means the run was interrupted."""
    report: ReportDocument = {
        "schema": SCHEMA,
        "versions": dict(request.versions),
        "machine": machine_info(),
        "level": request.level,
        "pattern": request.pattern,
        "began": request.began,
        "seconds": round(seconds, 3),
        "partial": is_partial,
        "required": list(request.required),
        "engines": [engine_entry(outcome) for outcome in outcomes],
    }
    report["apart"] = find_disagreements(report["engines"])
    report["exit_code"] = exit_code(report)
    return report


def machine_info() -> dict[str, Any]:
    """Return the facts of the machine the run was on."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def engine_entry(outcome: EngineOutcome) -> dict[str, Any]:
    """Return the report's entry of one engine, with all its rows."""
    word, reason = engine_status(outcome)
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
        "why": reason,
        "seconds": round(outcome.seconds, 3),
        "counts": count_words(rows),
        "rows": rows,
    }


def count_words(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count the rows of each word."""
    counter = Counter(row["word"] for row in rows)
    return {word: counter[word] for word in COUNTED_WORDS}


def find_disagreements(engines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the random graphs on which engines disagree, with the engines that
    deviate.

    Everybody gets the same graphs. Where a few are wrong and the others right, those
    few stand apart; where all are wrong, NumPy in float64 does.
    """
    words_by_case: dict[str, dict[str, str]] = {}
    for engine in engines:
        for row in engine["rows"]:
            if row["family"] == "graphs" and row["word"] in ("right", "wrong"):
                words_by_case.setdefault(row["case"], {})[engine["key"]] = row["word"]
    disagreements = []
    for case, words_by_engine in words_by_case.items():
        wrong = [key for key, word in words_by_engine.items() if word == "wrong"]
        if wrong and len(words_by_engine) > 1:
            all_wrong = len(wrong) == len(words_by_engine)
            deviating = ["NumPy in float64"] if all_wrong else wrong
            disagreements.append(
                {"case": case, "engines": deviating, "of": len(words_by_engine)}
            )
    return disagreements


def exit_code(report: Mapping[str, Any]) -> int:
    """Return the exit code; 0 only if everything required ran and was right."""
    engines = [one for one in report["engines"] if one["word"] != "missing"]
    if report["partial"]:
        return EXIT_INTERRUPTED
    failing_words = (
        ("wrong", "unexpected pass") if report.get("strict_known") else ("wrong",)
    )
    if any(_has_failed(engine, failing_words) for engine in engines):
        return EXIT_WRONG
    if any(one["word"] == "lost" for one in engines):
        return EXIT_DEVICE_LOST
    if missing_required(report):
        return EXIT_REQUIRED_MISSING
    if not any(map(_judged_count, engines)):
        return EXIT_NOTHING_TESTED
    return EXIT_RIGHT


def _has_failed(engine: Mapping[str, Any], failing_words: Sequence[str]) -> bool:
    """Return whether the engine failed for a reason other than device loss."""
    if engine["word"] in ("crashed", "hung", "out of memory"):
        return True
    if engine["word"] == "wrong" and not engine["rows"]:
        return True  # it was found, and could not be opened
    failing_rows = [row for row in engine["rows"] if row["word"] in failing_words]
    device_lost_errors = ("DeviceLost", "GpuTimeout")
    return any(row["raised"] not in device_lost_errors for row in failing_rows)


def _judged_count(engine: Mapping[str, Any]) -> int:
    """Count the cases that ran to a right or known result."""
    counts = engine["counts"]
    return int(counts["right"] + counts["known"] + counts["unexpected pass"])


def missing_required(report: Mapping[str, Any]) -> list[str]:
    """Return the required engines that are missing or did not run to the end."""
    right_engines = [
        engine
        for engine in report["engines"]
        if engine["word"] == "right" and _judged_count(engine)
    ]
    return [
        name
        for name in report["required"]
        if not any(
            matches_engine(name, engine["device"], engine["adapter"])
            for engine in right_engines
        )
    ]


def matches_engine(name: str, device: str, adapter: str) -> bool:
    """Return whether `name` (device, or device:part of the adapter's name) means this
    engine.

    "gpu" is every adapter of wgpu's, as everywhere in rlxweb.
    """
    label, _, adapter_part = name.partition(":")
    wgpu_devices = ("vulkan", "opengl", "directx", "metal")
    is_device = device == label or (
        label == Device.GPU.label and device in wgpu_devices
    )
    return is_device and adapter_part.strip().lower() in adapter.lower()
