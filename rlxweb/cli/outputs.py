"""Result files: CSV rows, NPZ arrays, the JSON record. Written whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from rlxweb.cli.job import FileResult, GroupResult, Settings
from rlxweb.io import write_csv, write_json, write_npz

SCHEMA = "rlxweb.welch/1"
COLUMNS = (
    "file",
    "channel",
    "unit",
    "fs",
    "rank",
    "bin",
    "hz",
    "power",
    "prominence",
    "device",
)


def csv_rows(results: Sequence[FileResult]) -> Iterator[tuple[Any, ...]]:
    """One row per peak, strongest first in each channel."""
    for result in results:
        for group in result.groups:
            for at, name in enumerate(group.names):
                for rank, peak in enumerate(_peaks(group, at), 1):
                    yield (
                        result.path,
                        name,
                        group.units[at],
                        group.fs,
                        rank,
                        peak["bin"],
                        peak["hz"],
                        peak["power"],
                        peak.get("prominence", ""),
                        group.device,
                    )


def _peaks(group: GroupResult, at: int) -> list[dict[str, Any]]:
    peaks, out = group.peaks, []
    for n in range(int(peaks.count[at])):
        one: dict[str, Any] = {
            "bin": int(peaks.bins[at, n]),
            "hz": _number(peaks.hz[at, n]),
            "power": _number(peaks.power[at, n]),
        }
        if peaks.prominence is not None:
            one["prominence"] = _number(peaks.prominence[at, n])
        out.append(one)
    return out


def _number(value: Any) -> float | None:
    """JSON has no NaN; where NaN was let through it reads as null."""
    return float(value) if math.isfinite(value) else None


def as_json(results: Sequence[FileResult], settings: Settings) -> dict[str, Any]:
    """The run record: settings, versions, device, decision and every peak."""
    return {
        "schema": SCHEMA,
        "rlxweb": version("rlxweb"),
        "numpy": np.__version__,
        "settings": {n: getattr(settings, n) for n in settings.__slots__},
        "files": [
            {
                "path": result.path,
                "format": result.format,
                "left_out": [
                    {"channel": name, "reason": why} for name, why in result.left_out
                ],
                "groups": [_group_json(group) for group in result.groups],
            }
            for result in results
        ],
    }


def _group_json(group: GroupResult) -> dict[str, Any]:
    spec = group.spec
    return {
        "fs": group.fs,
        "n_samples": group.n_samples,
        "n_segments": group.n_segments,
        "nperseg": spec.nperseg,
        "hop": spec.hop,
        "nfft": spec.nfft,
        "detrend": spec.detrend,
        "dtype": spec.dtype,
        "device": group.device,
        "engine": group.engine,
        "decision": group.decision.as_json(),
        "channels": [
            {"name": name, "unit": group.units[at], "peaks": _peaks(group, at)}
            for at, name in enumerate(group.names)
        ],
    }


def save_json(path: str, results: Sequence[FileResult], settings: Settings) -> None:
    write_json(path, as_json(results, settings))


def save_csv(path: str, results: Sequence[FileResult]) -> None:
    write_csv(path, COLUMNS, csv_rows(results))


def save_npz(path: str, results: Sequence[FileResult]) -> None:
    """Arrays per group, prefixed `f0_g0_` only when there is more than one group."""
    arrays: dict[str, Any] = {}
    many = sum(len(r.groups) for r in results) > 1
    for f, result in enumerate(results):
        for g, group in enumerate(result.groups):
            head = f"f{f}_g{g}_" if many else ""
            arrays[f"{head}path"] = np.array(result.path)
            arrays[f"{head}channels"] = np.array(group.names)
            arrays[f"{head}fs"] = np.array(group.fs)
            arrays[f"{head}freqs"] = group.hz
            arrays[f"{head}psd"] = group.power
            arrays[f"{head}bins"] = group.peaks.bins
            arrays[f"{head}hz"] = group.peaks.hz
            arrays[f"{head}power"] = group.peaks.power
            arrays[f"{head}count"] = group.peaks.count
    write_npz(path, **arrays)
