r"""Letters in pictures: which fonts have them, and names cut to the room there is.

matplotlib draws a box for a letter that its font lacks. The fonts of the machine are
asked for those letters; what none has is written out (`\u8133`), so that a name in a
picture can always be told from another, and the caller can say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlxweb.printable import abridged, printable

# Comes with matplotlib, so a picture looks the same everywhere.
_OURS = "DejaVu Sans"
# Has a sign for every letter there is: the box with its script's name in it.
_NO_LETTERS = ("Last Resort", "LastResort")
# Asked first: the fonts that have the letters of East Asia, as systems name them.
_LIKELY = ("CJK", "Sans", "Gothic", "Hei", "PingFang", "Unicode", "Unifont")


@dataclass(frozen=True, slots=True)
class Lettering:
    """The fonts of a picture, in the order they are asked, and letters none has."""

    families: tuple[str, ...]
    missing: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lettering:
        """Fonts for these texts, as far as the machine has them."""
        wanted = {c for text in texts for c in printable(text) if ord(c) > 127}
        families = []
        for family, path in _fonts():
            if not wanted:
                break
            has = _letters(path, wanted)
            if has:
                families.append(family)
                wanted -= has
        return cls((_OURS, *families), frozenset(wanted))

    def shown(self, name: str, most: int = 1 << 16) -> str:
        """The name in at most `most` characters, what cannot be drawn written out.

        As text, where matplotlib would take dollar signs for a formula.
        """
        out = abridged(name, most)
        for letter in self.missing.intersection(out):
            out = out.replace(letter, letter.encode("unicode_escape").decode("ascii"))
        return abridged(out, most).replace("$", r"\$")


LATIN = Lettering((_OURS,), frozenset())
"""For pictures whose words are all ours."""


def _fonts() -> list[tuple[str, str]]:
    """(family, file) of the machine's fonts, ours and the likely ones first."""
    from matplotlib.font_manager import fontManager

    plain = {
        (font.name, str(font.fname))
        for font in fontManager.ttflist
        if font.style == "normal" and not font.name.startswith(_NO_LETTERS)
    }
    files: dict[str, str] = {}
    for name, path in sorted(plain):
        files.setdefault(name, path)

    def rank(font: tuple[str, str]) -> tuple[bool, bool, str]:
        name = font[0]
        return name != _OURS, not any(word in name for word in _LIKELY), name

    return sorted(files.items(), key=rank)


def _letters(path: str, wanted: set[str]) -> set[str]:
    """Those of the wanted letters that the font has."""
    from matplotlib.ft2font import FT2Font

    try:
        font: Any = FT2Font(path)
    except (OSError, RuntimeError, TypeError):  # fonts of pictures cannot be loaded
        return set()
    return {letter for letter in wanted if font.get_char_index(ord(letter))}
