"""`./dev bench kernels` of one machine: the share of the GPU that each kernel reaches,
against work by hand, against its own variants; what was wrong or left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from docstrings import prose
from drawing import plain
from ratio_picture import Ratio, ratio_picture

Record = Mapping[str, Any]
Rows = Sequence[Record]
LARGE = 0.25
"""Of the bytes of a kernel's largest case: what small ones reach is no goal."""
LOSING = 0.95
"""Below this share of the best time a choice is named as one that loses."""


class Goal(NamedTuple):
    """What kernels of our own are to reach on a GPU."""

    case: str
    what: str
    share: str
    least: float


GOALS = (
    Goal("Welch peaks", "of memory bandwidth", "of_memory", 0.40),
    Goal("softmax", "of memory bandwidth", "of_memory", 0.60),
    Goal("layer norm", "of memory bandwidth", "of_memory", 0.60),
    Goal("matmul f32", "of the float32 peak", "of_peak", 0.50),
    Goal("fft", "of the best by hand", "of_peers", 0.80),
)


def section(record: Record, name: str) -> str:
    """The machine, two pictures, the goals, who loses, and every row."""
    rows = record["rows"]
    own = [row for row in rows if row["ns"] and not row["by_hand"]]
    choices = [row for row in own if not row["variant"]]
    on_gpu = any(not one["software"] for one in record.get("engines", ()))
    parts = [
        f"## Kernels alone: {prose(_adapters(record))}",
        _machine(record, name),
        _shares(choices),
        _against_hand(choices),
        _goals(choices) if on_gpu else "",
        _losing(choices, own),
        _faults(record),
        _trips(record["trips"], record["from_host"]),
        *_cases(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _adapters(record: Record) -> str:
    named = (one["adapter"] for one in record.get("engines", ()))
    return ", ".join(dict.fromkeys(named)) or "no engine opened"


def _machine(record: Record, name: str) -> str:
    engines = "; ".join(
        f"{one['place']}: {one['adapter']}, driver {one['driver'] or 'unnamed'}"
        for one in record.get("engines", ())
    )
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items() if v)
    peers = ", ".join(f"{k} {v}" for k, v in record.get("peers", {}).items())
    gpus = " ".join(f"GPU: {line}." for line in record.get("nvidia", ()))
    cut = " The run was stopped before its end." if record["partial"] else ""
    return prose(
        f"{engines}. {record['machine']}; {versions}. {gpus} By hand: {peers}. Arrays "
        f"lie on the device; medians of samples taken in turns; from `{name}`.{cut}"
    )


# --- pictures -------------------------------------------------------------------------


def _label(row: Record) -> str:
    return f"{row['case']} {row['shape']}, {row['engine']}"


def _brief(row: Record) -> str:
    """Of a row, in the width that a picture has for it."""
    shape = row["shape"].replace(" segments", " seg.")
    return f"{row['case']} {shape}, {row['engine'].partition(':')[0]}"


def _reached(row: Record) -> float | None:
    shares = [row[key] for key in ("of_memory", "of_peak") if row[key] is not None]
    return max(shares, default=None)


def _shares(choices: Rows) -> str:
    """A dot for each choice: what it reaches of the GPU."""
    found = [
        Ratio(_brief(row), share, f"{plain(row['ns'] / 1e3)} µs", share >= 0.4)
        for row in choices
        if (share := _reached(row)) is not None
    ]
    if not found:
        return ""
    return ratio_picture(
        found,
        (0.01, 0.03, 0.1, 0.3, 1.0),
        "The share of memory bandwidth or arithmetic that each kernel reaches",
        "What each kernel reaches of the memory's bandwidth, or of the float32 peak "
        "where that is more; 1 is all there is. Where no maker says what the memory "
        "can do, the copy is 1. A hollow dot is below 0.4.",
    )


def _best_peer(row: Record) -> float | None:
    """The best time by hand over ours: above 1 we are faster; None without one."""
    shares = [share for share in row["of_peers"].values() if share is not None]
    return min(shares, default=None)


def _against_hand(choices: Rows) -> str:
    found = [
        Ratio(_brief(row), 1 / share, f"{plain(row['ns'] / 1e3)} µs", share >= 0.8)
        for row in choices
        if (share := _best_peer(row)) is not None
    ]
    if not found:
        return ""
    return ratio_picture(
        found,
        (0.25, 0.5, 1.0, 2.0, 4.0, 16.0),
        "Our time over the best of PyTorch and CuPy, one dot for each kernel",
        "Our time over that of the best work by hand in PyTorch or CuPy, in the same "
        "process: left of 1 rlxweb is faster. A hollow dot takes over 1.25 times as "
        "long.",
    )


# --- tables ---------------------------------------------------------------------------


def _goals(choices: Rows) -> str:
    """One row per goal and engine: the best and the worst of its cases, and the worst
    of the large ones, which is what counts.
    """
    lines = [
        "| kernel | engine | best | worst | worst of the large | goal |",
        "|---|---|---:|---:|---:|---|",
    ]
    for goal in GOALS:
        mine = [row for row in choices if row["case"] == goal.case]
        for engine in dict.fromkeys(row["engine"] for row in mine):
            shares = {
                row["shape"]: (row["bytes"], share)
                for row in mine
                if row["engine"] == engine and (share := _share(row, goal)) is not None
            }
            if shares:
                lines.append(_goal(goal, engine, list(shares.values())))
    return "\n".join(lines) if len(lines) > 2 else ""


def _goal(goal: Goal, engine: str, shares: Sequence[tuple[float, float]]) -> str:
    """Of the bytes of each case, and what it reached."""
    every = [share for _, share in shares]
    most = max(nbytes for nbytes, _ in shares)
    worst = min(share for nbytes, share in shares if nbytes >= LARGE * most)
    met = "met" if worst >= goal.least else "**missed**"
    told = " | ".join(f"{share:.0%}" for share in (max(every), min(every), worst))
    wanted = f"≥ {goal.least:.0%} {goal.what}, {met}"
    return f"| {prose(goal.case)} | {prose(engine)} | {told} | {wanted} |"


def _share(row: Record, goal: Goal) -> float | None:
    if goal.share == "of_peers":
        return _best_peer(row)
    found: float | None = row[goal.share]
    return found


def _losing(choices: Rows, own: Rows) -> str:
    """Choices that one of their own variants beats."""
    lines = []
    for row in choices:
        same = [r for r in own if _job(r) == _job(row) and r["engine"] == row["engine"]]
        best = min(same, key=lambda r: r["ns"])
        if best["ns"] < LOSING * row["ns"]:
            times = f"{plain(row['ns'] / 1e3)} µs, not {plain(best['ns'] / 1e3)}"
            chosen = row["chosen"] or "its choice"
            lines.append(f"- {prose(f'{_label(row)}: {chosen} takes {times}, as')} ")
            lines[-1] += f"{prose(best['variant'])} does"
    if not lines:
        return "No variant is faster than what is chosen by more than 5 %."
    return "\n".join(["Choices that a variant of their own beats:", "", *lines])


def _job(row: Record) -> tuple[str, str]:
    return row["case"], row["shape"]


def _faults(record: Record) -> str:
    """What was wrong, crashed, hung or found no time; the smoke test's word."""
    rows = [row for row in record["rows"] if row["why"]]
    lines = [f"- {prose(_way(row))}: {prose(row['why'])}" for row in rows]
    lines += [f"- left out: {prose(why)}" for why in record["left_out"]]
    for label, why in record.get("missing", {}).items():
        lines.append(f"- no {label}: {prose(why)}")
    smoke = record["smoke"]
    if smoke is not None:
        words = [f"{one['key']} {one['word']}" for one in smoke["engines"]]
        lines.insert(0, f"- smoke --quick: {prose('; '.join(words) or 'not done')}")
    if not lines:
        return ""
    return "\n".join(["Wrong, missing and left out, so no times:", "", *lines])


def _way(row: Record) -> str:
    return f"{_label(row)} {row['variant']}".rstrip()


def _trips(trips: Record, from_host: Record) -> str:
    """Submissions, transfers, and an estimate from the host in parts."""
    lines = ["| trip | engine | |", "|---|---|---:|"]
    for engine, found in trips.items():
        for key, value in found.items():
            if key.endswith("_ns"):
                what = key.removesuffix("_ns").replace("_", " ")
                lines.append(f"| {what} | {prose(engine)} | {plain(value / 1e3)} µs |")
        for one in found.get("transfers", ()):
            if one["gb_s"] is not None:
                what = f"{one['way']} {one['mib']} MiB {one['path']}".rstrip()
                speed = f"{plain(one['gb_s'])} GB/s"
                lines.append(f"| {prose(what)} | {prose(engine)} | {speed} |")
    for engine, found in from_host.items():
        for key in ("whole", "put", "there", "rest"):
            if key in found:
                what = f"Welch from the host, {found['bytes'] / 1e6:,.0f} MB, {key}"
                ms = f"{plain(found[key] / 1e6)} ms" if found[key] > 0 else "0 ms"
                lines.append(f"| {what} | {prose(engine)} | {ms} |")
        for one in found.get("paths", ()):
            how = "overlapping" if one["overlaps"] else "one after another"
            what = f"Welch from the host, {one['path']}, batches {how}"
            ms = plain(one["ns"] / 1e6)
            lines.append(f"| {prose(what)} | {prose(engine)} | {ms} ms |")
    return _folded("Trips to the device and back", lines) if len(lines) > 2 else ""


def _cases(rows: Rows) -> Iterator[str]:
    """Every row of every case, fastest first."""
    for job in dict.fromkeys(map(_job, rows)):
        mine = [row for row in rows if _job(row) == job and row["ns"]]
        if not mine:
            continue
        peers = list(dict.fromkeys(p for row in mine for p in row["of_peers"]))
        heads = ["", "on", "µs", "spread", "GB/s", "memory", "TFLOP/s", "peak", *peers]
        lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
        lines += [_cells(row, peers) for row in sorted(mine, key=lambda r: r["ns"])]
        yield _folded(" ".join(job), lines)


def _cells(row: Record, peers: Iterable[str]) -> str:
    way = row["variant"] or row["chosen"] or "its choice"
    is_choice = not row["variant"] and not row["by_hand"]
    cells = [
        f"**{prose(way)}**" if is_choice else prose("" if row["by_hand"] else way),
        prose(row["engine"]),
        plain(row["ns"] / 1e3),
        f"{row['spread']:.0%}",
        plain(row["gb_s"]),
        _percent(row["of_memory"]),
        plain(row["tflop_s"]),
        _percent(row["of_peak"]),
        *(_percent(row["of_peers"].get(peer)) for peer in peers),
    ]
    return f"| {' | '.join(cells)} |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _folded(title: str, lines: Iterable[str]) -> str:
    inside = "\n".join(f"    {line}" for line in lines)
    return f'??? abstract "{title}"\n\n{inside}'
