"""Report rows and JSON numbers, as a child process sends them to its parent.

Owns the form of a row of the report and of the numbers in it; both sides read it here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlxweb.core.errors import DeviceLost, GpuTimeout
from rlxweb.core.message_text import abbreviate, printable
from rlxweb.smoke.case import SmokeCase
from rlxweb.smoke.verdict import Verdict

DEVICE_LOST_ERRORS = (DeviceLost, GpuTimeout)
_MAX_REASON_CHARS = 2000
_FAMILIES_WITHOUT_OP = ("chains", "edges", "graphs")
ReportRow = dict[str, Any]


def json_number(value: Any) -> float | int | str:
    """Convert a number to what JSON can hold; NaN and infinities become their names."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool | int):
        return int(value)
    value = float(value)
    return value if math.isfinite(value) else str(value)


def result_row(case: SmokeCase, verdict: Verdict) -> ReportRow:
    """Return the report row of a case that was run."""
    return {
        **not_run_row(case.name),
        **case_fields(case),
        "word": verdict.word,
        "why": abbreviate(printable(verdict.why), _MAX_REASON_CHARS),
        "raised": type(verdict.error).__name__ if verdict.error else "",
        **_comparison_fields(verdict),
        **_time_fields(verdict),
    }


def case_fields(case: SmokeCase) -> ReportRow:
    """Return the fields of a row that are known before the case is run."""
    return {
        "op": case.op,
        "variant": case.variant,
        "inputs": [[list(shape), dtype] for shape, dtype in case.inputs],
        "attrs": {name: printable(str(value)) for name, value in case.attrs.items()},
        "note": case.note,
    }


def not_run_row(name: str) -> ReportRow:
    """Return the row of a case that was not run, as far as its name determines it."""
    family, _, rest = name.partition("/")
    has_op = family not in _FAMILIES_WITHOUT_OP and not rest.startswith("folded/")
    return {
        "case": name,
        "family": family,
        "op": rest.partition("/")[0] if has_op else "",
        "variant": "",
        "inputs": [],
        "attrs": {},
        "note": "",
        "word": "not run",
        "why": "",
        "raised": "",
        "max_error": None,
        "share": None,
        "allowed": None,
        "wrong": None,
        "elements": None,
        "first": None,
        "answer": "",
        "cold_ms": None,
        "warm_ms": None,
        "gb_s": None,
        "gflop_s": None,
    }


def _comparison_fields(verdict: Verdict) -> Mapping[str, Any]:
    """Return the fields of the comparison; nothing if there was none."""
    comparison = verdict.comparison
    if comparison is None:
        return {}
    first_wrong = None
    if comparison.first_wrong is not None:
        index, got, want = comparison.first_wrong
        first_wrong = {
            "at": list(index),
            "got": json_number(got),
            "want": json_number(want),
        }
    return {
        "max_error": json_number(comparison.max_error),
        "share": json_number(comparison.error_fraction),
        "allowed": json_number(comparison.allowance),
        "wrong": comparison.wrong_count,
        "elements": comparison.size,
        "first": first_wrong,
        "answer": comparison.answer,
    }


def _time_fields(verdict: Verdict) -> Mapping[str, Any]:
    """Return the cold and warm times in ms, and the warm throughput."""
    if not verdict.run_ns:
        return {}
    times: dict[str, Any] = {"cold_ms": (verdict.prepare_ns + verdict.run_ns) / 1e6}
    if verdict.warm_ns:
        times["warm_ms"] = verdict.warm_ns / 1e6
        times["gb_s"] = verdict.nbytes / verdict.warm_ns
        times["gflop_s"] = verdict.flops / verdict.warm_ns
    return {name: float(f"{value:.4g}") for name, value in times.items()}
