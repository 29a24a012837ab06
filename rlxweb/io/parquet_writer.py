"""Writer for recordings as Parquet tables: one column per channel, one row per sample.

Owns what the schema says of them, which `open_recording` reads back; pyarrow itself is
the business of `parquet`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any, Final, get_args

import numpy as np

from rlxweb.core.errors import UsageError
from rlxweb.io.parquet_tables import (
    ColumnType,
    ColumnValues,
    TableColumn,
    write_parquet,
)
from rlxweb.io.write_job import (
    WriteErrorTracker,
    WriteJob,
    WrittenGroup,
    unchanged_group,
)

_MAX_GROUP_ROWS: Final = 1 << 16
_MAX_GROUP_NBYTES: Final = 64 << 20
"""Maximum size of a row group, which is held in memory to be compressed."""


def write_columns(file: IO[bytes], job: WriteJob) -> tuple[WrittenGroup, ...]:
    """Write the group as a table with its rate, units and annotations in the schema."""
    group = job.group
    type_name: Any = group.dtype.name
    if type_name not in get_args(ColumnType):
        raise UsageError(
            job.context,
            f"the samples have dtype {type_name}",
            "Parquet does not support this dtype",
        )
    columns = [TableColumn(c.name, type_name, c.unit, "") for c in group.channels]
    metadata = {
        "recording": 1,
        "fs": float(group.fs),
        "units": {channel.name: channel.unit for channel in group.channels},
        "begun": job.begun,
        "date": None if job.date is None else job.date.isoformat(),
        "annotations": [list(note) for note in job.annotations],
    }
    errors = WriteErrorTracker(len(columns))
    write_parquet(
        file, columns, _row_groups(job, errors), {"rlxweb": json.dumps(metadata)}
    )
    written_group = unchanged_group(group)
    channels = tuple(
        replace(channel, error=float(error))
        for channel, error in zip(written_group.channels, errors.max_error, strict=True)
    )
    return (replace(written_group, channels=channels),)


def _row_groups(job: WriteJob, errors: WriteErrorTracker) -> Iterator[ColumnValues]:
    """Yield the samples as row groups; record in `errors` how much they differ when
    read back.

    The file has integers of 64 bits as they are, and its readers take float64 of them,
    as `open_recording` does.
    """
    group = job.group
    max_rows = min(_MAX_GROUP_ROWS, _MAX_GROUP_NBYTES // (8 * len(group.channels)))
    for block in group.blocks(max(1, max_rows)):
        if group.dtype.kind in "iu" and group.dtype.itemsize == 8:
            errors.update(block.data, block.data.astype(np.float64))
        yield dict(zip(group.names, block.data, strict=True))
        job.report_progress(block.data.size)
