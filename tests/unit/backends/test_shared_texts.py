"""A new size is no new shader: what differs in size alone shares its texts.

On a port that records, for adapters on the CPU and for GPUs; every family of graphs
that the benchmark of the picker has.
"""

from __future__ import annotations

import pytest

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.gpu.recording import RecordingPort
from rlxweb.ir.graph import Graph
from tests.benchmarks.graph_cells import FAMILIES

TRANSFORMS = {"fft", "rfft", "irfft", "rfft, prime", "psd_real"}
"""Another length has other butterflies."""
OF_ONE_ROW = {"psd"}
"""Its rows are a whole recording, and their length is that of the transform."""
FILLING = {"deform_conv", "conv_integer"}
"""Eight images more fill a GPU by a lane or a tile a result; fewer go by blocks."""
IN_REGISTERS = {
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
"""On a GPU as many registers as a line takes; on a CPU they are loops. A recurrence
keeps its state in workgroup memory, whose size is text.
"""

RANKED = {"power_peaks"}
"""On a GPU a row of over 4,096 bins is ranked in chunks, and then by their lists, which
is one text more."""


def texts(family: str, shape: tuple[int, ...], software: bool) -> set[str]:
    port = RecordingPort(software=software)
    drive(port.open(Want()))
    engine, graph = WebGpuBackend(port), Graph("size")
    build = FAMILIES[family][0]
    graph.set_outputs([build(graph, shape)])
    drive(engine.prepare(compile_graph(graph, engine.target)))
    return {made.source for made in port.pipelines.values()}


@pytest.mark.parametrize("software", [True, False], ids=["cpu", "gpu"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_share_their_shaders(family: str, software: bool) -> None:
    shapes = FAMILIES[family][1]
    shape = shapes[1] if len(shapes) > 1 else shapes[0]
    first = texts(family, shape, software)
    other = list(shape)
    if family not in OF_ONE_ROW | (set() if software else FILLING):
        other[0] += 8
    own = TRANSFORMS | OF_ONE_ROW | (set() if software else IN_REGISTERS | RANKED)
    if family not in own:
        # Whole fours in each of eight heads too: what is none has its own text.
        other[-1] += 32
    if other != list(shape):
        assert texts(family, tuple(other), software) <= first
