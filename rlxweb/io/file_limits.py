"""Limits of all readers: how much a file may claim before it is refused.

A header is judged against these before anything is allocated for it, so that a small
file which claims to be a large one costs neither memory nor time. Messages name both
numbers; the manual's page on files lists them.
"""

from __future__ import annotations

UNPACKED_AT_ONCE_NBYTES = 64 << 20
"""Bytes to which a chunk, page or array of any file may be unpacked in memory."""

UNPACKED_AT_ONCE_RATIO = 16
"""Multiple of a larger file's size to which a chunk, page or array may be unpacked."""

DEFLATE_RATIO = 1032
"""Maximum number of bytes that deflate unpacks from one byte."""


def max_unpacked_nbytes(nbytes: int) -> int:
    """Return the number of bytes to which a file of this size may be unpacked in one
    piece of memory.
    """
    return max(UNPACKED_AT_ONCE_NBYTES, UNPACKED_AT_ONCE_RATIO * nbytes)


HDF5_UNWRITTEN_NBYTES = 1 << 30
"""Largest HDF5 array that may consist of chunks that were never written."""

HDF5_METADATA_NBYTES = 16 << 20
"""Largest array or attribute of HDF5 that describes the samples."""

HDF5_SEARCH_NBYTES = 32 << 20
"""Largest HDF5 file that is searched for its longest text."""

CHANNELS = 65_536
"""Maximum number of channels of a recording."""

MIN_HZ = 1e-15
"""Lowest sampling rate: a sample in 30 million years."""

MAX_HZ = 1e15
"""Highest sampling rate: a sample per femtosecond."""

NAME_CHARS = 1_000
"""Longest name of a channel or a unit."""

WAV_CHUNKS = 10_000
"""Maximum number of chunks of a WAV file before its samples."""

LINE_NBYTES = 1 << 20
"""Longest line of a CSV table."""

NPY_HEADER_CHARS = 10_000
"""Longest header of an NPY file; NumPy itself parses no longer one."""

ARCHIVE_INDEX_NBYTES = 1 << 20
"""Longest list of members of an NPZ file, which stands at its end."""

ARRAYS = 4_096
"""Maximum number of arrays of an NPZ file."""

CHUNK_NBYTES = 1 << 20
"""Number of bytes read or unpacked at a time from data that is compressed as a whole.
"""

UNPACKED_NBYTES = 2 << 30
"""Largest compressed array of an NPZ file, unpacked; a stored one is read in place."""

CHECKSUM_NBYTES = 2 << 30
"""Largest stored array of an NPZ file whose checksum is verified, by reading it."""

GAP_NBYTES = 1 << 30
"""Largest block of NaN that is allocated for the gaps of a recording."""

NPZ_METADATA_NBYTES = 1 << 20
"""Largest `fs`, `channels`, `units` or `begun` array of an NPZ file."""

ANNOTATIONS_NBYTES = 64 << 20
"""Largest `annotations` array of an NPZ file."""

HEADER_NBYTES = 16 << 20
"""Longest header of a BrainVision recording."""
