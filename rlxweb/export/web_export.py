"""Export of a graph and its params to a folder for the web or npm.

plan.json  software.json  shaders/*.wgsl  weights.bin   what `plan_json.py` says
vectors.bin                                             what `plan_test_vectors.py` says
NAME.js  NAME.d.ts                        the runtime, one for every plan
index.html  early.js  page.js  page.css   a page that runs the plan and checks it
package.json  README.md  LICENSE          where it is for npm
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from rlxweb.core.argument_validation import check_choice, check_optional_instance
from rlxweb.core.errors import LimitExceeded, Unsupported
from rlxweb.core.limits import Limits
from rlxweb.engines.protocol import Array
from rlxweb.export import plan_test_vectors as of_vectors
from rlxweb.export.atomic_folder import (
    ExportedFile,
    FileContent,
    check_export_folder,
    write_folder,
)
from rlxweb.export.binary_array_file import BinaryFile
from rlxweb.export.browser_graph_compilation import record_graph
from rlxweb.export.js_name_validation import (
    check_input_names,
    check_module_name,
    check_output_names,
)
from rlxweb.export.js_runtime_files import page_files, runtime_files
from rlxweb.export.npm_package import NpmPackage, package_files
from rlxweb.export.plan_json import PlanSerializer
from rlxweb.export.plan_test_vectors import PlanTestVector
from rlxweb.ir.graph import Graph

ExportTarget = Literal["web", "npm"]
ExportProgress = Callable[[str, int, int], None]
"""Callback that receives the name of the file being written, the bytes done, and the
bytes in all.
"""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """Summary of an export that was written.

    folder   where
    name     of the module and of the plan
    files    each with its size, and its size as servers send it
    limits   what a device needs at least, by WebGPU's names
    notes    what is not as it could be: what the test vectors do not prove, say
    """

    folder: Path
    name: str
    to: ExportTarget
    files: tuple[ExportedFile, ...]
    limits: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.nbytes for file in self.files)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "folder": str(self.folder),
            "name": self.name,
            "to": self.to,
            "nbytes": self.nbytes,
            "files": [
                {"path": file.path, "nbytes": file.nbytes, "gzipped": file.gzipped}
                for file in self.files
            ],
            "limits": self.limits,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        count = len(self.files)
        return f"'{self.name}' in {self.folder}: {count} files, {self.nbytes:,} bytes"


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Graph to be exported, and the options of the export.

    outputs   a name for each output, in graph order; None: their own or out0, out1 …
    vectors   test vectors: how many to draw, or made by the caller
    make_welch_entry  makes the record of the plan; its arrays go to the weights
    """

    graph: Graph
    params: Mapping[str, Array]
    folder: Path
    name: str = ""
    to: ExportTarget = "web"
    outputs: Sequence[str] | None = None
    vectors: int | Sequence[PlanTestVector] = 1
    limits: Limits | None = None
    features: Sequence[str] = ()
    force: bool = False
    make_welch_entry: Callable[[BinaryFile], dict[str, Any]] | None = None
    package: NpmPackage = field(default_factory=NpmPackage)

    @property
    def context(self) -> str:
        """Error context of the export."""
        return f"export '{self.graph.name}'"


def write_export(job: ExportJob, tell: ExportProgress | None = None) -> ExportSummary:
    """Write the export atomically.

    Errors   UsageError, InputError, DTypeError, Unsupported, LimitExceeded, NotWritten.
    """
    name = check_module_name(job.name or job.graph.name, job.context)
    check_optional_instance("limits", job.limits, Limits, job.context)
    check_choice("to", job.to, ("web", "npm"), job.context)
    job.package.check(job.context)
    check_export_folder(job.folder, job.force)
    names = check_output_names(job.graph, job.outputs, job.context)
    check_input_names(job.graph, job.context)
    plans = _PlanPair(job, name, names)
    vector_file, vectors = BinaryFile(), _make_vectors(job, names, plans.plan["inputs"])
    plans.plan["vectors"] = of_vectors.vectors_to_json(vectors, vector_file)
    files = plans.files() | runtime_files(plans.plan)
    if job.to == "npm":
        files |= package_files(plans.plan, job.package)
    else:
        files |= page_files(plans.plan)
    files["weights.bin"] = partial(_write_with_progress, plans.weights, "weights", tell)
    if vectors:
        files["vectors.bin"] = partial(
            _write_with_progress, vector_file, "vectors", tell
        )
    written = write_folder(job.folder, files, force=job.force)
    notes = [*plans.notes, *(note for vector in vectors for note in vector.notes)]
    unique_notes = tuple(dict.fromkeys(notes))
    return ExportSummary(
        job.folder, name, job.to, written, plans.plan["limits"], unique_notes
    )


class _PlanPair:
    """Plan for a GPU and, if it differs, the plan for browsers without one."""

    def __init__(self, job: ExportJob, name: str, names: Sequence[str]) -> None:
        self._job, self._name, self._names = job, name, names
        self.weights = BinaryFile()
        self.shaders: dict[str, str] = {}
        self.notes: list[str] = []
        self.plan = self._record_plan(software=False)
        welch = (
            None if job.make_welch_entry is None else job.make_welch_entry(self.weights)
        )
        self.software_plan = self._make_software_plan()
        for plan in filter(None, (self.plan, self.software_plan)):
            plan["welch"], plan["vectors"], plan["software"] = welch, None, None
            plan["weights"]["nbytes"] = self.weights.nbytes
        self.plan["software"] = None if self.software_plan is None else "software.json"

    def _record_plan(self, software: bool) -> dict[str, Any]:
        """Record the graph and return its plan as plain data."""
        job = self._job
        recorded_graph = record_graph(
            job.graph,
            job.params,
            limits=job.limits,
            features=job.features,
            software=software,
            context=job.context,
        )
        serializer = PlanSerializer(
            recorded_graph, self._names, self.weights, self.shaders
        )
        return serializer.as_json(self._name, version("rlxweb"))

    def _make_software_plan(self) -> dict[str, Any] | None:
        """Return the plan for browsers without a GPU; None if the first plan serves
        both.
        """
        try:
            software_plan = self._record_plan(software=True)
        except (LimitExceeded, Unsupported) as error:
            self.notes.append(
                f"no plan was exported for browsers without a GPU: {error}"
            )
            return None
        is_same = all(
            software_plan[key] == self.plan[key]
            for key in software_plan
            if key != "limits"
        )
        if is_same:
            return None
        # Browsers without a GPU, whose compilers are the slow ones, wait for no file.
        software_plan["texts"] = {
            path: text
            for text, path in self.shaders.items()
            if path not in self.plan["shaders"]
        }
        return software_plan

    def files(self) -> dict[str, FileContent]:
        """Return both plans and their shaders as files."""
        plans = {"plan.json": self.plan, "software.json": self.software_plan}
        files: dict[str, FileContent] = {
            path: _format_plan(plan) for path, plan in plans.items() if plan is not None
        }
        return files | {
            path: text.encode()
            for text, path in self.shaders.items()
            if path in self.plan["shaders"]
        }


def _make_vectors(
    job: ExportJob, names: Sequence[str], read_inputs: Container[str]
) -> list[PlanTestVector]:
    """Return the test vectors with only those inputs that a page reads."""
    vectors = job.vectors
    if isinstance(vectors, int):
        vectors = of_vectors.draw_vectors(
            job.graph, job.params, names, vectors, job.context
        )
    return [
        replace(
            vector,
            inputs={
                name: array
                for name, array in vector.inputs.items()
                if name in read_inputs
            },
        )
        for vector in vectors
    ]


def _write_with_progress(
    data: BinaryFile, label: str, tell: ExportProgress | None, file: Any
) -> None:
    """Write a binary file and report its progress."""
    n_written = 0

    def report_bytes(nbytes: int) -> None:
        """Report that this many more bytes were written."""
        nonlocal n_written
        n_written += nbytes
        if tell is not None:
            tell(label, n_written, data.nbytes)

    data.write(file, report_bytes)


def _format_plan(plan: Mapping[str, Any]) -> bytes:
    """Return a plan as JSON with a line for each part and each command."""
    parts = []
    for key, value in plan.items():
        if key in ("commands", "buffers", "pipelines") and value:
            rows = ",\n".join(f"  {_compact_json(entry)}" for entry in value)
            parts.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {_compact_json(value)}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _compact_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
