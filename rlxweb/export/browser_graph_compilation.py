"""Compilation of a graph for a browser's WebGPU, recorded with its params.

The engine is the ordinary one, over a port that keeps what it is asked; so kernels,
splits and buffers are those that a tab on a GPU would get. What a page cannot run is
refused here, with the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.plan import DemotedValue, Plan
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    LimitExceeded,
    RlxError,
    Unsupported,
    UsageError,
)
from rlxweb.core.limits import Limits
from rlxweb.engines.protocol import Array
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.engines.webgpu.program import WebGpuProgram
from rlxweb.gpu.command_recording_port import RecordingPort
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.array_validation import unset_params_clause
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.graph import Graph

FEATURES = ("shader-f16",)
"""WebGPU features that a plan can make use of."""


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """Graph prepared for a browser as data; `port` holds buffers, writes and
    pipelines.
    """

    graph: Graph
    program: WebGpuProgram
    port: RecordingPort


def record_graph(
    graph: Graph,
    params: Mapping[str, Array],
    *,
    limits: Limits | None = None,
    features: Sequence[str] = (),
    software: bool = False,
    context: str = "",
) -> RecordedGraph:
    """Compile a graph, prepare it for a browser and record it.

    params    every param's array, of its dtype and shape
    limits    what the plan may use of a device; None: WebGPU's defaults
    features  those of FEATURES that a device must have
    software  for a browser without a GPU, which computes on the CPU's own cores
    Errors    InputError for params without a value; DTypeError, Unsupported,
              LimitExceeded for what a page cannot run, with the node.
    """
    context = context or f"export '{graph.name}'"
    unset = [name for name in graph.named("param") if name not in params]
    if unset:
        raise InputError(
            context,
            unset_params_clause(unset),
            f"{len(unset)} of {len(graph.named('param'))} params unset",
            "call set_param first: the params are exported with the page",
        )
    port_limits = limits or Limits()
    port = RecordingPort(port_limits, _check_features(features), software=software)
    run_blocking(port.open(AdapterRequest(features=FEATURES, limits=port_limits)))
    return run_blocking(_record_on_port(graph, params, port, context))


async def _record_on_port(
    graph: Graph, params: Mapping[str, Array], port: RecordingPort, context: str
) -> RecordedGraph:
    """Compile the graph, prepare it on the recording port and set its params."""
    engine = WebGpuEngine(port)
    for node in graph.nodes():
        if node.type.dtype in PACKED_DTYPES:
            raise DTypeError(
                f"{context}: {node}",
                f"a page does not support {node.type.dtype}",
                "a page supports f32, i32, u32, f16 and bool",
                "cast to i32 or f32 in Python before the export",
            )
    unsupported = {node.type.dtype for node in graph.nodes()} - engine.target.dtypes
    with _add_export_context(context, unsupported):
        plan = compile_graph(graph, engine.target)
        _check_page_types(graph, plan)
        program = await engine.prepare(plan)
    for name in program.params.handles:
        await program.set_param(name, params[name])
    for command in program.commands:
        port.check_command(command)
    return RecordedGraph(graph, program, port)


def _check_page_types(graph: Graph, plan: Plan) -> None:
    """Raise DTypeError for float64 inputs or outputs, which a page cannot check and
    convert.
    """
    for name in graph.named("input"):
        demoted_input = plan.demoted_inputs.get(name)
        if demoted_input is not None and demoted_input.dtype.is_float:
            raise _missing_array_error(f"input '{name}'", demoted_input)
    for index, demoted_output in enumerate(plan.demoted_outputs):
        if demoted_output is not None and demoted_output.dtype.is_float:
            raise _missing_array_error(f"output {index}", demoted_output)


def _missing_array_error(array_name: str, demoted: DemotedValue) -> DTypeError:
    """Return the error for a dtype that pages do not have."""
    return DTypeError(array_name, f"a page does not support {demoted.dtype}")


def _check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return the features as a tuple; raise UsageError for an unknown one."""
    for name in features:
        if name not in FEATURES:
            raise UsageError(
                "export",
                f"unknown feature {name!r}",
                f"known features: {', '.join(FEATURES)}",
            )
    return tuple(features)


@contextmanager
def _add_export_context(context: str, unsupported: Set[DType]) -> Iterator[None]:
    """Add the export to the context of errors inside the block, and a hint for it.

    unsupported  dtypes of the graph that the page does not compute in
    """
    try:
        yield
    except (DTypeError, LimitExceeded, Unsupported) as error:
        error.doing = f"{context}: {error.doing}"
        error.hint = _export_hint(error, unsupported)
        raise


def _export_hint(error: RlxError, unsupported: Set[DType]) -> str:
    """Return the advice for an error of the export."""
    if isinstance(error, LimitExceeded):
        return (
            "export a graph with smaller inputs or fewer rows, or pass larger `limits`"
        )
    if isinstance(error, DTypeError) and unsupported == {DType.F16}:
        return "cast to f32, or export with features=('shader-f16',)"
    if isinstance(error, DTypeError):
        return "cast to f32 or i32 before the export: WebGPU has no 64-bit types"
    return "a page runs only WGSL: compute the op in Python, or provide WGSL for the op"
