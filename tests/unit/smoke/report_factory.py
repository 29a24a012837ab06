"""Synthetic smoke reports (schema `rlxweb.smoke/1`) for tests of code that reads
them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

COUNTED_WORDS = ("right", "wrong", "refused", "known", "unexpected pass", "not run")


def make_row(case: str, word: str = "right", **overrides: Any) -> dict[str, Any]:
    """Return the row of a case; its name is `family/op/number`."""
    family, op = case.split("/")[:2]
    has_result = word in ("right", "wrong", "known", "unexpected pass")
    return {
        "case": case,
        "family": family,
        "op": op,
        "variant": "",
        "inputs": [[[3, 4], "f32"]],
        "attrs": {},
        "note": "",
        "word": word,
        "why": "" if word == "right" else f"{word} for a reason",
        "raised": "",
        "max_error": 1e-7 if has_result else None,
        "share": (0.1 if word == "right" else "inf") if has_result else None,
        "allowed": 1e-6 if has_result else None,
        "wrong": 0 if word == "right" else 2,
        "elements": 12 if has_result else None,
        "first": {"at": [1, 2], "got": "nan", "want": 0.5} if word == "wrong" else None,
        "cold_ms": 12.5 if has_result else None,
        "warm_ms": 2.5 if has_result else None,
        "gb_s": 1.25 if has_result else None,
        "gflop_s": None,
        **overrides,
    }


def make_engine(key: str, *rows: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    """Return the part of an engine, lavapipe of Mesa 22.3.6 unless overridden."""
    word_counts = Counter(case_row["word"] for case_row in rows)
    wrong_lines = [
        f"{case_row['case']}: {case_row['why']}"
        for case_row in rows
        if case_row["word"] == "wrong"
    ]
    first_wrong = next(iter(wrong_lines), "")
    return {
        "key": key,
        "device": key.split(":")[0],
        "adapter": "llvmpipe (LLVM 15.0.6, 256 bits)",
        "kind": "here",
        "backend": "vulkan",
        "vendor": "llvmpipe",
        "driver": "Mesa 22.3.6 (LLVM 15.0.6)",
        "compiler": "naga",
        "software": True,
        "word": "wrong" if first_wrong else "right",
        "why": first_wrong,
        "seconds": 1.5,
        "counts": {word: word_counts[word] for word in COUNTED_WORDS},
        "rows": list(rows),
        **overrides,
    }


def make_report(*engines: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    """Return a complete document."""
    return {
        "schema": "rlxweb.smoke/1",
        "versions": {"rlxweb": "0.1.0", "numpy": "2.4.6"},
        "machine": {"system": "Linux", "processor": "x86_64"},
        "level": "standard",
        "pattern": "",
        "began": "2026-11-22T15:50:00+00:00",
        "seconds": 3.25,
        "required": [],
        "engines": list(engines),
        "exit_code": int(
            any(engine_part["word"] == "wrong" for engine_part in engines)
        ),
        **overrides,
    }
