"""A learned transform as a graph, for any engine: short transforms, then a sum."""

from __future__ import annotations

import numpy as np

from rlxweb.host.segment_power import tables
from rlxweb.host.spec import WelchSpec
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.transform import LearnedTransform, places, rows_of


def learned_graph(
    shape: tuple[int, int], spec: WelchSpec, transform: LearnedTransform, band: Band
) -> Graph:
    """Rows x [B, T] f32 → power [B, bins] of a band."""
    count, program = spec.segments_of(shape[1]), transform.program
    graph = Graph("learned_welch")
    x = graph.input("x", shape, "f32")
    used = graph.narrow(x, 1, 0, spec.nperseg + (count - 1) * spec.hop)
    cut = graph.frame(used, spec.nperseg, spec.hop)
    if transform.detrend:
        cut = cut - graph.mean(cut, (2,), keep_dim=True)
    own = rows_of(band, transform.band)
    at, turned = (one[own] for one in places(program, transform.band))
    window = np.frombuffer(transform.window)
    re = im = None
    sign = graph.constant(np.where(turned, -1.0, 1.0), "f32")
    places_ = graph.constant(at, "i32")
    for p, phase in enumerate(program.phases):
        part = cut[:, :, phase :: program.stride]
        part = part * graph.constant(window[phase :: program.stride], "f32")
        f_re, f_im = graph.rfft(part)
        f_re = _picked(graph, f_re, at, places_)
        f_im = _picked(graph, f_im, at, places_) * sign
        weight = program.weights[own, p]
        w_re = graph.constant(weight.real, "f32")
        w_im = graph.constant(weight.imag, "f32")
        own_re, own_im = f_re * w_re - f_im * w_im, f_re * w_im + f_im * w_re
        re = own_re if re is None else re + own_re
        im = own_im if im is None else im + own_im
    assert re is not None
    assert im is not None
    weights = tables(spec).weights[band.bins]
    power = graph.mean(re * re + im * im, (1,)) * graph.constant(weights, "f32")
    graph.set_outputs([power])
    return graph


def _picked(graph: Graph, x: Tensor, at: np.ndarray, places_: Tensor) -> Tensor:
    """The values that bins need; a run of them is a view."""
    if (np.diff(at) == 1).all():
        return graph.narrow(x, 2, int(at[0]), len(at))
    return graph.gather(x, places_, 2)
