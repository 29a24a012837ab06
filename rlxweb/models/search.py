"""Semantic search: the passages of text files, and which of them a question is near.

Points of files that were embedded before, by the same model, are kept in the cache
folder and taken from there; a file that changed is embedded anew. Passages longer than
the model reads are cut between words, so that nothing of a file is passed over.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import whole
from rlxweb.calibration.cache_folder import cache_folder
from rlxweb.device import DeviceLike
from rlxweb.errors import UsageError
from rlxweb.models.documents import Passage, Unit, passages_of, shortened, words_of
from rlxweb.models.minilm import MiniLM
from rlxweb.whole_file import atomic_path

Array = npt.NDArray[Any]
Tell = Callable[[int, int], object]
FRAME = 2
"""Tokens that begin and end every text."""
_VERSION = "1"
_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a question is near; `score` is how alike they are, -1 to 1."""

    score: float
    passage: Passage


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """Passages and their points.

    points  (passages, width) float32, each of length 1
    cached  how many of the files were not embedded anew
    """

    model: MiniLM
    passages: tuple[Passage, ...]
    points: Array
    cached: int = 0

    @classmethod
    def build(
        cls,
        model: MiniLM,
        files: Sequence[str | os.PathLike[str]],
        unit: Unit = "paragraph",
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        cache: bool = True,
        tell: Tell | None = None,
    ) -> SearchIndex:
        """The index of text files.

        unit    what a passage is: "paragraph", "line" or "file"
        cache   False: nothing is taken from the cache folder and nothing is left there
        tell    hears (passages embedded, passages to embed)
        Errors  those of `passages_of` and of `MiniLM.embed`
        """
        found = [_cut(model, passages_of(file, unit)) for file in files]
        folder = _folder() if cache else None
        keys = [_key(model, one) for one in found]
        kept = [None if folder is None else _kept(folder / k, model) for k in keys]
        new = [at for at, points in enumerate(kept) if not _fits(points, found[at])]
        texts = [one.text for at in new for one in found[at]]
        made = model.embed(texts, device, adapter=adapter, tell=tell)
        parts: list[Array] = [np.empty((0, model.width), np.float32)]
        begin = 0
        for at, passages in enumerate(found):
            points = kept[at]
            if at in new or points is None:
                points = made[begin : begin + len(passages)]
                begin += len(passages)
                if folder is not None and passages:
                    _keep(folder / keys[at], points)
            parts.append(points)
        every = tuple(one for passages in found for one in passages)
        return cls(model, every, np.concatenate(parts), len(found) - len(new))

    def search(
        self,
        question: str,
        k: int = 10,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> list[Hit]:
        """The `k` passages nearest to a question, nearest first.

        Errors   UsageError for an empty question and k < 1; those of `MiniLM.embed`
        """
        doing = "search"
        count = whole("k", k, doing)
        if count < 1:
            raise UsageError(doing, f"k is {count}", "1 at least")
        if not isinstance(question, str) or not question.strip():
            raise UsageError(doing, "the question is empty", hint="ask something")
        point = self.model.embed([question], device, adapter=adapter)[0]
        scores = self.points @ point
        order = np.argsort(-scores, kind="stable")[:count]
        return [Hit(float(scores[at]), self.passages[at]) for at in order]


def _cut(model: MiniLM, passages: Sequence[Passage]) -> list[Passage]:
    """Passages that the model reads whole."""
    most = model.max_tokens - FRAME
    made: list[Passage] = []
    for one in passages:
        if len(model.tokens(one.text)) - FRAME <= most:
            made.append(one)
            continue
        lengths = [
            min(len(model.tokens(word)) - FRAME, most) for _, word in words_of(one.text)
        ]
        made += shortened(one, most, lengths)
    return made


# --- what is kept ---------------------------------------------------------------------


def _folder() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "embeddings"


def _key(model: MiniLM, passages: Sequence[Passage]) -> str:
    """By what the points follow from: the model's weights and every text."""
    digest = hashlib.sha256(f"{_VERSION} {model.max_tokens} ".encode())
    digest.update(model.fingerprint)
    for one in passages:
        text = one.text.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return f"{digest.hexdigest()}.npy"


def _kept(path: Path, model: MiniLM) -> Array | None:
    """The points that were kept; None where there are none that can be used."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        points: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None
    is_right = isinstance(points, np.ndarray) and points.dtype == np.float32
    if not is_right or points.ndim != 2 or points.shape[1] != model.width:
        return None
    return points if bool(np.isfinite(points).all()) else None


def _fits(points: Array | None, passages: Sequence[Passage]) -> bool:
    return points is not None and len(points) == len(passages)


def _keep(path: Path, points: Array) -> None:
    """Whole or not at all; where nothing can be kept the next run computes again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            np.save(temporary, points, allow_pickle=False)
    except OSError:  # a RecordingError is one
        return
