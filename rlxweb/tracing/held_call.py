"""One signature of a traced function, called again and again with what it returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlxweb.device import Device
from rlxweb.errors import ShapeError
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.tracing.program import Out

if TYPE_CHECKING:
    from rlxweb.tracing.function import Function, Given, Made


class HeldCall:
    """A function for arguments of one structure, on one device.

    Arrays may lie on the device or not, from call to call: the signature is the same.
    Made by `Function.held`.
    """

    def __init__(
        self,
        function: Function[..., Any],
        made: Made,
        given: Given,
        compiled: CompiledGraph,
        renewed: Callable[[], Any],
    ) -> None:
        self._function, self._made, self._given = function, made, given
        self._compiled, self._renewed = compiled, renewed

    @property
    def graph(self) -> Graph:
        """What is computed."""
        return self._compiled.graph

    @property
    def device(self) -> Device:
        return self._compiled.device

    @property
    def compiled(self) -> CompiledGraph:
        """To look into: its plan, its decisions, a profile."""
        return self._compiled

    @property
    def params(self) -> dict[str, Any]:
        """The arrays from around the function, by the names the graph has for them."""
        return self._made.program.params()

    def feeds(self, *args: Any) -> dict[str, Any]:
        """The graph's inputs by name. Errors  ShapeError for another signature."""
        given = self._function.given(args, {})
        same = given.tree == self._given.tree and len(given.leaves) == len(
            self._given.leaves
        )
        if same:
            for now, first in zip(given.leaves, self._given.leaves, strict=True):
                if (now.dtype, now.shape) != (first.dtype, first.shape):
                    raise ShapeError(
                        f"{self._function!r}",
                        f"{now} was given",
                        f"it was {first} at the first call, and all have one shape",
                        "make every batch of the same shapes and dtypes",
                    )
            return self._made.program.feeds(given.arrays)
        raise ShapeError(
            f"{self._function!r}",
            "the arguments are built otherwise than at the first call",
            hint="make every batch of the same structure",
        )

    def __call__(self, *args: Any, stay: int = 0) -> Any:
        """The function's result; the first `stay` parts of it stay on the device."""
        return drive(self._run(args, stay))

    async def run_async(self, *args: Any, stay: int = 0) -> Any:
        """The call where a page awaits it."""
        return await self._run(args, stay)

    async def _run(self, args: Any, stay: int) -> Any:
        feeds = self.feeds(*args)
        await self._renewed()
        program = self._made.program
        outs = await self._compiled.computed(feeds, None, self._positions(stay))
        return program.built(outs)

    def _positions(self, stay: int) -> tuple[int, ...]:
        """The graph's outputs that the first parts of the result are."""
        results, parts = self._made.program.results, self._made.program.tree.parts
        leaves = sum(_count(part) for part in parts[:stay])
        found = {one.re for one in results[:leaves] if isinstance(one, Out)}
        return tuple(sorted(found))


def _count(tree: Any) -> int:
    """The arrays of a structure."""
    return 1 if tree.kind == "array" else sum(map(_count, tree.parts))
