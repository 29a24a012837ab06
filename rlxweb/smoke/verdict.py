"""Run of a case on an engine: judged against NumPy in float64, and timed.

Owns the word for what came of it. Which cases there are is decided elsewhere; the
comparison itself is in `rlxweb.engines.reference_comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import DTypeError, LimitExceeded, Unsupported
from rlxweb.cost.graph_work import node_flops
from rlxweb.engines.capabilities import with_limits, with_variant
from rlxweb.engines.protocol import Array, Engine, Program
from rlxweb.engines.reference_comparison import ComparisonResult, graph_dtypes
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import registry
from rlxweb.runtime.input_validation import validate_array
from rlxweb.smoke.case import PreparedCase, SmokeCase

VerdictWord = Literal["right", "wrong", "refused"]
CorruptOutput = Callable[[Array], Array]
_WARM_BUDGET_NS = 20_000_000
"""Time budget of the warm runs, whose number is limited as well."""
MAX_WARM_RUNS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a case on an engine.

    word        "right"; "wrong", also for an error it should not have raised; or
                "refused": the engine has not that type or op and says so
    why         the reason, "" when right
    error       the error itself, if there was one
    comparison  the comparison, when there was a result
    prepare_ns  making the program
    run_ns      the first run of it; with prepare_ns the cold time
    warm_ns     the fastest of the runs after that; 0 where there was none
    flops       arithmetic operations of the graph, by its ops' records
    nbytes      bytes of what is fed and of what comes out
    """

    word: VerdictWord
    why: str = ""
    error: Exception | None = None
    comparison: ComparisonResult | None = None
    prepare_ns: int = 0
    run_ns: int = 0
    warm_ns: int = 0
    flops: float = 0.0
    nbytes: int = 0


@dataclass(slots=True)
class _CaseRun:
    """Outputs of a program, the dtypes it computed in, and its times."""

    dtypes: set[DType]
    outputs: Sequence[Any]
    prepare_ns: int
    run_ns: int
    warm_ns: int = 0
    repeated_outputs: Sequence[Any] | None = None


async def check_case(
    case: SmokeCase,
    engine: Engine,
    corrupt_output: CorruptOutput | None = None,
    warm_runs: int = 0,
) -> Verdict:
    """Run a case on an open engine and judge the result.

    corrupt_output  changes the result before it is judged: the proof that wrong ones
                    are seen
    warm_runs  runs after the first, for its time; they must give the same
    """
    trial = case.prepare()
    unsupported_dtypes = trial.dtypes - engine.target.array_dtypes
    try:
        configured = _configured_engine(case, engine)
        case_run = await _run_case(trial, configured, case.optimise, warm_runs)
    except Exception as error:  # a driver's own failure is a verdict, not the end
        is_refusal = _can_refuse(case, trial, unsupported_dtypes, error)
        reason = str(error) if is_refusal else f"{type(error).__name__}: {error}"
        return Verdict("refused" if is_refusal else "wrong", reason, error)
    unsupported_dtypes = case_run.dtypes - engine.target.array_dtypes
    if unsupported_dtypes:
        names = ", ".join(sorted(d.value for d in unsupported_dtypes))
        return Verdict(
            "wrong",
            f"the result was computed in {names}, which the engine does not support",
        )
    return _judge_run(trial, case_run, corrupt_output)


def _configured_engine(case: SmokeCase, engine: Engine) -> Engine:
    """Return the engine with the case's limits or kernel variant."""
    if case.limits is not None:
        return with_limits(engine, case.limits)
    return with_variant(engine, case.variant) if case.variant else engine


async def _run_case(
    trial: PreparedCase, engine: Engine, optimise: bool, warm_runs: int
) -> _CaseRun:
    """Compile and run the case, then run it again for its warm time."""
    started_ns = perf_counter_ns()
    plan = compile_graph(trial.graph, engine.target, optimise=optimise)
    program = await engine.prepare(plan)
    try:
        feeds = await _load_inputs(trial, program)
        run_started_ns = perf_counter_ns()
        outputs = await engine.run(program, feeds)
        run_ns = perf_counter_ns() - run_started_ns
        case_run = _CaseRun(
            graph_dtypes(plan.graph), outputs, run_started_ns - started_ns, run_ns
        )
        total_ns = case_run.run_ns
        for _ in range(warm_runs):
            if total_ns > _WARM_BUDGET_NS and case_run.warm_ns:
                break
            run_started_ns = perf_counter_ns()
            case_run.repeated_outputs = await engine.run(program, feeds)
            elapsed_ns = perf_counter_ns() - run_started_ns
            case_run.warm_ns = min(case_run.warm_ns or elapsed_ns, elapsed_ns)
            total_ns += elapsed_ns
        return case_run
    finally:
        await program.close()


async def _load_inputs(trial: PreparedCase, program: Program) -> dict[str, Array]:
    """Set the params and return the inputs."""
    for name, node in trial.graph.named("param").items():
        value = validate_array("param", node, trial.feeds[name])
        await program.set_param(name, np.asarray(value))
    inputs = trial.graph.named("input")
    return {
        name: np.asarray(validate_array("input", node, trial.feeds[name]))
        for name, node in inputs.items()
    }


def _judge_run(
    trial: PreparedCase, case_run: _CaseRun, corrupt_output: CorruptOutput | None
) -> Verdict:
    """Judge the outputs of a run, and those of its last repetition if they differ."""
    outputs = (
        case_run.outputs
        if corrupt_output is None
        else [corrupt_output(case_run.outputs[0]), *case_run.outputs[1:]]
    )
    comparison = trial.judge(outputs)
    if (
        not comparison.reason
        and case_run.repeated_outputs is not None
        and not _equal_outputs(outputs, case_run.repeated_outputs)
    ):
        comparison = trial.judge(case_run.repeated_outputs)
        if comparison.reason:
            reason = (
                f"the first run was right, but a later run was not: {comparison.reason}"
            )
            comparison = replace(comparison, reason=reason)
    word: VerdictWord = "wrong" if comparison.reason else "right"
    return Verdict(
        word,
        comparison.reason,
        None,
        comparison,
        case_run.prepare_ns,
        case_run.run_ns,
        case_run.warm_ns,
        sum(node_flops(trial.graph, node) for node in trial.graph.nodes()),
        _io_nbytes(trial.graph),
    )


def _equal_outputs(outputs: Sequence[Any], repeated_outputs: Sequence[Any]) -> bool:
    """Return whether two runs gave the same numbers, NaN included."""
    pairs = zip(
        map(np.asarray, outputs), map(np.asarray, repeated_outputs), strict=True
    )
    return all(
        a.shape == b.shape
        and np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating))
        for a, b in pairs
    )


def _io_nbytes(graph: Graph) -> int:
    """Return the bytes of all inputs, params and outputs."""
    leaves = graph.named("input") | graph.named("param")
    output_types = [graph.node(i).type for i in graph.outputs]
    return sum(n.type.nbytes for n in leaves.values()) + sum(
        t.nbytes for t in output_types
    )


def _can_refuse(
    case: SmokeCase,
    trial: PreparedCase,
    unsupported_dtypes: set[DType],
    error: Exception,
) -> bool:
    """Return whether the engine is allowed to refuse the case with this error."""
    if unsupported_dtypes:
        return isinstance(error, DTypeError)
    if isinstance(error, LimitExceeded):
        # Reads are merged word by word, so halves need a binding each.
        return case.limits is not None and DType.F16 in trial.dtypes
    ops = {node.op for node in trial.graph.nodes()}
    has_host_only = any(isinstance(registry.get(op).lower, HostOnly) for op in ops)
    return isinstance(error, Unsupported) and has_host_only
