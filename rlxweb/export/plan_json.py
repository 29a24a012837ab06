"""JSON form of a plan that a page reads, schema "rlxweb.web/1".

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
    welch      null, or what `rlxweb.signal.welch_export` says
    vectors    null, or what `plan_test_vectors.py` says
    software   null, or the path of a second plan, for browsers that compute on the CPU:
               of the same name, inputs, outputs, weights and shaders' folder
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlxweb.engines.webgpu.buffers import stored_bytes
from rlxweb.export.binary_array_file import BinaryFile
from rlxweb.export.browser_graph_compilation import RecordedGraph
from rlxweb.export.required_limits import required_limits
from rlxweb.gpu.command_recording_port import RecordedPipeline
from rlxweb.gpu.js_bridge_conversion import command_as_list
from rlxweb.gpu.port_protocol import BufferCopy, Command, Dispatch
from rlxweb.ir.op import TensorType

SCHEMA = "rlxweb.web/1"
_ACCESS_LETTERS = {"read": "r", "write": "w", "uniform": "u"}


class PlanSerializer:
    """Serializer of a recorded plan to JSON.

    outputs   a name for each output, in graph order
    weights   what it writes once is added to these
    shaders   and its shaders to these: path by text, for all plans of a folder
    """

    def __init__(
        self,
        recorded: RecordedGraph,
        outputs: Sequence[str],
        weights: BinaryFile,
        shaders: dict[str, str],
    ) -> None:
        port, program = recorded.port, recorded.program
        self._recorded, self._output_names = recorded, tuple(outputs)
        self._buffer_indices = {
            handle: index for index, handle in enumerate(port.buffers)
        }
        used_pipelines = dict.fromkeys(
            command.pipeline
            for command in program.commands
            if isinstance(command, Dispatch)
        )
        self._pipelines = {handle: port.pipelines[handle] for handle in used_pipelines}
        self._pipeline_indices = {
            handle: index for index, handle in enumerate(used_pipelines)
        }
        _assign_shader_paths(self._pipelines, program.commands, shaders)
        texts = dict.fromkeys(entry.source for entry in self._pipelines.values())
        self._shader_paths = {text: shaders[text] for text in texts}
        self._weight_writes = [
            [
                self._buffer_indices[entry.handle],
                entry.offset,
                weights.add_write(entry),
                entry.nbytes,
            ]
            for entry in port.writes
        ]

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        """Return the plan as plain data, without `welch`, `vectors` and the size of the
        weights.
        """
        recorded, program = self._recorded, self._recorded.program
        port = recorded.port
        limits = required_limits(
            port.buffers.values(), self._pipelines, program.commands, port.facts.limits
        )
        texts = [entry.source for entry in self._pipelines.values()]
        has_half = any(re.search(r"^\s*enable\s+f16\s*;", text, re.M) for text in texts)
        return {
            "schema": SCHEMA,
            "name": name,
            "rlxweb": version,
            "limits": limits,
            "features": ["shader-f16"] if has_half else [],
            "inputs": self._inputs_json(),
            "outputs": self._outputs_json(),
            "buffers": [
                {"nbytes": entry.nbytes, "usage": entry.usage}
                for entry in port.buffers.values()
            ],
            "shaders": list(self._shader_paths.values()),
            "texts": {},
            "pipelines": [
                self._pipeline_json(pipeline) for pipeline in self._pipelines.values()
            ],
            "weights": {
                "file": "weights.bin",
                "nbytes": 0,
                "writes": self._weight_writes,
            },
            "commands": [self._command_json(entry) for entry in program.commands],
            "readback": {
                "buffer": self._buffer_indices[program.readback_handle],
                "nbytes": program.readback_bytes,
                "fault": program.fault_offset,
            },
        }

    def _inputs_json(self) -> dict[str, Any]:
        """Return dtype, shape and buffer of each input."""
        program = self._recorded.program
        nodes = self._recorded.graph.named("input")
        demoted = program.plan.demoted_inputs
        return {
            name: {
                **_type_json(nodes[name].type),
                "buffer": self._buffer_indices[handle],
                "offset": 0,
                "nbytes": stored_bytes(nodes[name].type),
                # what the page looks through before it narrows it
                **(
                    {"between": [demoted[name].low, demoted[name].high]}
                    if name in demoted
                    else {}
                ),
            }
            for name, handle in program.input_handles.items()
        }

    def _outputs_json(self) -> dict[str, Any]:
        """Return dtype, shape and offset in the read-back buffer of each output."""
        named_outputs = zip(
            self._output_names, self._recorded.program.outputs, strict=True
        )
        return {
            name: {
                **_type_json(location.type),
                "offset": location.offset,
                "nbytes": stored_bytes(location.type),
            }
            for name, location in named_outputs
        }

    def _pipeline_json(self, pipeline: RecordedPipeline) -> dict[str, Any]:
        """Return a pipeline with its shader as an index."""
        return {
            "shader": list(self._shader_paths).index(pipeline.source),
            "layout": "".join(_ACCESS_LETTERS[access] for access in pipeline.layout),
            "constants": pipeline.constants,
        }

    def _command_json(self, command: Command) -> list[Any]:
        """Return a command in the form that bridge.js reads, with indices for handles,
        followed by its label.
        """
        buffer_indices = self._buffer_indices
        fields = command_as_list(command)
        if isinstance(command, Dispatch):
            bindings = [[buffer_indices[handle], *span] for handle, *span in fields[2]]
            return [
                "d",
                self._pipeline_indices[fields[1]],
                bindings,
                fields[3],
                command.label,
            ]
        if isinstance(command, BufferCopy):
            _, source, start, target, *rest = fields
            return ["c", buffer_indices[source], start, buffer_indices[target], *rest]
        return ["z", buffer_indices[fields[1]], *fields[2:]]


def _type_json(kind: TensorType) -> dict[str, Any]:
    """Return dtype and shape of a tensor type as plain data."""
    return {"dtype": kind.dtype.label, "shape": list(kind.shape)}


def _assign_shader_paths(
    pipelines: Mapping[int, RecordedPipeline],
    commands: Sequence[Command],
    paths: dict[str, str],
) -> None:
    """Assign a path to each shader text that has none, named after the step that first
    runs it.
    """
    labels: dict[int, str] = {}
    for command in commands:
        if isinstance(command, Dispatch):
            labels.setdefault(command.pipeline, command.label)
    for handle, pipeline in pipelines.items():
        word = re.sub(r"[^a-z0-9]+", "_", labels[handle].lower()).strip("_")[:40]
        path = f"shaders/{len(paths):02}-{word or 'step'}.wgsl"
        paths.setdefault(pipeline.source, path)
