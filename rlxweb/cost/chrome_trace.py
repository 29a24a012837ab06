"""Time line of a run in Chrome's trace format, which Perfetto and Chrome read.

The format is Chrome's trace events: complete events ("ph": "X") with times in
microseconds. Open the file at https://ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlxweb.cost.roofline import ProfileEntry, Roofline


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """Part of a run, its start and the track that it is drawn on."""

    track: str
    start_ns: float
    entry: ProfileEntry


def sequential_spans(
    track: str, entries: Iterable[ProfileEntry], start_ns: float = 0.0
) -> list[TraceSpan]:
    """Return the parts as spans of one track, without gaps."""
    spans = []
    for entry in entries:
        spans.append(TraceSpan(track, start_ns, entry))
        start_ns += entry.ns
    return spans


def build_chrome_trace(
    title: str, spans: Iterable[TraceSpan], roof: Roofline | None
) -> Any:
    """Return the trace as plain data for a JSON file."""
    track_ids: dict[str, int] = {}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": title}}
    ]
    for span in spans:
        if span.track not in track_ids:
            track_ids[span.track] = tid = len(track_ids) + 1
            metadata = {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name"}
            events.append(metadata | {"args": {"name": span.track}})
        facts = span.entry.as_json(roof)
        args = {name: facts[name] for name in facts if name not in ("label", "ns")}
        events.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": track_ids[span.track],
                "name": span.entry.label,
                "cat": span.entry.kind,
                "ts": span.start_ns / 1e3,
                "dur": span.entry.ns / 1e3,
                "args": args,
            }
        )
    return {"displayTimeUnit": "ns", "traceEvents": events}
