"""A graph prepared for a tab: compiled for its WebGPU and recorded, params and all.

The engine is the ordinary one, over a port that keeps what it is asked; so kernels,
splits and buffers are those that a tab on a GPU would get. What a page cannot run is
refused here, with the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlxweb.backends.protocol import Array
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.backends.webgpu_program import WebGpuProgram
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan import Held, Plan
from rlxweb.errors import (
    DTypeError,
    InputError,
    LimitExceeded,
    RlxError,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.gpu.recording import RecordingPort
from rlxweb.ir.dtype import NARROW
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits

FEATURES = ("shader-f16",)
"""WebGPU features that a plan can make use of."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A prepared graph as data; `port` holds buffers, writes and pipelines."""

    graph: Graph
    program: WebGpuProgram
    port: RecordingPort


def recorded(
    graph: Graph,
    params: Mapping[str, Array],
    *,
    limits: Limits | None = None,
    features: Sequence[str] = (),
    software: bool = False,
    doing: str = "",
) -> Recorded:
    """The graph, compiled and prepared for a tab.

    params    every param's array, of its dtype and shape
    limits    what the plan may use of a device; None: WebGPU's defaults
    features  those of FEATURES that a device must have
    software  for a browser without a GPU, which computes on the CPU's own cores
    Errors    InputError for params without a value; DTypeError, Unsupported,
              LimitExceeded for what a page cannot run, with the node.
    """
    doing = doing or f"export '{graph.name}'"
    unset = [name for name in graph.named("param") if name not in params]
    if unset:
        raise InputError(
            doing,
            f"param {', '.join(map(repr, unset))} has no value",
            f"{len(unset)} of {len(graph.named('param'))} params unset",
            "call set_param first: a page has the values that are exported with it",
        )
    most = limits or Limits()
    port = RecordingPort(most, _known(features), software=software)
    drive(port.open(Want(features=FEATURES, limits=most)))
    return drive(_recorded(graph, params, port, doing))


async def _recorded(
    graph: Graph, params: Mapping[str, Array], port: RecordingPort, doing: str
) -> Recorded:
    backend = WebGpuBackend(port)
    for node in graph.nodes():
        if node.type.dtype in NARROW:
            raise DTypeError(
                f"{doing}: {node}",
                f"it is {node.type.dtype}, which the module of a page does not know",
                "arrays there are f32, i32, u32, f16 and bool",
                "cast it to i32 or f32 in Python, before the export",
            )
    with _saying(doing):
        plan = compile_graph(graph, backend.target)
        _check_types(graph, plan)
        program = await backend.prepare(plan)
    for name in program.params.handles:
        await backend.set_param(program, name, params[name])
    for command in program.commands:
        port.check(command)
    return Recorded(graph, program, port)


def _check_types(graph: Graph, plan: Plan) -> None:
    """Errors  DTypeError for doubles that a page would have to look through."""
    for name in graph.named("input"):
        held = plan.given.get(name)
        if held is not None and held.dtype.is_float:
            raise _no_array_of(f"input '{name}'", held)
    for at, back in enumerate(plan.returned):
        if back is not None and back.dtype.is_float:
            raise _no_array_of(f"output {at}", back)


def _no_array_of(what: str, held: Held) -> DTypeError:
    return DTypeError(what, f"a page has no {held.dtype}")


def _known(features: Sequence[str]) -> tuple[str, ...]:
    for name in features:
        if name not in FEATURES:
            raise UsageError(
                "export", f"unknown feature {name!r}", f"known: {', '.join(FEATURES)}"
            )
    return tuple(features)


@contextmanager
def _saying(doing: str) -> Iterator[None]:
    """What a page cannot run, with what to do about it where that is exported."""
    try:
        yield
    except (DTypeError, LimitExceeded, Unsupported) as error:
        error.doing = f"{doing}: {error.doing}"
        error.hint = _hint(error)
        raise


def _hint(error: RlxError) -> str:
    if isinstance(error, LimitExceeded):
        return "export smaller inputs or fewer rows, or raise the limits of the export"
    if isinstance(error, DTypeError) and "no f16" in error.problem:
        return "cast to f32, or export with features=('shader-f16',)"
    if isinstance(error, DTypeError):
        return "cast to f32 or i32 before the export: WebGPU has no wider types"
    return "a page runs WGSL only: compute that in Python, or give the op WGSL"
