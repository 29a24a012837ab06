"""Graph pass that makes peaks the only outputs of a graph that returns a spectrum and
its peaks.

Reading a spectrum back costs far more than reading its peaks. Dropping it changes what
a run returns, so only sessions with `cost_mode="seed"` do it by themselves, as RLX's
pass SelectPeaksOnlyOutputs does.
"""

from __future__ import annotations

from rlxweb.core.device import Device, DeviceLike, parse_device
from rlxweb.core.environment import keeps_outputs
from rlxweb.cost.decision import Decision
from rlxweb.cost.fusion_gate import FusionTarget, io_fusion_gate_for_target
from rlxweb.cost.graph_traffic_counts import profile_graph_io
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import require_graph


def select_peaks_only_outputs(
    graph: Graph, device: DeviceLike
) -> tuple[Graph, tuple[Decision, ...]]:
    """Return the graph with peaks in place of the spectra they are taken from.

    An fft that is an output and that a welch_peaks reads is dropped where the peaks are
    an output too. Otherwise the peaks take its place if RLX's fusion gate of the device
    predicts a gain. Nothing changes for the CPU, under RLX_NO_IO_PEAKS_OUTPUT, and for
    a graph whose sizes vary until they are bound.

    Parameters
    ----------
    graph
        The graph; it is not changed.
    device
        The device it is to run on.

    Returns
    -------
    graph, decisions
        The new graph, or the given one, and what was decided for each spectrum.
    """
    require_graph(graph, "select peaks as the only outputs")
    target = parse_device(device)
    decisions: list[Decision] = []
    if target is Device.CPU:
        return graph, ()
    if keeps_outputs():
        reason = "unchanged because RLX_NO_IO_PEAKS_OUTPUT is set"
        return graph, (Decision(f"outputs of '{graph.name}'", reason),)
    for peaks in graph.nodes():
        if peaks.op != "welch_peaks" or graph.node(peaks.inputs[0]).op != "fft":
            continue
        spectrum = peaks.inputs[0]
        if spectrum in graph.outputs:
            graph, decision = _drop_spectrum_output(graph, spectrum, peaks.id, target)
            decisions.append(decision)
    return graph, tuple(decisions)


def _drop_spectrum_output(
    graph: Graph, spectrum: int, peaks: int, device: Device
) -> tuple[Graph, Decision]:
    """Return the graph without the spectrum among its outputs where that is allowed,
    and the decision.
    """
    names = {"dropped": f"%{spectrum}", "kept": f"%{peaks}"}
    subject = f"outputs of '{graph.name}'"
    if peaks in graph.outputs:
        remaining = [i for i in graph.outputs if i != spectrum]
        reason = "the peaks are already an output, so the spectrum is dropped"
        return _with_outputs(graph, remaining), Decision(subject, reason, names)
    swapped = [peaks if i == spectrum else i for i in graph.outputs]
    peaks_graph = _with_outputs(graph, swapped)
    gate = io_fusion_gate_for_target(FusionTarget.of(device))
    before_io, after_io = profile_graph_io(graph), profile_graph_io(peaks_graph)
    score = {"score_ns": gate.score_ns(before_io, after_io), **names}
    if gate.should_fuse(before_io, after_io):
        return peaks_graph, Decision(subject, "the peaks replace the spectrum", score)
    reason = (
        "the fusion gate predicts too small a saving, so the spectrum stays an output"
    )
    return graph, Decision(subject, reason, score)


def _with_outputs(graph: Graph, outputs: list[int]) -> Graph:
    """Return a copy of the graph with other outputs."""
    copy = graph.copy()
    copy.set_outputs([copy.tensor(i) for i in outputs])
    return copy
