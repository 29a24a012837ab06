"""The encoder of BERT's family as a graph, for any batch and length.

Token, position and kind of sentence are looked up and added; every layer lets each
token attend to all that are no padding, then passes it through two dense layers. What
comes out is the mean over a text's tokens, of length 1. Params have the names of the
files that transformers writes, and lie as they lie there: outputs first.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.ir.dim import Dim
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

NOT_NEEDED = r"embeddings\.position_ids|pooler\..*"
"""Weights that files have and sentence embeddings do not use."""
_LEAST_LENGTH = 1e-12


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a `config.json` says.

    positions   tokens of the longest text
    kinds       kinds of sentence, of which the first is used
    activation  "gelu" or "relu"
    """

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    positions: int
    kinds: int
    eps: float
    activation: str


def bert_graph(sizes: Sizes) -> Graph:
    """Inputs  ids [batch, length] i32, mask [batch, length] f32, 1 where a token is.
    Output  embeddings [batch, width] f32.
    """
    g = Graph("sentences")
    batch, length = Dim("batch"), Dim("length", max=sizes.positions)
    ids = g.input("ids", (batch, length), "i32")
    mask = g.input("mask", (batch, length))
    x = _embedded(g, sizes, ids)
    for at in range(sizes.layers):
        x = _layer(g, sizes, f"encoder.layer.{at}", x, mask)
    g.set_outputs([_pooled(g, x, mask)])
    return g


def _embedded(g: Graph, s: Sizes, ids: Tensor) -> Tensor:
    length = ids.shape[1]

    def table(name: str, rows: int) -> Tensor:
        return g.param(f"embeddings.{name}_embeddings.weight", (rows, s.width))

    words = g.gather(table("word", s.vocabulary), ids)
    places = g.narrow(table("position", s.positions), 0, 0, length)
    kind = g.narrow(table("token_type", s.kinds), 0, 0, 1)
    return _normed(g, s, "embeddings.LayerNorm", words + (places + kind))


def _layer(g: Graph, s: Sizes, name: str, x: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (
        _dense(g, f"{name}.attention.self.{part}", x, s.width)
        for part in ("query", "key", "value")
    )
    size = s.width // s.heads
    mixed = g.attention(
        q, k, v, mask, num_heads=s.heads, head_dim=size, mask_kind="custom"
    )
    mixed = _dense(g, f"{name}.attention.output.dense", mixed, s.width)
    x = _normed(g, s, f"{name}.attention.output.LayerNorm", mixed + x)
    inner = _dense(g, f"{name}.intermediate.dense", x, s.inner)
    inner = g.activation(s.activation, inner)
    outer = _dense(g, f"{name}.output.dense", inner, s.width)
    return _normed(g, s, f"{name}.output.LayerNorm", outer + x)


def _dense(g: Graph, name: str, x: Tensor, outputs: int) -> Tensor:
    weight = g.param(f"{name}.weight", (outputs, x.shape[-1]))
    return x @ weight.T + g.param(f"{name}.bias", (outputs,))


def _normed(g: Graph, s: Sizes, name: str, x: Tensor) -> Tensor:
    gamma = g.param(f"{name}.weight", (s.width,))
    beta = g.param(f"{name}.bias", (s.width,))
    return g.layer_norm(x, gamma, beta, eps=s.eps)


def _pooled(g: Graph, x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens that are no padding, of length 1."""
    batch, length, _ = x.shape
    kept = g.reshape(mask, (batch, length, 1))
    mean = g.sum(x * kept, 1) / g.maximum(g.sum(kept, 1), 1e-9)
    norm = g.sqrt(g.sum(mean * mean, -1, keep_dim=True))
    return mean / g.maximum(norm, _LEAST_LENGTH)
