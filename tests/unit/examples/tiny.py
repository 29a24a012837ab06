"""A tiny model of sentence embeddings, and a reference for what it computes.

The reference is NumPy in float64, written from the definition of BERT and not from our
graph.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.unit.graphfile.files import safetensors_of

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s on a mat ##ter , . ! un ##able caf"
)
VOCABULARY = {word: at for at, word in enumerate([*WORDS.split(), "cafe", "東", "ё"])}
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 12,
    "intermediate_size": 20,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(VOCABULARY),
}
TOKENIZER = {
    "added_tokens": [
        {"id": VOCABULARY[name], "content": name}
        for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ],
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": VOCABULARY,
    },
}


def weights() -> dict[str, npt.NDArray[np.float32]]:
    """The model's weights by the names that transformers gives them."""
    rng = np.random.default_rng(5)
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), 12),
        "embeddings.position_embeddings.weight": (40, 12),
        "embeddings.token_type_embeddings.weight": (2, 12),
        "embeddings.LayerNorm.weight": (12,),
        "embeddings.LayerNorm.bias": (12,),
        "pooler.dense.bias": (12,),
    }
    for layer in range(2):
        head = f"encoder.layer.{layer}."
        dense = {
            f"attention.self.{n}": (width, width) for n in ("query", "key", "value")
        }
        dense |= {
            "attention.output.dense": (width, width),
            "intermediate.dense": (inner, width),
            "output.dense": (width, inner),
        }
        for name, (outs, ins) in dense.items():
            shapes |= {
                f"{head}{name}.weight": (outs, ins),
                f"{head}{name}.bias": (outs,),
            }
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{head}{name}.weight": (width,), f"{head}{name}.bias": (width,)}
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def files(**changes: Any) -> dict[str, bytes]:
    """The model's files; `config`, `tokenizer` and others with other words in them."""
    return {
        "config.json": json.dumps(CONFIG | changes.get("config", {})).encode(),
        "tokenizer.json": json.dumps(TOKENIZER | changes.get("tokenizer", {})).encode(),
        "model.safetensors": safetensors_of(weights() | changes.get("weights", {})),
        "sentence_bert_config.json": b'{"max_seq_length": 32}',
    }


def embedded(ids: list[int]) -> npt.NDArray[np.float64]:
    """One text's point, in float64."""
    w = {name: array.astype(np.float64) for name, array in weights().items()}

    def dense(name: str, x: Any) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def normed(name: str, x: Any) -> Any:
        far = x - x.mean(-1, keepdims=True)
        return (
            far
            / np.sqrt((far**2).mean(-1, keepdims=True) + 1e-12)
            * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = normed(
        "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0]
    )
    erf = np.vectorize(math.erf)
    for layer in range(2):
        head = f"encoder.layer.{layer}."
        q, k, v = (
            dense(f"{head}attention.self.{n}", x).reshape(-1, 3, 4).swapaxes(0, 1)
            for n in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / 2)
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        mixed = mixed.swapaxes(0, 1).reshape(len(ids), 12)
        mixed = dense(f"{head}attention.output.dense", mixed)
        x = normed(f"{head}attention.output.LayerNorm", mixed + x)
        inner = dense(f"{head}intermediate.dense", x)
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = normed(f"{head}output.LayerNorm", dense(f"{head}output.dense", inner) + x)
    mean = x.mean(0)
    return np.asarray(mean / np.linalg.norm(mean))
