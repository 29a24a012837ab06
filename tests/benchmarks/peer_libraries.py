"""Libraries that rlxweb is measured against on the CPU, and rlxweb's own two engines
there.

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

from rlxweb.codegen.llvm_compiler import host_cpu, is_installed

THREADS = 2
# The threads of OpenMP wait for work by turning round for 0.2 s: whoever is measured
# next would have a core less.
os.environ.setdefault("KMP_BLOCKTIME", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
NUMPY_PEER, COMPILED_PEER = "rlxweb, NumPy", "rlxweb, compiled"
_LIBRARY_NAMES = (
    "ducc0",
    "mkl_fft",
    "pyfftw",
    "torch",
    "jax",
    "onnx",
    "onnxruntime",
    "mne",
)


@cache
def load_library(name: str) -> Any:
    """Return the module, or the reason why it cannot be imported."""
    try:
        return import_module(name)
    except Exception as error:  # a library may break in ways of its own
        return f"{type(error).__name__}: {error}"


def missing_libraries() -> dict[str, str]:
    """Return the peers that cannot run here, with the reasons."""
    modules = {name: load_library(name) for name in _LIBRARY_NAMES}
    reasons = {
        name: reason for name, reason in modules.items() if isinstance(reason, str)
    }
    if not is_installed():
        reasons["llvmlite"] = "it is not installed"
    return reasons


def with_jit_mode(mode: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """Return the call under RLX_FAST=mode."""

    def run() -> Any:
        os.environ["RLX_FAST"] = mode
        return call()

    return run


def our_engines() -> Iterator[tuple[str, str, str]]:
    """Yield our rows: name, engine in words, RLX_FAST."""
    yield NUMPY_PEER, f"NumPy {np.__version__}", "off"
    if is_installed():
        yield COMPILED_PEER, host_cpu().description, "wait"


def jax_on_cpu(jax: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled by XLA for the CPU; each call waits for its
    result.
    """
    (cpu, *_) = jax.devices("cpu")
    compiled = jax.jit(function)

    def run(*arrays: np.ndarray) -> Any:
        device_arrays = [jax.device_put(array, cpu) for array in arrays]
        return jax.block_until_ready(compiled(*device_arrays))

    return run


def onnx_on_cpu(
    nodes: list[Any], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray]
) -> Callable[[], np.ndarray]:
    """Return a run by ONNX Runtime of a graph of ONNX nodes, of which the last makes
    "out".

    Errors   ImportError where one of both is not installed.
    """
    onnx = load_library("onnx")
    if isinstance(onnx, str):
        raise ImportError(onnx)
    f32, helper = onnx.TensorProto.FLOAT, onnx.helper
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info(n, f32, a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info("out", f32, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    run = open_onnx_session(model.SerializeToString()).run
    return lambda: run(None, inputs)[0]


def open_onnx_session(
    file: bytes,
    *,
    threads: int = THREADS,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
) -> Any:
    """Open ONNX Runtime's session of a model, by default on the CPU.

    Providers are names, or pairs of a name and its options.

    Errors   ImportError where it is not installed.
    """
    ort = load_library("onnxruntime")
    if isinstance(ort, str):
        raise ImportError(ort)
    session_options = ort.SessionOptions()
    session_options.intra_op_num_threads = threads
    # Threads that spin would take the next peer's processor.
    session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(file, session_options, providers=list(providers))
