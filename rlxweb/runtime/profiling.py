"""The half of a CompiledGraph that says where the time of a run goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlxweb.arguments import whole
from rlxweb.choose.graphs import GraphJob
from rlxweb.devices.place import Place
from rlxweb.errors import UsageError
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Node
from rlxweb.runtime.device_array import DeviceArray, Keep
from rlxweb.runtime.feeds import check_feeds
from rlxweb.runtime.placed import Placed

if TYPE_CHECKING:
    from rlxweb.runtime.profile import Profile


class Profiles:
    """A graph that is placed on an engine, with its params."""

    _job: GraphJob
    _inputs: Mapping[str, Node]
    _placed: Placed

    def profile(
        self, inputs: Mapping[str, Any] | None = None, repeats: int = 7
    ) -> Profile:
        """Where the time of a run goes: medians over so many, after one that warms up.

        Errors   those of `run`; UsageError for repeats below 1.
        """
        return drive(self._profiled(inputs, repeats, False, warm=True))

    async def profile_async(
        self, inputs: Mapping[str, Any] | None = None, repeats: int = 7
    ) -> Profile:
        """`profile` beside the caller's event loop."""
        return await awaited_here(
            lambda: self._profiled(inputs, repeats, False, warm=True)
        )

    async def _profiled(
        self,
        inputs: Mapping[str, Any] | None,
        repeats: int,
        keep: Keep,
        warm: bool = False,
    ) -> Profile:
        from rlxweb.runtime.profile import profiled

        doing = f"profile '{self._job.graph.name}'"
        if keep is not False:
            rule = "a profiled run hands all outputs to the host"
            raise UsageError(doing, f"keep is {keep!r}", rule, "leave it out")
        if whole("repeats", repeats, doing) < 1:
            raise UsageError(doing, f"repeats is {repeats}", "it must be at least 1")
        self._placed.check_open(doing)
        given = check_feeds(self._job.graph, self._inputs, inputs)
        self._placed.check_set(doing)
        feeds = {
            name: await one.read_back() if isinstance(one, DeviceArray) else one
            for name, one in given.items()
        }
        ready = self._placed.ready
        if warm:
            await ready.backend.run(ready.program, feeds)
        place = Place(ready.way.device, ready.way.adapter)
        return await profiled(ready.backend, ready.program, feeds, place, repeats)
