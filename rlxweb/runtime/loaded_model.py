"""Base of runnable models loaded from a file: ONNX models and saved graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rlxweb.core.device import DeviceLike
from rlxweb.core.errors import (
    SessionClosed,
    Unsupported,
    UsageError,
    did_you_mean,
    shown,
)
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.runtime.compiled_graph import CompiledGraph

KeepNamed = bool | Sequence[str]
"""Selection of the outputs that stay on the device: all, none, or those of these names.
"""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Options of one run; see `LoadedModel.run`."""

    device: DeviceLike | None
    adapter: str
    strict: bool | None
    keep: KeepNamed


class LoadedModel(ABC):
    """Runnable model loaded from a file; a context manager that closes it.

    Threads may share it: they take turns where something is compiled.

    name     what messages call it
    inputs   what they are, by name
    outputs  what they are, by name
    """

    def __init__(
        self, name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self._lock = ForkSafeLock()
        self._closed = False

    @abstractmethod
    async def _run(
        self, inputs: Mapping[str, Any] | None, request: RunRequest
    ) -> dict[str, Any]:
        """Compute the outputs by name."""

    async def computed(
        self, inputs: Mapping[str, Any] | None, asked: RunRequest
    ) -> dict[str, Any]:
        """Compute the outputs by name; the coroutine behind `run`."""
        return await self._run(inputs, asked)

    @abstractmethod
    def _compiled_graphs(self) -> Iterable[CompiledGraph]:
        """Return all graphs compiled so far."""

    @abstractmethod
    def _release(self) -> None:
        """Free what was compiled, and what is held of the file."""

    @property
    @abstractmethod
    def _node_count(self) -> int:
        """Number of nodes of the model."""

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
        keep: KeepNamed = False,
    ) -> dict[str, Any]:
        """Compute the outputs by name.

        inputs   arrays by name, of the declared dtypes; whatever rlxweb takes as an
                 array
        device   where; None: rlxweb chooses. It is compiled there once
        adapter  part of an adapter's name, where a device has several
        strict   True: a run that is lost with its device raises
        keep     True: outputs stay on the device, as DeviceArrays that a later run
                 takes; names of outputs, ("state",): those stay
        returns  NumPy arrays
        Errors   InputError, UnknownName, DTypeError, ShapeError for what is given;
        UsageError for a name of `keep` that is no output; those of `Session.compile`
        and of `CompiledGraph.run`
        """
        return run_blocking(
            self._run(inputs, RunRequest(device, adapter, strict, keep))
        )

    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
        keep: KeepNamed = False,
    ) -> dict[str, Any]:
        """Run without blocking the caller's event loop; see `run`."""
        request = RunRequest(device, adapter, strict, keep)
        return await await_or_offload(lambda: self._run(inputs, request))

    def explain(self) -> str:
        """Describe the inputs and outputs, and what was compiled so far: where it runs
        and why.
        """
        lines = [f"{self.name}: {self._node_count} nodes"]
        lines += [
            f"  in   {self._describe_value(*item)}" for item in self.inputs.items()
        ]
        lines += [
            f"  out  {self._describe_value(*item)}" for item in self.outputs.items()
        ]
        explanations = [item.explain() for item in self._compiled_graphs()]
        explanations = explanations or ["  not compiled yet: the first run compiles it"]
        return "\n".join([*lines, *explanations])

    def _describe_value(self, name: str, kind: Any) -> str:
        """Return one line that describes an input or an output."""
        return f"{name} {kind}"

    def _error_context(self, action: str) -> str:
        """Return the error context of an action on this model."""
        return f"{action} of '{self.name}'"

    def _check_open(self, action: str) -> None:
        """Raise SessionClosed if the model was closed."""
        if self._closed:
            raise SessionClosed(self._error_context(action), "the model was closed")

    def _check_keep_names(self, keep: KeepNamed) -> None:
        """Raise UsageError for a name of `keep` that is no output."""
        if isinstance(keep, bool):
            return
        for name in keep:
            if name not in self.outputs:
                raise UsageError(
                    self._error_context("run"),
                    f"keep contains the unknown output {shown(name)}",
                    "the outputs are " + ", ".join(map(repr, self.outputs)),
                    did_you_mean(str(name), self.outputs),
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ins, outs = len(self.inputs), len(self.outputs)
        return f"{type(self).__name__}('{self.name}': {ins} inputs, {outs} outputs)"

    def close(self) -> None:
        """Free what was compiled, and release the file. Idempotent."""
        with self._lock:
            self._closed = True
        self._release()

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self.name}'",
            "a loaded model may hold device memory and open files",
            hint="load it in the process that needs it",
        )
