"""What came from a file and is run: what a model of ONNX and a saved graph share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rlxweb.device import DeviceLike
from rlxweb.errors import SessionClosed, Unsupported, UsageError, did_you_mean, shown
from rlxweb.forked import ForkLock
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.runtime.compiled import CompiledGraph

KeepNamed = bool | Sequence[str]
"""Which outputs stay on the device: all, none, or those of these names."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was asked for; see `FromFile.run`."""

    device: DeviceLike | None
    adapter: str
    strict: bool | None
    keep: KeepNamed


class FromFile(ABC):
    """A context manager over what was loaded, which closes it.

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
        self._turn = ForkLock()
        self._closed = False

    @abstractmethod
    async def _run(
        self, inputs: Mapping[str, Any] | None, asked: Asked
    ) -> dict[str, Any]:
        """The outputs by name."""

    async def computed(
        self, inputs: Mapping[str, Any] | None, asked: Asked
    ) -> dict[str, Any]:
        """What `run` gives, for a coroutine that is itself driven or awaited."""
        return await self._run(inputs, asked)

    @abstractmethod
    def _compiled(self) -> Iterable[CompiledGraph]:
        """All that was compiled so far."""

    @abstractmethod
    def _let_go(self) -> None:
        """Free what was compiled, and what is held of the file."""

    @property
    @abstractmethod
    def _size(self) -> int:
        """How many nodes it has."""

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
        keep: KeepNamed = False,
    ) -> dict[str, Any]:
        """The outputs by name.

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
        return drive(self._run(inputs, Asked(device, adapter, strict, keep)))

    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        strict: bool | None = None,
        keep: KeepNamed = False,
    ) -> dict[str, Any]:
        """`run` beside the caller's event loop."""
        asked = Asked(device, adapter, strict, keep)
        return await awaited_here(lambda: self._run(inputs, asked))

    def explain(self) -> str:
        """What it takes and gives; what was compiled so far, where it runs and why."""
        lines = [f"{self.name}: {self._size} nodes"]
        lines += [f"  in   {self._told(*one)}" for one in self.inputs.items()]
        lines += [f"  out  {self._told(*one)}" for one in self.outputs.items()]
        said = [one.explain() for one in self._compiled()]
        said = said or ["  nothing was compiled yet: a run does that"]
        return "\n".join([*lines, *said])

    def _told(self, name: str, kind: Any) -> str:
        """An input or an output in a line."""
        return f"{name} {kind}"

    def _doing(self, what: str) -> str:
        return f"{what} of '{self.name}'"

    def _check_open(self, what: str) -> None:
        """Errors  SessionClosed."""
        if self._closed:
            raise SessionClosed(self._doing(what), "it was closed")

    def _check_kept(self, keep: KeepNamed) -> None:
        """Errors  UsageError for a name that is no output."""
        if isinstance(keep, bool):
            return
        for name in keep:
            if name not in self.outputs:
                raise UsageError(
                    self._doing("run"),
                    f"keep names {shown(name)}",
                    "its outputs are " + ", ".join(map(repr, self.outputs)),
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
        """Free what was compiled, and let go of the file. Idempotent."""
        with self._turn:
            self._closed = True
        self._let_go()

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self.name}'",
            "it may hold device memory and open files",
            hint="load it where it is needed",
        )
