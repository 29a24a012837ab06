"""Interface of all engines: abstract class `Engine`, prepared programs, device buffers.

An engine is a subclass of `Engine`; what some engines can do besides is in
`capabilities.py`. Arrays that reach it have been checked: dtype, shape and names are
right. `host_engine.py` is the base of the shortest engines, `webgpu/engine.py` is the
longest.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from rlxweb.core.errors import (
    DeviceError,
    GraphError,
    RlxError,
    SessionClosed,
    Unsupported,
    shown,
)
from rlxweb.ir.shape_arithmetic import format_shape

if TYPE_CHECKING:  # an engine says what it is before anybody compiles for it
    import numpy.typing as npt

    from rlxweb.compiler.plan import Plan
    from rlxweb.compiler.target import Target
    from rlxweb.ir.graph import Graph
    from rlxweb.ir.op import TensorType

Array: TypeAlias = "npt.NDArray[Any]"
OutputTypes: TypeAlias = "tuple[tuple[TensorType, np.dtype[Any]], ...]"


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Names of an engine, its hardware and its software.

    name      for messages: "NumPy 2.4", "llvmpipe (vulkan)"
    adapter   the hardware or library alone; the name if nothing is given
    api       interface to the hardware: "vulkan", "numpy"; "" if the name tells it
    driver    driver and its version; measurements of another version are out of date
    compiler  shader compiler, on a device that has several; the driver's other half
    vendor    maker of the hardware; "" if unknown
    software  whether it is presented as a device and computes on the CPU's own cores
    """

    name: str
    adapter: str = ""
    api: str = ""
    driver: str = ""
    compiler: str = ""
    vendor: str = ""
    software: bool = False

    def __post_init__(self) -> None:
        if not self.adapter:
            object.__setattr__(self, "adapter", self.name)

    @property
    def calibration_key(self) -> tuple[str, str, str]:
        """Adapter, API and driver with its compiler: measurements are stored under
        them.
        """
        driver = ", ".join(filter(None, (self.driver, self.compiler)))
        return self.adapter, self.api, driver


CPU_IDENTITY = EngineIdentity(
    f"NumPy {np.__version__}",
    api="numpy",
    driver=f"Python {sys.version_info[0]}.{sys.version_info[1]}",
)
"""Identity of the one engine that is known without opening it."""


class Program(ABC):
    """Plan that was prepared by an engine; what else is in it is known to that engine
    alone.

    engine   the one that prepared it, and that alone can run it
    nbytes   of the device's memory that it holds
    params   where its params lie: one object for programs that share them
    params_nbytes  what these take of its memory
    kernel_variants  by the number of a graph node, the kernel variant that runs it;
                     none where it is the op's own kernel
    """

    __slots__ = ()
    plan: Plan
    engine: Engine
    nbytes: int = 0
    params_nbytes: int = 0
    params: object = None
    kernel_variants: Mapping[int, str] = MappingProxyType({})

    @abstractmethod
    async def set_param(self, name: str, value: Array | DeviceBuffer) -> None:
        """Store a param's value for all later runs.

        Errors   SessionClosed after `close`; DeviceLost, GpuTimeout; GraphError for
        another engine's buffer.
        """

    async def get_param(self, name: str) -> Array:
        """Return a param's value, as given by `set_param`.

        Errors   DeviceLost, GpuTimeout; Unsupported where no value comes back.
        """
        raise Unsupported(
            f"get param '{name}'",
            f"{self.engine.name} cannot return params",
            hint="keep your own copy of the value, or compile the graph for device "
            "'cpu', which can return params",
        )

    @abstractmethod
    async def close(self) -> None:
        """Free its memory, once no run needs it. Idempotent."""


class DeviceBuffer:
    """Array that stays on an engine between runs and is never changed.

    Where its numbers lie is known to its engine alone.

    engine   the one that has it
    """

    __slots__ = ("__weakref__", "dtype", "engine", "shape")

    def __init__(
        self, engine: Engine, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.engine, self.shape, self.dtype = engine, shape, dtype

    def is_usable_by(self, engine: Engine) -> bool:
        """Return True if the array lies where an engine can compute with it."""
        return self.engine is engine

    def free(self) -> None:
        """Free its memory; not needed after its last reference was dropped."""

    def part(self, first: int, shape: tuple[int, ...]) -> DeviceBuffer:
        """Return the numbers from `first` on, in row-major order, as a buffer of that
        shape.

        They are not moved: a part lasts as long as the whole.
        """
        raise Unsupported(
            f"part of an array on {self.engine.name}",
            "the engine cannot address a part of its arrays",
            hint="copy the array to the host first",
        )

    def lend(self, copy: bool = False) -> object | None:
        """Return an object with `__dlpack__` over the memory, or over a copy.

        None where no other library can have it.
        """
        return None


Feeds: TypeAlias = "Mapping[str, Array | DeviceBuffer]"
P = TypeVar("P", bound=Program)
R = TypeVar("R", bound=DeviceBuffer)


class Engine(ABC):
    """Interface of an engine, which prepares plans and runs them.

    Its methods are coroutines so that a browser can wait; native engines never suspend.
    """

    @property
    @abstractmethod
    def identity(self) -> EngineIdentity:
        """Names of the engine, its hardware and its software."""

    @property
    @abstractmethod
    def target(self) -> Target:
        """Description for the compiler: dtypes, limits, natively supported ops."""

    @property
    def name(self) -> str:
        """Name of the engine for messages."""
        return self.identity.name

    waits: bool = False
    """True if it answers only when a browser's event loop turns. In a tab, blocking
    code that cannot wait does not choose it.
    """
    skips: bool = False
    """True if it may leave out of a plan what no output reads, as engines that compile
    it whole do.
    """

    skipped_libraries: tuple[tuple[str, str], ...] = ()
    """Libraries that have priority here and cannot be used, with the reasons."""

    @property
    def lost(self) -> str:
        """Reason why the device is gone for good; "" while it is usable."""
        return ""

    @abstractmethod
    async def prepare(self, plan: Plan) -> Program:
        """Create everything that runs of a plan need. Errors  LimitExceeded,
        ShaderRejected …
        """

    @abstractmethod
    async def run(
        self, program: Program, feeds: Feeds, keep: Sequence[bool] = ()
    ) -> list[Any]:
        """Run a program over host arrays and buffers of this engine. Concurrent callers
        take turns.

        keep     for each output, in graph order: does it stay on the device? Empty:
                 none does
        returns  the outputs, in the dtypes and shapes that the graph declares: a
                 DeviceBuffer for each that stays, of which nothing is read back, and
                 else an array in memory of its own
        Errors   SessionClosed after `Program.close`; DeviceLost, GpuTimeout.
        """

    @abstractmethod
    async def put(self, array: Array) -> DeviceBuffer:
        """Copy an array to the device, to stay. Errors  OutOfMemory …"""

    @abstractmethod
    async def get(self, buffer: DeviceBuffer) -> Array:
        """Return the numbers of a device buffer. Read only if they are lent and not
        copied.

        Errors   DeviceLost, GpuTimeout; GraphError for another engine's.
        """

    async def close(self) -> None:  # noqa: B027  most hold nothing open
        """Free everything. Idempotent."""


def read_only_view(array: Array) -> Array:
    """Return a view of an array that cannot be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def require_own_buffer(engine: Engine, kind: type[R], buffer: DeviceBuffer) -> R:
    """Return a buffer as the engine's kind. Errors  GraphError for another engine's."""
    if isinstance(buffer, kind) and buffer.is_usable_by(engine):
        return buffer
    raise GraphError(
        f"pass an array to {engine.name}",
        f"the array is on {buffer.engine.name}",
        "an engine can only use arrays on its own device",
        "copy the array to the host and put it on this engine",
    )


def require_own_program(engine: Engine, kind: type[P], program: Program) -> P:
    """Return a program as its engine's kind. Errors  GraphError for another
    engine's.
    """
    if isinstance(program, kind) and program.engine is engine:
        return program
    maker = getattr(program, "engine", None)
    maker_phrase = "" if maker is None else f", prepared by {maker.name}"
    raise GraphError(
        f"run '{program.plan.graph.name}' on {engine.name}",
        f"the program is of type {type(program).__name__}{maker_phrase}",
        f"this engine can only run its own {kind.__name__} objects",
        "run the program on the engine that prepared it",
    )


def output_types(graph: Graph) -> OutputTypes:
    """Return the type of each output of a graph, and its dtype as NumPy has it."""
    types = [graph.node(output).type for output in graph.outputs]
    return tuple((tensor_type, tensor_type.dtype.numpy) for tensor_type in types)


def output_fault(declared: OutputTypes, outputs: Any) -> str:
    """Return which output of a run is not of its declared dtype and shape; "" if all
    are.

    declared  `output_types` of the graph, which whoever checks each run computes once
    """
    if not isinstance(outputs, Sequence):
        return f"{shown(outputs)} instead of a list of outputs"
    if len(outputs) != len(declared):
        return f"{len(outputs)} outputs; the graph has {len(declared)}"
    for position, (output, (declared_type, dtype)) in enumerate(
        zip(outputs, declared, strict=True)
    ):
        # NumPy has one object for each of its dtypes, which others only equal.
        has_dtype = output.dtype is dtype or output.dtype == dtype
        if not has_dtype or output.shape != declared_type.shape:
            returned_type = f"{format_shape(output.shape)} {output.dtype}"
            declaration = f"the graph declares it as {declared_type}"
            return f"output {position} as {returned_type}; {declaration}"
    return ""


def check_outputs(
    engine: Engine, graph: Graph, declared: OutputTypes, outputs: Sequence[Any]
) -> None:
    """Require that the outputs of a run have the dtypes and shapes of the graph's.

    Errors   DeviceError that names the engine and the output.
    """
    fault = output_fault(declared, outputs)
    if fault:
        doing = f"run '{graph.name}' on {engine.name}"
        raise DeviceError(doing, f"the engine returned {fault}", hint=_ENGINE_ADVICE)


@contextmanager
def engine_named_in_errors(engine: Engine, doing: str) -> Iterator[None]:
    """Turn what the code of an engine raises into an error that names the engine.

    doing    what it was called for: "prepare 'welch'"
    Errors   DeviceError, with the original as its cause. Errors of rlxweb and
             MemoryError, which say enough, are raised as they are.
    """
    try:
        yield
    except (RlxError, MemoryError):
        raise
    except Exception as error:
        problem = f"the engine raised {type(error).__name__}: {error}"
        raise DeviceError(
            f"{doing} on {engine.name}", problem, hint=_ENGINE_ADVICE
        ) from error


_ENGINE_ADVICE = "report it to the author of the engine, or choose another device"


def closed_error(context: str) -> SessionClosed:
    """Return the error for a program that is used after its `close`."""
    return SessionClosed(
        context, "this compiled graph was closed", hint="compile it again"
    )


def as_bytes(array: Array) -> memoryview:
    """Return the array's bytes in row-major order, without a copy where possible."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data
