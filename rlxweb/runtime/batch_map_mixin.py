"""Mixin that runs a CompiledGraph over one batch after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlxweb.core.errors import InputError, RlxError, shown
from rlxweb.engines.capabilities import OutputCallback, run_each
from rlxweb.engines.protocol import Array
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.graph import Node
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.engine_program_and_params import GraphPlacement
from rlxweb.runtime.input_validation import validate_feeds
from rlxweb.select.graph_job import GraphJob

Batches = Iterable[Mapping[str, Any]]


class MapMixin:
    """Batched runs of a CompiledGraph with its params."""

    _job: GraphJob
    _input_nodes: Mapping[str, Node]
    _placement: GraphPlacement

    def map(
        self, batches: Batches, take: OutputCallback | None = None
    ) -> list[list[Array]]:
        """Compute the outputs of every batch, in order: `run` over one after the other.

        On a GPU the next batch goes up while one is computed and the one before it
        comes back. Two are held at once.

        batches  inputs as `run` takes them, arrays of the host, asked for as they are
                 needed; they may be read until the outputs of theirs are there
        take     gets the outputs of each instead, and none is kept
        returns  a list per batch; empty with `take`
        Errors   those of `run`, with the number of the batch, and those of `batches`
        and `take`. A run that is lost with its device raises.
        """
        return run_blocking(self._map_batches(batches, take))

    async def map_async(
        self, batches: Batches, take: OutputCallback | None = None
    ) -> list[list[Array]]:
        """Run over batches without blocking the caller's event loop; see `map`."""
        return await await_or_offload(lambda: self._map_batches(batches, take))

    async def _map_batches(
        self, batches: Batches, take: OutputCallback | None
    ) -> list[list[Array]]:
        """Run over batches and return the outputs of each, or hand them to `take`."""
        check_batches(f"map of '{self._job.graph.name}'", batches)
        outputs: list[list[Array]] = []
        await self.computed_each(batches, outputs.append if take is None else take)
        return outputs

    async def computed_each(self, feeds: Batches, take: OutputCallback) -> None:
        """Run over batches in order, which the device may overlap; a lost run raises.

        feeds    arrays of the host, asked for as they are needed
        take     gets the outputs of each, in order
        """
        context = f"run '{self._job.graph.name}'"
        placement = self._placement
        placement.check_open(context)
        placement.check_all_params_set(context)

        def valid_batches() -> Iterator[dict[str, Any]]:
            for index, batch in enumerate(feeds):
                try:
                    batch_arrays = validate_feeds(
                        self._job.graph, self._input_nodes, batch
                    )
                    for name, array in batch_arrays.items():
                        check_on_host(context, name, array)
                except RlxError as error:
                    error.doing = f"batch {index}: {error.doing}"
                    raise
                yield batch_arrays

        prepared = placement.prepared
        await run_each(prepared.engine, prepared.program, valid_batches(), take)
        placement.is_warm = True


def check_batches(context: str, batches: object) -> None:
    """Raise InputError unless the batches can be iterated over."""
    if not isinstance(batches, Iterable):
        rule = "expected an iterable of dicts that map input names to arrays"
        raise InputError(
            context, f"batches is {shown(batches)}", rule, "pass [{'x': …}, …]"
        )


def check_on_host(context: str, name: str, array: object) -> None:
    """Raise InputError for an array that is on a device."""
    if isinstance(array, DeviceArray):
        raise InputError(
            f"{context}, input '{name}'",
            f"the array is on {array.engine}",
            "the arrays of a batch must be in host memory",
            "call `run` for each batch",
        )
