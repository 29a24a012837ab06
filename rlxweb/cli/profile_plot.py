"""The picture of a profile: the parts of a run under the roof of their engine.

matplotlib is loaded here, only when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from rlxweb.cli.plot import new_figure, put_figure
from rlxweb.cost.roofline import Roofline, Spent
from rlxweb.decision.terms import human_ns
from rlxweb.plot.frequencies import log_ticks
from rlxweb.printable import abridged
from rlxweb.results.svg import COLOURS

_MOST_NAME = 32
_NAMED = 12
"""More names would cover each other."""


def put_roofline(
    file: IO[bytes], title: str, parts: Sequence[Spent], roof: Roofline | None, how: str
) -> None:
    """Two panels: what each part took, and how near it came to the roof."""

    def draw() -> Any:
        figure = new_figure(13, 5.6)
        left, right = figure.subplots(1, 2)
        _bars(left, title, parts)
        _roof(right, parts, roof)
        return figure

    put_figure(file, draw, how)


def _bars(axis: Any, title: str, parts: Sequence[Spent]) -> None:
    most = sorted(parts, key=lambda one: one.ns)[-2 * _NAMED :]
    names = [abridged(one.label, _MOST_NAME) for one in most]
    bars = axis.barh(range(len(most)), [one.ns / 1e6 for one in most], color=COLOURS[0])
    axis.set_yticks(range(len(most)), names, fontsize=8)
    axis.bar_label(bars, [human_ns(one.ns) for one in most], padding=3, fontsize=8)
    axis.margins(x=0.18)
    axis.set_xlabel("ms")
    axis.set_title(abridged(title, 64), loc="left", fontsize=10)


def _roof(axis: Any, parts: Sequence[Spent], roof: Roofline | None) -> None:
    shown = [one for one in parts if one.flops and one.nbytes and one.ns]
    axis.set(xscale="log", yscale="log")
    axis.set(xlabel="operations a byte", ylabel="GFLOP/s")
    axis.grid(visible=True)
    xs = [one.intensity for one in shown]
    if roof is not None:
        low = min([roof.ridge, *xs]) / 4
        high = max([roof.ridge, *xs]) * 4
        ends = [low, roof.ridge, high]
        axis.plot(ends, [roof.at(x) for x in ends], color="0.3", lw=1.5)
        text = f"{roof.gbs:.3g} GB/s up to {roof.gflops:.3g} GFLOP/s ({roof.source})"
        axis.set_title(text, loc="left", fontsize=10)
    else:
        axis.set_title("no roof is known", loc="left", fontsize=10)
    whole = sum(one.ns for one in parts) or 1.0
    sizes = [30 + 600 * one.ns / whole for one in shown]
    ys = [one.gflops for one in shown]
    axis.scatter(xs, ys, s=sizes, color=COLOURS[0], alpha=0.6)
    for one in sorted(shown, key=lambda one: -one.ns)[:_NAMED]:
        at = one.intensity, one.gflops
        name = abridged(one.label, _MOST_NAME)
        axis.annotate(name, at, (6, 4), textcoords="offset points", fontsize=8)
    for own, ends in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
        log_ticks(own, *ends)
