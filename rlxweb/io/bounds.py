"""What a file may ask for before it is refused: the limits of all readers.

A header is judged against these before anything is allocated for it, so that a small
file which claims to be a large one costs neither memory nor time. Messages name both
numbers; the manual's page on files lists them.
"""

from __future__ import annotations

UNPACKED_AT_ONCE_NBYTES = 64 << 20
"""A chunk, page or array of any file may unpack to so many bytes, which are held."""

UNPACKED_AT_ONCE_RATIO = 16
"""A chunk, page or array may unpack to so many times the size of a larger file."""

DEFLATE_RATIO = 1032
"""Most bytes that deflate makes of one."""


def unpacked_at_once(nbytes: int) -> int:
    """Return how much a file of so many bytes may unpack to in one piece of memory."""
    return max(UNPACKED_AT_ONCE_NBYTES, UNPACKED_AT_ONCE_RATIO * nbytes)


UNWRITTEN_NBYTES = 1 << 30
"""An array of HDF5 up to this size may consist of parts that were never written."""

BESIDE_NBYTES = 16 << 20
"""Largest array or attribute of HDF5 that says something about the samples."""

SEARCHED_NBYTES = 32 << 20
"""An HDF5 file up to this size is searched for its longest text."""

CHANNELS = 65_536
"""Most channels of a recording."""

LEAST_HZ = 1e-15
"""Lowest sampling rate: a sample in 30 million years."""

MOST_HZ = 1e15
"""Highest sampling rate: a sample per femtosecond."""

NAME_CHARS = 1_000
"""Longest name of a channel or a unit."""

WAV_CHUNKS = 10_000
"""Most chunks of a WAV file before its samples."""

LINE_NBYTES = 1 << 20
"""Longest line of a CSV table."""

NPY_HEADER_CHARS = 10_000
"""Longest header of an NPY file; NumPy itself parses no longer one."""

ARCHIVE_INDEX_NBYTES = 1 << 20
"""Longest list of members of an NPZ file, which stands at its end."""

ARRAYS = 4_096
"""Most arrays of an NPZ file."""

PIECE_NBYTES = 1 << 20
"""Read or unpacked at once of what is packed as a whole."""

UNPACKED_NBYTES = 2 << 30
"""Largest compressed array of an NPZ file, unpacked; a stored one is read in place."""

SUMMED_NBYTES = 2 << 30
"""Largest stored array of an NPZ file whose checksum is compared, by reading it."""

GAP_NBYTES = 1 << 30
"""Most NaN that is made at once for the gaps of a recording."""

NOTE_NBYTES = 1 << 20
"""Largest `fs`, `channels`, `units` or `begun` beside the array of an NPZ file."""

ANNOTATIONS_NBYTES = 64 << 20
"""Largest `annotations` beside the array of an NPZ file."""

HEADER_NBYTES = 16 << 20
"""Longest header of a BrainVision recording."""
