"""Diagnosis of an engine's wrong cases: the property they have in common.

Reads rows of the report and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

RowFields = Mapping[str, Any]
_MAX_LISTED = 4
_RAN_WORDS = ("right", "wrong")
_ASPECT_ORDER = ("variant", "dtype", "op", "family")


def _variant_aspect(row: RowFields) -> str:
    """Return the row's kernel variant as a phrase."""
    return f"the kernel {row['variant']!r}" if row["variant"] else ""


def _dtype_aspect(row: RowFields) -> str:
    """Return the one dtype other than float32 among the inputs; "" if there is none or
    several.
    """
    types = {dtype for _, dtype in row["inputs"]} - {"f32"}
    return f"{min(types)}" if len(types) == 1 else ""


def _op_aspect(row: RowFields) -> str:
    """Return the row's op."""
    return str(row["op"])


def _family_aspect(row: RowFields) -> str:
    """Return the row's family as a phrase."""
    return f"the family {row['family']!r}"


_ASPECTS: dict[str, Callable[[RowFields], str]] = {
    "variant": _variant_aspect,
    "dtype": _dtype_aspect,
    "op": _op_aspect,
    "family": _family_aspect,
}


def summarize_failures(rows: Sequence[RowFields]) -> str:
    """Summarize the wrong rows in one sentence; "" if there is none."""
    ran = [row for row in rows if row["word"] in _RAN_WORDS]
    wrong = [row for row in ran if row["word"] == "wrong"]
    if not wrong:
        return ""
    count = f"{len(wrong):,} of {len(ran):,} cases are wrong"
    if len(wrong) == len(ran):
        return f"all {len(ran):,} cases are wrong"
    for aspect in _ASPECT_ORDER:
        explanation = _describe_common_value(ran, wrong, _ASPECTS[aspect])
        if explanation:
            return f"{count}: {explanation}"
    ops = sorted({row["op"] for row in wrong if row["op"]})
    if not ops:
        return count
    op_names = ", ".join(ops[:_MAX_LISTED])
    more = f" and {len(ops) - _MAX_LISTED} more" if len(ops) > _MAX_LISTED else ""
    return f"{count}, in the ops {op_names}{more}"


def _describe_common_value(
    ran: Sequence[RowFields],
    wrong: Sequence[RowFields],
    aspect_of: Callable[[RowFields], str],
) -> str:
    """Describe the value that all wrong rows share, and the right rows that have it
    too.
    """
    values = {aspect_of(row) for row in wrong}
    if len(values) != 1 or "" in values:
        return ""
    (value,) = values
    same_value = [row for row in ran if aspect_of(row) == value]
    if len(same_value) == 1:
        return ""
    if len(same_value) == len(wrong):
        return f"all cases of {value}, and no others"
    right_count = len(same_value) - len(wrong)
    return f"only cases of {value}; {right_count:,} other cases of {value} are right"


def first_wrong_lines(rows: Sequence[RowFields]) -> Iterator[str]:
    """Yield a line for the first wrong case of each op, up to a limit."""
    seen: set[str] = set()
    for row in rows:
        group = row["op"] or row["family"]
        if row["word"] == "wrong" and group not in seen:
            if len(seen) == _MAX_LISTED:
                return
            seen.add(group)
            yield describe_wrong_case(row)


def describe_wrong_case(row: RowFields) -> str:
    """Describe one wrong case: its inputs, the first wrong element and the largest
    error.
    """
    shapes = ", ".join(f"{shape} {dtype}" for shape, dtype in row["inputs"])
    attrs = ", ".join(f"{name}={value}" for name, value in row["attrs"].items())
    details = " ".join(
        filter(None, [shapes, attrs, row["note"] and f"({row['note']})"])
    )
    subject = f"{row['case']}: {details}" if details else str(row["case"])
    first_wrong = row["first"]
    if first_wrong is None:
        return f"{subject}: {row['why']}"
    index = tuple(first_wrong["at"])
    want, got = first_wrong["want"], first_wrong["got"]
    text = (
        f"{subject}: {row['wrong']:,} of {row['elements']:,} elements are wrong, "
        f"first at {index}: expected {_format_number(want)}, got {_format_number(got)}"
    )
    # The largest error is that of finite elements, others have none.
    if isfinite(float(want)) and isfinite(float(got)):
        text += f"; the largest error is {_format_number(row['max_error'])}"
    return text


def _format_number(value: float | str) -> str:
    """Format a number with the digits of float32."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
