"""Is an engine right? Samples of ops, run on it and judged by NumPy in float64.

Owns the cases, one op on one of its samples, and the verdict on each. The tests, the
command line and the browser page all judge by what is written here; the comparison is
in `rlxweb.backends.agreement`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Literal

from rlxweb.backends.agreement import (
    Agreement,
    compare,
    dtypes_of,
    feeds_of,
    one_op,
    oracle,
)
from rlxweb.backends.protocol import Array, Backend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import DTypeError, Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample


def checked_ops() -> list[Op]:
    """Every op of the vocabulary that computes something, by name."""
    return sorted((op for op in registry if not op.has("leaf")), key=lambda op: op.name)


@dataclass(frozen=True, slots=True)
class Case:
    """An op on one of its samples: the graph of the two, and arrays to feed it."""

    op: Op
    sample: Sample
    graph: Graph
    feeds: dict[str, Array]

    @property
    def out(self) -> DType:
        return self.graph.node(self.graph.outputs[0]).type.dtype


def case_of(op: Op, at: int) -> Case:
    """The case of sample number `at`; the same arrays every time."""
    sample = op.samples[at]
    arrays = sample.draw(at)
    return Case(op, sample, one_op(op, sample, arrays), feeds_of(arrays))


Word = Literal["right", "wrong", "refused"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an engine made of a case.

    word       "right"; "wrong", also for an error it should not have raised; or
               "refused": the engine has not that type or op and says so
    why        the reason, "" when right
    raised     the error itself, if there was one
    agreement  the comparison, when there was a result
    """

    word: Word
    why: str = ""
    raised: Exception | None = None
    agreement: Agreement | None = None
    prepare_ns: int = 0
    run_ns: int = 0


async def check_case(
    case: Case, backend: Backend, spoil: Callable[[Array], Array] | None = None
) -> Verdict:
    """Run a case on an open backend and judge the result.

    spoil   changes the result before it is judged: the proof that wrong ones are seen
    """
    missing = dtypes_of(case.graph) - backend.target.dtypes
    try:
        got, prepare_ns, run_ns = await _computed(case, backend)
    except Exception as error:  # a driver's own failure is a verdict, not the end
        refused = _may_refuse(case, bool(missing), error)
        said = str(error) if refused else f"{type(error).__name__}: {error}"
        return Verdict("refused" if refused else "wrong", said, error)
    if missing:
        names = ", ".join(sorted(d.value for d in missing))
        return Verdict("wrong", f"it computed in {names}, which it has not")
    spoiled = got if spoil is None else spoil(got)
    want = oracle(case.graph, case.feeds)[0]
    found = compare(spoiled, want, case.out, case.op.tolerance)
    word: Word = "wrong" if found.why else "right"
    return Verdict(word, found.why, None, found, prepare_ns, run_ns)


async def _computed(case: Case, backend: Backend) -> tuple[Array, int, int]:
    """The result, and how long making the program and running it took."""
    begun = perf_counter_ns()
    program = await backend.prepare(compile_graph(case.graph, backend.target))
    try:
        ready = perf_counter_ns()
        outs = await backend.run(program, case.feeds)
        return outs[0], ready - begun, perf_counter_ns() - ready
    finally:
        await backend.release(program)


def _may_refuse(case: Case, lacks_dtype: bool, error: Exception) -> bool:
    if lacks_dtype:
        return isinstance(error, DTypeError)
    return isinstance(error, Unsupported) and isinstance(case.op.lower, HostOnly)
