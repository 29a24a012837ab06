"""What rlxweb is measured against on the CPU, and rlxweb's own two ways there.

Each may use two threads. A library that is not installed is named with the reason and
leaves no row; `pip install 'rlxweb[bench]'` brings them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from rlxweb.machine.library import is_installed, processor

THREADS = 2
# The threads of OpenMP wait for work by turning round for 0.2 s: whoever is measured
# next would have a core less.
os.environ.setdefault("KMP_BLOCKTIME", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
BASE, COMPILED = "rlxweb, NumPy", "rlxweb, compiled"
_NAMES = ("ducc0", "mkl_fft", "pyfftw", "torch", "jax", "onnx", "onnxruntime", "mne")


@cache
def library(name: str) -> Any:
    """The module, or why it is not there."""
    try:
        return import_module(name)
    except Exception as error:  # a library may break in ways of its own
        return f"{type(error).__name__}: {error}"


def missing() -> dict[str, str]:
    """Peers that cannot run here, with the reasons."""
    found = {name: library(name) for name in _NAMES}
    reasons = {name: why for name, why in found.items() if isinstance(why, str)}
    if not is_installed():
        reasons["llvmlite"] = "it is not installed"
    return reasons


def in_mode(mode: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call under RLX_FAST=mode."""

    def run() -> Any:
        os.environ["RLX_FAST"] = mode
        return call()

    return run


def engines() -> Iterator[tuple[str, str, str]]:
    """Our rows: name, engine in words, RLX_FAST."""
    yield BASE, f"NumPy {np.__version__}", "off"
    if is_installed():
        yield COMPILED, processor().words, "wait"


def jax_on_cpu(jax: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by XLA for the CPU, waited for."""
    (cpu, *_) = jax.devices("cpu")
    compiled = jax.jit(function)

    def run(*arrays: np.ndarray) -> Any:
        given = [jax.device_put(one, cpu) for one in arrays]
        return jax.block_until_ready(compiled(*given))

    return run


def onnx_on_cpu(
    nodes: list[Any], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray]
) -> Callable[[], np.ndarray]:
    """A graph of ONNX nodes, of which the last makes "out", by ONNX Runtime.

    Errors   ImportError where one of both is not installed.
    """
    onnx = library("onnx")
    if isinstance(onnx, str):
        raise ImportError(onnx)
    f32, made = onnx.TensorProto.FLOAT, onnx.helper
    graph = made.make_graph(
        nodes,
        "bench",
        [made.make_tensor_value_info(n, f32, a.shape) for n, a in inputs.items()],
        [made.make_tensor_value_info("out", f32, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = made.make_model(
        graph, opset_imports=[made.make_opsetid("", 20)], ir_version=10
    )
    run = session(model.SerializeToString()).run
    return lambda: run(None, inputs)[0]


def session(
    file: bytes,
    *,
    threads: int = THREADS,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
) -> Any:
    """ONNX Runtime's session of a model, on the CPU where nothing else is said.

    Providers are names, or pairs of a name and its options.

    Errors   ImportError where it is not installed.
    """
    ort = library("onnxruntime")
    if isinstance(ort, str):
        raise ImportError(ort)
    how = ort.SessionOptions()
    how.intra_op_num_threads = threads
    # Threads that spin would take the next peer's processor.
    how.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(file, how, providers=list(providers))
