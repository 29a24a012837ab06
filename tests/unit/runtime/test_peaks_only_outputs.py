"""RLX's SelectPeaksOnlyOutputs: drop the spectrum output where peaks are wanted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import DevicePolicy, Graph, GraphDevices, Session
from rlxweb.core.device import Device
from rlxweb.core.errors import UnknownDevice, VerifyError
from rlxweb.ir.tensor import Tensor
from rlxweb.rlx import WelchPeakParams, select_peaks_only_outputs
from tests.numpy_welch_peaks_reference import rank_bins, reference_welch
from tests.unit.rlx.reference_cost_formulas import FUSION_GATES, gate_score_ns

DEVICES = [d for d in Device if d is not Device.CPU]


def spectrum_and_peaks(
    batch: int = 3, n: int = 8, segments: int = 2, k: int = 4
) -> tuple[Graph, Tensor, Tensor]:
    """Build segments, block spectrum and peaks without outputs."""
    graph = Graph("both")
    segments_input = graph.input("segs", (batch * segments, n))
    spectrum = graph.apply(
        "fft", graph.concat([segments_input, segments_input - segments_input], axis=1)
    )
    return graph, spectrum, graph.welch_peaks(spectrum, k, segments)


def min_fusing_batch(device: Device, row_bytes: int) -> int:
    """Return the smallest batch whose saved bytes reach the gate's minimum gain."""
    row_score_ns = gate_score_ns(device.label, 0, 0, row_bytes, 0)
    return max(1, math.ceil(FUSION_GATES[device.label][6] / row_score_ns))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0)])
def test_spectrum_is_dropped_next_to_its_peaks(
    device: Device, order: tuple[int, ...]
) -> None:
    """Only the peaks remain of a spectrum and its peaks, whatever the size and
    order.
    """
    graph, *both = spectrum_and_peaks()
    graph.set_outputs([both[i] for i in order])
    rewritten, (decision,) = select_peaks_only_outputs(graph, device)
    assert rewritten.outputs == (both[1].id,)
    assert [str(n) for n in rewritten.nodes()] == [str(n) for n in graph.nodes()]
    assert decision.what == "outputs of 'both'"
    assert "the peaks are already an output" in decision.why
    assert decision.numbers == {
        "dropped": f"%{both[0].id}",
        "kept": f"%{both[1].id}",
    }


@pytest.mark.parametrize("value", ["1", "yes"])
def test_environment_disables_the_pass(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """RLX_NO_IO_PEAKS_OUTPUT disables the pass and the decision says so; "off" enables
    it.
    """
    graph, *both = spectrum_and_peaks()
    graph.set_outputs(both)
    monkeypatch.setenv("RLX_NO_IO_PEAKS_OUTPUT", value)
    rewritten, (decision,) = select_peaks_only_outputs(graph, "metal")
    assert rewritten is graph
    assert "RLX_NO_IO_PEAKS_OUTPUT" in decision.why
    monkeypatch.setenv("RLX_NO_IO_PEAKS_OUTPUT", "off")
    assert len(select_peaks_only_outputs(graph, "metal")[0].outputs) == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "k"), [(256, 16), (16, 1)])
def test_gate_decides_on_replacing_the_spectrum(device: Device, n: int, k: int) -> None:
    """Peaks replace their spectrum from the batch size that saves enough bytes."""
    row_bytes = 2 * 2 * n * 4 - 2 * k * 4
    min_batch = min_fusing_batch(device, row_bytes)
    for batch in {max(1, min_batch - 1), min_batch, 2 * min_batch}:
        graph, spectrum, peaks = spectrum_and_peaks(batch, n, 2, k)
        graph.set_outputs([spectrum])
        rewritten, (decision,) = select_peaks_only_outputs(graph, device)
        is_replaced = batch >= min_batch
        assert rewritten.outputs == ((peaks if is_replaced else spectrum).id,)
        want = gate_score_ns(device.label, 0, 0, batch * row_bytes, 0)
        assert decision.numbers["score_ns"] == pytest.approx(want)
        assert decision.why == (
            "the peaks replace the spectrum"
            if is_replaced
            else "the fusion gate predicts too small a saving, so the spectrum stays "
            "an output"
        )


def test_wgpu_needs_101_rows() -> None:
    """The smallest batch by hand: 3,968 bytes a row at 40 bytes/ns, 10,000 ns to
    gain.
    """
    assert min_fusing_batch(Device.GPU, 4096 - 128) == 101
    assert min_fusing_batch(Device.CUDA, 4096 - 128) == 64
    assert min_fusing_batch(Device.METAL, 4096 - 128) == 1


@given(batch=st.integers(1, 3), also=st.booleans())
def test_cpu_graphs_are_unchanged(batch: int, also: bool) -> None:
    graph, spectrum, peaks = spectrum_and_peaks(batch)
    graph.set_outputs([spectrum, peaks] if also else [spectrum])
    for name in ("cpu", " CPU ", Device.CPU):
        rewritten, decisions = select_peaks_only_outputs(graph, name)
        assert rewritten is graph
        assert decisions == ()


def test_other_outputs_keep_their_positions() -> None:
    """Repeated outputs stay repeated; the peaks take the position of the spectrum."""
    graph, spectrum, peaks = spectrum_and_peaks(4096, 256, 2, 16)
    total = graph.sum(spectrum, 1)
    graph.set_outputs([total, spectrum, total, spectrum])
    rewritten, _ = select_peaks_only_outputs(graph, "gpu")
    assert rewritten.outputs == (total.id, peaks.id, total.id, peaks.id)
    graph.set_outputs([total, peaks, spectrum, total])
    rewritten, _ = select_peaks_only_outputs(graph, "gpu")
    assert rewritten.outputs == (total.id, peaks.id, total.id)


def test_every_spectrum_is_decided_separately() -> None:
    """Two spectra of one graph are decided independently."""
    graph = Graph("pairs")
    spectra, remaining = [], []
    for name, batch in (("big", 4096), ("small", 2)):
        segments_input = graph.input(name, (2 * batch, 64))
        spectrum = graph.apply(
            "fft", graph.concat([segments_input, segments_input], axis=1)
        )
        peaks = graph.welch_peaks(spectrum, 4, 2)
        spectra.append(spectrum)
        remaining.append(peaks if name == "big" else spectrum)
    graph.set_outputs(spectra)
    rewritten, decisions = select_peaks_only_outputs(graph, "vulkan")
    assert rewritten.outputs == tuple(t.id for t in remaining)
    assert ["peaks replace" in d.why for d in decisions] == [True, False]


def test_spectrum_with_two_peak_searches() -> None:
    """A spectrum searched twice is dropped once, and both peaks remain outputs."""
    graph, spectrum, four_peaks = spectrum_and_peaks()
    five_peaks = graph.welch_peaks(spectrum, 5, 2)
    graph.set_outputs([five_peaks, spectrum, four_peaks])
    rewritten, decisions = select_peaks_only_outputs(graph, "metal")
    assert rewritten.outputs == (five_peaks.id, four_peaks.id)
    assert len(decisions) == 1


def test_other_graphs_are_unchanged() -> None:
    """Graphs without a transform's spectrum among their outputs are unchanged."""
    graph, _, peaks = spectrum_and_peaks()
    graph.set_outputs([peaks])
    assert select_peaks_only_outputs(graph, "gpu") == (graph, ())
    plain = Graph("plain")
    spectra = plain.input("spectra", (4, 16))
    plain.set_outputs([spectra, plain.welch_peaks(spectra, 2, 2)])
    assert select_peaks_only_outputs(plain, "gpu") == (plain, ())


def test_unknown_device_is_rejected() -> None:
    graph, spectrum, peaks = spectrum_and_peaks()
    graph.set_outputs([spectrum, peaks])
    with pytest.raises(UnknownDevice, match="abacus"):
        select_peaks_only_outputs(graph, "abacus")


def test_non_graph_is_rejected() -> None:
    with pytest.raises(VerifyError, match="got an int; expected a Graph"):
        select_peaks_only_outputs(3, "gpu")  # type: ignore[arg-type]


def test_remaining_peaks_match_numpy() -> None:
    """The rewritten graph computes the same peaks as NumPy."""
    graph, spectrum, peaks = spectrum_and_peaks(3, 32, 2, 5)
    graph.set_outputs([spectrum, peaks])
    rewritten, _ = select_peaks_only_outputs(graph, "vulkan")
    x = np.random.default_rng(1).standard_normal((6, 32)).astype(np.float32)
    (got,) = Session("cpu").compile(rewritten).run({"segs": x})
    power = reference_welch(x.reshape(3, 64), 32, hop=32, window=1.0)
    order = rank_bins(power, 5)
    np.testing.assert_array_equal(got[:, ::2], order)
    want = np.take_along_axis(power, order, 1)
    np.testing.assert_allclose(got[:, 1::2], want, rtol=1e-5)


@pytest.mark.requires_wgpu
def test_seed_mode_session_drops_the_spectrum() -> None:
    """The session drops a spectrum whose peaks are an output, as RLX does, and a
    decision says so.
    """
    graph, spectrum, peaks = spectrum_and_peaks()
    graph.set_outputs([spectrum, peaks])
    segs = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    both = Session("cpu", cost_mode="seed").compile(graph).run({"segs": segs})
    assert [item.shape for item in both] == [(6, 16), (3, 8)]
    compiled = Session("vulkan", cost_mode="seed").compile(graph)
    (peaks_only,) = compiled.run({"segs": segs})
    np.testing.assert_allclose(peaks_only, both[1], rtol=1e-4, atol=1e-5)
    reasons = [item.why for item in compiled.decisions]
    assert "the peaks are already an output, so the spectrum is dropped" in reasons
    assert len(Session("vulkan").compile(graph).run({"segs": segs})) == 2
    runner = GraphDevices(graph, DevicePolicy.only(["vulkan"]), cost_mode="seed")
    assert len(runner.run("vulkan", {"segs": segs})) == 1


@pytest.mark.requires_wgpu
def test_seed_mode_session_uses_the_gate() -> None:
    """Peaks replace the spectrum where the gate of WGSL devices reports a gain."""
    for batch, shape in ((2, (4, 16)), (8192, (8192, 8))):
        graph, spectrum, _ = spectrum_and_peaks(batch, k=4)
        graph.set_outputs([spectrum])
        segs = np.ones((2 * batch, 8), np.float32)
        compiled = Session("vulkan", cost_mode="seed").compile(graph)
        (got,) = compiled.run({"segs": segs})
        assert got.shape == shape


def test_rlx_preset_names() -> None:
    assert WelchPeakParams.ultra_fast_for_n_fft(256) == WelchPeakParams(256, 16, 1)
    assert WelchPeakParams.fast_for_n_fft(256, 8) == WelchPeakParams(256, 8, 2)
