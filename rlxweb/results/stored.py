"""Results as files: NPZ that NumPy reads, Parquet that every table program reads.

A file holds all of a result, to the last bit. In Parquet the rows are the table; what a
table has no place for travels in the file's metadata, which other programs pass over.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rlxweb.decision.decision import Decision
from rlxweb.errors import RecordingError, RlxError, UsageError, shown
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.io.parquet import SUFFIX, read_note, write_parquet
from rlxweb.io.writers import write_npz
from rlxweb.named_files import open_regular
from rlxweb.results.labels import Labels
from rlxweb.results.ran import Ran, Stage
from rlxweb.results.tables import Labelled, table_of
from rlxweb.whole_file import atomic_path, reason

SCHEMA: Final = "rlxweb.result/1"
_HEADER = "rlxweb_result"
_MOST = 48 << 20
"""Bytes of arrays that a Parquet file's metadata takes."""

Path_ = str | os.PathLike[str]


class State(NamedTuple):
    """What a result is made of: arrays, and plain data for JSON."""

    arrays: Mapping[str, NDArray[Any]]
    plain: Mapping[str, Any]


def plain_of(labels: Labels, ran: Ran) -> Mapping[str, Any]:
    """Both as plain data; what belongs to another library is left out."""
    decision = None if ran.decision is None else ran.decision.as_json()
    return {
        "dims": labels.dims,
        "names": labels.names,
        "unit": labels.unit,
        "begins": labels.begins,
        "event": labels.event,
        "ran": {**ran._asdict(), "decision": decision},
    }


def of_plain(plain: Mapping[str, Any]) -> tuple[Labels, Ran]:
    """Back again."""
    _check_texts("dims", plain["dims"])
    for own in plain["names"]:
        if own is not None:
            _check_texts("names", own)
    names = tuple(None if own is None else tuple(own) for own in plain["names"])
    begins = plain.get("begins", 0.0)
    told = plain["ran"]
    for what, value, kind in (
        ("unit", plain["unit"], str),
        ("begins", begins, int | float),
        ("engine", told["engine"], str),
        ("wall_s", told["wall_s"], int | float),
    ):
        check_kind(what, value, kind)
    # Written before there was a word for it, only times of epochs began elsewhere.
    event = bool(plain.get("event", begins != 0.0))
    dims, unit = tuple(plain["dims"]), plain["unit"]
    labels = Labels(dims, names, unit, begins=begins, event=event)
    decision = told["decision"] and Decision.of_json(told["decision"])
    stages = tuple(Stage(*one) for one in told.get("stages", ()))
    return labels, Ran(told["engine"], decision, told["wall_s"], stages)


def check_kind(what: str, value: object, kind: Any) -> None:
    """Raise TypeError for a value of a file that is of another type than it has."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{what} is {shown(value)}")


def _check_texts(what: str, values: object) -> None:
    check_kind(what, values, list)
    for one in cast(list[object], values):
        check_kind(what, one, str)


def save(path: Path_, kind: str, state: State, own: Labelled) -> None:
    """Write a result to an NPZ or Parquet file, by the suffix of its name.

    Errors   UsageError for another suffix; Unsupported for Parquet without pyarrow;
             RecordingError when the file cannot be written.
    """
    suffix = _suffix(path, "saving a result")
    header = json.dumps({"schema": SCHEMA, "kind": kind, **state.plain})
    arrays = {**state.arrays, _HEADER: np.array(header)}
    if suffix == ".npz":
        write_npz(path, **arrays)
        return
    nbytes = sum(np.asarray(one).nbytes for one in arrays.values())
    if nbytes > _MOST:
        raise UsageError(
            f"saving {shown(os.fspath(path))}",
            f"the result has {nbytes >> 20} MiB",
            f"beside its table a Parquet file takes {_MOST >> 20} MiB",
            "save it as .npz",
        )
    packed = io.BytesIO()
    write_npz(packed, **arrays)
    note = base64.b64encode(packed.getvalue()).decode()
    table = table_of(own)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        about = {name: str(value) for name, value in own.about.items()}
        about[_HEADER] = note
        write_parquet(file, table.columns, [table.values], about)


def load(path: Path_, kind: str) -> State:
    """What `save` wrote. Errors  RecordingError; UsageError for another kind's file."""
    doing = f"loading {shown(os.fspath(path))}"
    if _suffix(path, doing) == ".npz":
        try:
            with open_regular(path) as file:
                state = _unpacked(file, doing)
        except OSError as error:
            raise RecordingError(doing, f"it cannot be read ({error})") from error
    else:
        note = read_note(path, _HEADER, doing)
        if note is None:
            raise RecordingError(doing, "no result of rlxweb is in the file")
        try:
            packed = base64.b64decode(note, validate=True)
        except ValueError as error:
            raise RecordingError(doing, f"it cannot be read ({error})") from error
        state = _unpacked(io.BytesIO(packed), doing)
    found = state.plain.get("kind")
    if found != kind:
        raise UsageError(
            doing, f"it holds a {found}", f"a {kind} is wanted", f"use {found}.load"
        )
    return state


@contextmanager
def foreign(path: Path_) -> Iterator[None]:
    """Turn what a result of another form leads to into a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(
            f"loading {shown(os.fspath(path))}",
            f"it does not hold what a result is made of ({reason(error)})",
            "the file was changed, or another version wrote it",
        ) from error


def _unpacked(source: IO[bytes], doing: str) -> State:
    try:
        arrays = read_npz_arrays(source)
        plain = json.loads(str(arrays.pop(_HEADER)))
    except KeyError:
        raise RecordingError(doing, "no result of rlxweb is in the file") from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(doing, f"it cannot be read ({error})") from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise RecordingError(doing, "it was written by another version of rlxweb")
    return State(arrays, plain)


def _suffix(path: Path_, doing: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in (".npz", SUFFIX):
        raise UsageError(
            doing, f"the suffix is {suffix!r}", f"known: .npz and {SUFFIX}"
        )
    return suffix
