"""Mixin that writes a CompiledGraph to a file, or exports it for web pages without
Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.runtime.engine_program_and_params import GraphPlacement
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.core.limits import Limits
    from rlxweb.export.npm_package import NpmPackage
    from rlxweb.export.web_export import ExportProgress, ExportSummary, ExportTarget


class ExportMixin:
    """Saving and exporting of a CompiledGraph with its params."""

    _job: GraphJob
    _placement: GraphPlacement

    def save(
        self,
        file: str | PathLike[str] | IO[bytes],
        *,
        outputs: Sequence[str] | None = None,
    ) -> None:
        """Save the graph with every param that has a value here; see `Graph.save`.

        Errors   those of `Graph.save`, and those of the device.
        """
        graph = self._job.graph
        self._placement.check_open(f"save '{graph.name}'")
        graph.save(file, run_blocking(self._placement.param_values()), outputs=outputs)

    def export_web(
        self,
        folder: str | Path,
        *,
        name: str = "",
        to: ExportTarget = "web",
        outputs: Sequence[str] | None = None,
        vectors: int | Mapping[str, Any] | Sequence[Mapping[str, Any]] = 1,
        limits: Limits | None = None,
        features: Sequence[str] = (),
        package: NpmPackage | str | None = None,
        force: bool = False,
        tell: ExportProgress | None = None,
    ) -> ExportSummary:
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
        from rlxweb.export.atomic_folder import coerce_folder
        from rlxweb.export.npm_package import coerce_package
        from rlxweb.export.web_export import ExportJob, write_export
        from rlxweb.runtime.export_test_vectors import resolve_vectors

        graph = self._job.graph.copy()
        context = f"export '{graph.name}'"
        self._placement.check_open(context)
        self._placement.check_all_params_set(context)
        params = run_blocking(self._placement.param_values())
        job = ExportJob(
            graph,
            params,
            coerce_folder(folder, context),
            name,
            to,
            outputs,
            resolve_vectors(graph, params, outputs, vectors, context),
            limits,
            (features,) if isinstance(features, str) else features,
            force,
            package=coerce_package(package, context),
        )
        return write_export(job, tell)
