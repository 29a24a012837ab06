"""Parts of a run on a time line, as Perfetto and Chrome read them.

The format is Chrome's trace events: complete events ("ph": "X") with times in
microseconds. Open the file at https://ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlxweb.cost.roofline import Roofline, Spent


@dataclass(frozen=True, slots=True)
class Span:
    """One part, when it began and on which line it is drawn."""

    line: str
    begun_ns: float
    spent: Spent


def one_after_another(
    line: str, parts: Iterable[Spent], begun_ns: float = 0.0
) -> list[Span]:
    """Parts of one line, without gaps."""
    spans = []
    for part in parts:
        spans.append(Span(line, begun_ns, part))
        begun_ns += part.ns
    return spans


def trace_of(title: str, spans: Iterable[Span], roof: Roofline | None) -> Any:
    """The trace as plain data for a JSON file."""
    lines: dict[str, int] = {}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": title}}
    ]
    for span in spans:
        if span.line not in lines:
            lines[span.line] = tid = len(lines) + 1
            named = {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name"}
            events.append(named | {"args": {"name": span.line}})
        facts = span.spent.as_json(roof)
        args = {name: facts[name] for name in facts if name not in ("label", "ns")}
        events.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": lines[span.line],
                "name": span.spent.label,
                "cat": span.spent.kind,
                "ts": span.begun_ns / 1e3,
                "dur": span.spent.ns / 1e3,
                "args": args,
            }
        )
    return {"displayTimeUnit": "ns", "traceEvents": events}
