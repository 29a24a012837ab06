"""Calls bound to one signature of a traced function, for repeated runs on earlier
results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlxweb.core.device import Device
from rlxweb.core.errors import ShapeError
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.trace.traced_program import ResultArray

if TYPE_CHECKING:
    from rlxweb.trace.function import FlattenedArguments, Function, TracedSignature


class BoundCall:
    """Call of a traced function bound to one argument structure and one device.

    Arrays may lie on the device or not, from call to call: the signature is the same.
    Made by `Function.held`.
    """

    def __init__(
        self,
        function: Function[..., Any],
        entry: TracedSignature,
        arguments: FlattenedArguments,
        compiled: CompiledGraph,
        refresh_compiled: Callable[[], Any],
    ) -> None:
        self._function, self._entry, self._arguments = function, entry, arguments
        self._compiled, self._refresh_compiled = compiled, refresh_compiled

    @property
    def graph(self) -> Graph:
        """Graph that is computed."""
        return self._compiled.graph

    @property
    def device(self) -> Device:
        return self._compiled.device

    @property
    def compiled(self) -> CompiledGraph:
        """Compiled graph, for its plan, its decisions and a profile."""
        return self._compiled

    @property
    def params(self) -> dict[str, Any]:
        """Arrays captured from outside the function, by their param names in the
        graph.
        """
        return self._entry.program.params()

    def feeds(self, *args: Any) -> dict[str, Any]:
        """Return the graph's inputs by name. Errors  ShapeError for another
        signature.
        """
        arguments = self._function.given(args, {})
        is_same_structure = arguments.tree == self._arguments.tree and len(
            arguments.leaves
        ) == len(self._arguments.leaves)
        if is_same_structure:
            for leaf, first_leaf in zip(
                arguments.leaves, self._arguments.leaves, strict=True
            ):
                if (leaf.dtype, leaf.shape) != (first_leaf.dtype, first_leaf.shape):
                    raise ShapeError(
                        f"{self._function!r}",
                        f"got {leaf}",
                        f"all calls must match the first call, which had {first_leaf}",
                        "pass arguments (such as batches) with the shapes and dtypes "
                        "of the first call",
                    )
            return self._entry.program.feeds(arguments.arrays)
        raise ShapeError(
            f"{self._function!r}",
            "the arguments differ from those of the first call in structure or in a "
            "value that is not an array",
            hint="pass the same structure and the same non-array values as in the "
            "first call",
        )

    def __call__(self, *args: Any, stay: int = 0) -> Any:
        """Compute the function's result; its first `stay` parts stay on the device."""
        return run_blocking(self._run(args, stay))

    async def run_async(self, *args: Any, stay: int = 0) -> Any:
        """Run the call; for use in a page, which awaits it."""
        return await self._run(args, stay)

    async def _run(self, args: Any, stay: int) -> Any:
        feeds = self.feeds(*args)
        await self._refresh_compiled()
        program = self._entry.program
        outs = await self._compiled.computed(feeds, None, self._kept_outputs(stay))
        return program.build_result(outs)

    def _kept_outputs(self, stay: int) -> tuple[int, ...]:
        """Return the positions of the graph outputs that make up the first `stay` parts
        of the result.
        """
        results = self._entry.program.results
        children = self._entry.program.tree.children
        n_leaves = sum(_count_arrays(child) for child in children[:stay])
        positions = {
            result.re
            for result in results[:n_leaves]
            if isinstance(result, ResultArray)
        }
        return tuple(sorted(positions))


def _count_arrays(tree: Any) -> int:
    """Return the number of arrays in a structure."""
    return 1 if tree.kind == "array" else sum(map(_count_arrays, tree.children))
