"""Benchmark section on computing part of a spectrum (`./dev bench sweep band`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docstring_to_markdown import escape_markdown

Record = Mapping[str, Any]

_SIGNAL_DESCRIPTIONS = {
    "eeg": "fall as 1/f² and by an amplifier's low-pass, with an alpha rhythm",
    "white": "are white noise",
    "steep": "fall as 1/f⁴",
}


def section(record: Record, name: str) -> str:
    """Return the section: butterflies that can be removed, the fastest method, then
    every method.
    """
    cells = record["cells"]
    parts = [
        "## A part of a spectrum",
        _machine_text(record, name),
        "Butterflies of the FFT that can be removed, learned from recordings of the "
        "same kind and tested on others. *Unneeded* are those that no wanted bin "
        "needs.",
        _butterfly_table(cells),
        "The fastest method within an error, on each engine, next to the other "
        "methods: how many times faster than the full transform on this engine. "
        "Below 1 is slower. Errors are relative, root mean square, of a bin's power.",
        _fastest_table(cells),
        _all_methods_table(cells),
    ]
    return "\n\n".join(parts)


def _machine_text(record: Record, name: str) -> str:
    return escape_markdown(
        f"{record['machine']}. Rows of {record['samples']:,} samples at 2,048 Hz that "
        f"{_SIGNAL_DESCRIPTIONS[record['signal']]}; Hann windows that overlap by half. "
        f"{record['rounds']} interleaved rounds, medians; from `{name}`."
    )


def _size_and_bins(cell: Record) -> str:
    return f"{cell['n']:,} | {cell['share']:.0%}, {cell['bins']:,} bins"


def _butterfly_table(cells: Sequence[Record]) -> str:
    errors = [learned["asked"] for learned in cells[0]["learned"]]
    headers = " | ".join(f"error ≤ {error:g}" for error in errors)
    lines = [f"| n | wanted bins | unneeded | {headers} |"]
    lines.append("|---:|---:|---:|" + "---:|" * len(errors))
    for cell in cells:
        total = cell["gates"]["total"]
        unneeded = 1 - cell["gates"]["needed"] / total
        removed_shares = " | ".join(
            f"{1 - learned['active'] / total:.0%}" for learned in cell["learned"]
        )
        lines.append(f"| {_size_and_bins(cell)} | {unneeded:.0%} | {removed_shares} |")
    return "\n".join(lines)


def _fastest_table(cells: Sequence[Record]) -> str:
    lines = [
        "| n | wanted bins | error | engine | fastest | × full | learned | pruned FFT "
        "| matrix product | Goertzel |",
        "|---:|---:|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for cell in cells:
        timings = [timing for timing in cell["ways"] if not timing["failed"]]
        engines = dict.fromkeys(timing["engine"] for timing in timings)
        for error in (learned["asked"] for learned in cell["learned"]):
            for engine in engines:
                eligible = [
                    timing
                    for timing in timings
                    if timing["engine"] == engine and timing["asked"] in (0.0, error)
                ]
                best = min(eligible, key=lambda timing: timing["ns"])
                rivals = ("learned", "pruned FFT", "bins by a product", "Goertzel")
                rival_ratios = " | ".join(
                    _best_ratio_text(eligible, method) for method in rivals
                )
                lines.append(
                    f"| {_size_and_bins(cell)} | {error:g} | {escape_markdown(engine)} "
                    f"| {best['method']} | {best['ratio']:.2f} | {rival_ratios} |"
                )
    return "\n".join(lines)


def _best_ratio_text(timings: Sequence[Record], method: str) -> str:
    ratios = [timing["ratio"] for timing in timings if timing["method"] == method]
    return f"{max(ratios):.2f}" if ratios else "–"


def _all_methods_table(cells: Sequence[Record]) -> str:
    lines = [
        "| n | wanted bins | method | engine | max. error | error | ns per sample "
        "| × full |",
        "|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for cell in cells:
        for timing in cell["ways"]:
            tolerance = f"{timing['asked']:g}" if timing["asked"] else "exact"
            times = (
                f"{timing['error']:.1e} | {timing['ns']:.2f} | {timing['ratio']:.2f}"
            )
            if timing["failed"]:
                times = f"{escape_markdown(timing['failed'])} | | "
            lines.append(
                f"| {_size_and_bins(cell)} | {timing['method']} | "
                f"{escape_markdown(timing['engine'])} "
                f"| {tolerance} | {times} |"
            )
    indented = "\n".join(f"    {line}" for line in lines)
    return f'??? abstract "Every method"\n\n{indented}'
