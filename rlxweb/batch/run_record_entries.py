"""Entries of the run record (JSON): results of a file as plain data, without its
spectra.

All that the JSON record, the CSV table and the Parquet file say of a recording, and no
spectrum. It reads back from JSON as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from rlxweb.batch.epoch_options import EPOCH_COLUMNS, AveragedEpochs
from rlxweb.batch.results import Failure, FileResult, GroupResult
from rlxweb.core.errors import shown
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.results.ran import Stage

RecordEntry: TypeAlias = dict[str, Any]
Schema: TypeAlias = "type | tuple[type, ...] | list[Any] | dict[str, Any]"
"""Types of plain data; a list holds the schema of all its items."""
NUMBER_OR_NULL = (int, float, type(None))


def file_entry(result: FileResult) -> RecordEntry:
    """Return the result of a file without its spectra."""
    return {
        "path": path_text(result.path),
        "format": result.format,
        "left_out": [
            {"channel": channel, "reason": why} for channel, why in result.left_out
        ],
        "warnings": list(result.warnings),
        "groups": [_group_entry(group) for group in result.groups],
        **timing_entry(result.wall_s, result.stages),
    }


class _HasEpochs(Protocol):
    @property
    def epochs(self) -> AveragedEpochs | None: ...


def epochs_entry(group: _HasEpochs) -> RecordEntry:
    """Return the entry of the epochs of a group; empty if there are none."""
    return {} if group.epochs is None else {"epochs": group.epochs.as_json()}


def epochs_cells(group: RecordEntry) -> tuple[Any, ...]:
    """Return the values of `epoching.EPOCH_COLUMNS` for a group of an entry; () without
    epochs.
    """
    epochs = group.get("epochs")
    return () if epochs is None else tuple(epochs[name] for name in EPOCH_COLUMNS)


def timing_entry(wall_s: float, stages: Sequence[Stage]) -> RecordEntry:
    """Return how long a file took, and its stages."""
    return {"wall_s": wall_s, "stages": {stage.kind: stage.s for stage in stages}}


def failures_entry(failed: Sequence[Failure]) -> list[RecordEntry]:
    """Return the recordings that could not be analysed, and why."""
    return [
        {"path": path_text(failure.path), "error": failure.error} for failure in failed
    ]


def path_text(path: str) -> str:
    r"""Return a path as text that every encoding can hold; undecodable bytes become
    `\xe9`.
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _group_entry(group: GroupResult) -> RecordEntry:
    spec, states = group.spec, group.peak_states
    return {
        "fs": float(group.fs),
        "n_samples": group.n_samples,
        "n_segments": group.n_segments,
        "nperseg": spec.nperseg,
        "hop": spec.hop,
        "nfft": spec.nfft,
        "hz_per_bin": float(group.resolution),
        "detrend": spec.detrend,
        "dtype": group.dtype,
        "samples": spec.dtype,
        "device": group.device,
        "engine": group.engine,
        "decision": group.decision.as_json(),
        **epochs_entry(group),
        "channels": [
            {
                "name": name,
                "unit": group.units[channel],
                "power_unit": group.power_unit(group.units[channel]),
                "state": states[channel],
                "peaks": _peak_entries(group, channel),
            }
            for channel, name in enumerate(group.names)
        ],
    }


def _peak_entries(group: GroupResult, channel: int) -> list[RecordEntry]:
    peaks, entries = group.peaks, []
    for n in range(int(peaks.count[channel])):
        entry: RecordEntry = {
            "bin": int(peaks.bins[channel, n]),
            "hz": finite_or_none(peaks.hz[channel, n]),
            "power": finite_or_none(peaks.power[channel, n]),
        }
        if peaks.prominence is not None:
            entry["prominence"] = finite_or_none(peaks.prominence[channel, n])
        entries.append(entry)
    return entries


_NUMBER_TYPES = (int, float)
_ENTRY_SCHEMA: Schema = {
    "path": str,
    "format": str,
    "left_out": [{"channel": str, "reason": str}],
    "warnings": [str],
    "groups": [
        {
            "fs": _NUMBER_TYPES,
            "n_samples": int,
            "n_segments": int,
            "nperseg": int,
            "hop": int,
            "nfft": int,
            "hz_per_bin": _NUMBER_TYPES,
            "detrend": (str, type(None)),
            "dtype": str,
            "samples": str,
            "device": str,
            "engine": str,
            "decision": dict,
            "channels": [
                {
                    "name": str,
                    "unit": str,
                    "power_unit": str,
                    "state": str,
                    "peaks": [
                        {"bin": int, "hz": NUMBER_OR_NULL, "power": NUMBER_OR_NULL},
                    ],
                }
            ],
        }
    ],
    "wall_s": _NUMBER_TYPES,
    "stages": dict,
}
_EPOCHS_SCHEMA: Schema = {"condition": str, "n_epochs": int, "n_dropped": int}


def entry_problem(value: object) -> str:
    """Return why a value is not an entry of a file; "" if it is one."""
    problem = _schema_problem(value, _ENTRY_SCHEMA, "it")
    if problem:
        return problem
    assert isinstance(value, dict)
    for group in value["groups"]:
        if "epochs" in group:
            problem = _schema_problem(group["epochs"], _EPOCHS_SCHEMA, "its epochs")
        for channel in group["channels"]:
            for peak in channel["peaks"]:
                problem = problem or _schema_problem(
                    peak.get("prominence"), NUMBER_OR_NULL, "a peak"
                )
        if problem:
            return problem
    return ""


def _schema_problem(value: object, schema: Schema, label: str) -> str:
    """Return where a value differs from a schema; additional keys are allowed."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return f"{label} is {shown(value)}"
        for name, inner in schema.items():
            if name not in value:
                return f"{label} has no {name!r}"
            problem = _schema_problem(value[name], inner, f"its {name!r}")
            if problem:
                return problem
        return ""
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{label} are {shown(value)}"
        return next(
            filter(None, (_schema_problem(item, schema[0], label) for item in value)),
            "",
        )
    is_right = isinstance(value, schema) and not isinstance(value, bool)
    return "" if is_right else f"{label} is {shown(value)}"
