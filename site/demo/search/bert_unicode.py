"""General categories of characters as tokenizers of BERT's family know them.

Their tables are of Unicode 8 and the years before, and a model reads text as it was
split in training. Marks, punctuation and controls that are younger count as letters, so
the result does not depend on the Unicode tables of the Python that runs this.
"""

from __future__ import annotations

from functools import cache, lru_cache
from unicodedata import category

_YOUNGER_RANGES = """
    61d 7fd 890-891 897 898-89f 8ca-8e2 9fd-9fe a76 afa-aff b55 c04 c3c c77 c84 d00
    d3b-d3c d81 eba ece 180f 1885-1886 1abf-1ace 1b4e-1b4f 1b7d-1b7e 1b7f 1df6-1dfb
    2e43-2e4f 2e52-2e5d a82c a8c5 a8ff a9bd 10d24-10d27 10d69-10d6e 10eab-10ead
    10efc 10efd-10eff 10f46-10f50 10f55-10f59 10f82-10f89 11070 11073-11074 110c2
    110cd 111c9 111cf 1123e 11241 1133b 113bb-113c0 113ce-113e2 11438-1143f
    11442-11444 11446 1144b-1144f 1145a-1145b 1145d-1145e 11660-1166c 116b9
    1182f-11837 11839-1183b 1193b-1193c 1193e 11943-11946 119d4-119d7 119da-119db
    119e0 119e2 11a01-11a0a 11a33-11a38 11a3b-11a47 11a51-11a56 11a59-11a5b
    11a8a-11a96 11a98-11a9c 11a9e-11aa2 11b00-11b09 11be1 11c30-11c36 11c38-11c3d
    11c3f 11c41-11c45 11c70-11c71 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6
    11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97
    11ef3-11ef4 11ef7-11ef8 11f00-11f01 11f36-11f3a 11f40 11f42-11f4f 11f5a 11fff
    12ff1-12ff2 13430-13438 13439-13440 13447-13455 1611e-1612f 16d6d-16d6f
    16e97-16e9a 16f4f 16fe2 16fe4 1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018
    1e01b-1e021 1e023-1e024 1e026-1e02a 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef
    1e4ec-1e4ef 1e5ee-1e5ff 1e944-1e94a 1e95e-1e95f
"""
_FORMER_CATEGORIES = {"\u166d": "Po", "\u1734": "Mn", "\U000111c9": "Po"}
"""Characters whose category has changed since then."""


@cache
def _younger_codes() -> frozenset[int]:
    codes: set[int] = set()
    for part in _YOUNGER_RANGES.split():
        first, _, last = part.partition("-")
        codes |= set(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(codes)


@lru_cache(1 << 14)
def general_category(character: str) -> str:
    """Return the general category in two letters."""
    former = _FORMER_CATEGORIES.get(character)
    if former is not None:
        return former
    return "Lo" if ord(character) in _younger_codes() else category(character)
