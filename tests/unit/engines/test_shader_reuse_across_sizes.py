"""Graphs that differ in size alone share their shaders.

On a port that records, for adapters on the CPU and for GPUs; every family of graphs
that the benchmark of the picker has.
"""

from __future__ import annotations

import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.command_recording_port import RecordingPort
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from tests.benchmarks.graph_cells import FAMILIES

TRANSFORM_FAMILIES = {"fft", "rfft", "irfft", "rfft, prime", "psd_real"}
"""Families whose shader depends on the transform length: another length has other
butterflies.
"""
SINGLE_ROW_FAMILIES = {"psd"}
"""Families whose rows are a whole recording, as long as the transform."""
OCCUPANCY_FAMILIES = {"deform_conv", "conv_integer"}
"""Families for which eight more images fill a GPU with an invocation or tile per
result; fewer use blocks.
"""
REGISTER_FAMILIES = {
    "lstm",
    "lstm, back",
    "gru",
    "rnn",
    "softmax",
    "layer_norm",
    "rms_norm",
    "attention",
    "causal attention",
    "transformer layer",
}
"""Families that use as many registers on a GPU as a row needs; on a CPU they are loops.
A recurrence keeps its state in workgroup memory, whose size is part of the shader.
"""

CHUNK_RANKED_FAMILIES = {"power_peaks"}
"""Families whose rows of over 4,096 bins are ranked on a GPU in chunks, then by the
chunks' lists, which needs one more shader.
"""


def shader_sources(family: str, shape: tuple[int, ...], software: bool) -> set[str]:
    """Return the shader sources that a family's graph of this shape compiles."""
    port = RecordingPort(software=software)
    run_blocking(port.open(AdapterRequest()))
    engine, graph = WebGpuEngine(port), Graph("size")
    build = FAMILIES[family][0]
    graph.set_outputs([build(graph, shape)])
    run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    return {pipeline.source for pipeline in port.pipelines.values()}


@pytest.mark.parametrize("software", [True, False], ids=["cpu", "gpu"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_share_their_shaders(family: str, software: bool) -> None:
    shapes = FAMILIES[family][1]
    shape = shapes[1] if len(shapes) > 1 else shapes[0]
    sources = shader_sources(family, shape, software)
    other_shape = list(shape)
    if family not in SINGLE_ROW_FAMILIES | (set() if software else OCCUPANCY_FAMILIES):
        other_shape[0] += 8
    size_dependent = (
        TRANSFORM_FAMILIES
        | SINGLE_ROW_FAMILIES
        | (set() if software else REGISTER_FAMILIES | CHUNK_RANKED_FAMILIES)
    )
    if family not in size_dependent:
        # Whole fours in each of eight heads too: what is none has its own text.
        other_shape[-1] += 32
    if other_shape != list(shape):
        assert shader_sources(family, tuple(other_shape), software) <= sources
