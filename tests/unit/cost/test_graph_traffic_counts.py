"""IO profile of a graph, as RLX counts it: kernel launches, host waits and bytes."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb import Graph, register_custom
from rlxweb.core.errors import UsageError, VerifyError
from rlxweb.cost import (
    CpuCostModel,
    GraphIoOptions,
    GraphIoProfile,
    estimate_graph_cost,
    host_sync_op_kinds,
    profile_graph_io,
    profile_graph_io_outputs,
)
from rlxweb.ir.lowering import Compose


def test_the_fft_scenario() -> None:
    """The FFT scenario, X [8, 512]: x - x, concat, fft, is counted as RLX does."""
    graph = Graph()
    x = graph.input("x", (8, 512))
    graph.set_outputs([graph.apply("fft", graph.concat([x, x - x], axis=1))])
    io = profile_graph_io(graph)
    assert io == GraphIoProfile(3, 0, 32_768, 180_224)
    assert io.host_readback_bytes(True) == 32_768
    assert io.host_readback_bytes(False) == 77_824
    waiting = profile_graph_io(graph, GraphIoOptions(fft_host_sync=True))
    assert waiting.sync_points == 1


@pytest.mark.parametrize("argument", [None, "net", 3, object()])
def test_wrong_argument_types_are_rejected(argument: object) -> None:
    graph = Graph()
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    for profile in (profile_graph_io, lambda g: profile_graph_io_outputs(g, [0])):
        with pytest.raises(VerifyError, match=r"profile_graph_io: .* expected a Graph"):
            profile(argument)
    with pytest.raises(VerifyError, match=r"estimate_graph_cost: .* expected a Graph"):
        estimate_graph_cost(argument, CpuCostModel.seed())
    with pytest.raises(UsageError, match="the model is"):
        estimate_graph_cost(graph, argument)
    with pytest.raises(UsageError, match=r"fft_host_sync is .* True or False"):
        GraphIoOptions(argument)
    if argument is not None:
        with pytest.raises(UsageError, match="expected GraphIoOptions"):
            profile_graph_io(graph, argument)


def test_ops_composed_of_ffts_count_as_host_waits() -> None:
    """FFTs count inside composed ops, built in or custom, once per node."""
    register_custom(
        "tapered_fft",
        arity=1,
        reference=lambda xp, attrs, x: x,
        wgsl=Compose(lambda g, attrs, x: g.apply("fft", x * 0.5)),
    )
    register_custom(
        "endless",
        arity=1,
        reference=lambda xp, attrs, x: x,
        wgsl=Compose(lambda g, attrs, x: g.apply("endless", x)),
    )
    graph = Graph()
    x, window = graph.input("x", (4, 64)), graph.input("w", (16,))
    re, im = graph.rfft(x)
    transforms = [
        graph.fft(x),
        re,
        graph.irfft(re, im, 64),
        graph.stft(x, 16, 8),
        graph.apply("welch_power", x, window, hop=8),
        graph.apply("welch_row_peaks", x, window, hop=8, k=2),
        graph.apply("tapered_fft", x),
    ]
    graph.set_outputs([*transforms, graph.softmax(x), graph.apply("endless", x)])
    option_pair = [
        GraphIoOptions(fft_host_sync=host_sync) for host_sync in (False, True)
    ]
    before, after = (
        profile_graph_io(graph, options).sync_points for options in option_pair
    )
    assert after - before == len(transforms)
    assert profile_graph_io_outputs(graph, [0], option_pair[1]).sync_points == after


def test_the_peaks_scenario() -> None:
    graph = Graph()
    spec = graph.input("spec", (4, 512))
    graph.set_outputs([graph.welch_peaks(spec, 16, 2)])
    io = profile_graph_io(graph)
    assert io == GraphIoProfile(1, 1, 256, 8_448)
    assert io.host_readback_bytes(False) == 2_368


def test_metadata_ops_cost_nothing() -> None:
    """Metadata ops cost nothing as outputs either; a repeated output counts once."""
    graph = Graph()
    x = graph.input("x", (6, 4))
    y = graph.exp(x)
    flat = graph.reshape(graph.transpose(y, (1, 0)), (24,))
    graph.set_outputs([y, y, flat, graph.narrow(flat, 0, 0, 3)])
    assert profile_graph_io(graph) == GraphIoProfile(1, 0, 96, 192)


def test_selected_outputs_are_counted_by_position() -> None:
    """Outputs, metadata too, count 4 bytes per element. A position counts once however
    often it is named, and one that does not exist counts nothing; two positions of one
    node count twice.
    """
    graph = Graph()
    x = graph.input("x", (6, 4), "f64")
    y = graph.exp(x)
    graph.set_outputs([y, graph.reshape(y, (24,))])
    for selected, outputs in (
        ([0], 1),
        ([0, 0], 1),
        ([1, 1, 0], 2),
        ([2, -1, 99], 0),
        ([1, 7], 1),
        ([], 0),
        (range(9), 2),
        (np.array([0, 1]), 2),
        ({np.uint8(1)}, 1),
        (iter([10**40, 0]), 1),
    ):
        io = profile_graph_io_outputs(graph, selected)
        assert io.host_output_bytes == outputs * 96
        assert io.kernel_launches == 1
    for invalid in (None, 0, "01", [0.0], [None], np.array([[0], [1]])):
        with pytest.raises(UsageError, match="positions from 0"):
            profile_graph_io_outputs(graph, invalid)
    graph.set_outputs([y, y])
    assert profile_graph_io_outputs(graph, [0, 1]).host_output_bytes == 192


def test_selected_nodes_are_counted_by_id() -> None:
    """Nodes count by dtype; metadata ops and unknown ids count nothing."""
    graph = Graph()
    x = graph.input("x", (6, 4), "f64")
    y = graph.exp(x)
    z = graph.reshape(y, (24,))
    c = graph.gt(y, x)
    graph.set_outputs([y, z, c])
    for selected, nbytes in (
        ([y.id], 192),
        ([y, y], 192),
        ([y, c], 192 + 24),
        ([x, z], 0),
        ([99, -1], 0),
        ([], 0),
        (np.array([y.id, c.id]), 216),
    ):
        io = profile_graph_io_outputs(graph, node_ids=selected)
        assert io.host_output_bytes == nbytes
        assert io.kernel_launches == 2
    for invalid in (0, "1", [0.5], [None]):
        with pytest.raises(UsageError, match="list of node ids"):
            profile_graph_io_outputs(graph, node_ids=invalid)
    with pytest.raises(UsageError, match="got both output_indices and node_ids"):
        profile_graph_io_outputs(graph, [0], node_ids=[0])


def test_duplicate_inputs_are_read_twice() -> None:
    graph = Graph()
    x = graph.input("x", (10,))
    graph.set_outputs([x * x])
    assert profile_graph_io(graph).device_traffic_bytes == 120


def test_host_sync_ops() -> None:
    """The ops of RLX's list wait for the host, and so does a custom op."""
    assert host_sync_op_kinds() == (
        "log_mel",
        "log_mel_backward",
        "welch_peaks",
        "custom",
    )
    register_custom("thrice", arity=1, reference=lambda xp, a, x: x * 3, wgsl="x * 3.0")
    graph = Graph()
    graph.set_outputs([graph.apply("thrice", graph.input("x", (2,)))])
    assert profile_graph_io(graph).sync_points == 1
