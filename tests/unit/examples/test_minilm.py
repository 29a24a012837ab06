"""Sentence encoder against float64, for texts of any number and length."""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import ModelError
from rlxweb.runtime import dynamic_shape_graph_cache
from rlxweb.runtime.dynamic_compiled_graph import DynamicCompiledGraph
from tests.unit.examples import tiny_sentence_encoder
from tests.unit.examples.site_module_loader import load_site_module

minilm = load_site_module("examples/minilm")
wordpiece = load_site_module("demo/search/wordpiece")
general_category = load_site_module("demo/search/bert_unicode").general_category

TEXTS = [
    "the cat sat on a mat.",
    "",
    "cats!",
    "a " * 25,
    "unable matter, the CAFÉ",
    "東 zebra",
    "the mat " * 12,
]
TOKENIZER = wordpiece.WordPiece(tiny_sentence_encoder.TOKENIZER)
MAX_LENGTH = 32


def compile_encoder(device: str = "cpu", **changes: Any) -> rlx.CompiledGraph:
    """Return the compiled encoder with the weights of a file."""
    graph = minilm.encoder_graph(tiny_sentence_encoder.CONFIG)
    raw = tiny_sentence_encoder.tiny_model_files(**changes)["model.safetensors"]
    encoder = rlx.Session(device).compile(graph)
    weights = rlx.load_weights(graph, raw, rename=minilm.UNUSED, convert=True)
    for name, weight in weights.items():
        encoder.set_param(name, weight)
    return encoder


def embed(texts: list[str], encoder: rlx.CompiledGraph) -> Any:
    ids = [TOKENIZER.encode(text) for text in texts]
    vectors = np.zeros((len(texts), 12), np.float32)
    for rows, inputs in minilm.batches(ids, TOKENIZER.pad, MAX_LENGTH):
        (vectors[rows],) = encoder.run(inputs)
    return vectors


@pytest.fixture(scope="module")
def encoder() -> rlx.CompiledGraph:
    return compile_encoder()


def test_words_are_split_into_the_longest_pieces() -> None:
    words = {
        token_id: word for word, token_id in tiny_sentence_encoder.VOCABULARY.items()
    }
    expected = {
        "The cats": "[CLS] the cat ##s [SEP]",
        "matter,unable": "[CLS] mat ##ter , un ##able [SEP]",
        "Café 東東": "[CLS] cafe 東 東 [SEP]",
        "cat\tsat\u2028on\x00\u200b": "[CLS] cat sat on [SEP]",
        "dog the[SEP]cat [sep]": "[CLS] [UNK] the [SEP] cat [UNK] [UNK] [UNK] [SEP]",
        "a" * 101: "[CLS] [UNK] [SEP]",
    }
    for text, want in expected.items():
        assert " ".join(words[token_id] for token_id in TOKENIZER.encode(text)) == want


def test_vectors_match_float64(encoder: rlx.CompiledGraph) -> None:
    for text, vector in zip(TEXTS, embed(TEXTS, encoder), strict=True):
        want = tiny_sentence_encoder.reference_embedding(TOKENIZER.encode(text))
        np.testing.assert_allclose(vector, want, atol=1e-5)


def test_a_text_embeds_alike_alone_and_in_a_batch(encoder: rlx.CompiledGraph) -> None:
    together = embed(TEXTS * 9, encoder)
    for index, text in enumerate(TEXTS):
        alone = embed([text], encoder)[0]
        same = together[index :: len(TEXTS)]
        np.testing.assert_allclose(same, np.tile(alone, (9, 1)), atol=1e-6)


def test_batches_have_few_shapes_and_every_text_once() -> None:
    sizes = [int(n) for n in np.random.default_rng(0).integers(2, 257, 1000)]
    batches = list(minilm.batches([[7] * size for size in sizes], 0, 256))
    assert sorted(row for rows, _ in batches for row in rows) == list(range(1000))
    for rows, inputs in batches:
        assert inputs["mask"].sum(axis=1).tolist() == [sizes[row] for row in rows]
        assert (inputs["ids"] == 7 * inputs["mask"]).all()
    shapes = {inputs["ids"].shape for _, inputs in batches}
    assert len(shapes) <= 24
    assert max(n * length for n, length in shapes) <= minilm.MAX_TOKENS_PER_BATCH
    assert list(minilm.batches([], 0, 256)) == []


def test_unused_graphs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_shape_graph_cache, "MAX_BOUND_GRAPHS", 1)
    encoder = compile_encoder()
    for _ in range(2):
        assert embed(TEXTS, encoder).shape == (7, 12)
        assert isinstance(encoder, DynamicCompiledGraph)
        assert encoder.cache_info().currsize == 1
    encoder.close()
    with pytest.raises(rlx.RlxError, match="closed"):
        embed(TEXTS, encoder)


def test_graphs_of_all_lengths_share_the_weights() -> None:
    encoder = compile_encoder()
    embed(["cat", "cat " * 25], encoder)
    assert isinstance(encoder, DynamicCompiledGraph)
    first, *others = (
        entry._placement.prepared.program for entry in encoder._bound_graphs
    )
    assert others
    assert all(entry.params is first.params for entry in others)


def test_threads_may_share_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread closes a graph that another is running."""
    monkeypatch.setattr(dynamic_shape_graph_cache, "MAX_BOUND_GRAPHS", 1)
    texts = ["cat " * count for count in (2, 14, 25)]
    old_interval = sys.getswitchinterval()
    encoder = compile_encoder()
    with ThreadPoolExecutor(8) as threads:
        want = embed(texts, encoder)
        sys.setswitchinterval(1e-6)
        try:
            futures = [threads.submit(embed, texts, encoder) for _ in range(60)]
            results = [entry.result() for entry in futures]
        finally:
            sys.setswitchinterval(old_interval)
    for entry in results:
        np.testing.assert_allclose(entry, want, atol=1e-6)


def test_half_precision_weights_are_widened(encoder: rlx.CompiledGraph) -> None:
    half = {
        n: a.astype(np.float16) for n, a in tiny_sentence_encoder.tiny_weights().items()
    }
    vectors = embed(["the cat"], compile_encoder(weights=half))
    np.testing.assert_allclose(vectors, embed(["the cat"], encoder), atol=0.02)


def added_token(**changes: Any) -> dict[str, Any]:
    """Return a tokenizer change that adds a token matched literally."""
    return {"added_tokens": [{"id": 4, "content": "<x>", **changes}]}


def max_word_characters(max_count: float) -> dict[str, Any]:
    model = tiny_sentence_encoder.TOKENIZER["model"]
    return {"model": {**model, "max_input_chars_per_word": max_count}}  # type: ignore[dict-item]


def test_an_added_token_is_matched_literally() -> None:
    tokenizer = wordpiece.WordPiece(tiny_sentence_encoder.TOKENIZER | added_token())
    assert tokenizer.encode("the<x>") == [
        2,
        tiny_sentence_encoder.VOCABULARY["the"],
        4,
        3,
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"hidden_act": "swish"}, "hidden_act 'swish'"),
        ({"hidden_size": "12"}, "hidden_size '12'"),
        ({"hidden_size": 10**12}, "hidden_size 1000000000000"),
        ({"num_attention_heads": 5}, "must divide hidden_size, 12"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
    ],
)
def test_unsupported_networks_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        minilm.encoder_graph(tiny_sentence_encoder.CONFIG | config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type": "BPE"}}, "'BPE', not WordPiece"),
        ({"model": []}, "not WordPiece"),
        ({"normalizer": None}, "normalizer of tokenizer.json is None"),
        ({"added_tokens": 1}, "missing or invalid"),
        (added_token(id=-1), "an invalid name or id"),
        (added_token(content=""), "an invalid name or id"),
        (added_token(normalized=True), "'<x>' in tokenizer.json has normalized set"),
        (max_word_characters(-1), "max_input_chars_per_word in tokenizer.json is -1"),
        (
            max_word_characters(float("inf")),
            "max_input_chars_per_word in tokenizer.json is inf",
        ),
    ],
)
def test_unsupported_tokenizers_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        wordpiece.WordPiece(tiny_sentence_encoder.TOKENIZER | changes)


def test_very_long_words_and_texts_are_tokenized() -> None:
    """A word of a hundred thousand letters costs no time."""
    assert TOKENIZER.encode("a" * 10**5) == [2, 1, 3]
    assert len(TOKENIZER.encode("a " * 10**5)) == 10**5 + 2


def test_character_categories_do_not_depend_on_the_python_version() -> None:
    kinds = Counter(general_category(chr(at)) for at in range(0x110000))
    marks = sum(kinds[kind] for kind in kinds if kind[0] == "P")
    controls = sum(kinds[kind] for kind in ("Cc", "Cf", "Co"))
    assert (kinds["Mn"], marks, controls) == (1567, 717, 137683)


def test_the_demo_refuses_broken_files() -> None:
    """Broken files raise an error with a reason that the page can show."""
    search = load_site_module("demo/search/search")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        for raw in (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 10**5):
            with pytest.raises(ModelError):
                search.Model({**tiny_sentence_encoder.tiny_model_files(), name: raw})
    small = json.dumps(tiny_sentence_encoder.CONFIG | {"vocab_size": 5}).encode()
    with pytest.raises(ModelError, match="the token id"):
        search.Model({**tiny_sentence_encoder.tiny_model_files(), "config.json": small})
