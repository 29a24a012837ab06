"""What a run remembers of a file it has done, as plain data: its part of the record.

All that the JSON record, the CSV table and the Parquet file say of a recording, and no
spectrum. It reads back from JSON as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from rlxweb.io.writers import finite
from rlxweb.jobs.epoching import COLUMNS, EpochsUsed
from rlxweb.jobs.results import Failure, FileResult, GroupResult
from rlxweb.results.ran import Stage

Entry: TypeAlias = dict[str, Any]


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
