"""The encoder of sentences: right against float64, whatever their number and length."""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import ModelError
from rlxweb.runtime import bindings
from rlxweb.runtime.varying import CompiledVarying
from tests.unit.examples import tiny
from tests.unit.examples.programs import module

minilm = module("examples/minilm")
wordpiece = module("demo/search/wordpiece")
general_category = module("demo/search/bert_unicode").general_category

TEXTS = [
    "the cat sat on a mat.",
    "",
    "cats!",
    "a " * 25,
    "unable matter, the CAFÉ",
    "東 zebra",
    "the mat " * 12,
]
TOKENIZER = wordpiece.WordPiece(tiny.TOKENIZER)
LONGEST = 32


def compiled(device: str = "cpu", **changes: Any) -> rlx.CompiledGraph:
    """The encoder with the weights of a file."""
    graph = minilm.encoder_graph(tiny.CONFIG)
    raw = tiny.files(**changes)["model.safetensors"]
    made = rlx.Session(device).compile(graph)
    weights = rlx.load_weights(graph, raw, rename=minilm.UNUSED, convert=True)
    for name, weight in weights.items():
        made.set_param(name, weight)
    return made


def embed(texts: list[str], encoder: rlx.CompiledGraph) -> Any:
    ids = [TOKENIZER.encode(text) for text in texts]
    vectors = np.zeros((len(texts), 12), np.float32)
    for rows, inputs in minilm.batches(ids, TOKENIZER.pad, LONGEST):
        (vectors[rows],) = encoder.run(inputs)
    return vectors


@pytest.fixture(scope="module")
def encoder() -> rlx.CompiledGraph:
    return compiled()


def test_words_are_split_into_the_longest_pieces() -> None:
    words = {at: word for word, at in tiny.VOCABULARY.items()}
    said = {
        "The cats": "[CLS] the cat ##s [SEP]",
        "matter,unable": "[CLS] mat ##ter , un ##able [SEP]",
        "Café 東東": "[CLS] cafe 東 東 [SEP]",
        "cat\tsat\u2028on\x00\u200b": "[CLS] cat sat on [SEP]",
        "dog the[SEP]cat [sep]": "[CLS] [UNK] the [SEP] cat [UNK] [UNK] [UNK] [SEP]",
        "a" * 101: "[CLS] [UNK] [SEP]",
    }
    for text, want in said.items():
        assert " ".join(words[at] for at in TOKENIZER.encode(text)) == want


def test_vectors_are_those_of_float64(encoder: rlx.CompiledGraph) -> None:
    for text, vector in zip(TEXTS, embed(TEXTS, encoder), strict=True):
        want = tiny.embedded(TOKENIZER.encode(text))
        np.testing.assert_allclose(vector, want, atol=1e-5)


def test_a_text_is_the_same_alone_and_among_others(encoder: rlx.CompiledGraph) -> None:
    together = embed(TEXTS * 9, encoder)
    for at, text in enumerate(TEXTS):
        alone = embed([text], encoder)[0]
        same = together[at :: len(TEXTS)]
        np.testing.assert_allclose(same, np.tile(alone, (9, 1)), atol=1e-6)


def test_batches_are_of_few_shapes_and_hold_every_text_once() -> None:
    sizes = [int(n) for n in np.random.default_rng(0).integers(2, 257, 1000)]
    found = list(minilm.batches([[7] * size for size in sizes], 0, 256))
    assert sorted(row for rows, _ in found for row in rows) == list(range(1000))
    for rows, inputs in found:
        assert inputs["mask"].sum(axis=1).tolist() == [sizes[row] for row in rows]
        assert (inputs["ids"] == 7 * inputs["mask"]).all()
    shapes = {inputs["ids"].shape for _, inputs in found}
    assert len(shapes) <= 24
    assert max(n * length for n, length in shapes) <= minilm.MAX_TOKENS_PER_BATCH
    assert list(minilm.batches([], 0, 256)) == []


def test_unused_graphs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "MOST_BOUND", 1)
    encoder = compiled()
    for _ in range(2):
        assert embed(TEXTS, encoder).shape == (7, 12)
        assert isinstance(encoder, CompiledVarying)
        assert encoder.cache_info().currsize == 1
    encoder.close()
    with pytest.raises(rlx.RlxError, match="closed"):
        embed(TEXTS, encoder)


def test_graphs_of_all_lengths_share_the_weights() -> None:
    encoder = compiled()
    embed(["cat", "cat " * 25], encoder)
    assert isinstance(encoder, CompiledVarying)
    first, *others = (one._placed.ready.program for one in encoder._bindings)
    assert others
    assert all(one.params is first.params for one in others)


def test_threads_may_share_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread closes a graph that another is running."""
    monkeypatch.setattr(bindings, "MOST_BOUND", 1)
    texts = ["cat " * count for count in (2, 14, 25)]
    usual = sys.getswitchinterval()
    encoder = compiled()
    with ThreadPoolExecutor(8) as threads:
        want = embed(texts, encoder)
        sys.setswitchinterval(1e-6)
        try:
            made = [threads.submit(embed, texts, encoder) for _ in range(60)]
            found = [one.result() for one in made]
        finally:
            sys.setswitchinterval(usual)
    for one in found:
        np.testing.assert_allclose(one, want, atol=1e-6)


def test_half_precision_weights_are_widened(encoder: rlx.CompiledGraph) -> None:
    half = {n: a.astype(np.float16) for n, a in tiny.weights().items()}
    made = embed(["the cat"], compiled(weights=half))
    np.testing.assert_allclose(made, embed(["the cat"], encoder), atol=0.02)


def added(**changes: Any) -> dict[str, Any]:
    """Another token that is found as it is written."""
    return {"added_tokens": [{"id": 4, "content": "<x>", **changes}]}


def longest(count: float) -> dict[str, Any]:
    model = tiny.TOKENIZER["model"]
    return {"model": {**model, "max_input_chars_per_word": count}}  # type: ignore[dict-item]


def test_an_added_token_is_found_whatever_its_letters() -> None:
    own = wordpiece.WordPiece(tiny.TOKENIZER | added())
    assert own.encode("the<x>") == [2, tiny.VOCABULARY["the"], 4, 3]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "gpt2"}, "says 'gpt2'"),
        ({"hidden_act": "swish"}, "'swish' for hidden_act"),
        ({"hidden_size": "12"}, "'12' for hidden_size"),
        ({"hidden_size": 10**12}, "1000000000000 for hidden_size"),
        ({"num_attention_heads": 5}, "a divisor of hidden_size, 12"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
    ],
)
def test_another_kind_of_network_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        minilm.encoder_graph(tiny.CONFIG | config)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"type": "BPE"}}, "'BPE', not WordPiece"),
        ({"model": []}, "not WordPiece"),
        ({"normalizer": None}, "normalizer of tokenizer.json is None"),
        ({"added_tokens": 1}, "lacks an entry"),
        (added(id=-1), "a name and an id"),
        (added(content=""), "a name and an id"),
        (added(normalized=True), "'<x>' of tokenizer.json is normal"),
        (longest(-1), "max_input_chars_per_word of tokenizer.json is -1"),
        (longest(float("inf")), "max_input_chars_per_word of tokenizer.json is inf"),
    ],
)
def test_another_kind_of_tokenizer_is_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        wordpiece.WordPiece(tiny.TOKENIZER | changes)


def test_thousands_of_words_of_one_letter_are_read() -> None:
    """A word of a hundred thousand letters costs no time."""
    assert TOKENIZER.encode("a" * 10**5) == [2, 1, 3]
    assert len(TOKENIZER.encode("a " * 10**5)) == 10**5 + 2


def test_categories_are_the_same_with_the_tables_of_every_python() -> None:
    kinds = Counter(general_category(chr(at)) for at in range(0x110000))
    marks = sum(kinds[kind] for kind in kinds if kind[0] == "P")
    controls = sum(kinds[kind] for kind in ("Cc", "Cf", "Co"))
    assert (kinds["Mn"], marks, controls) == (1567, 717, 137683)


def test_the_demo_refuses_files_that_are_broken() -> None:
    """What the page tells its visitor has a reason."""
    search = module("demo/search/search")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        for raw in (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 10**5):
            with pytest.raises(ModelError):
                search.Model({**tiny.files(), name: raw})
    small = json.dumps(tiny.CONFIG | {"vocab_size": 5}).encode()
    with pytest.raises(ModelError, match="the token id"):
        search.Model({**tiny.files(), "config.json": small})
