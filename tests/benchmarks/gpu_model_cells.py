"""Whole networks on a real GPU, by Vulkan and by CUDA, against what others run there.

A call: arrays of the host in and out; weights lie on the device. PyTorch has MiniLM
alone, written as its users write it (SDPA), once as calls and once as one replay of a
CUDA graph; ONNX Runtime and tinygrad take the file. Nobody's products are of TF32.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.backends.registry import blocker
from rlxweb.errors import RlxError
from tests.benchmarks import model_files
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import library
from tests.benchmarks.libraries import session as onnx_session
from tests.benchmarks.machine import gpu
from tests.benchmarks.model_cells import Run, by_onnx_runtime, by_tinygrad, work
from tests.benchmarks.model_files import MINILM, Arrays, Known

PATIENCE_S = float(os.environ.get("RLX_BENCH_PATIENCE_S", "40"))
"""For tinygrad's compiler."""
PEERS = (
    "PyTorch",
    "PyTorch, CUDA graph",
    "ONNX Runtime, CUDA",
    "ONNX Runtime, CPU",
    "tinygrad",
)


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it; none without a GPU."""
    if gpu() is None:
        return
    for name, one in model_files.on_gpus().items():
        yield f"model gpu {name}", partial(_cell, f"model gpu {name}", one)


def _cell(name: str, one: Known) -> Work:
    facts = gpu()
    assert facts is not None
    file = one.file()
    ours: list[tuple[str, str]] = [("rlxweb, Vulkan", "vulkan")]
    if not blocker("cuda"):
        ours.append(("rlxweb, CUDA", "cuda"))
    model = rlx.onnx.load(file)
    entries, absent, goals = [], {}, []
    for row, device in ours:
        run: Run = partial(model.run, one.inputs, device=device)
        try:
            run()
        except RlxError as error:
            absent[row] = f"{type(error).__name__}: {error}"[:300]
            continue
        entries.append(Entry(row, facts.name, run, True))
        goals.append(Goal(row, PEERS, 1.0))
    for row, peer in _peers(name, file, one.inputs):
        if isinstance(peer, str):
            absent[row] = peer
        else:
            entries.append(Entry(row, row, peer))
    made = work(name, entries, tuple(goals), [model.close])
    return replace(made, absent=absent)


def _peers(
    name: str, file: bytes, inputs: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, Run | str]]:
    eager, graphed, on_cuda, on_cpu, tiny = PEERS
    if "MiniLM" in name:
        yield eager, _by_torch(inputs, graphed=False)
        yield graphed, _by_torch(inputs, graphed=True)
    provider = "CUDAExecutionProvider"
    ort = library("onnxruntime")
    if isinstance(ort, str):
        yield on_cuda, ort
        yield on_cpu, ort
    elif provider not in ort.get_available_providers():
        yield on_cuda, f"this ONNX Runtime has no {provider}"
        yield on_cpu, by_onnx_runtime(file, inputs, threads=os.cpu_count() or 1)
    else:
        yield on_cuda, _by_onnx_runtime_on_cuda(ort, file, inputs)
        yield on_cpu, by_onnx_runtime(file, inputs, threads=os.cpu_count() or 1)
    yield tiny, by_tinygrad(file, inputs, PATIENCE_S)


def _by_onnx_runtime_on_cuda(ort: Any, file: bytes, inputs: Arrays) -> Run | str:
    """A run of ONNX Runtime by CUDA, or why there is none.

    Without CUDA's libraries it takes the CPU.
    """
    provider = "CUDAExecutionProvider"
    ort.preload_dlls()
    try:
        session = onnx_session(file, providers=[(provider, {"use_tf32": "0"})])
    except Exception as error:  # as it likes
        return f"{type(error).__name__}: {error}"[:300]
    if provider not in session.get_providers():
        return f"it loads no {provider} here"
    names = [one.name for one in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _by_torch(inputs: Mapping[str, np.ndarray], graphed: bool) -> Run | str:
    torch = library("torch")
    if isinstance(torch, str):
        return torch
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU"
    w = {
        key: torch.from_numpy(np.array(array)).cuda()
        for key, array in model_files.minilm_weights().items()
    }
    forward = torch.inference_mode()(partial(_minilm, torch, w))
    if not graphed:

        def run() -> dict[str, np.ndarray]:
            there = [torch.from_numpy(inputs[key]).cuda() for key in ("ids", "mask")]
            return {"out": forward(*there).cpu().numpy()}

        return run

    ids, mask = (torch.from_numpy(inputs[key]).cuda() for key in ("ids", "mask"))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            forward(ids, mask)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = forward(ids, mask)

    def replay() -> dict[str, np.ndarray]:
        ids.copy_(torch.from_numpy(inputs["ids"]))
        mask.copy_(torch.from_numpy(inputs["mask"]))
        graph.replay()
        return {"out": out.cpu().numpy()}

    # The graph reads the weights where they lie, and holds none of them.
    return lambda weights=w: replay()


def _minilm(torch: Any, w: Mapping[str, Any], ids: Any, mask: Any) -> Any:
    """MiniLM in PyTorch's words, computed as the file of ONNX does."""
    f = torch.nn.functional
    batch, length = ids.shape
    heads, width, eps = MINILM.heads, MINILM.width, MINILM.eps

    def dense(name: str, x: Any) -> Any:
        return f.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def normed(name: str, x: Any) -> Any:
        scale, bias = w[f"{name}.weight"], w[f"{name}.bias"]
        return f.layer_norm(x, (width,), scale, bias, eps)

    base = "embeddings"
    x = f.embedding(ids, w[f"{base}.word_embeddings.weight"])
    x = x + w[f"{base}.position_embeddings.weight"][:length]
    x = normed(f"{base}.LayerNorm", x + w[f"{base}.token_type_embeddings.weight"][0])
    bias = ((1.0 - mask) * -1e9)[:, None, None, :]
    for at in range(MINILM.layers):
        name = f"encoder.layer.{at}"
        q, k, v = (
            dense(f"{name}.attention.self.{part}", x)
            .view(batch, length, heads, width // heads)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mixed = f.scaled_dot_product_attention(q, k, v, bias)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = x + dense(f"{name}.attention.output.dense", mixed)
        x = normed(f"{name}.attention.output.LayerNorm", x)
        inner = f.gelu(dense(f"{name}.intermediate.dense", x))
        x = normed(f"{name}.output.LayerNorm", x + dense(f"{name}.output.dense", inner))
    kept = mask[:, :, None]
    mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
    return f.normalize(mean, dim=1)
