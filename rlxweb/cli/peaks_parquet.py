"""Parquet table of the peaks of a run: its columns and the rows of each file.

One row per file, channel and rank. Who has none of the last two is there all the same:
a channel without peaks as a row without a rank, a failed file as a row with its error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rlxweb.batch.run_record_entries import RecordEntry, epochs_cells, path_text
from rlxweb.cli.batch import AnalysisBatchResult
from rlxweb.cli.json_documents import library_versions, rlxweb_version
from rlxweb.core.errors import UsageError
from rlxweb.io.parquet_tables import (
    PARQUET_SUFFIX,
    ColumnValues,
    TableColumn,
    require_pyarrow,
    write_parquet,
)

SCHEMA = "rlxweb.peaks/1"
# A group ends with the file in which it reaches this: enough rows to pack well, few
# enough to hold.
MIN_GROUP_ROWS = 1 << 17
COLUMNS = (
    TableColumn("file", "text", "", "path or URL of the recording"),
    TableColumn("channel", "text", "", "name of the channel; null if the file failed"),
    TableColumn("unit", "text", "", "unit of the samples; null if the file has none"),
    TableColumn(
        "power_unit", "text", "", "unit of power and prominence; null if unknown"
    ),
    TableColumn("fs", "float64", "Hz", "samples per second"),
    TableColumn("n_samples", "int64", "", "number of samples of the channel"),
    TableColumn("n_segments", "int64", "", "number of segments averaged"),
    TableColumn("hz_per_bin", "float64", "Hz", "distance between two bins"),
    TableColumn(
        "state",
        "text",
        "",
        "why the channel has no peaks: 'flat', 'not finite' or 'no peaks' (it has a "
        "level, but nothing that is a peak); null if it has peaks",
    ),
    TableColumn(
        "rank",
        "int32",
        "",
        "rank of the peak, 1 for the strongest; null if there is no peak",
    ),
    TableColumn("bin", "int32", "", "index of the bin, 0 at 0 Hz"),
    TableColumn("hz", "float64", "Hz", "frequency of the peak"),
    TableColumn("power", "float64", "power_unit", "power of the spectrum at the peak"),
    TableColumn(
        "prominence", "float64", "power_unit", "height above the adjacent valleys"
    ),
    TableColumn("device", "text", "", "device that computed the peaks"),
    TableColumn("engine", "text", "", "engine that computed the peaks"),
    TableColumn("dtype", "text", "", "dtype of the arithmetic"),
    TableColumn("error", "text", "", "why the file failed; null if it did not"),
)
EPOCH_COLUMNS = (
    TableColumn("condition", "text", "", "annotation text of the epochs"),
    TableColumn("n_epochs", "int64", "", "number of epochs averaged"),
    TableColumn("n_dropped", "int64", "", "number of epochs not averaged"),
)
"""Additional columns of runs that average epochs."""
_GROUP_FIELDS = (
    "fs",
    "n_samples",
    "n_segments",
    "hz_per_bin",
    "device",
    "engine",
    "dtype",
)
_PEAK_FIELDS = ("bin", "hz", "power", "prominence")


def check_parquet_path(path: str) -> None:
    """Raise an error if the Parquet file could not be written.

    Errors   UsageError for another suffix; Unsupported where pyarrow is missing.
    """
    context = f"--out {path!r}"
    if Path(path).suffix.lower() != PARQUET_SUFFIX:
        raise UsageError(
            context,
            f"--out writes Parquet, so the file name must end in {PARQUET_SUFFIX}",
            hint="use --csv, --json, --npz or --plot for other formats",
        )
    require_pyarrow(context)


def write_peaks_parquet(file: IO[bytes], batch: AnalysisBatchResult) -> None:
    """Write every peak of a run in file order, with units and settings."""
    metadata = {
        "schema": SCHEMA,
        "rlxweb": rlxweb_version(),
        "versions": library_versions(),
        "settings": batch.settings.as_json(),
        "failed": len(batch.failures),
    }
    text = json.dumps(metadata, ensure_ascii=True)
    columns = COLUMNS if batch.settings.epochs is None else (*COLUMNS, *EPOCH_COLUMNS)
    write_parquet(file, columns, _row_groups(batch, columns), {"rlxweb": text})


def _row_groups(
    batch: AnalysisBatchResult, columns: Sequence[TableColumn]
) -> Iterator[ColumnValues]:
    """Yield the rows in Parquet row groups; no file is split over two groups."""
    rows: dict[str, list[Any]] = {column.name: [] for column in columns}
    for part in _rows_by_file(batch):
        for name in rows:
            rows[name] += part[name]
        if len(rows["file"]) >= MIN_GROUP_ROWS:
            yield rows
            for values in rows.values():
                values.clear()
    if rows["file"]:
        yield rows


def _rows_by_file(batch: AnalysisBatchResult) -> Iterator[ColumnValues]:
    """Yield the rows of each file, preceded by names that matched no recording."""
    errors = {failure.path: failure.error for failure in batch.failures}
    requested_files = set(batch.files)
    for path, error in errors.items():
        if path not in requested_files:
            yield _failed_row(path, error)
    for file, entry in batch.entries():
        yield _failed_row(file, errors[file]) if entry is None else _file_rows(entry)


def _failed_row(path: str, error: str) -> ColumnValues:
    row: dict[str, list[Any]] = {c.name: [None] for c in (*COLUMNS, *EPOCH_COLUMNS)}
    return row | {"file": [path_text(path)], "error": [error]}


def _file_rows(entry: RecordEntry) -> ColumnValues:
    rows: dict[str, list[Any]] = {c.name: [] for c in (*COLUMNS, *EPOCH_COLUMNS)}
    for group in entry["groups"]:
        cells = epochs_cells(group) or (None,) * len(EPOCH_COLUMNS)
        for channel in group["channels"]:
            peaks = channel["peaks"]
            n = max(1, len(peaks))
            rows["channel"] += [channel["name"]] * n
            for name in ("unit", "power_unit", "state"):
                rows[name] += [channel[name] or None] * n
            for name in _GROUP_FIELDS:
                rows[name] += [group[name]] * n
            for column, cell in zip(EPOCH_COLUMNS, cells, strict=True):
                rows[column.name] += [cell] * n
            rows["rank"] += range(1, n + 1) if peaks else [None]
            for name in _PEAK_FIELDS:
                rows[name] += [peak.get(name) for peak in peaks] or [None]
    n = len(rows["rank"])
    return rows | {"file": [entry["path"]] * n, "error": [None] * n}
