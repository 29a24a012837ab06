"""Python side of the search demo: find the passages of a visitor's notes closest to a
question.
"""

import json
import time

import numpy as np
from minilm import UNUSED, batches, encoder_graph
from passages import passages_from, text_from
from wordpiece import WordPiece

import rlxweb as rlx
from rlxweb.errors import ModelError
from rlxweb.runtime.graph_files.strict_json import FormatViolation, check_depth

MODEL = INDEX = None
FRAME_TOKENS = 2
"""Tokens that begin and end every text."""


class Model:
    """A model of MiniLM's kind: tokenizer, weights, and the encoder on each device."""

    def __init__(self, files):
        config = _read_json_object(files, "config.json")
        self.tokenizer = WordPiece(_read_json(files, "tokenizer.json"))
        self.graph = encoder_graph(config)
        self.width, largest = config["hidden_size"], self.tokenizer.largest_id
        if largest >= config["vocab_size"]:
            problem = f"tokenizer.json contains the token id {largest:,}"
            rule = f"the vocab_size in config.json is {config['vocab_size']:,}"
            raise ModelError("load MiniLM", problem, rule)
        self.weights = rlx.load_weights(
            self.graph, files["model.safetensors"], rename=UNUSED, convert=True
        )
        positions = config["max_position_embeddings"]
        config_name = "sentence_bert_config.json"
        sentence_config = (
            _read_json_object(files, config_name) if config_name in files else {}
        )
        self.max_tokens = min(
            sentence_config.get("max_seq_length") or positions, positions
        )
        self._encoders = {}

    def size(self, text):
        """Number of tokens of a text, without those that frame it."""
        return len(self.tokenizer.encode(text)) - FRAME_TOKENS

    async def embed(self, texts, device, progress=lambda done, count: None):
        """Return a unit vector for each text (texts, width)."""
        ids = [self._cut(self.tokenizer.encode(text)) for text in texts]
        encoder = await self._encoder(device)
        vectors = np.zeros((len(ids), self.width), np.float32)
        done = 0
        for rows, inputs in batches(ids, self.tokenizer.pad, self.max_tokens):
            (vectors[rows],) = await encoder.run_async(inputs)
            done += len(rows)
            progress(done, len(ids))
        return vectors

    def _cut(self, ids):
        if len(ids) <= self.max_tokens:
            return ids
        return [*ids[: self.max_tokens - 1], self.tokenizer.end]

    async def _encoder(self, device):
        if device not in self._encoders:
            session = rlx.Session(device)
            encoder = await session.compile_async(self.graph)
            for name, weight in self.weights.items():
                await encoder.set_param_async(name, weight)
            self._encoders[device] = encoder
        return self._encoders[device]

    def close(self):
        """Free what is compiled."""
        for encoder in self._encoders.values():
            encoder.close()
        self._encoders.clear()


def _read_json(files, name):
    try:
        text = files[name].decode()
        check_depth(text)  # deep nesting ends Pyodide, before Python sees it
        return json.loads(text)
    except (ValueError, RecursionError, FormatViolation):
        raise ModelError("load MiniLM", f"{name} is not valid JSON") from None


def _read_json_object(files, name):
    content = _read_json(files, name)
    if not isinstance(content, dict):
        raise ModelError("load MiniLM", f"{name} is not a JSON object")
    return content


def load(args, buffers):
    """Load the model of these files, and free an earlier one and its index."""
    global MODEL, INDEX
    files = dict(zip(args["names"], map(bytes, buffers), strict=True))
    model = Model(files)
    if MODEL is not None:
        MODEL.close()
    MODEL, INDEX = model, None
    return {"width": MODEL.width, "tokens": MODEL.max_tokens}


async def read(args, buffers):
    """Embed every passage of the notes, and post the progress."""
    global INDEX
    limit = MODEL.max_tokens - FRAME_TOKENS
    files = zip(args["names"], map(bytes, buffers), strict=True)
    passages = [
        passage
        for at, (name, raw) in enumerate(files)
        for passage in passages_from(
            at, text_from(name, raw), args["unit"], MODEL.size, limit
        )
    ]
    started = time.perf_counter()
    vectors = await MODEL.embed(
        [passage.text for passage in passages],
        args["device"],
        lambda done, count: post({"done": done, "of": count}),  # noqa: F821
    )
    INDEX = passages, vectors
    return {"passages": len(passages), "seconds": time.perf_counter() - started}


async def ask(args, buffers):
    """Return the passages closest to a question, the closest first."""
    started = time.perf_counter()
    passages, vectors = INDEX
    (question,) = await MODEL.embed([args["question"]], args["device"])
    scores = vectors @ question
    closest = np.argsort(-scores, kind="stable")[: args["k"]]
    hits = [{"score": float(scores[at]), **passages[at]._asdict()} for at in closest]
    return {"seconds": time.perf_counter() - started, "hits": hits}
