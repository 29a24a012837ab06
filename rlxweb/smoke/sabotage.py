"""Hooks for tests: break one case, or the process it runs in, on purpose.

`KIND:PATTERN` (hidden option `--sabotage`), for the cases whose names fit. "kernel"
changes the middle element of the first output on the engine itself, so that what is
found is a wrong result with a known place; the others end or hold up the process,
or ("stop") press Ctrl-C.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

import numpy as np

from rlxweb.errors import DeviceLost, UsageError, did_you_mean
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import Case, Trial
from rlxweb.smoke.pattern import Pattern, pattern_of

Write = Callable[[str], object]
_PIECE = 64 << 20


@dataclass(frozen=True, slots=True)
class Sabotage:
    """What is done to which cases; without a kind nothing to none."""

    kind: str
    pattern: Pattern
    write: Write

    @classmethod
    def of(cls, text: str, write: Write) -> Sabotage:
        """Errors   UsageError for a kind that there is not."""
        kind, _, pattern = text.partition(":")
        if kind and kind not in (*_DEEDS, "kernel", "open"):
            known = [*_DEEDS, "kernel", "open"]
            hint = did_you_mean(kind, known) or f"known: {', '.join(known)}"
            raise UsageError("sabotage", f"no kind {kind!r}", hint=hint)
        return cls(kind, pattern_of(pattern), write)

    def before_opening(self, key: str) -> None:
        """An engine that ends the process when it is opened."""
        if self.kind == "open" and self.pattern(key):
            os.abort()

    def before(self, name: str) -> None:
        """Done in place of the case; it may not come back."""
        if self.kind in _DEEDS and self.pattern(name):
            _DEEDS[self.kind](self.write)

    def changed(self, case: Case) -> Case:
        """The case with a kernel that is wrong in one element."""
        if self.kind != "kernel" or not self.pattern(case.name):
            return case
        return replace(case, make=partial(broken, case.make))


def _crash(write: Write) -> None:
    if sys.platform == "win32":
        os.abort()
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(write: Write) -> None:
    Event().wait()


def _stop(write: Write) -> None:
    os.kill(os.getppid(), signal.SIGINT)
    _hang(write)


def _eat(write: Write) -> None:
    eaten = []
    while True:
        eaten.append(np.ones(_PIECE, np.uint8))


def _lose(write: Write) -> None:
    raise DeviceLost("run", "the device was lost on purpose")


_DEEDS: dict[str, Callable[[Write], object]] = {
    "crash": _crash,
    "abort": lambda write: os.abort(),
    "exit": lambda write: os._exit(7),
    "hang": _hang,
    "memory": _eat,
    "garbage": lambda write: write("\x1b[2Jno answer\n"),
    "lose": _lose,
    "stop": _stop,
}


def middle(shape: Sequence[int]) -> tuple[int, ...]:
    """The index that a broken kernel gets wrong."""
    at = np.unravel_index(math.prod(shape) // 2, shape) if shape else ()
    return tuple(int(i) for i in at)


def broken(make: Callable[[], Trial]) -> Trial:
    """The trial with a graph whose first output is changed in its middle element."""
    honest, spoiled = make(), make()
    graph = spoiled.graph
    first, *others = (Tensor(graph, i) for i in graph.outputs)
    if math.prod(first.shape):
        graph.set_outputs([_changed(graph, first), *others])
    return Trial(graph, honest.feeds, honest.judge)


def _changed(graph: Graph, out: Tensor) -> Tensor:
    there = np.zeros(out.shape, np.bool_)
    there[middle(out.shape)] = True
    at = graph.constant(there)
    if out.dtype is DType.BOOL:
        return graph.ne(out, at)
    # Never the number it was, nor near it.
    other = abs(out) * 2 + 1 if out.dtype.is_float else out + 1
    return graph.where(at, other, out)
