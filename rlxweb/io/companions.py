"""Files that are one recording together: a header, and what it leads to.

Owns which belongs to which: in a folder by their names, for a recording by the header's
own words. Samples of BrainVision lie beside their header, those of EEGLAB may, and a
long FIF file goes on in others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from rlxweb.io.before_mne import brainvision_files, eeglab_files, fif_files
from rlxweb.io.source import open_source
from rlxweb.io.urls import is_url

_LED_TO = {
    ".eeg": (".vhdr", "the samples of a BrainVision recording"),
    ".vmrk": (".vhdr", "the markers of a BrainVision recording"),
    ".fdt": (".set", "the samples of an EEGLAB set"),
}
_HEADERS = (".vhdr", ".set", ".fif", ".fif.gz")
# The first file of a split recording has no number, or 01 as BIDS has it.
_FIF = re.compile(r"(.*?)(-\d+)?(\.fif(?:\.gz)?)", re.IGNORECASE)
_SPLIT = re.compile(r"(.*_split-)(\d+)(_.*\.fif(?:\.gz)?)", re.IGNORECASE)


def pointed_to(name: str) -> tuple[str, str] | None:
    """What a file that a header leads to is, and that header; None for others."""
    if is_url(name):
        return None
    stem, suffix = os.path.splitext(name)
    own, what = _LED_TO.get(suffix.lower(), ("", ""))
    for header in (own, own.upper()):
        if own and os.path.isfile(stem + header):
            return what, stem + header
    return None


def is_part(name: str, names: Collection[str]) -> bool:
    """True for a file that another of the same folder leads to."""
    stem, suffix = os.path.splitext(name)
    own, _ = _LED_TO.get(suffix.lower(), ("", ""))
    if own:
        return stem + own in names or stem + own.upper() in names
    split = _SPLIT.fullmatch(name)
    if split:
        first = f"{split[1]}{1:0{len(split[2])}}{split[3]}"
        return name != first and first in names
    whole = _FIF.fullmatch(name)
    return bool(whole and whole[2] and whole[1] + whole[3] in names)


def files_of(path: str) -> tuple[str, ...]:
    """Return the files that one recording consists of, its own first.

    The names are those that the header's reader follows, so that what is read and what
    is compared for a change are the same files. Those that are missing are left out.

    Raises
    ------
    RecordingError
        For a header that cannot be read, and for a name in it that leads elsewhere.
    """
    name = os.path.basename(path).lower()
    if not name.endswith(_HEADERS):
        return (path,)
    source = open_source(path)
    try:
        if name.endswith(".vhdr"):
            others = brainvision_files(source)
        elif name.endswith(".set"):
            others = eeglab_files(source)
        elif source.head(2) == b"\x1f\x8b":
            others = ()  # a packed file goes on in no other
        else:
            others = fif_files(source)
    finally:
        source.close()
    return (path, *(one for one in others if os.path.isfile(one)))
