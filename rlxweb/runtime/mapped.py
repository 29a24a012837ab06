"""The half of a CompiledGraph that runs over one batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rlxweb.backends.protocol import Array
from rlxweb.choose.graphs import GraphJob
from rlxweb.errors import InputError, RlxError, shown
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Node
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.feeds import check_feeds
from rlxweb.runtime.placed import Placed

Batches = Iterable[Mapping[str, Any]]
Take = Callable[[list[Array]], object]


class Maps:
    """A graph that is placed on an engine, with its params."""

    _job: GraphJob
    _inputs: Mapping[str, Node]
    _placed: Placed

    def map(self, batches: Batches, take: Take | None = None) -> list[list[Array]]:
        """The outputs of every batch, in order: `run` over one after the other.

        On a GPU the next batch goes up while one is computed and the one before it
        comes back. Two are held at once.

        batches  inputs as `run` takes them, arrays of the host, asked for as they are
                 needed; they may be read until the outputs of theirs are there
        take     gets the outputs of each instead, and none is kept
        returns  a list per batch; empty with `take`
        Errors   those of `run`, with the number of the batch, and those of `batches`
        and `take`. A run that is lost with its device raises.
        """
        return drive(self._mapped(batches, take))

    async def map_async(
        self, batches: Batches, take: Take | None = None
    ) -> list[list[Array]]:
        """`map` beside the caller's event loop."""
        return await awaited_here(lambda: self._mapped(batches, take))

    async def _mapped(self, batches: Batches, take: Take | None) -> list[list[Array]]:
        check_batches(f"map of '{self._job.graph.name}'", batches)
        kept: list[list[Array]] = []
        await self.computed_each(batches, kept.append if take is None else take)
        return kept

    async def computed_each(self, feeds: Batches, take: Take) -> None:
        """One run after the other, which the device may overlap; strictly.

        feeds    arrays of the host, asked for as they are needed
        take     gets the outputs of each, in order
        """
        doing = f"run '{self._job.graph.name}'"
        placed = self._placed
        placed.check_open(doing)
        placed.check_set(doing)

        def arrays() -> Iterator[dict[str, Any]]:
            for at, one in enumerate(feeds):
                try:
                    given = check_feeds(self._job.graph, self._inputs, one)
                    for name, array in given.items():
                        check_here(doing, name, array)
                except RlxError as error:
                    error.doing = f"batch {at}: {error.doing}"
                    raise
                yield given

        ready = placed.ready
        await ready.backend.run_each(ready.program, arrays(), take)
        placed.is_warm = True


def check_batches(doing: str, given: object) -> None:
    """Errors  InputError for what cannot be gone through."""
    if not isinstance(given, Iterable):
        rule = "an iterable of inputs by name is wanted"
        raise InputError(
            doing, f"batches is {shown(given)}", rule, "pass [{'x': …}, …]"
        )


def check_here(doing: str, name: str, array: object) -> None:
    """Errors  InputError for an array that lies on a device."""
    if isinstance(array, DeviceArray):
        raise InputError(
            f"{doing}, input '{name}'",
            f"it lies on {array.engine}",
            "batches are arrays of the host",
            "call `run` for each of them",
        )
