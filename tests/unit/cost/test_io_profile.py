"""What RLX counts of a graph: launches, waits and bytes."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb import Graph, register_custom
from rlxweb.cost import (
    CpuCostModel,
    GraphIoOptions,
    GraphIoProfile,
    estimate_graph_cost,
    host_sync_op_kinds,
    profile_graph_io,
    profile_graph_io_outputs,
)
from rlxweb.errors import UsageError, VerifyError
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


@pytest.mark.parametrize("given", [None, "net", 3, object()])
def test_what_is_no_graph_no_model_and_no_options_is_refused(given: object) -> None:
    graph = Graph()
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    for profile in (profile_graph_io, lambda g: profile_graph_io_outputs(g, [0])):
        with pytest.raises(
            VerifyError, match=r"profile_graph_io: .* a Graph is wanted"
        ):
            profile(given)
    with pytest.raises(VerifyError, match=r"estimate_graph_cost: .* a Graph is wanted"):
        estimate_graph_cost(given, CpuCostModel.seed())
    with pytest.raises(UsageError, match="the model is"):
        estimate_graph_cost(graph, given)
    with pytest.raises(UsageError, match=r"fft_host_sync is .* True or False"):
        GraphIoOptions(given)
    if given is not None:
        with pytest.raises(UsageError, match="GraphIoOptions are wanted"):
            profile_graph_io(graph, given)


def test_whatever_holds_a_transform_waits_where_there_is_none() -> None:
    """Transforms count in ops composed of them, ours or a caller's, once a node."""
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
    made = [
        graph.fft(x),
        re,
        graph.irfft(re, im, 64),
        graph.stft(x, 16, 8),
        graph.apply("welch_power", x, window, hop=8),
        graph.apply("welch_row_peaks", x, window, hop=8, k=2),
        graph.apply("tapered_fft", x),
    ]
    graph.set_outputs([*made, graph.softmax(x), graph.apply("endless", x)])
    asked = [GraphIoOptions(fft_host_sync=on) for on in (False, True)]
    before, after = (profile_graph_io(graph, one).sync_points for one in asked)
    assert after - before == len(made)
    assert profile_graph_io_outputs(graph, [0], asked[1]).sync_points == after


def test_the_peaks_scenario() -> None:
    graph = Graph()
    spec = graph.input("spec", (4, 512))
    graph.set_outputs([graph.welch_peaks(spec, 16, 2)])
    io = profile_graph_io(graph)
    assert io == GraphIoProfile(1, 1, 256, 8_448)
    assert io.host_readback_bytes(False) == 2_368


def test_metadata_costs_nothing_and_returns_nothing() -> None:
    """Metadata costs nothing as an output either; a repeated output counts once."""
    graph = Graph()
    x = graph.input("x", (6, 4))
    y = graph.exp(x)
    flat = graph.reshape(graph.transpose(y, (1, 0)), (24,))
    graph.set_outputs([y, y, flat, graph.narrow(flat, 0, 0, 3)])
    assert profile_graph_io(graph) == GraphIoProfile(1, 0, 96, 192)


def test_selected_outputs_are_counted_by_position() -> None:
    """4 bytes an element, metadata too. A position counts once however often it is
    named, and one that the graph has not counts nothing; two of one node are two.
    """
    graph = Graph()
    x = graph.input("x", (6, 4), "f64")
    y = graph.exp(x)
    graph.set_outputs([y, graph.reshape(y, (24,))])
    for wanted, outputs in (
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
        found = profile_graph_io_outputs(graph, wanted)
        assert found.host_output_bytes == outputs * 96
        assert found.kernel_launches == 1
    for wrong in (None, 0, "01", [0.0], [None], np.array([[0], [1]])):
        with pytest.raises(UsageError, match="positions from 0"):
            profile_graph_io_outputs(graph, wrong)
    graph.set_outputs([y, y])
    assert profile_graph_io_outputs(graph, [0, 1]).host_output_bytes == 192


def test_selected_nodes_are_counted_by_id() -> None:
    """Nodes count by dtype; metadata, and what the graph has not, count nothing."""
    graph = Graph()
    x = graph.input("x", (6, 4), "f64")
    y = graph.exp(x)
    z = graph.reshape(y, (24,))
    c = graph.gt(y, x)
    graph.set_outputs([y, z, c])
    for wanted, nbytes in (
        ([y.id], 192),
        ([y, y], 192),
        ([y, c], 192 + 24),
        ([x, z], 0),
        ([99, -1], 0),
        ([], 0),
        (np.array([y.id, c.id]), 216),
    ):
        found = profile_graph_io_outputs(graph, node_ids=wanted)
        assert found.host_output_bytes == nbytes
        assert found.kernel_launches == 2
    for wrong in (0, "1", [0.5], [None]):
        with pytest.raises(UsageError, match="ids of nodes"):
            profile_graph_io_outputs(graph, node_ids=wrong)
    with pytest.raises(UsageError, match="neither or both"):
        profile_graph_io_outputs(graph, [0], node_ids=[0])


def test_duplicate_inputs_are_read_twice() -> None:
    graph = Graph()
    x = graph.input("x", (10,))
    graph.set_outputs([x * x])
    assert profile_graph_io(graph).device_traffic_bytes == 120


def test_ops_that_wait_for_the_host() -> None:
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
