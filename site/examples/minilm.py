"""MiniLM as a graph: sentences become vectors that are close if their meaning is.

The encoder of sentence-transformers' all-MiniLM-L6-v2 and of other models of BERT's
family with mean pooling. The graph takes any batch and any length. Its parameters have
the names and the layout of `model.safetensors`, so that `rlxweb.load_weights` reads
them. The example `search.py` and the demo that searches notes in a browser tab import
this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.errors import ModelError

UNUSED = [(r"embeddings\.position_ids|pooler\..*", None)]
"""Weights of the file that sentence embeddings do not use, for
`rlxweb.load_weights`."""
LENGTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512)
"""Padded lengths of a batch: few, since each pair of batch and length is compiled."""
BATCHES = (32, 8, 1)
MAX_TOKENS_PER_BATCH = 4096


def encoder_graph(config: Mapping[str, Any]) -> rlx.Graph:
    """Return the graph of the model that a `config.json` describes.

    Parameters
    ----------
    config : Mapping[str, Any]
        Content of `config.json`.

    Returns
    -------
    rlxweb.Graph
        Inputs `ids` [batch, length] i32 and `mask` [batch, length] f32 (1 for a token,
        0 for padding); output [batch, hidden_size] f32, each row of unit length.

    Raises
    ------
    rlxweb.errors.ModelError
        The model is not of BERT's family.
    """
    _check(config)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    longest = config["max_position_embeddings"]
    eps = config.get("layer_norm_eps", 1e-12)
    g = rlx.Graph("sentences")
    batch, length = rlx.Dim("batch"), rlx.Dim("length", max=longest)
    ids, mask = g.input("ids", (batch, length), "i32"), g.input("mask", (batch, length))

    def embedding(name: str, rows: int) -> rlx.Tensor:
        return g.param(f"embeddings.{name}_embeddings.weight", (rows, width))

    def dense(name: str, x: rlx.Tensor, outputs: int = width) -> rlx.Tensor:
        weight = g.param(f"{name}.weight", (outputs, x.shape[-1]))
        return x @ weight.T + g.param(f"{name}.bias", (outputs,))

    def normalized(name: str, x: rlx.Tensor) -> rlx.Tensor:
        gamma, beta = (g.param(f"{name}.{part}", (width,)) for part in _NORM)
        return g.layer_norm(x, gamma, beta, eps=eps)

    words = g.gather(embedding("word", config["vocab_size"]), ids)
    positions = g.narrow(embedding("position", longest), 0, 0, length)
    segment = g.narrow(embedding("token_type", config["type_vocab_size"]), 0, 0, 1)
    x = normalized("embeddings.LayerNorm", words + (positions + segment))
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        q, k, v = (dense(f"{layer}.attention.self.{part}", x) for part in _QKV)
        mixed = g.attention(
            q, k, v, mask, num_heads=heads, head_dim=width // heads, mask_kind="custom"
        )
        mixed = dense(f"{layer}.attention.output.dense", mixed)
        x = normalized(f"{layer}.attention.output.LayerNorm", mixed + x)
        inner = dense(f"{layer}.intermediate.dense", x, config["intermediate_size"])
        inner = g.activation(config["hidden_act"], inner)
        x = normalized(
            f"{layer}.output.LayerNorm", dense(f"{layer}.output.dense", inner) + x
        )
    tokens = g.reshape(mask, (batch, length, 1))
    mean = g.sum(x * tokens, 1) / g.maximum(g.sum(tokens, 1), 1e-9)
    norm = g.sqrt(g.sum(mean * mean, -1, keep_dim=True))
    g.set_outputs([mean / g.maximum(norm, 1e-12)])
    return g


_NORM, _QKV = ("weight", "bias"), ("query", "key", "value")


def _check(config: Mapping[str, Any]) -> None:
    for key, supported in (
        ("model_type", ("bert",)),
        ("hidden_act", ("gelu", "relu")),
        ("position_embedding_type", ("absolute", None)),
    ):
        if config.get(key) not in supported:
            raise _error(config, key, f"only {supported[0]!r} is supported")
    for key in _SIZES:
        value = config.get(key)
        if type(value) is not int or not 0 < value <= _MAX_SIZE:
            raise _error(config, key, f"it must be 1 to {_MAX_SIZE:,}")
    if config["hidden_size"] % config["num_attention_heads"]:
        rule = f"it must divide hidden_size, {config['hidden_size']}"
        raise _error(config, "num_attention_heads", rule)


def _error(config: Mapping[str, Any], key: str, rule: str) -> ModelError:
    problem = f"config.json has {key} {config.get(key)!r}"
    return ModelError("load MiniLM", problem, rule)


_MAX_SIZE = 1 << 20
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "max_position_embeddings", "type_vocab_size"),
)


def batches(
    texts: Sequence[Sequence[int]], pad: int, longest: int
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """Yield the inputs of the graph for token ids of texts, shortest texts first.

    Parameters
    ----------
    texts : Sequence[Sequence[int]]
        Token ids of each text.
    pad : int
        Token id of padding.
    longest : int
        Tokens that the model reads; no text has more.

    Yields
    ------
    rows : list[int]
        Indices into `texts`.
    inputs : dict[str, numpy.ndarray]
        `ids` and `mask` of these texts, padded to one of a few lengths.
    """
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    start = 0
    for length in (*(n for n in LENGTHS if n < longest), longest):
        end = start
        while end < len(order) and len(texts[order[end]]) <= length:
            end += 1
        while start < end:
            fits = min(end - start, max(1, MAX_TOKENS_PER_BATCH // length))
            count = next(size for size in BATCHES if size <= fits)
            rows = order[start : start + count]
            ids = np.full((count, length), pad, np.int32)
            mask = np.zeros((count, length), np.float32)
            for index, row in enumerate(rows):
                ids[index, : len(texts[row])] = texts[row]
                mask[index, : len(texts[row])] = 1
            yield rows, {"ids": ids, "mask": mask}
            start += count
