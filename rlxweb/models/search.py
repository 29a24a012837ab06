"""Semantic search: the passages of text files, and which of them a question is near.

Points of files that were embedded before, by the same model, are kept in the cache
folder and taken from there; a file that changed is embedded anew. Passages longer than
the model reads are cut into several, so that nothing of a file is passed over.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import whole
from rlxweb.calibration.cache_folder import cache_folder, regular_file
from rlxweb.device import DeviceLike
from rlxweb.errors import UsageError
from rlxweb.given import named
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.models.documents import Passage, Unit, names_of, passages_of, shortened
from rlxweb.models.minilm import MiniLM, Tell
from rlxweb.whole_file import atomic_path

Array = npt.NDArray[Any]
_DOING = "search"
FRAME = 2
"""Tokens that begin and end every text."""
_VERSION = "2"


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a question is near; `score` is how alike they are, -1 to 1."""

    score: float
    passage: Passage


@dataclass(frozen=True, slots=True, eq=False)
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
        there = device, adapter
        return drive(cls._built(model, files, unit, there, cache, tell))

    @classmethod
    async def build_async(
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
        """`build` beside the caller's event loop."""
        there = device, adapter
        return await awaited_here(
            lambda: cls._built(model, files, unit, there, cache, tell)
        )

    @classmethod
    async def _built(
        cls,
        model: MiniLM,
        files: Sequence[str | os.PathLike[str]],
        unit: Unit,
        there: tuple[DeviceLike | None, str],
        cache: bool,
        tell: Tell | None,
    ) -> SearchIndex:
        found = [_cut(model, passages_of(file, unit)) for file in names_of(files)]
        folder = _folder() if cache else None
        paths = [None if folder is None else folder / _key(model, p) for p in found]
        kept = [
            None if path is None else _kept(path, (len(passages), model.width))
            for path, passages in zip(paths, found, strict=True)
        ]
        new = [at for at, points in enumerate(kept) if points is None]
        texts = [one.text for at in new for one in found[at]]
        device, adapter = there
        made = await model.embedded(texts, device, adapter, tell)
        parts: list[Array] = [np.empty((0, model.width), np.float32)]
        begin = 0
        for path, passages, points in zip(paths, found, kept, strict=True):
            if points is None:
                points = made[begin : begin + len(passages)]
                begin += len(passages)
                if path is not None and passages:
                    _keep(path, points)
            parts.append(points)
        every = tuple(one for passages in found for one in passages)
        return cls(model, every, np.concatenate(parts), len(found) - len(new))

    def __repr__(self) -> str:
        return f"SearchIndex({len(self.passages):,} passages, {self.model!r})"

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
        return drive(self._found(question, k, (device, adapter)))

    async def search_async(
        self,
        question: str,
        k: int = 10,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> list[Hit]:
        """`search` beside the caller's event loop."""
        return await awaited_here(lambda: self._found(question, k, (device, adapter)))

    async def _found(
        self, question: str, k: int, there: tuple[DeviceLike | None, str]
    ) -> list[Hit]:
        count = whole("k", k, _DOING)
        if count < 1:
            raise UsageError(_DOING, f"k is {count}", "1 at least")
        check_question(question)
        device, adapter = there
        points = await self.model.embedded([question], device, adapter)
        scores = self.points @ points[0]
        order = np.argsort(-scores, kind="stable")[:count]
        return [Hit(float(scores[at]), self.passages[at]) for at in order]


def check_question(question: object) -> None:
    """Errors  UsageError for an empty one, and for what is no text."""
    if not isinstance(question, str):
        problem = f"the question is {named(question)}"
        raise UsageError(_DOING, problem, "a text is wanted")
    if not question.strip():
        raise UsageError(_DOING, "the question is empty", hint="ask something")


def _cut(model: MiniLM, passages: Sequence[Passage]) -> list[Passage]:
    """Passages that the model reads whole."""
    most = model.max_tokens - FRAME

    def size_of(text: str) -> int:
        return len(model.tokens(text)) - FRAME

    made: list[Passage] = []
    for one in passages:
        fits = size_of(one.text) <= most
        made += [one] if fits else shortened(one, most, size_of)
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
    return f"{digest.hexdigest()}.f32"


def _kept(path: Path, shape: tuple[int, int]) -> Array | None:
    """The points that were kept; None where there are none that can be used."""
    try:
        raw = regular_file(path, 4 * math.prod(shape))
        if raw is None:
            return None
        points = np.frombuffer(raw, "<f4").reshape(shape).astype(np.float32)
    except (OSError, ValueError):  # the latter where it is of another size
        return None
    lengths = np.linalg.norm(points, axis=1)
    return points if bool((abs(lengths - 1) < 1e-3).all()) else None


def _keep(path: Path, points: Array) -> None:
    """Whole or not at all; where nothing can be kept the next run computes again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, follow_link=False) as temporary:
            temporary.write_bytes(points.astype("<f4").tobytes())
    except OSError:  # a RecordingError is one
        return
