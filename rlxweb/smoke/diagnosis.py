"""What is wrong with a machine, in words: what its wrong cases have in common.

Reads rows of the report and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
_LISTED = 4
_RUN = ("right", "wrong")
_ORDER = ("variant", "dtype", "op", "family")


def _variant(row: Row) -> str:
    return f"the kernel {row['variant']!r}" if row["variant"] else ""


def _dtype(row: Row) -> str:
    types = {dtype for _, dtype in row["inputs"]} - {"f32"}
    return f"{min(types)}" if len(types) == 1 else ""


def _op(row: Row) -> str:
    return str(row["op"])


def _family(row: Row) -> str:
    return f"the family {row['family']!r}"


_ASPECTS: dict[str, Callable[[Row], str]] = {
    "variant": _variant,
    "dtype": _dtype,
    "op": _op,
    "family": _family,
}


def in_common(rows: Sequence[Row]) -> str:
    """One sentence on the wrong rows among these; "" where none is."""
    ran = [row for row in rows if row["word"] in _RUN]
    wrong = [row for row in ran if row["word"] == "wrong"]
    if not wrong:
        return ""
    count = f"{len(wrong):,} of {len(ran):,} cases are wrong"
    if len(wrong) == len(ran):
        return f"every case is wrong ({len(ran):,}): it computes nothing right"
    for aspect in _ORDER:
        whole = _explains(ran, wrong, _ASPECTS[aspect])
        if whole:
            return f"{count}: {whole}"
    ops = sorted({row["op"] for row in wrong if row["op"]})
    if not ops:
        return count
    named = ", ".join(ops[:_LISTED])
    more = f" and {len(ops) - _LISTED} more" if len(ops) > _LISTED else ""
    return f"{count}, of {named}{more}"


def _explains(
    ran: Sequence[Row], wrong: Sequence[Row], of: Callable[[Row], str]
) -> str:
    """What all wrong rows have, and how many that have it are right all the same."""
    values = {of(row) for row in wrong}
    if len(values) != 1 or "" in values:
        return ""
    (value,) = values
    alike = [row for row in ran if of(row) == value]
    if len(alike) == 1:
        return ""
    if len(alike) == len(wrong):
        return f"all of {value}, and nothing else"
    return f"only of {value}, of which {len(alike) - len(wrong):,} are right"


def first_wrong(rows: Sequence[Row]) -> Iterator[str]:
    """A line for the first wrong case of each op, as many as may be."""
    seen: set[str] = set()
    for row in rows:
        kind = row["op"] or row["family"]
        if row["word"] == "wrong" and kind not in seen:
            if len(seen) == _LISTED:
                return
            seen.add(kind)
            yield in_words(row)


def in_words(row: Row) -> str:
    """One wrong case: what it was, where it is wrong, and by how much."""
    shapes = ", ".join(f"{shape} {dtype}" for shape, dtype in row["inputs"])
    attrs = ", ".join(f"{name}={value}" for name, value in row["attrs"].items())
    of = " ".join(filter(None, [shapes, attrs, row["note"] and f"({row['note']})"]))
    what = f"{row['case']}: {of}" if of else str(row["case"])
    first = row["first"]
    if first is None:
        return f"{what}: {row['why']}"
    at = tuple(first["at"])
    return (
        f"{what}: {row['wrong']:,} of {row['elements']:,} elements are wrong, first at "
        f"{at}: {_figure(first['got'])} where {_figure(first['want'])} is right; the "
        f"largest error is {_figure(row['max_error'])}"
    )


def _figure(value: float | str) -> str:
    """As many digits as float32 has."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
