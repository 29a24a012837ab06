"""A part of a spectrum by every way there is: `./dev bench sweep band`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docstrings import prose

Record = Mapping[str, Any]

_SIGNALS = {
    "eeg": "fall as 1/f² and by an amplifier's low-pass, with an alpha rhythm",
    "white": "are white noise",
    "steep": "fall as 1/f⁴",
}


def section(record: Record, name: str) -> str:
    """What can be left out, what is fastest for it, then every way."""
    cells = record["cells"]
    parts = [
        "## A part of a spectrum",
        _machine(record, name),
        "Butterflies of the FFT that can go, learned from recordings of the same kind "
        "and tested on others. *Unasked* are those that the bins never needed.",
        _gates(cells),
        "The fastest way within an error, on each engine, and the rivals beside it: "
        "how many times faster than the whole transform there. Below 1 is slower. "
        "Errors are of a bin's power, relative, root mean square.",
        _fastest(cells),
        _every(cells),
    ]
    return "\n\n".join(parts)


def _machine(record: Record, name: str) -> str:
    return prose(
        f"{record['machine']}. Rows of {record['samples']:,} samples at 2,048 Hz that "
        f"{_SIGNALS[record['signal']]}; Hann windows that overlap by half. "
        f"{record['rounds']} rounds in turns, medians; from `{name}`."
    )


def _where(cell: Record) -> str:
    return f"{cell['n']:,} | {cell['share']:.0%}, {cell['bins']:,} bins"


def _gates(cells: Sequence[Record]) -> str:
    errors = [one["asked"] for one in cells[0]["learned"]]
    heads = " | ".join(f"within {error:g}" for error in errors)
    lines = [f"| n | of them wanted | unasked | {heads} |"]
    lines.append("|---:|---:|---:|" + "---:|" * len(errors))
    for cell in cells:
        total = cell["gates"]["total"]
        unasked = 1 - cell["gates"]["needed"] / total
        gone = " | ".join(f"{1 - one['active'] / total:.0%}" for one in cell["learned"])
        lines.append(f"| {_where(cell)} | {unasked:.0%} | {gone} |")
    return "\n".join(lines)


def _fastest(cells: Sequence[Record]) -> str:
    lines = [
        "| n | wanted | within | engine | fastest | × whole | learned | pruned FFT "
        "| bins by a product | Goertzel |",
        "|---:|---:|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for cell in cells:
        ways = [way for way in cell["ways"] if not way["failed"]]
        engines = dict.fromkeys(way["engine"] for way in ways)
        for error in (one["asked"] for one in cell["learned"]):
            for engine in engines:
                own = [
                    way
                    for way in ways
                    if way["engine"] == engine and way["asked"] in (0.0, error)
                ]
                best = min(own, key=lambda way: way["ns"])
                rivals = ("learned", "pruned FFT", "bins by a product", "Goertzel")
                others = " | ".join(_ratio(own, method) for method in rivals)
                lines.append(
                    f"| {_where(cell)} | {error:g} | {prose(engine)} "
                    f"| {best['method']} | {best['ratio']:.2f} | {others} |"
                )
    return "\n".join(lines)


def _ratio(ways: Sequence[Record], method: str) -> str:
    found = [way["ratio"] for way in ways if way["method"] == method]
    return f"{max(found):.2f}" if found else "–"


def _every(cells: Sequence[Record]) -> str:
    lines = [
        "| n | wanted | way | engine | asked | error | ns a sample | × whole |",
        "|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for cell in cells:
        for way in cell["ways"]:
            asked = f"{way['asked']:g}" if way["asked"] else "exact"
            times = f"{way['error']:.1e} | {way['ns']:.2f} | {way['ratio']:.2f}"
            if way["failed"]:
                times = f"{prose(way['failed'])} | | "
            lines.append(
                f"| {_where(cell)} | {way['method']} | {prose(way['engine'])} "
                f"| {asked} | {times} |"
            )
    inside = "\n".join(f"    {line}" for line in lines)
    return f'??? abstract "Every way"\n\n{inside}'
