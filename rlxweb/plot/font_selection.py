r"""Font selection for plots, and row names escaped and shortened for drawing.

matplotlib draws a box for a letter that its font lacks. The fonts of the machine are
asked for those letters; what none has is written out (`\u8133`), so that a name in a
picture can always be told from another, and the caller can say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlxweb.core.message_text import abbreviate, printable

# Comes with matplotlib, so a picture looks the same everywhere.
_DEFAULT_FONT = "DejaVu Sans"
# Has a sign for every letter there is: the box with its script's name in it.
_PLACEHOLDER_FONTS = ("Last Resort", "LastResort")
# Asked first: the fonts that have the letters of East Asia, as systems name them.
_PREFERRED_NAME_PARTS = (
    "CJK",
    "Sans",
    "Gothic",
    "Hei",
    "PingFang",
    "Unicode",
    "Unifont",
)


@dataclass(frozen=True, slots=True)
class FontSelection:
    """Font families of a plot in the order of look-up, and the letters that none of
    them has.
    """

    families: tuple[str, ...]
    missing_letters: frozenset[str]

    @classmethod
    def for_texts(cls, texts: Iterable[str]) -> FontSelection:
        """Select fonts for these texts among those installed."""
        missing = {c for text in texts for c in printable(text) if ord(c) > 127}
        families = []
        for family, path in _installed_fonts():
            if not missing:
                break
            supported = _supported_letters(path, missing)
            if supported:
                families.append(family)
                missing -= supported
        return cls((_DEFAULT_FONT, *families), frozenset(missing))

    def drawable_text(self, name: str, max_chars: int = 1 << 16) -> str:
        """Return the name in at most `max_chars` characters, with letters that cannot
        be drawn escaped.

        As text, where matplotlib would take dollar signs for a formula.
        """
        text = abbreviate(name, max_chars)
        for letter in self.missing_letters.intersection(text):
            text = text.replace(letter, letter.encode("unicode_escape").decode("ascii"))
        return abbreviate(text, max_chars).replace("$", r"\$")


DEFAULT_FONTS = FontSelection((_DEFAULT_FONT,), frozenset())
"""Font selection for plots that contain only text of this package."""


def _installed_fonts() -> list[tuple[str, str]]:
    """Return (family, file) of the installed fonts, the default and the preferred ones
    first.
    """
    from matplotlib.font_manager import fontManager

    regular_fonts = {
        (font.name, str(font.fname))
        for font in fontManager.ttflist
        if font.style == "normal" and not font.name.startswith(_PLACEHOLDER_FONTS)
    }
    files: dict[str, str] = {}
    for name, path in sorted(regular_fonts):
        files.setdefault(name, path)

    def sort_key(font: tuple[str, str]) -> tuple[bool, bool, str]:
        """Return a key that sorts the default font first, then the preferred ones, then
        by name.
        """
        name = font[0]
        return (
            name != _DEFAULT_FONT,
            not any(word in name for word in _PREFERRED_NAME_PARTS),
            name,
        )

    return sorted(files.items(), key=sort_key)


def _supported_letters(path: str, wanted: set[str]) -> set[str]:
    """Return the wanted letters that the font has."""
    from matplotlib.ft2font import FT2Font

    try:
        font: Any = FT2Font(path)
    except (OSError, RuntimeError, TypeError):  # fonts of pictures cannot be loaded
        return set()
    return {letter for letter in wanted if font.get_char_index(ord(letter))}
