"""Recordings as NPZ files, block by block: samples as they are, and what is beside.

Owns the names of the members, which `npz` reads. The samples lie in Fortran order, all
channels of one moment together, so that they can be written as they come.
"""

from __future__ import annotations

import zipfile
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.io.annotations import Annotation
from rlxweb.io.outgoing import Outgoing, WrittenGroup, unchanged

_MOST_NOTES: Final = 64 << 20
"""Bytes of the annotations' table: more are not read."""


def write_samples(file: IO[bytes], going: Outgoing) -> tuple[WrittenGroup, ...]:
    """Write the group as `samples` (C, T), `fs`, `channels` and `units`.

    And as `begun`, `date` and `annotations` what is known of them.
    """
    group = going.group
    beside: dict[str, Any] = {
        "fs": np.float64(group.fs),
        "channels": np.array(group.names),
        "units": np.array([channel.unit for channel in group.channels]),
    }
    if going.begun is not None:
        beside["begun"] = np.float64(going.begun)
    if going.date is not None:
        beside["date"] = np.array(going.date.isoformat())
    if going.notes:
        beside["annotations"] = _table(going)
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in beside.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)
        with archive.open("samples.npy", "w", force_zip64=True) as member:
            shape = len(group.channels), group.n_samples
            head = {"descr": group.dtype.str, "fortran_order": True, "shape": shape}
            np.lib.format.write_array_header_1_0(member, head)
            for _, data in going.blocks(group):
                member.write(np.ascontiguousarray(data.T, group.dtype).tobytes())
    return (unchanged(group),)


def _table(going: Outgoing) -> NDArray[Any]:
    """The annotations as rows; a text that makes the table too large is cut."""
    notes: list[Annotation] = list(going.notes)
    longest = max(1, *(len(one.text) for one in notes))
    most = max(1, (_MOST_NOTES // len(notes) - 16) // 4)
    if longest > most:
        cut = sum(len(one.text) > most for one in notes)
        going.lost.append(f"{cut} annotations are cut to {most} characters")
    kind = [("onset", "f8"), ("duration", "f8"), ("text", f"U{min(longest, most)}")]
    return np.array([tuple(one) for one in notes], np.dtype(kind))
