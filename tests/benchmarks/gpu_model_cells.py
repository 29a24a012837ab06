"""Benchmark cells of whole networks on a real GPU, by Vulkan and by CUDA, against other
runtimes.

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
from rlxweb.core.errors import RlxError
from rlxweb.engines.registry import absence_reason
from tests.benchmarks import model_files
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.machine_facts import find_gpu
from tests.benchmarks.model_cells import (
    ModelRun,
    make_cell,
    onnx_runtime_run,
    tinygrad_run,
)
from tests.benchmarks.model_files import MINILM, Arrays, BenchmarkModel
from tests.benchmarks.peer_libraries import load_library
from tests.benchmarks.peer_libraries import open_onnx_session as onnx_session

COMPILE_TIMEOUT_S = float(os.environ.get("RLX_BENCH_PATIENCE_S", "40"))
"""Time limit of tinygrad's compiler, in seconds."""
PEERS = (
    "PyTorch",
    "PyTorch, CUDA graph",
    "ONNX Runtime, CUDA",
    "ONNX Runtime, CPU",
    "tinygrad",
)


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory; none without a GPU."""
    if find_gpu() is None:
        return
    for name, model in model_files.gpu_models().items():
        yield f"model gpu {name}", partial(_make_cell, f"model gpu {name}", model)


def _make_cell(name: str, benchmark_model: BenchmarkModel) -> BenchmarkCell:
    facts = find_gpu()
    assert facts is not None
    file = benchmark_model.load_bytes()
    our_rows: list[tuple[str, str]] = [("rlxweb, Vulkan", "vulkan")]
    if not absence_reason("cuda"):
        our_rows.append(("rlxweb, CUDA", "cuda"))
    model = rlx.onnx.load(file)
    entries, absent_peers, goals = [], {}, []
    for row_name, device in our_rows:
        run: ModelRun = partial(model.run, benchmark_model.inputs, device=device)
        try:
            run()
        except RlxError as error:
            absent_peers[row_name] = f"{type(error).__name__}: {error}"[:300]
            continue
        entries.append(PeerEntry(row_name, facts.name, run, True))
        goals.append(Goal(row_name, PEERS, 1.0))
    for row_name, peer in _runtime_peers(name, file, benchmark_model.inputs):
        if isinstance(peer, str):
            absent_peers[row_name] = peer
        else:
            entries.append(PeerEntry(row_name, row_name, peer))
    cell = make_cell(name, entries, tuple(goals), [model.close])
    return replace(cell, absent_peers=absent_peers)


def _runtime_peers(
    name: str, file: bytes, inputs: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, ModelRun | str]]:
    eager, graphed, on_cuda, on_cpu, tiny = PEERS
    if "MiniLM" in name:
        yield eager, _torch_run(inputs, graphed=False)
        yield graphed, _torch_run(inputs, graphed=True)
    provider = "CUDAExecutionProvider"
    ort = load_library("onnxruntime")
    if isinstance(ort, str):
        yield on_cuda, ort
        yield on_cpu, ort
    elif provider not in ort.get_available_providers():
        yield on_cuda, f"this ONNX Runtime has no {provider}"
        yield on_cpu, onnx_runtime_run(file, inputs, threads=os.cpu_count() or 1)
    else:
        yield on_cuda, _onnx_runtime_cuda_run(ort, file, inputs)
        yield on_cpu, onnx_runtime_run(file, inputs, threads=os.cpu_count() or 1)
    yield tiny, tinygrad_run(file, inputs, COMPILE_TIMEOUT_S)


def _onnx_runtime_cuda_run(ort: Any, file: bytes, inputs: Arrays) -> ModelRun | str:
    """Return a run of ONNX Runtime by CUDA, or the reason why there is none.

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
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _torch_run(inputs: Mapping[str, np.ndarray], graphed: bool) -> ModelRun | str:
    torch = load_library("torch")
    if isinstance(torch, str):
        return torch
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU"
    w = {
        key: torch.from_numpy(np.array(array)).cuda()
        for key, array in model_files.minilm_weights().items()
    }
    forward = torch.inference_mode()(partial(_torch_minilm, torch, w))
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


def _torch_minilm(torch: Any, w: Mapping[str, Any], ids: Any, mask: Any) -> Any:
    """Compute MiniLM in PyTorch as the ONNX file does."""
    f = torch.nn.functional
    batch, length = ids.shape
    heads, width, eps = MINILM.heads, MINILM.width, MINILM.eps

    def dense(name: str, x: Any) -> Any:
        return f.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def layer_norm(name: str, x: Any) -> Any:
        scale, bias = w[f"{name}.weight"], w[f"{name}.bias"]
        return f.layer_norm(x, (width,), scale, bias, eps)

    base = "embeddings"
    x = f.embedding(ids, w[f"{base}.word_embeddings.weight"])
    x = x + w[f"{base}.position_embeddings.weight"][:length]
    x = layer_norm(
        f"{base}.LayerNorm", x + w[f"{base}.token_type_embeddings.weight"][0]
    )
    bias = ((1.0 - mask) * -1e9)[:, None, None, :]
    for layer in range(MINILM.layers):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            dense(f"{name}.attention.self.{part}", x)
            .view(batch, length, heads, width // heads)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mixed = f.scaled_dot_product_attention(q, k, v, bias)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = x + dense(f"{name}.attention.output.dense", mixed)
        x = layer_norm(f"{name}.attention.output.LayerNorm", x)
        inner = f.gelu(dense(f"{name}.intermediate.dense", x))
        x = layer_norm(
            f"{name}.output.LayerNorm", x + dense(f"{name}.output.dense", inner)
        )
    mask_column = mask[:, :, None]
    mean = (x * mask_column).sum(1) / mask_column.sum(1).clamp(min=1e-9)
    return f.normalize(mean, dim=1)
