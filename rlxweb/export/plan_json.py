"""The plan as a page reads it, schema "rlxweb.web/1".

Offsets count from 0 and are bytes; what refers to a buffer, a shader or a pipeline is
its place in the list of them.

    schema, name, rlxweb   this schema; the plan's name; the version that wrote it
    limits     {WebGPU's name: the least that will do}; of a min…Alignment the device's
               own is at most that
    features   [WebGPU's names]
    inputs     {name: {dtype, shape, buffer, offset, nbytes}}: as stored, where a bool
               is a word of 0 or 1 and an f16 two bytes; nbytes may be 0
    outputs    {name: {dtype, shape, offset, nbytes}} in the read-back; true is not 0
    buffers    [{nbytes, usage}], usage "storage", "uniform" or "readback"
    shaders    [path beside the plan]
    texts      {path: WGSL} of those that lie in no file: what the second plan alone has
    pipelines  [{shader, layout, constants}]: entry `main`; a letter a binding, "r" and
               "w" for storage in group 0, a last "u" for the uniform of group 1
    weights    {file, nbytes, writes [[buffer, offset, from, nbytes]]}, to be written
               once; in multiples of 4, and two writes may share their bytes
    commands   of every run, in order
               ["d", pipeline, [[buffer, offset, nbytes] …], [x, y, z], label]
               ["c", source, from, target, to, nbytes]
               ["z", buffer, offset, nbytes], to be filled with zeros
    readback   {buffer, nbytes, fault}: where a word lies that is not 0 once an index
               was outside its table; null where no kernel looks anything up
    welch      null, or what `rlxweb.signal.exported` says
    vectors    null, or what `vectors.py` says
    software   null, or the path of a second plan, for browsers that compute on the CPU:
               of the same name, inputs, outputs, weights and shaders' folder
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlxweb.backends.webgpu_buffers import stored_bytes
from rlxweb.export.needs import least_limits
from rlxweb.export.recorded import Recorded
from rlxweb.export.weights import Weights
from rlxweb.gpu.browser_words import plain
from rlxweb.gpu.port import Command, Copy, Dispatch
from rlxweb.gpu.recording import RecordedPipeline
from rlxweb.ir.op import TensorType

SCHEMA = "rlxweb.web/1"
_LETTERS = {"read": "r", "write": "w", "uniform": "u"}


class PlanText:
    """A recorded plan as JSON.

    outputs   a name for each output, in graph order
    weights   what it writes once is added to these
    shaders   and its shaders to these: path by text, for all plans of a folder
    """

    def __init__(
        self,
        recorded: Recorded,
        outputs: Sequence[str],
        weights: Weights,
        shaders: dict[str, str],
    ) -> None:
        port, program = recorded.port, recorded.program
        self._recorded, self._names = recorded, tuple(outputs)
        self._buffer = {handle: at for at, handle in enumerate(port.buffers)}
        used = dict.fromkeys(
            c.pipeline for c in program.commands if isinstance(c, Dispatch)
        )
        self._pipelines = {handle: port.pipelines[handle] for handle in used}
        self._pipeline = {handle: at for at, handle in enumerate(used)}
        _name_shaders(self._pipelines, program.commands, shaders)
        texts = dict.fromkeys(one.source for one in self._pipelines.values())
        self._shaders = {text: shaders[text] for text in texts}
        self._writes = [
            [self._buffer[one.handle], one.offset, weights.add(one), one.nbytes]
            for one in port.writes
        ]

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        """All but `welch`, `vectors` and the size of the weights."""
        recorded, program = self._recorded, self._recorded.program
        port = recorded.port
        limits = least_limits(
            port.buffers.values(), self._pipelines, program.commands, port.facts.limits
        )
        texts = [one.source for one in self._pipelines.values()]
        has_half = any(re.search(r"^\s*enable\s+f16\s*;", t, re.M) for t in texts)
        return {
            "schema": SCHEMA,
            "name": name,
            "rlxweb": version,
            "limits": limits,
            "features": ["shader-f16"] if has_half else [],
            "inputs": self._inputs(),
            "outputs": self._outputs(),
            "buffers": [
                {"nbytes": one.nbytes, "usage": one.usage}
                for one in port.buffers.values()
            ],
            "shaders": list(self._shaders.values()),
            "texts": {},
            "pipelines": [self._as_pipeline(p) for p in self._pipelines.values()],
            "weights": {
                "file": "weights.bin",
                "nbytes": 0,
                "writes": self._writes,
            },
            "commands": [self._command(one) for one in program.commands],
            "readback": {
                "buffer": self._buffer[program.readback],
                "nbytes": program.readback_bytes,
                "fault": program.fault_at,
            },
        }

    def _inputs(self) -> dict[str, Any]:
        program = self._recorded.program
        nodes, given = self._recorded.graph.named("input"), program.plan.given
        return {
            name: {
                **_type(nodes[name].type),
                "buffer": self._buffer[handle],
                "offset": 0,
                "nbytes": stored_bytes(nodes[name].type),
                # what the page looks through before it narrows it
                **(
                    {"between": [given[name].low, given[name].high]}
                    if name in given
                    else {}
                ),
            }
            for name, handle in program.inputs.items()
        }

    def _outputs(self) -> dict[str, Any]:
        every = zip(self._names, self._recorded.program.outputs, strict=True)
        return {
            name: {
                **_type(spot.type),
                "offset": spot.offset,
                "nbytes": stored_bytes(spot.type),
            }
            for name, spot in every
        }

    def _as_pipeline(self, pipeline: RecordedPipeline) -> dict[str, Any]:
        return {
            "shader": list(self._shaders).index(pipeline.source),
            "layout": "".join(_LETTERS[access] for access in pipeline.layout),
            "constants": pipeline.constants,
        }

    def _command(self, command: Command) -> list[Any]:
        """As bridge.js of a tab reads it, with places for handles; and the label."""
        at = self._buffer
        said = plain(command)
        if isinstance(command, Dispatch):
            bound = [[at[handle], *span] for handle, *span in said[2]]
            return ["d", self._pipeline[said[1]], bound, said[3], command.label]
        if isinstance(command, Copy):
            _, source, start, target, *rest = said
            return ["c", at[source], start, at[target], *rest]
        return ["z", at[said[1]], *said[2:]]


def _type(kind: TensorType) -> dict[str, Any]:
    return {"dtype": kind.dtype.label, "shape": list(kind.shape)}


def _name_shaders(
    pipelines: Mapping[int, RecordedPipeline],
    commands: Sequence[Command],
    known: dict[str, str],
) -> None:
    """A path for each text that has none, told by the step that first runs it."""
    labels: dict[int, str] = {}
    for one in commands:
        if isinstance(one, Dispatch):
            labels.setdefault(one.pipeline, one.label)
    for handle, pipeline in pipelines.items():
        word = re.sub(r"[^a-z0-9]+", "_", labels[handle].lower()).strip("_")[:40]
        path = f"shaders/{len(known):02}-{word or 'step'}.wgsl"
        known.setdefault(pipeline.source, path)
