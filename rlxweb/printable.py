"""Foreign text made fit to be shown: names of files and channels, words of drivers.

Whoever writes a file chooses what is in it. A name may hold a terminal's escape
sequences, a line break that forges a line of ours, or marks that turn the order of the
letters round. Whatever shows such text, in a table, a title, a message or a page, shows
it through `printable`. What is kept as data (NPZ, JSON) stays as it was.
"""

from __future__ import annotations

import codecs
from unicodedata import category

# Control, format (bidi marks, zero width), surrogate, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners are spelling in Persian, in Indic scripts and in pictures of people.
_SPELLING = frozenset("\u200c\u200d")
ELLIPSIS = "…"
WRITTEN_OUT = "rlxweb.written_out"
"""How a codec treats what it lacks, so that no two names look the same."""
# For our own signs.
_PLAIN = {"…": "...", "–": "-", "─": "-"}


def printable(text: str, keep: str = "") -> str:
    r"""`text` with what cannot be seen or would steer a terminal written out (`\x1b`).

    Letters of every script stay as they are, and so do the characters of `keep`.
    Bytes of a file name that are no text are shown as such (`\xe9`).
    """
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or not is_hidden(c) else _written_out(c) for c in text
    )


def is_hidden(character: str) -> bool:
    """Has the character no look of its own, or an effect on what stands beside it?"""
    if character in _SPELLING:
        return False
    return category(character) in _HIDDEN


def _written_out(character: str) -> str:
    at = ord(character)
    if 0xDC80 <= at <= 0xDCFF:  # a byte that os.fsdecode could not read
        return f"\\x{at - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def encodable(text: str, encoding: str) -> str:
    r"""`text` with the letters that an encoding lacks written out (`\u8111`)."""
    if encoding.startswith("utf"):
        return text
    return text.encode(encoding, WRITTEN_OUT).decode(encoding)


def _write_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacked = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or _written_out(c) for c in lacked), error.end


codecs.register_error(WRITTEN_OUT, _write_out)


def abridged(text: str, most: int) -> str:
    """`printable(text)` in at most `most` characters, the middle left out.

    Names that a machine made differ at their ends as often as at their beginnings.
    """
    shown = printable(text)
    if len(shown) <= most:
        return shown
    tail = (most - 1) // 2
    return shown[: most - 1 - tail] + ELLIPSIS + shown[len(shown) - tail :]
