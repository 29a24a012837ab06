"""The picture of `bench gpu`: what each contender reaches of the memory's bandwidth, or
of the arithmetic where that is more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rlxweb.cli.plot import new_figure, put_figure
from rlxweb.printable import abridged, printable

_LEAST, _EACH = 3.0, 0.19
"""Inches of height: of a picture, of a bar."""


def put_gpu_plot(file: IO[bytes], record: Mapping[str, Any], how: str) -> None:
    """Bars, a group a case, in the format `how`."""
    rows = [row for row in record["rows"] if row["ns"] is not None]

    def draw() -> Any:
        figure = new_figure(11, max(_LEAST, _EACH * len(rows) + 1.2))
        axis = figure.subplots()
        names: list[str] = []
        last = ""
        for at, row in enumerate(rows):
            colour = "0.6" if row["by_hand"] else "C1" if row["variant"] else "C0"
            axis.barh(-at, 100 * reached(row), color=colour, height=0.7)
            says = f" {row['ns'] / 1e3:,.1f} µs"
            axis.annotate(says, (100 * reached(row), -at), fontsize=6, va="center")
            case = f"{row['case']} {row['shape']}"
            if case != last and at:
                axis.axhline(0.5 - at, color="0.85", linewidth=0.6)
            way = printable(f"{row['engine']}, {row['variant']}".removesuffix(", "))
            names.append(abridged(way if case == last else f"{case}: {way}", 90))
            last = case
        axis.set_yticks([-at for at in range(len(rows))], names)
        axis.tick_params(axis="y", labelsize=6)
        axis.set_ylim(-len(rows) + 0.3, 0.7)
        axis.margins(x=0.12)
        axis.set_xlabel(
            "% of memory bandwidth or of arithmetic, whichever is more: blue its own "
            "choice, orange one variant, grey by hand",
            fontsize=8,
            loc="left",
        )
        made = [f"{e['adapter']}, {e['driver']}" for e in record.get("engines", [])]
        title = "; ".join(dict.fromkeys(made))
        axis.set_title(printable(title), loc="left", fontsize=9)
        axis.grid(visible=True, axis="x")
        return figure

    put_figure(file, draw, how)


def reached(row: Mapping[str, Any]) -> float:
    """The larger of the two shares; 0 where neither is known."""
    return max(row["of_memory"] or 0.0, row["of_peak"] or 0.0)
