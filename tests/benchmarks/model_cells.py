"""Benchmark cells of whole networks on the CPU and on lavapipe, against other ONNX
runtimes on the same file.

On the CPU against ONNX Runtime with two threads; on lavapipe against tinygrad's runner
of ONNX, compiled once (TinyJit). A call: arrays of the host in, arrays of the host out.
The first call of ours converts, compiles and uploads; theirs does what it does then.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import rlxweb as rlx
from tests.benchmarks import model_files
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.machine_facts import find_lavapipe
from tests.benchmarks.model_files import Arrays, BenchmarkModel
from tests.benchmarks.peer_gpu_runtime_cells import load_tinygrad
from tests.benchmarks.peer_libraries import (
    COMPILED_PEER,
    NUMPY_PEER,
    load_library,
    our_engines,
    with_jit_mode,
)
from tests.benchmarks.peer_libraries import open_onnx_session as onnx_session

MAX_RELATIVE_ERROR = 2e-4
"""Error limit relative to the largest number of an output: the networks are six to
fifty layers deep.
"""

COMPILE_TIMEOUT_S = 240
"""Time limit of tinygrad's compiler, which takes minutes for some networks."""
N_COMPILING_CALLS = 2
"""Number of calls of a TinyJit before it only replays what it captured."""

ModelRun = Callable[[], Mapping[str, np.ndarray]]


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory."""
    for name, benchmark_model in model_files.installed_models().items():
        yield (
            f"model cpu {name}",
            partial(_cpu_cell, f"model cpu {name}", benchmark_model),
        )
        if find_lavapipe() is not None:
            yield (
                f"model lavapipe {name}",
                partial(_lavapipe_cell, f"model lavapipe {name}", benchmark_model),
            )


def missing_models() -> dict[str, str]:
    """Return the models that are not installed, with the reasons."""
    return model_files.missing_models()


def _cpu_cell(name: str, benchmark_model: BenchmarkModel) -> BenchmarkCell:
    file = benchmark_model.load_bytes()
    entries, closers = [], []
    for our_name, engine, mode in our_engines():
        os.environ["RLX_FAST"] = mode
        model = rlx.onnx.load(file)
        closers.append(model.close)
        run = partial(model.run, benchmark_model.inputs, device="cpu")
        entries.append(PeerEntry(our_name, engine, with_jit_mode(mode, run), True))
    peer = "ONNX Runtime"
    if not isinstance(load_library("onnxruntime"), str):
        entries.append(
            PeerEntry(peer, peer, onnx_runtime_run(file, benchmark_model.inputs))
        )
    goals = (Goal(COMPILED_PEER, (peer,), 1.2), Goal(NUMPY_PEER, (peer,), 2.0))
    return make_cell(name, entries, goals, closers)


def _lavapipe_cell(name: str, benchmark_model: BenchmarkModel) -> BenchmarkCell:
    facts = find_lavapipe()
    assert facts is not None
    file, ours, peer = benchmark_model.load_bytes(), "rlxweb, call", "tinygrad, call"
    model = rlx.onnx.load(file)
    run = partial(
        model.run, benchmark_model.inputs, device="vulkan", adapter="llvmpipe"
    )
    entries = [PeerEntry(ours, facts.name, run, True)]
    tinygrad_call, absent_peers = tinygrad_run(file, benchmark_model.inputs), {}
    if isinstance(tinygrad_call, str):
        absent_peers[peer] = tinygrad_call
    else:
        entries.append(PeerEntry(peer, "tinygrad on Dawn", tinygrad_call))
    cell = make_cell(name, entries, (Goal(ours, (peer,), 0.5),), [model.close])
    return replace(cell, absent_peers=absent_peers)


def make_cell(
    name: str,
    entries: list[PeerEntry],
    goals: tuple[Goal, ...],
    closers: list[Callable[[], None]],
) -> BenchmarkCell:
    """Return a cell that checks its peers against the first of them."""

    def check() -> None:
        expected: Any = entries[0].run()
        for entry in entries[1:]:
            actual: Any = entry.run()
            check_agreement(entry.name, actual, expected)

    def close() -> None:
        for close_model in closers:
            close_model()

    return BenchmarkCell(name, tuple(entries), goals, check, close=close)


def check_agreement(name: str, actual: Arrays, expected: Arrays) -> None:
    """Check that a peer's answers equal the expected ones. Errors  AssertionError."""
    for key, array in expected.items():
        expected_f64 = np.asarray(array, np.float64)
        max_difference = np.max(
            np.abs(np.asarray(actual[key], np.float64) - expected_f64)
        )
        relative_error = float(max_difference / max(1e-3, np.max(np.abs(expected_f64))))
        assert relative_error < MAX_RELATIVE_ERROR, (
            f"{name}, {key}: relative error {relative_error:.2g}"
        )


def onnx_runtime_run(file: bytes, inputs: Arrays, **options: Any) -> ModelRun:
    """Return a run of ONNX Runtime; `options` are arguments of
    `peer_libraries.open_onnx_session`.
    """
    session = onnx_session(file, **options)
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def tinygrad_run(
    file: bytes, inputs: Arrays, timeout_s: float = COMPILE_TIMEOUT_S
) -> ModelRun | str:
    """Return a run of tinygrad, or the reason why there is none, such as a compilation
    that took too long.
    """
    tiny = load_tinygrad()
    if isinstance(tiny, str):
        return tiny
    try:
        from tinygrad.nn.onnx import OnnxRunner

        runner = OnnxRunner(tiny.Tensor(file))
        names = list(runner.graph_inputs)

        @tiny.TinyJit
        def jitted(*tensors: Any) -> dict[str, Any]:
            outputs = runner(dict(zip(names, tensors, strict=True)))
            return {key: output.realize() for key, output in outputs.items()}

        def run() -> dict[str, np.ndarray]:
            tensors = [tiny.Tensor(inputs[name]).clone().realize() for name in names]
            return {key: output.numpy() for key, output in jitted(*tensors).items()}

        with time_limit(timeout_s):
            for _ in range(N_COMPILING_CALLS):
                run()
    except Exception as error:  # it lacks ops, and breaks in ways of its own
        return f"{type(error).__name__}: {error}"[:200]
    return run


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a body that takes longer; main thread only.

    Somebody else's alarm, as a test's deadline is, is put off until after.
    """

    def raise_timeout(*_: object) -> None:
        raise TimeoutError(f"it was not compiled in {seconds:g} s")

    previous_handler = signal.signal(signal.SIGALRM, raise_timeout)
    previous_timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
        signal.setitimer(signal.ITIMER_REAL, *previous_timer)
