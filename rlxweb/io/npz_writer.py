"""Write recordings as NPZ files block by block, with the metadata beside the samples.

Owns the names of the members, which `npz` reads. The samples lie in Fortran order, all
channels of one moment together, so that they can be written as they come.
"""

from __future__ import annotations

import zipfile
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.io.annotations import Annotation
from rlxweb.io.write_job import WriteJob, WrittenGroup, unchanged_group

_MAX_ANNOTATIONS_NBYTES: Final = 64 << 20
"""Largest table of annotations in bytes; the reader takes no more."""


def write_samples(file: IO[bytes], job: WriteJob) -> tuple[WrittenGroup, ...]:
    """Write the group as `samples` (C, T), `fs`, `channels` and `units`.

    And as `begun`, `date` and `annotations` what is known of them.
    """
    group = job.group
    metadata: dict[str, Any] = {
        "fs": np.float64(group.fs),
        "channels": np.array(group.names),
        "units": np.array([channel.unit for channel in group.channels]),
    }
    if job.begun is not None:
        metadata["begun"] = np.float64(job.begun)
    if job.date is not None:
        metadata["date"] = np.array(job.date.isoformat())
    if job.annotations:
        metadata["annotations"] = _annotation_table(job)
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in metadata.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)
        with archive.open("samples.npy", "w", force_zip64=True) as member:
            shape = len(group.channels), group.n_samples
            header = {"descr": group.dtype.str, "fortran_order": True, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            for _, data in job.blocks(group):
                member.write(np.ascontiguousarray(data.T, group.dtype).tobytes())
    return (unchanged_group(group),)


def _annotation_table(job: WriteJob) -> NDArray[Any]:
    """Return the annotations as a structured array; cut texts that would make it too
    large.
    """
    notes: list[Annotation] = list(job.annotations)
    longest = max(1, *(len(note.text) for note in notes))
    max_chars = max(1, (_MAX_ANNOTATIONS_NBYTES // len(notes) - 16) // 4)
    if longest > max_chars:
        n_cut = sum(len(note.text) > max_chars for note in notes)
        job.losses.append(
            f"{n_cut} annotations are truncated to {max_chars} characters"
        )
    fields = [
        ("onset", "f8"),
        ("duration", "f8"),
        ("text", f"U{min(longest, max_chars)}"),
    ]
    return np.array([tuple(note) for note in notes], np.dtype(fields))
