"""Optional capabilities of engines, and what is done where an engine lacks one.

An engine with a capability is a subclass of its class. Callers ask by `isinstance`, or
call the function here that does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from rlxweb.core.errors import Unsupported
from rlxweb.engines.protocol import Array, DeviceBuffer, Engine, Feeds, Program
from rlxweb.engines.timed_run_result import TimedRun

if TYPE_CHECKING:
    from rlxweb.compiler.plan import Plan
    from rlxweb.core.limits import Limits
    from rlxweb.cost.calibration_record import AutotuneResult
    from rlxweb.ir.op import Attrs, Op, TensorType, Types

OutputCallback = Callable[[list[Array]], object]
LatencyProbe = Callable[[], Coroutine[Any, None, None]]
"""Coroutine function that makes one round trip to a device, to be timed."""


class Profiles(Engine):
    """Engine that can time the steps of a run."""

    @abstractmethod
    async def run_timed(self, program: Program, feeds: Mapping[str, Array]) -> TimedRun:
        """Run a program and time each step."""


async def run_timed(
    engine: Engine, program: Program, feeds: Mapping[str, Array]
) -> TimedRun:
    """Run a program and time each step where the engine can tell, else the whole."""
    if isinstance(engine, Profiles):
        return await engine.run_timed(program, feeds)
    return await time_whole_run(engine, program, feeds)


async def time_whole_run(
    engine: Engine, program: Program, feeds: Mapping[str, Array]
) -> TimedRun:
    """Run a program and time it as a whole."""
    start_ns = perf_counter_ns()
    outputs = await engine.run(program, feeds)
    elapsed_ns = float(perf_counter_ns() - start_ns)
    return TimedRun(outputs, "whole run", (), 0.0, elapsed_ns, 0.0)


class Streams(Engine):
    """Engine that overlaps one run with the next."""

    @abstractmethod
    async def run_each(
        self,
        program: Program,
        feeds: Iterable[Mapping[str, Array]],
        consume: OutputCallback,
    ) -> None:
        """Run a program over each of the feeds; see the function `run_each`.

        The next feeds, which may be read until `consume` has their outputs, may be
        asked for before it gets those of the run before. What breaks off leaves the
        program as it was.
        """


async def run_each(
    engine: Engine,
    program: Program,
    feeds: Iterable[Mapping[str, Array]],
    consume: OutputCallback,
) -> None:
    """Run a program over each of the feeds; `consume` gets the outputs of each, in
    order.

    Errors   those of a run, of `feeds` and of `consume`.
    """
    if isinstance(engine, Streams):
        await engine.run_each(program, feeds, consume)
    else:
        await run_in_turn(engine, program, feeds, consume)


async def run_in_turn(
    engine: Engine,
    program: Program,
    feeds: Iterable[Mapping[str, Array]],
    consume: OutputCallback,
) -> None:
    """Run a program over each of the feeds, one run after the other."""
    for run_feeds in feeds:
        consume(await engine.run(program, run_feeds))


class Repeats(Engine):
    """Engine that can repeat a run without an answer in between."""

    @abstractmethod
    async def repeat(self, program: Program, feeds: Feeds, times: int) -> None:
        """Run a program `times` times, then wait."""


async def repeat(engine: Engine, program: Program, feeds: Feeds, times: int) -> None:
    """Run a program `times` times, then wait: the work that a benchmark times.

    Nobody waits in between and no result is handed out.
    """
    if isinstance(engine, Repeats):
        await engine.repeat(program, feeds, times)
        return
    keep = [True] * len(program.plan.graph.outputs)
    outputs: list[Any] = []
    for _ in range(times):
        outputs = await engine.run(program, feeds, keep)
    for output in outputs:
        if 0 not in output.shape:
            await engine.get(output.part(0, (1,)))
            break


class SharesParams(Engine):
    """Engine whose programs can share their params."""

    @abstractmethod
    async def prepare_sharing_params(self, plan: Plan, other: Program) -> Program:
        """Prepare a plan and share the params of another program of this engine where
        possible.

        Then `params` of both are one object, and what is set in one is set in both; a
        graph whose sizes vary has one copy of its weights on the device.
        other    of a plan with the same params
        """


class ImportsDlpack(Engine):
    """Engine that takes arrays of other libraries on its device."""

    @abstractmethod
    async def take(self, array: object) -> DeviceBuffer | None:
        """Copy another library's array to the device, through `__dlpack__`.

        None where it must come by way of the host: also from another device of the
        same kind. Errors  as `put`.
        """


class LatencyProbes(Protocol):
    """Bare round trips to a device, for calibration: the cost of a run besides its
    kernels.
    """

    async def submit_and_wait(self) -> None:
        """Submit next to nothing and wait for it."""

    async def dispatch_and_wait(self, count: int) -> None:
        """Dispatch `count` trivial kernels in one submission and wait for them."""

    def upload_probe(self, nbytes: int) -> LatencyProbe:
        """Return a probe that moves host bytes to the device and waits. Errors
        OutOfMemory, LimitExceeded
        """

    def readback_probe(self, nbytes: int) -> LatencyProbe:
        """Return a probe that moves device bytes to the host. Errors  as
        `upload_probe`.
        """

    def close(self) -> None:
        """Free the buffers and pipelines of the probes."""


class Measures(Engine):
    """Engine with latency probes, for a calibration to time."""

    @abstractmethod
    async def latency_probes(self) -> LatencyProbes | None:
        """Return the latency probes; None if nothing is submitted or moved."""


class HasVariants(Engine):
    """Engine with several kernels for an op."""

    @abstractmethod
    def variants_for(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """Names of the kernel variants that could run a node, chosen or not."""

    @abstractmethod
    def with_variant(self, variant: str) -> Engine:
        """Return an engine on the same device that uses this kernel variant wherever it
        fits, and else the kernels that the ops declare; "" means no variant at all.
        Errors  Unsupported.
        """


def with_variant(engine: Engine, variant: str) -> Engine:
    """Return an engine on the same device that uses a kernel variant. Errors
    Unsupported.
    """
    if isinstance(engine, HasVariants):
        return engine.with_variant(variant)
    raise unknown_variant_error(engine, variant)


def unknown_variant_error(engine: Engine, variant: str) -> Unsupported:
    """Return the error for a kernel variant that an engine does not have."""
    has_others = isinstance(engine, HasVariants)
    return Unsupported(
        f"select variant {variant!r} on {engine.name}",
        "no kernel variant of this engine has that name"
        if has_others
        else "this engine has no kernel variants",
        hint="omit `variant`",
    )


class Tunes(HasVariants):
    """Engine that chooses its kernel variants by what was measured."""

    @abstractmethod
    def candidate_variants(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """Names of the kernels that may run a node here, for autotuning; the op's own
        kernel goes by the op's name.
        """

    @abstractmethod
    def apply_autotuning(self, results: Sequence[AutotuneResult]) -> None:
        """Choose kernel variants from now on by these autotuning results."""


class TakesLimits(Engine):
    """Engine that can work under stricter limits than those of its device."""

    @abstractmethod
    def with_limits(self, limits: Limits) -> Engine:
        """Return an engine on the same device under stricter limits."""


def with_limits(engine: Engine, limits: Limits) -> Engine:
    """Return the engine under stricter limits, on the same device. Errors
    Unsupported.
    """
    if isinstance(engine, TakesLimits):
        return engine.with_limits(limits)
    raise Unsupported(
        f"setting stricter limits on {engine.name}",
        "only wgpu devices support limits",
        hint="omit `limits`",
    )
