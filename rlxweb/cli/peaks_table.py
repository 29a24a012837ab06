"""The peaks of a run as one table: what its columns are, and the rows of each file.

One row per file, channel and rank. Who has none of the last two is there all the same:
a channel without peaks as a row without a rank, a failed file as a row with its error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rlxweb.cli.batch import Done
from rlxweb.cli.record import rlxweb_version, versions
from rlxweb.errors import UsageError
from rlxweb.io.parquet import SUFFIX, Column, Rows, check_parquet, write_parquet
from rlxweb.jobs.entries import Entry, epochs_cells, text_of

SCHEMA = "rlxweb.peaks/1"
# A group ends with the file in which it reaches this: enough rows to pack well, few
# enough to hold.
GROUP_ROWS = 1 << 17
COLUMNS = (
    Column("file", "text", "", "the recording, as it was named"),
    Column("channel", "text", "", "its name; null where the file failed"),
    Column("unit", "text", "", "of the samples; null where the file names none"),
    Column("power_unit", "text", "", "of power and prominence; null where unknown"),
    Column("fs", "float64", "Hz", "samples per second"),
    Column("n_samples", "int64", "", "samples of the channel"),
    Column("n_segments", "int64", "", "segments averaged"),
    Column("hz_per_bin", "float64", "Hz", "from one bin to the next"),
    Column("state", "text", "", "why the channel has no level: flat, not finite"),
    Column("rank", "int32", "", "1 is the strongest; null where there is no peak"),
    Column("bin", "int32", "", "number of the bin, 0 at 0 Hz"),
    Column("hz", "float64", "Hz", "frequency of the peak"),
    Column("power", "float64", "power_unit", "of the spectrum there"),
    Column("prominence", "float64", "power_unit", "height above its valleys"),
    Column("device", "text", "", "where it was computed"),
    Column("engine", "text", "", "by what"),
    Column("dtype", "text", "", "of the arithmetic"),
    Column("error", "text", "", "why the file failed; null where it did not"),
)
OF_EPOCHS = (
    Column("condition", "text", "", "the words of the annotations of its epochs"),
    Column("n_epochs", "int64", "", "epochs averaged"),
    Column("n_dropped", "int64", "", "epochs left out"),
)
"""Beside these, where epochs were averaged."""
_OF_GROUP = ("fs", "n_samples", "n_segments", "hz_per_bin", "device", "engine", "dtype")
_OF_PEAK = ("bin", "hz", "power", "prominence")


def check_table(path: str) -> None:
    """Refuse what could not be written.

    Errors   UsageError for another suffix; Unsupported where pyarrow is missing.
    """
    doing = f"--out {path!r}"
    if Path(path).suffix.lower() != SUFFIX:
        raise UsageError(
            doing,
            f"--out writes Parquet, and the name does not end in {SUFFIX}",
            hint="--csv, --json, --npz and --plot write the others",
        )
    check_parquet(doing)


def put_parquet(file: IO[bytes], done: Done) -> None:
    """Every peak of a run in the order of its files, with units and settings."""
    about = {
        "schema": SCHEMA,
        "rlxweb": rlxweb_version(),
        "versions": versions(),
        "settings": done.settings.as_json(),
        "failed": len(done.failed),
    }
    text = json.dumps(about, ensure_ascii=True)
    columns = COLUMNS if done.settings.epochs is None else (*COLUMNS, *OF_EPOCHS)
    write_parquet(file, columns, _groups(done, columns), {"rlxweb": text})


def _groups(done: Done, columns: Sequence[Column]) -> Iterator[Rows]:
    """The rows by so many, no file's in two."""
    rows: dict[str, list[Any]] = {column.name: [] for column in columns}
    for part in _parts(done):
        for name in rows:
            rows[name] += part[name]
        if len(rows["file"]) >= GROUP_ROWS:
            yield rows
            for values in rows.values():
                values.clear()
    if rows["file"]:
        yield rows


def _parts(done: Done) -> Iterator[Rows]:
    """Those of each file; first of what stood for no recording at all."""
    errors = {failure.path: failure.error for failure in done.failed}
    meant = set(done.files)
    for path, error in errors.items():
        if path not in meant:
            yield _failed(path, error)
    for file, entry in done.entries():
        yield _failed(file, errors[file]) if entry is None else _rows(entry)


def _failed(path: str, error: str) -> Rows:
    row: dict[str, list[Any]] = {c.name: [None] for c in (*COLUMNS, *OF_EPOCHS)}
    return row | {"file": [text_of(path)], "error": [error]}


def _rows(entry: Entry) -> Rows:
    rows: dict[str, list[Any]] = {c.name: [] for c in (*COLUMNS, *OF_EPOCHS)}
    for group in entry["groups"]:
        cells = epochs_cells(group) or (None,) * len(OF_EPOCHS)
        for channel in group["channels"]:
            peaks = channel["peaks"]
            n = max(1, len(peaks))
            rows["channel"] += [channel["name"]] * n
            for name in ("unit", "power_unit", "state"):
                rows[name] += [channel[name] or None] * n
            for name in _OF_GROUP:
                rows[name] += [group[name]] * n
            for column, cell in zip(OF_EPOCHS, cells, strict=True):
                rows[column.name] += [cell] * n
            rows["rank"] += range(1, n + 1) if peaks else [None]
            for name in _OF_PEAK:
                rows[name] += [peak.get(name) for peak in peaks] or [None]
    n = len(rows["rank"])
    return rows | {"file": [entry["path"]] * n, "error": [None] * n}
