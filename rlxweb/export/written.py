"""From a graph and its params to a folder: the one door of this room.

plan.json  software.json  shaders/*.wgsl  weights.bin   what `plan_json.py` says
vectors.bin                                             what `vectors.py` says
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

from rlxweb.arguments import one_of, one_or_none
from rlxweb.backends.protocol import Array
from rlxweb.errors import LimitExceeded, Unsupported
from rlxweb.export import vectors as of_vectors
from rlxweb.export.folder import Content, WrittenFile, check_target, write_folder
from rlxweb.export.module import page_files, runtime_files
from rlxweb.export.names import check_inputs, module_name, output_names
from rlxweb.export.package import Package, package_files
from rlxweb.export.plan_json import PlanText
from rlxweb.export.recorded import recorded
from rlxweb.export.vectors import Vector
from rlxweb.export.weights import Weights
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits

To = Literal["web", "npm"]
Tell = Callable[[str, int, int], None]
"""Hears what is being written, how many bytes of it, of how many in all."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    folder   where
    name     of the module and of the plan
    files    each with its size, and its size as servers send it
    limits   what a device needs at least, by WebGPU's names
    notes    what is not as it could be: what the test vectors do not prove, say
    """

    folder: Path
    name: str
    to: To
    files: tuple[WrittenFile, ...]
    limits: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.files)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "folder": str(self.folder),
            "name": self.name,
            "to": self.to,
            "nbytes": self.nbytes,
            "files": [
                {"path": f.path, "nbytes": f.nbytes, "gzipped": f.gzipped}
                for f in self.files
            ],
            "limits": self.limits,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        count = len(self.files)
        return f"'{self.name}' in {self.folder}: {count} files, {self.nbytes:,} bytes"


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be exported, and how.

    outputs   a name for each output, in graph order; None: their own or out0, out1 …
    cases     test vectors: how many to draw, or made by the caller
    welch     makes the record of the plan; its arrays go to the weights
    """

    graph: Graph
    params: Mapping[str, Array]
    folder: Path
    name: str = ""
    to: To = "web"
    outputs: Sequence[str] | None = None
    cases: int | Sequence[Vector] = 1
    limits: Limits | None = None
    features: Sequence[str] = ()
    force: bool = False
    welch: Callable[[Weights], dict[str, Any]] | None = None
    package: Package = field(default_factory=Package)

    @property
    def doing(self) -> str:
        return f"export '{self.graph.name}'"


def write_export(job: Job, tell: Tell | None = None) -> Exported:
    """Write it, whole or not at all.

    Errors   UsageError, InputError, DTypeError, Unsupported, LimitExceeded, NotWritten.
    """
    name = module_name(job.name or job.graph.name, job.doing)
    one_or_none("limits", job.limits, Limits, job.doing)
    one_of("to", job.to, ("web", "npm"), job.doing)
    job.package.check(job.doing)
    check_target(job.folder, job.force)
    names = output_names(job.graph, job.outputs, job.doing)
    check_inputs(job.graph, job.doing)
    made = _Plans(job, name, names)
    data, cases = Weights(), _cases(job, names, made.plan["inputs"])
    made.plan["vectors"] = of_vectors.as_json(cases, data)
    files = made.files() | runtime_files(made.plan)
    if job.to == "npm":
        files |= package_files(made.plan, job.package)
    else:
        files |= page_files(made.plan)
    files["weights.bin"] = partial(_stream, made.weights, "weights", tell)
    if cases:
        files["vectors.bin"] = partial(_stream, data, "vectors", tell)
    written = write_folder(job.folder, files, force=job.force)
    notes = [*made.notes, *(note for case in cases for note in case.notes)]
    unlike = tuple(dict.fromkeys(notes))
    return Exported(job.folder, name, job.to, written, made.plan["limits"], unlike)


class _Plans:
    """The plan for a GPU and, where that is another, the one for browsers without."""

    def __init__(self, job: Job, name: str, names: Sequence[str]) -> None:
        self._job, self._name, self._names = job, name, names
        self.weights = Weights()
        self.shaders: dict[str, str] = {}
        self.notes: list[str] = []
        self.plan = self._made(software=False)
        welch = None if job.welch is None else job.welch(self.weights)
        self.software = self._of_software()
        for one in filter(None, (self.plan, self.software)):
            one["welch"], one["vectors"], one["software"] = welch, None, None
            one["weights"]["nbytes"] = self.weights.nbytes
        self.plan["software"] = None if self.software is None else "software.json"

    def _made(self, software: bool) -> dict[str, Any]:
        job = self._job
        made = recorded(
            job.graph,
            job.params,
            limits=job.limits,
            features=job.features,
            software=software,
            doing=job.doing,
        )
        text = PlanText(made, self._names, self.weights, self.shaders)
        return text.as_json(self._name, version("rlxweb"))

    def _of_software(self) -> dict[str, Any] | None:
        """The second plan; None where the first does for both."""
        try:
            made = self._made(software=True)
        except (LimitExceeded, Unsupported) as error:
            self.notes.append(f"there is no plan for browsers without a GPU: {error}")
            return None
        is_same = all(made[key] == self.plan[key] for key in made if key != "limits")
        if is_same:
            return None
        # Browsers without a GPU, whose compilers are the slow ones, wait for no file.
        made["texts"] = {
            path: text
            for text, path in self.shaders.items()
            if path not in self.plan["shaders"]
        }
        return made

    def files(self) -> dict[str, Content]:
        """Both, and their shaders."""
        both = {"plan.json": self.plan, "software.json": self.software}
        files: dict[str, Content] = {
            path: _json(plan) for path, plan in both.items() if plan is not None
        }
        return files | {
            path: text.encode()
            for text, path in self.shaders.items()
            if path in self.plan["shaders"]
        }


def _cases(job: Job, names: Sequence[str], read: Container[str]) -> list[Vector]:
    """Of the inputs those that a page reads: others are of no type that it has."""
    cases = job.cases
    if isinstance(cases, int):
        cases = of_vectors.drawn_cases(job.graph, job.params, names, cases, job.doing)
    return [
        replace(one, inputs={n: a for n, a in one.inputs.items() if n in read})
        for one in cases
    ]


def _stream(data: Weights, what: str, tell: Tell | None, file: Any) -> None:
    done = 0

    def came(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if tell is not None:
            tell(what, done, data.nbytes)

    data.write(file, came)


def _json(plan: Mapping[str, Any]) -> bytes:
    """A line for each part, and for each command."""
    parts = []
    for key, value in plan.items():
        if key in ("commands", "buffers", "pipelines") and value:
            rows = ",\n".join(f"  {_line(one)}" for one in value)
            parts.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {_line(value)}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
