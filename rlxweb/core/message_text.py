"""Text of messages: hints that name arguments, near names, and foreign text made
printable.

A hint knows how an argument is spelled in Python and as an option of the command line.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import islice
from typing import Any
from unicodedata import category

# --- Hints that name arguments: as keywords in Python, as flags on the command line


class Blank(str):
    """Placeholder for a value that the reader has to fill in: `Blank("HZ")`.

    Also a value that is shown as it is written here.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Advice(str):
    """Hint that names arguments: text with one `{}` for each argument, in order.

    As a string it is written for Python; `as_flags` is the same for a command line.

    Example  str(Advice("give {}", fs=Blank("HZ"))) is "give fs=HZ"
    """

    __slots__ = ("arguments", "text")

    text: str
    arguments: dict[str, object]

    def __new__(cls, text: str, /, **arguments: object) -> Advice:
        advice = super().__new__(
            cls, text.format(*map(_format_keyword, arguments.items()))
        )
        advice.text, advice.arguments = text, arguments
        return advice

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.text,), self.arguments

    def before(self, argument: str, what: str) -> Advice:
        """Return the same advice with `what` to be done first: "use {what} and k=3".

        As it is where it does not name the argument.
        """
        if argument not in self.arguments:
            return self
        parts = self.text.split("{}")
        parts[list(self.arguments).index(argument)] += f"{what} and "
        return Advice("{}".join(parts), **self.arguments)

    @property
    def as_flags(self) -> str:
        """The advice with arguments written as command-line flags."""
        return self.text.format(*map(_format_flag, self.arguments.items()))


def _format_keyword(argument: tuple[str, object]) -> str:
    """Return an argument as a Python keyword: `fs=100`."""
    name, value = argument
    return f"{name}={value!r}"


def _format_flag(argument: tuple[str, object]) -> str:
    """Return an argument as a command-line flag: `--fs 100`."""
    from shlex import quote  # of no use in a tab

    name, value = argument
    if value is True:
        return f"--{name.replace('_', '-')}"
    parts = value if isinstance(value, tuple) else (value,)
    shown = ",".join(p if isinstance(p, Blank) else quote(str(p)) for p in parts)
    return f"--{name.replace('_', '-')} {shown}"


# --- Suggestions of known names for a misspelt one

_MAX_COMPARED_CHARS, _MAX_COMPARED_NAMES = 100, 2000


def did_you_mean(
    name: str, known: Iterable[str], most: int = 3, least: float = 0.6
) -> str:
    """Return a hint that names the nearest matches; "" when nothing is near.

    Upper and lower case are alike. Very long names, and what comes after the first
    thousands of them, are not compared: a hint is not worth seconds.

    most   how many are named
    least  how alike they must be (difflib's ratio, 0 to 1)
    """
    matches = near(name, known, most, least)
    return f"did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def near(
    name: str, known: Iterable[str], most: int = 3, least: float = 0.6
) -> list[str]:
    """Return the known names most similar to `name`, nearest first."""
    from difflib import get_close_matches  # of no use until something is wrong

    if len(name) > _MAX_COMPARED_CHARS:
        return []
    candidates = (
        candidate
        for candidate in islice(known, _MAX_COMPARED_NAMES)
        if len(candidate) <= _MAX_COMPARED_CHARS
    )
    folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = get_close_matches(name.casefold(), list(folded), most, least)
    return [folded[candidate] for candidate in matches]


# --- Escaping of foreign text, such as names in files and driver messages, for
# display
#
# Whoever writes a file chooses what is in it. A name may hold a terminal's escape
# sequences, a line break that forges a line of ours, or marks that turn the order of
# the letters round. Whatever shows such text, in a table, a title, a message or a
# page, shows it through `printable`. What is kept as data (NPZ, JSON) stays as it
# was.

# Control, format (bidi marks, zero width), surrogate, line and paragraph separators.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners are spelling in Persian, in Indic scripts and in pictures of people.
_VISIBLE_JOINERS = frozenset("\u200c\u200d")
ELLIPSIS = "…"
ESCAPE_ERROR_HANDLER = "rlxweb.escape"
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
