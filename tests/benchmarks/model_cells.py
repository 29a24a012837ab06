"""Whole networks against runtimes of ONNX that others wrote, on the same file.

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
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import BASE, COMPILED, engines, in_mode, library
from tests.benchmarks.libraries import session as onnx_session
from tests.benchmarks.machine import lavapipe
from tests.benchmarks.model_files import Arrays, Known
from tests.benchmarks.peer_cells import tinygrad

WORST = 2e-4
"""Of the largest number of an output: the networks are six to fifty layers deep."""

PATIENCE_S = 240
"""For tinygrad's compiler, which takes minutes for some networks."""
COMPILES = 2
"""Calls of a TinyJit before it only replays what it captured."""

Run = Callable[[], Mapping[str, np.ndarray]]


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it."""
    for name, one in model_files.known().items():
        yield f"model cpu {name}", partial(_on_cpu, f"model cpu {name}", one)
        if lavapipe() is not None:
            yield (
                f"model lavapipe {name}",
                partial(_on_lavapipe, f"model lavapipe {name}", one),
            )


def missing() -> dict[str, str]:
    """Models that are not installed, with the reasons."""
    return model_files.missing()


def _on_cpu(name: str, one: Known) -> Work:
    file = one.file()
    entries, closing = [], []
    for own, engine, mode in engines():
        os.environ["RLX_FAST"] = mode
        model = rlx.onnx.load(file)
        closing.append(model.close)
        run = partial(model.run, one.inputs, device="cpu")
        entries.append(Entry(own, engine, in_mode(mode, run), True))
    peer = "ONNX Runtime"
    if not isinstance(library("onnxruntime"), str):
        entries.append(Entry(peer, peer, by_onnx_runtime(file, one.inputs)))
    goals = (Goal(COMPILED, (peer,), 1.2), Goal(BASE, (peer,), 2.0))
    return work(name, entries, goals, closing)


def _on_lavapipe(name: str, one: Known) -> Work:
    facts = lavapipe()
    assert facts is not None
    file, ours, peer = one.file(), "rlxweb, call", "tinygrad, call"
    model = rlx.onnx.load(file)
    run = partial(model.run, one.inputs, device="vulkan", adapter="llvmpipe")
    entries = [Entry(ours, facts.name, run, True)]
    theirs, absent = by_tinygrad(file, one.inputs), {}
    if isinstance(theirs, str):
        absent[peer] = theirs
    else:
        entries.append(Entry(peer, "tinygrad on Dawn", theirs))
    made = work(name, entries, (Goal(ours, (peer,), 0.5),), [model.close])
    return replace(made, absent=absent)


def work(
    name: str,
    entries: list[Entry],
    goals: tuple[Goal, ...],
    closing: list[Callable[[], None]],
) -> Work:
    """A cell whose peers agree with the first of them."""

    def check() -> None:
        right: Any = entries[0].peer()
        for entry in entries[1:]:
            found: Any = entry.peer()
            agree(entry.name, found, right)

    def close() -> None:
        for one in closing:
            one()

    return Work(name, tuple(entries), goals, check, close=close)


def agree(name: str, found: Arrays, right: Arrays) -> None:
    """Errors  AssertionError where an answer of a peer is another one."""
    for key, array in right.items():
        wanted = np.asarray(array, np.float64)
        far = np.max(np.abs(np.asarray(found[key], np.float64) - wanted))
        worst = float(far / max(1e-3, np.max(np.abs(wanted))))
        assert worst < WORST, f"{name}, {key}: relative error {worst:.2g}"


def by_onnx_runtime(file: bytes, inputs: Arrays, **how: Any) -> Run:
    """A run of ONNX Runtime; `how` are arguments of `libraries.session`."""
    made = onnx_session(file, **how)
    names = [one.name for one in made.get_outputs()]
    return lambda: dict(zip(names, made.run(names, dict(inputs)), strict=True))


def by_tinygrad(
    file: bytes, inputs: Arrays, patience_s: float = PATIENCE_S
) -> Run | str:
    """A run of tinygrad, or why it has none: not compiled in that time, say."""
    tiny = tinygrad()
    if isinstance(tiny, str):
        return tiny
    try:
        from tinygrad.nn.onnx import OnnxRunner

        runner = OnnxRunner(tiny.Tensor(file))
        names = list(runner.graph_inputs)

        @tiny.TinyJit
        def jitted(*given: Any) -> dict[str, Any]:
            made = runner(dict(zip(names, given, strict=True)))
            return {key: one.realize() for key, one in made.items()}

        def run() -> dict[str, np.ndarray]:
            given = [tiny.Tensor(inputs[name]).clone().realize() for name in names]
            return {key: one.numpy() for key, one in jitted(*given).items()}

        with within(patience_s):
            for _ in range(COMPILES):
                run()
    except Exception as error:  # it lacks ops, and breaks in ways of its own
        return f"{type(error).__name__}: {error}"[:200]
    return run


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Errors  TimeoutError in what runs inside and takes longer; main thread only.

    Somebody else's alarm, as a test's deadline is, is put off until after.
    """

    def late(*_: object) -> None:
        raise TimeoutError(f"it was not compiled in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    others = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)
