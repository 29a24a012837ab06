"""Tiny sentence-embedding model and a reference for its results.

The reference is NumPy in float64, written from the definition of BERT and not from our
graph.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.unit.runtime.sample_graph_files import safetensors_bytes

VOCABULARY_WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s on a mat ##ter , . ! un ##able caf"
)
VOCABULARY = {
    word: at for at, word in enumerate([*VOCABULARY_WORDS.split(), "cafe", "東", "ё"])
}
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


def tiny_weights() -> dict[str, npt.NDArray[np.float32]]:
    """Return the model's weights by their names in transformers."""
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
        prefix = f"encoder.layer.{layer}."
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
                f"{prefix}{name}.weight": (outs, ins),
                f"{prefix}{name}.bias": (outs,),
            }
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {
                f"{prefix}{name}.weight": (width,),
                f"{prefix}{name}.bias": (width,),
            }
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def tiny_model_files(**changes: Any) -> dict[str, bytes]:
    """Return the model's files; `config`, `tokenizer` and `weights` change entries."""
    return {
        "config.json": json.dumps(CONFIG | changes.get("config", {})).encode(),
        "tokenizer.json": json.dumps(TOKENIZER | changes.get("tokenizer", {})).encode(),
        "model.safetensors": safetensors_bytes(
            tiny_weights() | changes.get("weights", {})
        ),
        "sentence_bert_config.json": b'{"max_seq_length": 32}',
    }


def reference_embedding(ids: list[int]) -> npt.NDArray[np.float64]:
    """Return the embedding of one text, in float64."""
    w = {name: array.astype(np.float64) for name, array in tiny_weights().items()}

    def dense(name: str, x: Any) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def layer_norm(name: str, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred
            / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
            * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = layer_norm(
        "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0]
    )
    erf = np.vectorize(math.erf)
    for layer in range(2):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (
            dense(f"{prefix}attention.self.{n}", x).reshape(-1, 3, 4).swapaxes(0, 1)
            for n in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / 2)
        attended = scores / scores.sum(-1, keepdims=True) @ v
        attended = attended.swapaxes(0, 1).reshape(len(ids), 12)
        attended = dense(f"{prefix}attention.output.dense", attended)
        x = layer_norm(f"{prefix}attention.output.LayerNorm", attended + x)
        inner = dense(f"{prefix}intermediate.dense", x)
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = layer_norm(
            f"{prefix}output.LayerNorm", dense(f"{prefix}output.dense", inner) + x
        )
    mean = x.mean(0)
    return np.asarray(mean / np.linalg.norm(mean))
