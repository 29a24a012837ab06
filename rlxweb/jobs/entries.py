"""What a run remembers of a file it has done, as plain data: its part of the record.

All that the JSON record, the CSV table and the Parquet file say of a recording, and no
spectrum. It reads back from JSON as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from rlxweb.errors import shown
from rlxweb.io.writers import finite
from rlxweb.jobs.epoching import COLUMNS, EpochsUsed
from rlxweb.jobs.results import Failure, FileResult, GroupResult
from rlxweb.results.ran import Stage

Entry: TypeAlias = dict[str, Any]
Schema: TypeAlias = "type | tuple[type, ...] | list[Any] | dict[str, Any]"
"""The types of plain data, of all that lies in a list by the first of it."""
MAYBE_NUMBER = (int, float, type(None))


def file_entry(result: FileResult) -> Entry:
    """The result of a file without its spectra."""
    return {
        "path": text_of(result.path),
        "format": result.format,
        "left_out": [{"channel": n, "reason": why} for n, why in result.left_out],
        "warnings": list(result.warnings),
        "groups": [_group(group) for group in result.groups],
        **ran_entry(result.wall_s, result.stages),
    }


class _Averaged(Protocol):
    @property
    def epochs(self) -> EpochsUsed | None: ...


def epochs_entry(group: _Averaged) -> Entry:
    """What is told of the epochs of a group; nothing without any."""
    return {} if group.epochs is None else {"epochs": group.epochs.as_json()}


def epochs_cells(group: Entry) -> tuple[Any, ...]:
    """What `epoching.COLUMNS` hold of a group of an entry; () without epochs."""
    own = group.get("epochs")
    return () if own is None else tuple(own[name] for name in COLUMNS)


def ran_entry(wall_s: float, stages: Sequence[Stage]) -> Entry:
    """How long a file took, and its parts."""
    return {"wall_s": wall_s, "stages": {stage.kind: stage.s for stage in stages}}


def failures_entry(failed: Sequence[Failure]) -> list[Entry]:
    """The recordings that could not be done, and why."""
    return [{"path": text_of(one.path), "error": one.error} for one in failed]


def text_of(path: str) -> str:
    r"""A path as text that every encoding can hold; bytes that are none as `\xe9`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _group(group: GroupResult) -> Entry:
    spec = group.spec
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
                "unit": group.units[at],
                "power_unit": group.power_unit(group.units[at]),
                "state": group.states[at],
                "peaks": _peaks(group, at),
            }
            for at, name in enumerate(group.names)
        ],
    }


def _peaks(group: GroupResult, at: int) -> list[Entry]:
    peaks, out = group.peaks, []
    for n in range(int(peaks.count[at])):
        one: Entry = {
            "bin": int(peaks.bins[at, n]),
            "hz": finite(peaks.hz[at, n]),
            "power": finite(peaks.power[at, n]),
        }
        if peaks.prominence is not None:
            one["prominence"] = finite(peaks.prominence[at, n])
        out.append(one)
    return out


_NUMBER = (int, float)
_ENTRY: Schema = {
    "path": str,
    "format": str,
    "left_out": [{"channel": str, "reason": str}],
    "warnings": [str],
    "groups": [
        {
            "fs": _NUMBER,
            "n_samples": int,
            "n_segments": int,
            "nperseg": int,
            "hop": int,
            "nfft": int,
            "hz_per_bin": _NUMBER,
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
                        {"bin": int, "hz": MAYBE_NUMBER, "power": MAYBE_NUMBER},
                    ],
                }
            ],
        }
    ],
    "wall_s": _NUMBER,
    "stages": dict,
}
_EPOCHS: Schema = {"condition": str, "n_epochs": int, "n_dropped": int}


def entry_problem(found: object) -> str:
    """Return what keeps a value from being an entry of a file; "" for an entry."""
    why = _problem(found, _ENTRY, "it")
    if why:
        return why
    assert isinstance(found, dict)
    for group in found["groups"]:
        if "epochs" in group:
            why = _problem(group["epochs"], _EPOCHS, "its epochs")
        for channel in group["channels"]:
            for peak in channel["peaks"]:
                why = why or _problem(peak.get("prominence"), MAYBE_NUMBER, "a peak")
        if why:
            return why
    return ""


def _problem(found: object, schema: Schema, what: str) -> str:
    """Return where a value differs from a schema; what a schema lacks may be there."""
    if isinstance(schema, dict):
        if not isinstance(found, dict):
            return f"{what} is {shown(found)}"
        for name, inner in schema.items():
            if name not in found:
                return f"{what} has no {name!r}"
            why = _problem(found[name], inner, f"its {name!r}")
            if why:
                return why
        return ""
    if isinstance(schema, list):
        if not isinstance(found, list):
            return f"{what} are {shown(found)}"
        return next(filter(None, (_problem(one, schema[0], what) for one in found)), "")
    is_right = isinstance(found, schema) and not isinstance(found, bool)
    return "" if is_right else f"{what} is {shown(found)}"
