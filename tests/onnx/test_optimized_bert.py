"""Test a small BERT encoder after ONNX Runtime's transformer optimiser and
quantiser.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import quantization
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions

import rlxweb as rlx
from tests.onnx.model_factory import (
    FLOAT,
    INT64,
    initializers,
    make_model,
    node,
    value_info,
)
from tests.onnx.onnx_runtime import open_session

WIDTH, HEADS, LAYERS, WORDS, LENGTH = 32, 4, 2, 50, 6
FEEDS = {
    "ids": np.array([[3, 17, 49, 0, 8, 5], [41, 2, 2, 30, 0, 0]]),
    "mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
    "kinds": np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]]),
}


class EncoderModelBuilder:
    """Builder of an encoder's nodes and weights, written as PyTorch exports them."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(2)
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], name=name, **attrs))
        return name

    def const(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights[name] = np.asarray(array, dtype)
        return name

    def weight(self, *shape: int) -> str:
        return self.const(0.2 * self.rng.standard_normal(shape))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        product = self.add("MatMul", x, self.weight(inputs, outputs))
        return self.add("Add", product, self.weight(outputs))

    def norm(self, x: str, y: str) -> str:
        total, shift = self.add("Add", x, y), self.weight(WIDTH)
        scale = self.const(1 + 0.1 * self.rng.standard_normal(WIDTH))
        return self.add("LayerNormalization", total, scale, shift, epsilon=1e-5)

    def heads(self, x: str, *perm: int) -> str:
        shape = self.const([0, 0, HEADS, WIDTH // HEADS], np.int64)
        parts = self.add("Reshape", self.dense(x, WIDTH, WIDTH), shape)
        return self.add("Transpose", parts, perm=perm)

    def layer(self, x: str, mask: str) -> str:
        q, k = self.heads(x, 0, 2, 1, 3), self.heads(x, 0, 2, 3, 1)
        product, root = self.add("MatMul", q, k), self.const((WIDTH / HEADS) ** 0.5)
        scores = self.add("Add", self.add("Div", product, root), mask)
        share = self.add("Softmax", scores, axis=-1)
        mixed = self.add("MatMul", share, self.heads(x, 0, 2, 1, 3))
        mixed = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self.add("Reshape", mixed, self.const([0, 0, WIDTH], np.int64))
        x = self.norm(self.dense(mixed, WIDTH, WIDTH), x)
        inner = self.dense(x, WIDTH, 2 * WIDTH)
        erf = self.add("Erf", self.add("Div", inner, self.const(2**0.5)))
        gelu = self.add("Mul", inner, self.add("Add", erf, self.const(1)))
        gelu = self.add("Mul", gelu, self.const(0.5))
        return self.norm(self.dense(gelu, 2 * WIDTH, WIDTH), x)


def encoder_model() -> Any:
    builder = EncoderModelBuilder()
    words = builder.add("Gather", builder.weight(WORDS, WIDTH), "ids")
    kinds = builder.add("Gather", builder.weight(2, WIDTH), "kinds")
    x = builder.norm(builder.add("Add", words, kinds), builder.weight(LENGTH, WIDTH))
    mask = builder.add("Unsqueeze", "mask", builder.const([1], np.int64))
    mask = builder.add("Unsqueeze", mask, builder.const([2], np.int64))
    masked = builder.add("Sub", builder.const(1), builder.add("Cast", mask, to=FLOAT))
    mask = builder.add("Mul", masked, builder.const(-10000))
    for _ in range(LAYERS):
        x = builder.layer(x, mask)
    builder.nodes.append(node("Identity", [x], ["y"]))
    inputs = [value_info(name, ("batch", LENGTH), INT64) for name in FEEDS]
    output = value_info("y", ("batch", LENGTH, WIDTH))
    stored_inputs = initializers(**builder.weights)
    return make_model(builder.nodes, inputs, [output], stored_inputs, opsets={"": 17})


@pytest.fixture
def quiet() -> Iterator[None]:
    """Silence the optimiser's log."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


FUSED_OPS = {"SkipLayerNormalization", "BiasGelu"}
ATTENTION_OPS = {
    "bert": "Attention",
    "multi-head": "MultiHeadAttention",
    "int8": "QAttention",
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("variant", ATTENTION_OPS)
def test_optimised_encoder_agrees_with_onnxruntime(
    variant: str, tmp_path: Path
) -> None:
    path, options = tmp_path / "encoder.onnx", FusionOptions("bert")
    options.use_multi_head_attention = variant == "multi-head"
    fused = optimizer.optimize_model(
        encoder_model(), "bert", HEADS, WIDTH, options, opt_level=0
    )
    fused.save_model_to_file(str(path))
    if variant == "int8":
        types = {"DefaultTensorType": FLOAT}  # shapes of fused operators are not known
        quantization.quantize_dynamic(path, path, extra_options=types)
    session = open_session(path)
    feeds = {
        entry.name: FEEDS[entry.name].astype(entry.type.removeprefix("tensor(")[:-1])
        for entry in session.get_inputs()
    }
    (want,) = session.run(None, feeds)
    with rlx.onnx.load(path) as loaded:
        nodes = loaded.record.graph.nodes
        microsoft_ops = {entry.op for entry in nodes if entry.domain == "com.microsoft"}
        assert microsoft_ops == FUSED_OPS | {ATTENTION_OPS[variant]}
        (got,) = loaded.run(feeds, device="cpu").values()
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
