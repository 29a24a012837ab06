"""The half of a CompiledGraph that writes it: a file, or pages without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlxweb.choose.graphs import GraphJob
from rlxweb.gpu.drive import drive
from rlxweb.runtime.placed import Placed

if TYPE_CHECKING:
    from rlxweb.export.package import Package
    from rlxweb.export.written import Exported, Tell, To
    from rlxweb.limits import Limits


class Exports:
    """A graph that is placed on an engine, with its params."""

    _job: GraphJob
    _placed: Placed

    def save(
        self,
        file: str | PathLike[str] | IO[bytes],
        *,
        outputs: Sequence[str] | None = None,
    ) -> None:
        """`Graph.save` with every param that has a value here.

        Errors   those of `Graph.save`, and those of the device.
        """
        graph = self._job.graph
        self._placed.check_open(f"save '{graph.name}'")
        graph.save(file, drive(self._placed.values()), outputs=outputs)

    def export_web(
        self,
        folder: str | Path,
        *,
        name: str = "",
        to: To = "web",
        outputs: Sequence[str] | None = None,
        vectors: int | Mapping[str, Any] | Sequence[Mapping[str, Any]] = 1,
        limits: Limits | None = None,
        features: Sequence[str] = (),
        package: Package | str | None = None,
        force: bool = False,
        tell: Tell | None = None,
    ) -> Exported:
        """Write the graph with its params for pages without Python: WGSL and a module.

        A page then has `const run = await load(); const { out0 } = await run({ x })`.
        It is compiled anew for a browser's WebGPU, wherever this one runs.

        folder    is made, whole or not at all
        name      of the module, NAME.js; "": the graph's
        to        "web", or "npm" for a package, called as `package` says
        outputs   names of the outputs; None: out0, out1 … or what the nodes are called
        vectors   inputs by which a page checks itself: how many to draw, or arrays by
                  name, once or several times; 0: none
        limits    what the plan may use of a device; None: WebGPU's defaults
        features  ("shader-f16",) for graphs with f16: browsers without refuse them
        force     replace an earlier export in the folder
        tell      hears (what is written, bytes done, bytes in all)
        Errors    InputError for params without a value; DTypeError, Unsupported,
        LimitExceeded for what a page cannot run, with the node; UsageError, NotWritten.
        """
        from rlxweb.export.folder import as_folder
        from rlxweb.export.package import as_package
        from rlxweb.export.written import Job, write_export
        from rlxweb.runtime.vectors import cases_of

        graph = self._job.graph.copy()
        doing = f"export '{graph.name}'"
        self._placed.check_open(doing)
        self._placed.check_set(doing)
        params = drive(self._placed.values())
        job = Job(
            graph,
            params,
            as_folder(folder, doing),
            name,
            to,
            outputs,
            cases_of(graph, params, outputs, vectors, doing),
            limits,
            (features,) if isinstance(features, str) else features,
            force,
            package=as_package(package, doing),
        )
        return write_export(job, tell)
