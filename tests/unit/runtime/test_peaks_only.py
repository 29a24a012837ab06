"""RLX's SelectPeaksOnlyOutputs: no spectrum comes back where peaks are wanted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import DevicePolicy, Graph, GraphDevices, Session
from rlxweb.device import Device
from rlxweb.errors import UnknownDevice, VerifyError
from rlxweb.ir.tensor import Tensor
from rlxweb.rlx import WelchPeakParams, select_peaks_only_outputs
from tests.oracles import estimate, strongest_first
from tests.unit.rlx.restated_costs import GATES, score_ns

DEVICES = [d for d in Device if d is not Device.CPU]


def spectrum_and_peaks(
    batch: int = 3, n: int = 8, segments: int = 2, k: int = 4
) -> tuple[Graph, Tensor, Tensor]:
    """Segments → block spectrum → peaks; no outputs yet."""
    graph = Graph("both")
    segs = graph.input("segs", (batch * segments, n))
    spectrum = graph.apply("fft", graph.concat([segs, segs - segs], axis=1))
    return graph, spectrum, graph.welch_peaks(spectrum, k, segments)


def least_batch(device: Device, row_bytes: int) -> int:
    """The first batch whose saved bytes are worth the gate's least gain."""
    worth = score_ns(device.label, 0, 0, row_bytes, 0)
    return max(1, math.ceil(GATES[device.label][6] / worth))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0)])
def test_peaks_beside_their_spectrum_stay_alone(
    device: Device, order: tuple[int, ...]
) -> None:
    """Peaks beside their spectrum stay alone, whatever the size and the order."""
    graph, *both = spectrum_and_peaks()
    graph.set_outputs([both[i] for i in order])
    found, (decision,) = select_peaks_only_outputs(graph, device)
    assert found.outputs == (both[1].id,)
    assert [str(n) for n in found.nodes()] == [str(n) for n in graph.nodes()]
    assert decision.what == "outputs of 'both'"
    assert "the peaks are an output already" in decision.why
    assert decision.numbers == {
        "dropped": f"%{both[0].id}",
        "kept": f"%{both[1].id}",
    }


@pytest.mark.parametrize("value", ["1", "yes"])
def test_the_environment_keeps_outputs_as_they_are(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """RLX_NO_IO_PEAKS_OUTPUT, and the decision says so; a no is a no."""
    graph, *both = spectrum_and_peaks()
    graph.set_outputs(both)
    monkeypatch.setenv("RLX_NO_IO_PEAKS_OUTPUT", value)
    found, (decision,) = select_peaks_only_outputs(graph, "metal")
    assert found is graph
    assert "RLX_NO_IO_PEAKS_OUTPUT" in decision.why
    monkeypatch.setenv("RLX_NO_IO_PEAKS_OUTPUT", "off")
    assert len(select_peaks_only_outputs(graph, "metal")[0].outputs) == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "k"), [(256, 16), (16, 1)])
def test_the_gate_decides_whether_peaks_take_its_place(
    device: Device, n: int, k: int
) -> None:
    """Peaks replace their spectrum from the batch on where that saves enough bytes."""
    row = 2 * 2 * n * 4 - 2 * k * 4
    least = least_batch(device, row)
    for batch in {max(1, least - 1), least, 2 * least}:
        graph, spectrum, peaks = spectrum_and_peaks(batch, n, 2, k)
        graph.set_outputs([spectrum])
        found, (decision,) = select_peaks_only_outputs(graph, device)
        gains = batch >= least
        assert found.outputs == ((peaks if gains else spectrum).id,)
        want = score_ns(device.label, 0, 0, batch * row, 0)
        assert decision.numbers["score_ns"] == pytest.approx(want)
        assert decision.why == (
            "peaks in place of the spectrum" if gains else "the gate keeps the spectrum"
        )


def test_wgpu_wants_a_hundred_and_one_rows() -> None:
    """The least batch by hand: 3,968 bytes a row at 40 bytes/ns, 10,000 ns to gain."""
    assert least_batch(Device.GPU, 4096 - 128) == 101
    assert least_batch(Device.CUDA, 4096 - 128) == 64
    assert least_batch(Device.METAL, 4096 - 128) == 1


@given(batch=st.integers(1, 3), also=st.booleans())
def test_nothing_changes_for_the_cpu(batch: int, also: bool) -> None:
    graph, spectrum, peaks = spectrum_and_peaks(batch)
    graph.set_outputs([spectrum, peaks] if also else [spectrum])
    for name in ("cpu", " CPU ", Device.CPU):
        found, decisions = select_peaks_only_outputs(graph, name)
        assert found is graph
        assert decisions == ()


def test_other_outputs_keep_their_places() -> None:
    """One that is named twice stays twice; the peaks stand where the spectrum did."""
    graph, spectrum, peaks = spectrum_and_peaks(4096, 256, 2, 16)
    total = graph.sum(spectrum, 1)
    graph.set_outputs([total, spectrum, total, spectrum])
    found, _ = select_peaks_only_outputs(graph, "gpu")
    assert found.outputs == (total.id, peaks.id, total.id, peaks.id)
    graph.set_outputs([total, peaks, spectrum, total])
    found, _ = select_peaks_only_outputs(graph, "gpu")
    assert found.outputs == (total.id, peaks.id, total.id)


def test_every_pair_is_looked_at() -> None:
    """Two spectra of one graph are settled each on its own."""
    graph = Graph("pairs")
    wanted, kept = [], []
    for name, batch in (("big", 4096), ("small", 2)):
        segs = graph.input(name, (2 * batch, 64))
        spectrum = graph.apply("fft", graph.concat([segs, segs], axis=1))
        peaks = graph.welch_peaks(spectrum, 4, 2)
        wanted.append(spectrum)
        kept.append(peaks if name == "big" else spectrum)
    graph.set_outputs(wanted)
    found, decisions = select_peaks_only_outputs(graph, "vulkan")
    assert found.outputs == tuple(t.id for t in kept)
    assert [d.why.split()[0] for d in decisions] == ["peaks", "the"]


def test_a_spectrum_searched_twice_gives_both_answers() -> None:
    """A spectrum that is searched twice is dropped once, and both peaks are outputs."""
    graph, spectrum, few = spectrum_and_peaks()
    many = graph.welch_peaks(spectrum, 5, 2)
    graph.set_outputs([many, spectrum, few])
    found, decisions = select_peaks_only_outputs(graph, "metal")
    assert found.outputs == (many.id, few.id)
    assert len(decisions) == 1


def test_graphs_without_such_a_pair_are_left_alone() -> None:
    """Graphs without a transform's spectrum among their outputs are left alone."""
    graph, _, peaks = spectrum_and_peaks()
    graph.set_outputs([peaks])
    assert select_peaks_only_outputs(graph, "gpu") == (graph, ())
    plain = Graph("plain")
    given_ = plain.input("spectra", (4, 16))
    plain.set_outputs([given_, plain.welch_peaks(given_, 2, 2)])
    assert select_peaks_only_outputs(plain, "gpu") == (plain, ())


def test_an_unknown_device_is_refused() -> None:
    graph, spectrum, peaks = spectrum_and_peaks()
    graph.set_outputs([spectrum, peaks])
    with pytest.raises(UnknownDevice, match="abacus"):
        select_peaks_only_outputs(graph, "abacus")


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(VerifyError, match="an int was given; a Graph is wanted"):
        select_peaks_only_outputs(3, "gpu")  # type: ignore[arg-type]


def test_the_peaks_that_are_left_are_the_same() -> None:
    """Peaks that are left are plain NumPy's, from a run of what the pass left."""
    graph, spectrum, peaks = spectrum_and_peaks(3, 32, 2, 5)
    graph.set_outputs([spectrum, peaks])
    found, _ = select_peaks_only_outputs(graph, "vulkan")
    x = np.random.default_rng(1).standard_normal((6, 32)).astype(np.float32)
    (got,) = Session("cpu").compile(found).run({"segs": x})
    power = estimate(x.reshape(3, 64), 32, hop=32, window=1.0)
    order = strongest_first(power, 5)
    np.testing.assert_array_equal(got[:, ::2], order)
    want = np.take_along_axis(power, order, 1)
    np.testing.assert_allclose(got[:, 1::2], want, rtol=1e-5)


@pytest.mark.requires_wgpu
def test_a_session_in_seed_mode_returns_what_rlx_returns() -> None:
    """The spectrum is dropped where the peaks are an output; a decision says so."""
    graph, spectrum, peaks = spectrum_and_peaks()
    graph.set_outputs([spectrum, peaks])
    segs = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    both = Session("cpu", cost_mode="seed").compile(graph).run({"segs": segs})
    assert [one.shape for one in both] == [(6, 16), (3, 8)]
    compiled = Session("vulkan", cost_mode="seed").compile(graph)
    (alone,) = compiled.run({"segs": segs})
    np.testing.assert_allclose(alone, both[1], rtol=1e-4, atol=1e-5)
    whys = [one.why for one in compiled.decisions]
    assert "the peaks are an output already, the spectrum is dropped" in whys
    assert len(Session("vulkan").compile(graph).run({"segs": segs})) == 2
    runner = GraphDevices(graph, DevicePolicy.only(["vulkan"]), cost_mode="seed")
    assert len(runner.run("vulkan", {"segs": segs})) == 1


@pytest.mark.requires_wgpu
def test_a_session_in_seed_mode_asks_the_gate() -> None:
    """Peaks take the spectrum's place where the gate of shaders gains by it."""
    for batch, shape in ((2, (4, 16)), (8192, (8192, 8))):
        graph, spectrum, _ = spectrum_and_peaks(batch, k=4)
        graph.set_outputs([spectrum])
        segs = np.ones((2 * batch, 8), np.float32)
        compiled = Session("vulkan", cost_mode="seed").compile(graph)
        (got,) = compiled.run({"segs": segs})
        assert got.shape == shape


def test_presets_by_the_names_of_rlx() -> None:
    assert WelchPeakParams.ultra_fast_for_n_fft(256) == WelchPeakParams(256, 16, 1)
    assert WelchPeakParams.fast_for_n_fft(256, 8) == WelchPeakParams(256, 8, 2)
