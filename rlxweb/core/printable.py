"""Escaping of foreign text, such as names in files and driver messages, for display.

Whoever writes a file chooses what is in it. A name may hold a terminal's escape
sequences, a line break that forges a line of ours, or marks that turn the order of the
letters round. Whatever shows such text, in a table, a title, a message or a page, shows
it through `printable`. What is kept as data (NPZ, JSON) stays as it was.
"""

from __future__ import annotations

import codecs
from unicodedata import category

# Control, format (bidi marks, zero width), surrogate, line and paragraph separators.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners are spelling in Persian, in Indic scripts and in pictures of people.
_VISIBLE_JOINERS = frozenset("\u200c\u200d")
ELLIPSIS = "…"
ESCAPE_ERROR_HANDLER = "rlxweb.written_out"
"""Name of the codec error handler that escapes missing characters, so that no two names
look the same.
"""
# For our own signs.
_ASCII_FALLBACKS = {"…": "...", "–": "-", "─": "-"}


def printable(text: str, keep: str = "") -> str:
    r"""Return `text` with invisible and terminal control characters escaped (`\x1b`).

    Letters of every script stay as they are, and so do the characters of `keep`.
    Bytes of a file name that are no text are shown as such (`\xe9`).
    """
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or not is_hidden(c) else _escape_character(c) for c in text
    )


def is_hidden(character: str) -> bool:
    """Return whether a character is invisible or changes how its neighbours are
    displayed.
    """
    if character in _VISIBLE_JOINERS:
        return False
    return category(character) in _HIDDEN_CATEGORIES


def _escape_character(character: str) -> str:
    """Return the escape sequence of a character."""
    code_point = ord(character)
    if 0xDC80 <= code_point <= 0xDCFF:  # a byte that os.fsdecode could not read
        return f"\\x{code_point - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def escape_unencodable(text: str, encoding: str) -> str:
    r"""Return `text` with the characters that an encoding lacks escaped (`\u8111`)."""
    if encoding.startswith("utf"):
        return text
    return text.encode(encoding, ESCAPE_ERROR_HANDLER).decode(encoding)


def _handle_encode_error(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error by escaping the characters."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unencodable = error.object[error.start : error.end]
    return "".join(
        _ASCII_FALLBACKS.get(c) or _escape_character(c) for c in unencodable
    ), error.end


codecs.register_error(ESCAPE_ERROR_HANDLER, _handle_encode_error)


def abbreviate(text: str, max_length: int) -> str:
    """Return `printable(text)` in at most `max_length` characters, the middle left out.

    Names that a machine made differ at their ends as often as at their beginnings.
    """
    visible = printable(text)
    if len(visible) <= max_length:
        return visible
    tail = (max_length - 1) // 2
    return visible[: max_length - 1 - tail] + ELLIPSIS + visible[len(visible) - tail :]
