"""Recordings as Parquet tables: a column for each channel, a row for each sample.

Owns what the schema says of them, which `open_recording` reads back; pyarrow itself is
the business of `parquet`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any, Final, get_args

import numpy as np

from rlxweb.errors import UsageError
from rlxweb.io.outgoing import Exactness, Outgoing, WrittenGroup, unchanged
from rlxweb.io.parquet import Column, Kind, Rows, write_parquet

_ROWS: Final = 1 << 16
_BLOCK_BYTES: Final = 64 << 20
"""Of a group of rows: so many are held to be packed."""


def write_columns(file: IO[bytes], going: Outgoing) -> tuple[WrittenGroup, ...]:
    """Write the group as a table with its rate, units and annotations in the schema."""
    group = going.group
    kind: Any = group.dtype.name
    if kind not in get_args(Kind):
        raise UsageError(going.doing, f"samples are {kind}", "Parquet has no such type")
    columns = [Column(c.name, kind, c.unit, "") for c in group.channels]
    about = {
        "recording": 1,
        "fs": float(group.fs),
        "units": {channel.name: channel.unit for channel in group.channels},
        "begun": going.begun,
        "date": None if going.date is None else going.date.isoformat(),
        "annotations": [list(note) for note in going.notes],
    }
    off = Exactness(len(columns))
    write_parquet(file, columns, _groups(going, off), {"rlxweb": json.dumps(about)})
    own = unchanged(group)
    channels = tuple(
        replace(channel, error=float(error))
        for channel, error in zip(own.channels, off.error, strict=True)
    )
    return (replace(own, channels=channels),)


def _groups(going: Outgoing, off: Exactness) -> Iterator[Rows]:
    """Walk the samples; `off` learns how far they are from what is read back.

    The file has integers of 64 bits as they are, and its readers take float64 of them,
    as `open_recording` does.
    """
    group = going.group
    rows = min(_ROWS, _BLOCK_BYTES // (8 * len(group.channels)))
    for block in group.blocks(max(1, rows)):
        if group.dtype.kind in "iu" and group.dtype.itemsize == 8:
            off.note(block.data, block.data.astype(np.float64))
        yield dict(zip(group.names, block.data, strict=True))
        going.step(block.data.size)
