"""Files that belong to one recording: a header file and the files that it refers to.

Owns which belongs to which: in a folder by their names, for a recording by the header's
own words. Samples of BrainVision lie beside their header, those of EEGLAB may, and a
long FIF file goes on in others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from rlxweb.io.byte_source import open_source
from rlxweb.io.mne_file_validation import (
    check_brainvision_files,
    check_eeglab_files,
    check_fif_files,
)
from rlxweb.io.url_parsing_and_redaction import is_url

_HEADER_BY_SUFFIX = {
    ".eeg": (".vhdr", "the samples of a BrainVision recording"),
    ".vmrk": (".vhdr", "the markers of a BrainVision recording"),
    ".fdt": (".set", "the samples of an EEGLAB set"),
}
_HEADER_SUFFIXES = (".vhdr", ".set", ".fif", ".fif.gz")
# The first file of a split recording has no number, or 01 as BIDS has it.
_FIF_NAME = re.compile(r"(.*?)(-\d+)?(\.fif(?:\.gz)?)", re.IGNORECASE)
_SPLIT_FIF_NAME = re.compile(r"(.*_split-)(\d+)(_.*\.fif(?:\.gz)?)", re.IGNORECASE)


def find_header(name: str) -> tuple[str, str] | None:
    """Return the description and the header of a file that a header refers to; None for
    other files.
    """
    if is_url(name):
        return None
    stem, suffix = os.path.splitext(name)
    header_suffix, description = _HEADER_BY_SUFFIX.get(suffix.lower(), ("", ""))
    for header in (header_suffix, header_suffix.upper()):
        if header_suffix and os.path.isfile(stem + header):
            return description, stem + header
    return None


def is_companion(name: str, names: Collection[str]) -> bool:
    """Tell whether another file of the same folder refers to this file."""
    stem, suffix = os.path.splitext(name)
    header_suffix, _ = _HEADER_BY_SUFFIX.get(suffix.lower(), ("", ""))
    if header_suffix:
        return stem + header_suffix in names or stem + header_suffix.upper() in names
    split_match = _SPLIT_FIF_NAME.fullmatch(name)
    if split_match:
        first = f"{split_match[1]}{1:0{len(split_match[2])}}{split_match[3]}"
        return name != first and first in names
    fif_match = _FIF_NAME.fullmatch(name)
    return bool(fif_match and fif_match[2] and fif_match[1] + fif_match[3] in names)


def recording_files(path: str) -> tuple[str, ...]:
    """Return the files of one recording, its own first.

    The names are those that the header's reader follows, so that what is read and what
    is compared for a change are the same files. Those that are missing are left out.

    Raises
    ------
    RecordingError
        For a header that cannot be read, and for a name in it that leads elsewhere.
    """
    name = os.path.basename(path).lower()
    if not name.endswith(_HEADER_SUFFIXES):
        return (path,)
    source = open_source(path)
    try:
        if name.endswith(".vhdr"):
            companions = check_brainvision_files(source)
        elif name.endswith(".set"):
            companions = check_eeglab_files(source)
        elif source.read_head(2) == b"\x1f\x8b":
            companions = ()  # a packed file goes on in no other
        else:
            companions = check_fif_files(source)
    finally:
        source.close()
    return (path, *(companion for companion in companions if os.path.isfile(companion)))
