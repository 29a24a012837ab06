"""Mixin that measures where the time of a CompiledGraph's run goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.errors import UsageError
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.graph import Node
from rlxweb.runtime.device_array import DeviceArray, Keep
from rlxweb.runtime.engine_program_and_params import GraphPlacement
from rlxweb.runtime.input_validation import validate_feeds
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.runtime.profile import Profile


class ProfileMixin:
    """Profiling of a CompiledGraph with its params."""

    _job: GraphJob
    _input_nodes: Mapping[str, Node]
    _placement: GraphPlacement

    def profile(
        self, inputs: Mapping[str, Any] | None = None, repeats: int = 7
    ) -> Profile:
        """Profile runs step by step: medians over `repeats` runs, after one that warms
        up.

        Errors   those of `run`; UsageError for repeats below 1.
        """
        return run_blocking(self._profile(inputs, repeats, False, warm=True))

    async def profile_async(
        self, inputs: Mapping[str, Any] | None = None, repeats: int = 7
    ) -> Profile:
        """Profile runs without blocking the caller's event loop; see `profile`."""
        return await await_or_offload(
            lambda: self._profile(inputs, repeats, False, warm=True)
        )

    async def _profile(
        self,
        inputs: Mapping[str, Any] | None,
        repeats: int,
        keep: Keep,
        warm: bool = False,
    ) -> Profile:
        """Profile runs; the coroutine behind `profile`, `profile_async` and
        `run(profile=True)`.
        """
        from rlxweb.runtime.profile import profile_program

        context = f"profile '{self._job.graph.name}'"
        if keep is not False:
            rule = "a profiled run returns all outputs to the host"
            raise UsageError(context, f"keep is {keep!r}", rule, "omit keep")
        if coerce_integer("repeats", repeats, context) < 1:
            raise UsageError(context, f"repeats is {repeats}", "it must be at least 1")
        self._placement.check_open(context)
        valid_inputs = validate_feeds(self._job.graph, self._input_nodes, inputs)
        self._placement.check_all_params_set(context)
        feeds = {
            name: await array.read_back() if isinstance(array, DeviceArray) else array
            for name, array in valid_inputs.items()
        }
        prepared = self._placement.prepared
        if warm:
            await prepared.engine.run(prepared.program, feeds)
        place = DevicePlace(prepared.candidate.device, prepared.candidate.adapter)
        return await profile_program(
            prepared.engine, prepared.program, feeds, place, repeats
        )
