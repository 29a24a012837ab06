"""Result files: CSV rows, NPZ arrays, the JSON record. Written whole or not at all.

Owns their columns, names and the schema, and the look at every output path before the
work begins: hours of averaging must not end at a folder that is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from rlxweb.cli.job import FileResult, GroupResult, Settings
from rlxweb.cli.record import document, finite, versions
from rlxweb.errors import UsageError
from rlxweb.io import atomic_path, write_csv, write_json, write_npz

SCHEMA = "rlxweb.welch/1"
_OF_PEAK = ("bin", "hz", "power", "prominence")
COLUMNS = ("file", "channel", "unit", "fs", "rank", *_OF_PEAK, "device")


class _OnlyLooking(Exception):
    """Leaves `atomic_path` before anything is renamed."""


def check_outputs(
    inputs: Sequence[str], outputs: Iterable[tuple[str, str | None]]
) -> None:
    """Refuse outputs that cannot be written, or that would overwrite something asked.

    outputs   (option, path), None where not asked for; the JSON record may be "-",
              standard output
    Errors    UsageError for two outputs of one name, an input named as output, or a "-"
              that is not JSON; RecordingError where nothing can be written.
    """
    seen = {os.path.realpath(path): f"the recording {path!r}" for path in inputs}
    for option, path in outputs:
        if path is None:
            continue
        if path == "-":
            if option != "--json":
                raise UsageError(f"{option} -", "only --json writes to standard output")
            continue
        place = os.path.realpath(path)
        if place in seen:
            raise UsageError(
                f"{option} {path!r}",
                f"it names {seen[place]}",
                "every output is a file of its own",
                "choose another name",
            )
        seen[place] = f"the file of {option}"
        with suppress(_OnlyLooking), atomic_path(path):
            raise _OnlyLooking


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


def save_json(path: str, results: Sequence[FileResult], settings: Settings) -> None:
    """The run record: settings, versions, decisions and every peak, as UTF-8."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if path == "-" and reconfigure is not None:
        reconfigure(encoding="utf-8")
    said = asdict(settings)
    files = [
        {
            "path": _text(result.path),
            "format": result.format,
            "left_out": [{"channel": n, "reason": why} for n, why in result.left_out],
            "groups": [_group_json(group) for group in result.groups],
        }
        for result in results
    ]
    write_json(path, document(SCHEMA, versions=versions(), settings=said, files=files))


def save_csv(path: str, results: Sequence[FileResult]) -> None:
    """One line per peak, strongest first in each channel."""
    write_csv(path, COLUMNS, _rows(results))


def _rows(results: Sequence[FileResult]) -> Iterator[tuple[Any, ...]]:
    for result in results:
        for group in result.groups:
            for at, name in enumerate(group.names):
                where = _text(result.path), name, group.units[at], group.fs
                for rank, peak in enumerate(_peaks(group, at), 1):
                    found = (peak.get(column, "") for column in _OF_PEAK)
                    yield *where, rank, *found, group.device


def save_npz(path: str, results: Sequence[FileResult]) -> None:
    """Arrays per group, prefixed `f0_g0_` only when there is more than one group."""
    arrays: dict[str, Any] = {}
    many = sum(len(r.groups) for r in results) > 1
    for f, result in enumerate(results):
        for g, group in enumerate(result.groups):
            head = f"f{f}_g{g}_" if many else ""
            for name, value in _arrays(result, group).items():
                arrays[head + name] = value
    write_npz(path, **arrays)


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
