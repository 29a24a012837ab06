"""Files that are one recording together: a header, and what it leads to.

Owns which belongs to which, by name, and for BrainVision by the header's own words.
Samples of BrainVision lie beside their header, those of EEGLAB may, and a long FIF file
goes on in others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from rlxweb.io.urls import is_url

_LED_TO = {
    ".eeg": (".vhdr", "the samples of a BrainVision recording"),
    ".vmrk": (".vhdr", "the markers of a BrainVision recording"),
    ".fdt": (".set", "the samples of an EEGLAB set"),
}
_IN_HEADER = re.compile(rb"^\s*(?:DataFile|MarkerFile)\s*=\s*([^\r\n]+)", re.MULTILINE)
_HEADER_NBYTES = 1 << 16
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


def led_to(path: str) -> tuple[str, ...]:
    """The files on this machine that are a part of this one, in order."""
    name = os.path.basename(path).lower()
    if name.endswith(".vhdr"):
        found = _of_brainvision(path)
    elif name.endswith(".set"):
        found = iter([os.path.splitext(path)[0] + ".fdt"])
    elif name.endswith((".fif", ".fif.gz")):
        found = _of_fif(path)
    else:
        return ()
    return tuple(sorted({one for one in found if os.path.isfile(one)}))


def _of_brainvision(path: str) -> Iterator[str]:
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEADER_NBYTES)
    except (OSError, ValueError):
        return
    folder, stem = os.path.split(os.path.splitext(path)[0])
    for match in _IN_HEADER.finditer(head):
        said = match[1].decode("utf-8", "replace").strip().replace("$b", stem)
        if "\0" not in said:
            yield os.path.join(folder, os.path.basename(said.replace("\\", "/")))


def _of_fif(path: str) -> Iterator[str]:
    folder, name = os.path.split(path)
    split = _SPLIT.fullmatch(name)
    whole = _FIF.fullmatch(name)
    at = 1
    while True:
        if split:
            next_name = f"{split[1]}{int(split[2]) + at:0{len(split[2])}}{split[3]}"
        elif whole:
            next_name = f"{whole[1]}{whole[2] or ''}-{at}{whole[3]}"
        else:
            return
        found = os.path.join(folder, next_name)
        if not os.path.isfile(found):
            return
        yield found
        at += 1
