"""Fault injection for tests: corrupt one case, or break the process it runs in.

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

from rlxweb.core.errors import DeviceLost, UsageError, did_you_mean
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import PreparedCase, SmokeCase
from rlxweb.smoke.case_name_pattern import NamePattern, parse_pattern

RawWrite = Callable[[str], object]
_CHUNK_NBYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class FaultInjector:
    """Fault and the cases it is injected into; without a kind nothing happens."""

    kind: str
    pattern: NamePattern
    write: RawWrite

    @classmethod
    def parse(cls, text: str, write: RawWrite) -> FaultInjector:
        """Parse `KIND:PATTERN`. Raises UsageError for an unknown kind."""
        kind, _, pattern = text.partition(":")
        if kind and kind not in (*_FAULTS, "kernel", "open"):
            known_kinds = [*_FAULTS, "kernel", "open"]
            hint = (
                did_you_mean(kind, known_kinds)
                or f"known kinds: {', '.join(known_kinds)}"
            )
            raise UsageError("sabotage", f"unknown kind {kind!r}", hint=hint)
        return cls(kind, parse_pattern(pattern), write)

    def apply_before_open(self, key: str) -> None:
        """Abort the process before the engine is opened, if that is the fault."""
        if self.kind == "open" and self.pattern(key):
            os.abort()

    def apply_before_case(self, name: str) -> None:
        """Inject a process fault in place of the case; this may not return."""
        if self.kind in _FAULTS and self.pattern(name):
            _FAULTS[self.kind](self.write)

    def corrupt_case(self, case: SmokeCase) -> SmokeCase:
        """Return the case with a kernel that is wrong in one element."""
        if self.kind != "kernel" or not self.pattern(case.name):
            return case
        return replace(case, prepare=partial(prepare_corrupted, case.prepare))


def _crash(write: RawWrite) -> None:
    """Crash the process with a segmentation fault."""
    if sys.platform == "win32":
        os.abort()
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(write: RawWrite) -> None:
    """Wait forever."""
    Event().wait()


def _interrupt_parent(write: RawWrite) -> None:
    """Send Ctrl-C to the parent process, then hang."""
    os.kill(os.getppid(), signal.SIGINT)
    _hang(write)


def _exhaust_memory(write: RawWrite) -> None:
    """Allocate memory without end."""
    chunks = []
    while True:
        chunks.append(np.ones(_CHUNK_NBYTES, np.uint8))


def _lose_device(write: RawWrite) -> None:
    """Raise the error of a lost device."""
    raise DeviceLost("run", "the device was lost on purpose")


_FAULTS: dict[str, Callable[[RawWrite], object]] = {
    "crash": _crash,
    "abort": lambda write: os.abort(),
    "exit": lambda write: os._exit(7),
    "hang": _hang,
    "memory": _exhaust_memory,
    "garbage": lambda write: write("\x1b[2Jno answer\n"),
    "lose": _lose_device,
    "stop": _interrupt_parent,
}


def middle_index(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of the element that a corrupted kernel gets wrong."""
    index = np.unravel_index(math.prod(shape) // 2, shape) if shape else ()
    return tuple(int(i) for i in index)


def prepare_corrupted(prepare: Callable[[], PreparedCase]) -> PreparedCase:
    """Prepare the case with the middle element of its first output changed."""
    original, corrupted = prepare(), prepare()
    graph = corrupted.graph
    first, *others = (Tensor(graph, i) for i in graph.outputs)
    if math.prod(first.shape):
        graph.set_outputs([_corrupt_output(graph, first), *others])
    return PreparedCase(graph, original.feeds, original.judge)


def _corrupt_output(graph: Graph, out: Tensor) -> Tensor:
    """Return the output with its middle element changed."""
    mask = np.zeros(out.shape, np.bool_)
    mask[middle_index(out.shape)] = True
    mask_constant = graph.constant(mask)
    if out.dtype is DType.BOOL:
        return graph.ne(out, mask_constant)
    # Never the number it was, nor near it.
    wrong_value = abs(out) * 2 + 1 if out.dtype.is_float else out + 1
    return graph.where(mask_constant, wrong_value, out)
