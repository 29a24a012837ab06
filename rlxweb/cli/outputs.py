"""What result files hold: CSV rows, NPZ arrays, the JSON record.

Owns their columns, names and the schema. Which files they are, and that all appear or
none, is the business of `targets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from rlxweb.cli.batch import Done
from rlxweb.cli.record import run_document
from rlxweb.io import write_csv, write_json, write_npz
from rlxweb.jobs.entries import epochs_cells, text_of
from rlxweb.jobs.epoching import COLUMNS as OF_EPOCHS
from rlxweb.jobs.results import FileResult, GroupResult

SCHEMA = "rlxweb.welch/1"
_OF_PEAK = ("bin", "hz", "power", "prominence")
COLUMNS = ("file", "channel", "unit", "fs", "rank", *_OF_PEAK, "device")


def put_json(file: IO[bytes], done: Done) -> None:
    """The run record: settings, versions, decisions, every peak, and what failed."""
    cluster = {"decided": [one.as_json() for one in done.shares]}
    files = [entry for _, entry in done.entries() if entry is not None]
    settings = done.settings.as_json()
    record = run_document(SCHEMA, settings, files, done.failed, done.wall_s)
    write_json(file, record | ({"cluster": cluster} if done.shares else {}))


def put_csv(file: IO[bytes], done: Done) -> None:
    """One line per peak, strongest first in each channel; with what epochs it is of."""
    more = () if done.settings.epochs is None else OF_EPOCHS
    write_csv(file, (*COLUMNS, *more), _rows(done))


def _rows(done: Done) -> Iterator[tuple[Any, ...]]:
    for _, entry in done.entries():
        if entry is None:
            continue
        for group in entry["groups"]:
            for channel in group["channels"]:
                where = entry["path"], channel["name"], channel["unit"], group["fs"]
                for rank, peak in enumerate(channel["peaks"], 1):
                    found = (peak.get(column, "") for column in _OF_PEAK)
                    of = epochs_cells(group)
                    yield *where, rank, *found, group["device"], *of


def put_npz(file: IO[bytes], results: Sequence[FileResult]) -> None:
    """Arrays per group, prefixed `f0_g0_` only when there is more than one group."""
    arrays: dict[str, Any] = {}
    many = sum(len(r.groups) for r in results) > 1
    for f, result in enumerate(results):
        for g, group in enumerate(result.groups):
            head = f"f{f}_g{g}_" if many else ""
            for name, value in _arrays(result, group).items():
                arrays[head + name] = value
    write_npz(file, **arrays)


def _arrays(result: FileResult, group: GroupResult) -> dict[str, Any]:
    found = {
        "file": np.array(text_of(result.path)),
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
        found["prominence"] = group.peaks.prominence
    if group.epochs is not None:
        cells = zip(OF_EPOCHS, group.epochs.cells, strict=True)
        found |= {name: np.array(cell) for name, cell in cells}
    return found
