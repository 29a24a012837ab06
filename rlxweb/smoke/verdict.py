"""A case on an engine: run, judged by NumPy in float64, and timed.

Owns the word for what came of it. Which cases there are is decided elsewhere; the
comparison itself is in `rlxweb.backends.agreement`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np

from rlxweb.backends.agreement import Agreement, dtypes_of
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.graph_work import flops_of
from rlxweb.errors import DTypeError, LimitExceeded, Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import registry
from rlxweb.runtime.feeds import as_input
from rlxweb.smoke.case import Case, Trial

Word = Literal["right", "wrong", "refused"]
Spoil = Callable[[Array], Array]
_ENOUGH_NS = 20_000_000
"""Warm runs are repeated for so long, and at most so often."""
MOST_RUNS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an engine made of a case.

    word        "right"; "wrong", also for an error it should not have raised; or
                "refused": the engine has not that type or op and says so
    why         the reason, "" when right
    raised      the error itself, if there was one
    agreement   the comparison, when there was a result
    prepare_ns  making the program
    run_ns      the first run of it; with prepare_ns the cold time
    warm_ns     the fastest of the runs after that; 0 where there was none
    flops       arithmetic operations of the graph, by its ops' records
    nbytes      bytes of what is fed and of what comes out
    """

    word: Word
    why: str = ""
    raised: Exception | None = None
    agreement: Agreement | None = None
    prepare_ns: int = 0
    run_ns: int = 0
    warm_ns: int = 0
    flops: float = 0.0
    nbytes: int = 0


@dataclass(slots=True)
class _Run:
    """What a program computed in, what it gave, and how long it took."""

    dtypes: set[DType]
    outs: Sequence[Any]
    prepare_ns: int
    run_ns: int
    warm_ns: int = 0
    again: Sequence[Any] | None = None


async def check_case(
    case: Case, backend: Backend, spoil: Spoil | None = None, warm: int = 0
) -> Verdict:
    """Run a case on an open backend and judge the result.

    spoil   changes the result before it is judged: the proof that wrong ones are seen
    warm    runs after the first, for its time; they must give the same
    """
    trial = case.make()
    missing = trial.dtypes - backend.target.accepts
    try:
        way = _way_of(case, backend)
        found = await _ran(trial, way, case.optimise, warm)
    except Exception as error:  # a driver's own failure is a verdict, not the end
        refused = _may_refuse(case, trial, missing, error)
        said = str(error) if refused else f"{type(error).__name__}: {error}"
        return Verdict("refused" if refused else "wrong", said, error)
    missing = found.dtypes - backend.target.accepts
    if missing:
        names = ", ".join(sorted(d.value for d in missing))
        return Verdict("wrong", f"it computed in {names}, which it has not")
    return _judged(trial, found, spoil)


def _way_of(case: Case, backend: Backend) -> Backend:
    """The engine, as the case wants it."""
    if case.limits is not None:
        return backend.limited(case.limits)
    return backend.forced(case.variant) if case.variant else backend


async def _ran(trial: Trial, backend: Backend, optimise: bool, warm: int) -> _Run:
    begun = perf_counter_ns()
    plan = compile_graph(trial.graph, backend.target, optimise=optimise)
    program = await backend.prepare(plan)
    try:
        feeds = await _fed(trial, backend, program)
        ready = perf_counter_ns()
        outs = await backend.run(program, feeds)
        run_ns = perf_counter_ns() - ready
        found = _Run(dtypes_of(plan.graph), outs, ready - begun, run_ns)
        spent = found.run_ns
        for _ in range(warm):
            if spent > _ENOUGH_NS and found.warm_ns:
                break
            ready = perf_counter_ns()
            found.again = await backend.run(program, feeds)
            took = perf_counter_ns() - ready
            found.warm_ns = min(found.warm_ns or took, took)
            spent += took
        return found
    finally:
        await backend.release(program)


async def _fed(trial: Trial, backend: Backend, program: Program) -> dict[str, Array]:
    """The inputs, once the params are where they belong."""
    for name, node in trial.graph.named("param").items():
        value = as_input("param", node, trial.feeds[name])
        await backend.set_param(program, name, np.asarray(value))
    inputs = trial.graph.named("input")
    return {
        name: np.asarray(as_input("input", node, trial.feeds[name]))
        for name, node in inputs.items()
    }


def _judged(trial: Trial, found: _Run, spoil: Spoil | None) -> Verdict:
    outs = found.outs if spoil is None else [spoil(found.outs[0]), *found.outs[1:]]
    agreement = trial.judge(outs)
    if not agreement.why and found.again is not None and not _equal(outs, found.again):
        agreement = trial.judge(found.again)
        if agreement.why:
            why = f"the first run was right, a later one not: {agreement.why}"
            agreement = replace(agreement, why=why)
    word: Word = "wrong" if agreement.why else "right"
    return Verdict(
        word,
        agreement.why,
        None,
        agreement,
        found.prepare_ns,
        found.run_ns,
        found.warm_ns,
        sum(flops_of(trial.graph, node) for node in trial.graph.nodes()),
        _moved(trial.graph),
    )


def _equal(outs: Sequence[Any], again: Sequence[Any]) -> bool:
    """The same numbers, NaN where there was NaN."""
    pairs = zip(map(np.asarray, outs), map(np.asarray, again), strict=True)
    return all(
        a.shape == b.shape
        and np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating))
        for a, b in pairs
    )


def _moved(graph: Graph) -> int:
    """Bytes of all inputs and params, and of the outputs."""
    leaves = graph.named("input") | graph.named("param")
    outs = [graph.node(i).type for i in graph.outputs]
    return sum(n.type.nbytes for n in leaves.values()) + sum(t.nbytes for t in outs)


def _may_refuse(
    case: Case, trial: Trial, missing: set[DType], error: Exception
) -> bool:
    if missing:
        return isinstance(error, DTypeError)
    if isinstance(error, LimitExceeded):
        # Reads are merged word by word, so halves need a binding each.
        return case.limits is not None and DType.F16 in trial.dtypes
    ops = {node.op for node in trial.graph.nodes()}
    host_only = any(isinstance(registry.get(op).lower, HostOnly) for op in ops)
    return isinstance(error, Unsupported) and host_only
