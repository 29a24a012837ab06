"""What a child process tells its parent: one line of JSON after another.

Owns the form of a row of the report and of the numbers in it; both sides read it here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlxweb.errors import DeviceLost, GpuTimeout
from rlxweb.printable import abridged, printable
from rlxweb.smoke.case import Case
from rlxweb.smoke.verdict import Verdict

LOST = (DeviceLost, GpuTimeout)
_MOST_WORDS = 2000
_OF_NO_OP = ("chains", "edges", "graphs")
Row = dict[str, Any]


def number(value: Any) -> float | int | str:
    """A number that JSON can hold; NaN and infinity by name."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool | int):
        return int(value)
    value = float(value)
    return value if math.isfinite(value) else str(value)


def row_of(case: Case, found: Verdict) -> Row:
    """The report's row of a case that was run."""
    return {
        **blank(case.name),
        **described(case),
        "word": found.word,
        "why": abridged(printable(found.why), _MOST_WORDS),
        "raised": type(found.raised).__name__ if found.raised else "",
        **_numbers(found),
        **_times(found),
    }


def described(case: Case) -> Row:
    """What of a row is known before the case is run."""
    return {
        "op": case.op,
        "variant": case.variant,
        "inputs": [[list(shape), dtype] for shape, dtype in case.inputs],
        "attrs": {name: printable(str(value)) for name, value in case.attrs.items()},
        "note": case.note,
    }


def blank(name: str) -> Row:
    """The row of a case that was not run, as far as its name tells."""
    family, _, rest = name.partition("/")
    named = family not in _OF_NO_OP and not rest.startswith("folded/")
    return {
        "case": name,
        "family": family,
        "op": rest.partition("/")[0] if named else "",
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


def _numbers(found: Verdict) -> Mapping[str, Any]:
    """What the comparison measured; nothing where there was none."""
    agreement = found.agreement
    if agreement is None:
        return {}
    first = None
    if agreement.first is not None:
        at, got, want = agreement.first
        first = {"at": list(at), "got": number(got), "want": number(want)}
    return {
        "max_error": number(agreement.max_error),
        "share": number(agreement.share),
        "allowed": number(agreement.allowed),
        "wrong": agreement.wrong,
        "elements": agreement.size,
        "first": first,
        "answer": agreement.answer,
    }


def _times(found: Verdict) -> Mapping[str, Any]:
    if not found.run_ns:
        return {}
    told: dict[str, Any] = {"cold_ms": (found.prepare_ns + found.run_ns) / 1e6}
    if found.warm_ns:
        told["warm_ms"] = found.warm_ns / 1e6
        told["gb_s"] = found.nbytes / found.warm_ns
        told["gflop_s"] = found.flops / found.warm_ns
    return {name: float(f"{value:.4g}") for name, value in told.items()}
