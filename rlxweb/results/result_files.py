"""Result files: NPZ for NumPy, Parquet for table programs.

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

from rlxweb.core.atomic_file import atomic_path, error_reason
from rlxweb.core.errors import RecordingError, RlxError, UsageError, shown
from rlxweb.core.safe_file_opening import open_regular_file
from rlxweb.cost.decision import Decision
from rlxweb.io.csv_json_npz import write_npz
from rlxweb.io.npz_arrays import read_npz_arrays
from rlxweb.io.parquet_tables import PARQUET_SUFFIX, read_schema_metadata, write_parquet
from rlxweb.results.labelled_arrays import LabelledArrays, to_long_table
from rlxweb.results.labels import Labels
from rlxweb.results.ran import Ran, Stage

SCHEMA: Final = "rlxweb.result/1"
_HEADER_KEY = "rlxweb_result"
_MAX_PARQUET_METADATA_NBYTES = 48 << 20
"""Maximum size in bytes of the arrays stored in a Parquet file's metadata."""

FilePath = str | os.PathLike[str]


class ResultState(NamedTuple):
    """Stored state of a result: arrays, and plain data for JSON."""

    arrays: Mapping[str, NDArray[Any]]
    json_data: Mapping[str, Any]


def labels_and_run_to_json(labels: Labels, ran: Ran) -> Mapping[str, Any]:
    """Return labels and run record as plain data, without objects of other
    libraries.
    """
    decision = None if ran.decision is None else ran.decision.as_json()
    return {
        "dims": labels.dims,
        "names": labels.names,
        "unit": labels.unit,
        "begins": labels.begins,
        "event": labels.event,
        "ran": {**ran._asdict(), "decision": decision},
    }


def labels_and_run_from_json(data: Mapping[str, Any]) -> tuple[Labels, Ran]:
    """Rebuild labels and run record from plain data."""
    _check_text_list("dims", data["dims"])
    for axis_names in data["names"]:
        if axis_names is not None:
            _check_text_list("names", axis_names)
    names = tuple(
        None if axis_names is None else tuple(axis_names)
        for axis_names in data["names"]
    )
    begins = data.get("begins", 0.0)
    run_data = data["ran"]
    for field, value, kind in (
        ("unit", data["unit"], str),
        ("begins", begins, int | float),
        ("engine", run_data["engine"], str),
        ("wall_s", run_data["wall_s"], int | float),
    ):
        check_field_type(field, value, kind)
    # Written before there was a word for it, only times of epochs began elsewhere.
    event = bool(data.get("event", begins != 0.0))
    dims, unit = tuple(data["dims"]), data["unit"]
    labels = Labels(dims, names, unit, begins=begins, event=event)
    decision = run_data["decision"] and Decision.of_json(run_data["decision"])
    stages = tuple(Stage(*entry) for entry in run_data.get("stages", ()))
    return labels, Ran(run_data["engine"], decision, run_data["wall_s"], stages)


def check_field_type(field: str, value: object, kind: Any) -> None:
    """Raise TypeError if a value read from a file has the wrong type."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{field} has the wrong type: {shown(value)}")


def _check_text_list(field: str, values: object) -> None:
    """Raise TypeError if a value is not a list of texts."""
    check_field_type(field, values, list)
    for value in cast(list[object], values):
        check_field_type(field, value, str)


def save_result(
    path: FilePath, kind: str, state: ResultState, labelled: LabelledArrays
) -> None:
    """Write a result to an NPZ or Parquet file, depending on the suffix of its name.

    Errors   UsageError for another suffix; Unsupported for Parquet without pyarrow;
             RecordingError when the file cannot be written.
    """
    suffix = _check_suffix(path, "saving a result")
    header = json.dumps({"schema": SCHEMA, "kind": kind, **state.json_data})
    arrays = {**state.arrays, _HEADER_KEY: np.array(header)}
    if suffix == ".npz":
        write_npz(path, **arrays)
        return
    nbytes = sum(np.asarray(array).nbytes for array in arrays.values())
    if nbytes > _MAX_PARQUET_METADATA_NBYTES:
        raise UsageError(
            f"saving {shown(os.fspath(path))}",
            f"the arrays of the result take {-(-nbytes >> 20)} MiB",
            "the metadata of a Parquet file can store at most "
            f"{_MAX_PARQUET_METADATA_NBYTES >> 20} MiB of arrays",
            "save the result as .npz",
        )
    packed = io.BytesIO()
    write_npz(packed, **arrays)
    note = base64.b64encode(packed.getvalue()).decode()
    table = to_long_table(labelled)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        metadata = {name: str(value) for name, value in labelled.metadata.items()}
        metadata[_HEADER_KEY] = note
        write_parquet(file, table.columns, [table.values], metadata)


def load_result(path: FilePath, kind: str) -> ResultState:
    """Read the state that `save_result` wrote; raise RecordingError for a damaged file,
    UsageError for another kind of result.
    """
    context = f"loading {shown(os.fspath(path))}"
    if _check_suffix(path, context) == ".npz":
        try:
            with open_regular_file(path) as file:
                state = _read_state(file, context)
        except OSError as error:
            raise RecordingError(
                context, f"the file cannot be read ({error})"
            ) from error
    else:
        note = read_schema_metadata(path, _HEADER_KEY, context)
        if note is None:
            raise RecordingError(context, "the file contains no rlxweb result")
        try:
            packed = base64.b64decode(note, validate=True)
        except ValueError as error:
            raise RecordingError(
                context, f"the file cannot be read ({error})"
            ) from error
        state = _read_state(io.BytesIO(packed), context)
    stored_kind = state.json_data.get("kind")
    if stored_kind != kind:
        raise UsageError(
            context,
            f"the file contains a {stored_kind}",
            f"expected a {kind}",
            f"use {stored_kind}.load",
        )
    return state


@contextmanager
def report_malformed_file(path: FilePath) -> Iterator[None]:
    """Turn errors caused by a malformed result file into a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(
            f"loading {shown(os.fspath(path))}",
            f"the file does not contain a valid result ({error_reason(error)})",
            "the file was modified, or written by another version of rlxweb",
        ) from error


def _read_state(source: IO[bytes], context: str) -> ResultState:
    """Read arrays and plain data from an NPZ stream."""
    try:
        arrays = read_npz_arrays(source)
        data = json.loads(str(arrays.pop(_HEADER_KEY)))
    except KeyError:
        raise RecordingError(context, "the file contains no rlxweb result") from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(context, f"the file cannot be read ({error})") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise RecordingError(
            context, "the file was written by another version of rlxweb"
        )
    return ResultState(arrays, data)


def _check_suffix(path: FilePath, context: str) -> str:
    """Return the suffix of a path; raise UsageError if it is not supported."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".npz", PARQUET_SUFFIX):
        raise UsageError(
            context, f"the suffix is {suffix!r}", f"expected .npz or {PARQUET_SUFFIX}"
        )
    return suffix
