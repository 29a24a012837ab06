"""What result files hold: CSV rows, NPZ arrays, the JSON record.

Owns their columns, names and the schema. Which files they are, and that all appear or
none, is the business of `targets`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from rlxweb.cli.batch import Done
from rlxweb.cli.job import FileResult, GroupResult
from rlxweb.cli.record import document, finite, versions
from rlxweb.io import write_csv, write_json, write_npz

SCHEMA = "rlxweb.welch/1"
_OF_PEAK = ("bin", "hz", "power", "prominence")
COLUMNS = ("file", "channel", "unit", "fs", "rank", *_OF_PEAK, "device")


def _text(path: str) -> str:
    """A path as text that every encoding can hold."""
    return os.fsencode(path).decode("utf-8", "replace")


def _peaks(group: GroupResult, at: int) -> list[dict[str, Any]]:
    peaks, out = group.peaks, []
    for n in range(int(peaks.count[at])):
        one: dict[str, Any] = {
            "bin": int(peaks.bins[at, n]),
            "hz": finite(peaks.hz[at, n]),
            "power": finite(peaks.power[at, n]),
        }
        if peaks.prominence is not None:
            one["prominence"] = finite(peaks.prominence[at, n])
        out.append(one)
    return out


def _group_json(group: GroupResult) -> dict[str, Any]:
    spec = group.spec
    return {
        "fs": group.fs,
        "n_samples": group.n_samples,
        "n_segments": group.n_segments,
        "nperseg": spec.nperseg,
        "hop": spec.hop,
        "nfft": spec.nfft,
        "hz_per_bin": group.resolution,
        "detrend": spec.detrend,
        "dtype": group.dtype,
        "samples": spec.dtype,
        "device": group.device,
        "engine": group.engine,
        "decision": group.decision.as_json(),
        "channels": [
            {
                "name": name,
                "unit": group.units[at],
                "power_unit": group.power_unit(group.units[at]),
                "peaks": _peaks(group, at),
            }
            for at, name in enumerate(group.names)
        ],
    }


def put_json(file: IO[bytes], done: Done) -> None:
    """The run record: settings, versions, decisions, every peak, and what failed."""
    files = [
        {
            "path": _text(result.path),
            "format": result.format,
            "left_out": [{"channel": n, "reason": why} for n, why in result.left_out],
            "warnings": list(result.warnings),
            "groups": [_group_json(group) for group in result.groups],
        }
        for result in done.results
    ]
    failed = [{"path": _text(one.path), "error": one.error} for one in done.failed]
    record = document(
        SCHEMA,
        versions=versions(),
        settings=asdict(done.settings),
        files=files,
        failed=failed,
    )
    write_json(file, record)


def put_csv(file: IO[bytes], results: Sequence[FileResult]) -> None:
    """One line per peak, strongest first in each channel."""
    write_csv(file, COLUMNS, _rows(results))


def _rows(results: Sequence[FileResult]) -> Iterator[tuple[Any, ...]]:
    for result in results:
        for group in result.groups:
            for at, name in enumerate(group.names):
                where = _text(result.path), name, group.units[at], group.fs
                for rank, peak in enumerate(_peaks(group, at), 1):
                    found = (peak.get(column, "") for column in _OF_PEAK)
                    yield *where, rank, *found, group.device


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
        "file": np.array(_text(result.path)),
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
    return found
