"""Contents of the result files of `rlxweb welch`: CSV rows, NPZ arrays, the JSON
record.

Owns their columns, names and the schema. Which files they are, and that all appear or
none, is the business of `targets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from rlxweb.batch.epoch_options import EPOCH_COLUMNS as OF_EPOCHS
from rlxweb.batch.results import FileResult, GroupResult
from rlxweb.batch.run_record_entries import RecordEntry, epochs_cells, path_text
from rlxweb.cli.batch import AnalysisBatchResult
from rlxweb.cli.json_documents import json_run_document
from rlxweb.io import write_csv, write_json, write_npz
from rlxweb.io.csv_json_npz import CsvCell

SCHEMA = "rlxweb.welch/1"
_PEAK_FIELDS = ("bin", "hz", "power", "prominence")
CSV_COLUMNS = (
    *("file", "channel", "unit", "fs", "state", "rank"),
    *_PEAK_FIELDS,
    "device",
)


def write_run_json(file: IO[bytes], batch: AnalysisBatchResult) -> None:
    """Write the run record: settings, versions, decisions, every peak, and the
    failures.
    """
    cluster = {"decided": [share.as_json() for share in batch.worker_decisions]}
    files = [entry for _, entry in batch.entries() if entry is not None]
    settings = batch.settings.as_json()
    record = json_run_document(SCHEMA, settings, files, batch.failures, batch.wall_s)
    write_json(file, record | ({"cluster": cluster} if batch.worker_decisions else {}))


def write_peaks_csv(file: IO[bytes], batch: AnalysisBatchResult) -> None:
    """Write one line per peak, strongest first in each channel, with its epochs if
    there are any; a channel without peaks has one line that says why.
    """
    epoch_columns = () if batch.settings.epochs is None else OF_EPOCHS
    write_csv(file, (*CSV_COLUMNS, *epoch_columns), _csv_rows(batch))


def _csv_rows(batch: AnalysisBatchResult) -> Iterator[tuple[Any, ...]]:
    for _, entry in batch.entries():
        if entry is None:
            continue
        for group in entry["groups"]:
            for channel in group["channels"]:
                channel_cells = (
                    entry["path"],
                    channel["name"],
                    channel["unit"],
                    group["fs"],
                    channel["state"],
                )
                ranked_peaks: list[tuple[CsvCell, RecordEntry]]
                ranked_peaks = [*enumerate(channel["peaks"], 1)] or [(None, {})]
                for rank, peak in ranked_peaks:
                    peak_cells = (peak.get(column, "") for column in _PEAK_FIELDS)
                    epoch_values = epochs_cells(group)
                    yield (
                        *channel_cells,
                        rank,
                        *peak_cells,
                        group["device"],
                        *epoch_values,
                    )


def write_spectra_npz(file: IO[bytes], results: Sequence[FileResult]) -> None:
    """Write the arrays of each group, prefixed `f0_g0_` only when there is more than
    one group.
    """
    arrays: dict[str, Any] = {}
    has_many_groups = sum(len(r.groups) for r in results) > 1
    for f, result in enumerate(results):
        for g, group in enumerate(result.groups):
            prefix = f"f{f}_g{g}_" if has_many_groups else ""
            for name, value in _group_arrays(result, group).items():
                arrays[prefix + name] = value
    write_npz(file, **arrays)


def _group_arrays(result: FileResult, group: GroupResult) -> dict[str, Any]:
    arrays = {
        "file": np.array(path_text(result.path)),
        "channels": np.array(group.names),
        "units": np.array(group.units),
        "fs": np.array(group.fs),
        "freqs": group.hz,
        "psd": group.power,
        "bins": group.peaks.bins,
        "hz": group.peaks.hz,
        "power": group.peaks.power,
        "count": group.peaks.count,
    }
    if group.peaks.prominence is not None:
        arrays["prominence"] = group.peaks.prominence
    if group.epochs is not None:
        cells = zip(OF_EPOCHS, group.epochs.table_cells, strict=True)
        arrays |= {name: np.array(cell) for name, cell in cells}
    return arrays
