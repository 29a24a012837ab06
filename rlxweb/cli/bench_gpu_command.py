"""`rlxweb bench gpu`: is it right, how far are the trips, how fast is every kernel?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from rlxweb.backends.pool import pool
from rlxweb.cli import options
from rlxweb.cli.bench_gpu_cases import cases
from rlxweb.cli.bench_gpu_child import MIB, chosen
from rlxweb.cli.bench_gpu_parent import CASE_S, Found, Measuring
from rlxweb.cli.bench_gpu_plot import put_gpu_plot
from rlxweb.cli.bench_gpu_report import Document, is_wrong, record_of, show, told
from rlxweb.cli.plot import picture_format
from rlxweb.cli.screen import progress_on, say, screen
from rlxweb.cli.targets import Put, goes_to_stdout, write_all
from rlxweb.devices.place import CPU, Place, available_places
from rlxweb.errors import RlxError, UsageError
from rlxweb.io import write_json
from rlxweb.smoke.sabotage import Sabotage

SMALL_MIB, SMALL_ROWS = 1.0, 256
"""Of cases on software adapters, where nobody asked for more."""
SMOKE_SHARE = 0.3
_LAST_WORDS_S = 10.0


def bench(
    json_path: str | None,
    plot_path: str | None,
    devices: Sequence[str],
    pattern: str,
    mib: float | None,
    rows: int | None,
    rounds: int,
    budget_s: float,
    smoke: bool,
    deadline: float = CASE_S,
    sabotage: str = "",
) -> int:
    """Run the command; 1 where something was wrong, crashed or hung.

    Errors   UsageError when there is nothing to time.
    """
    Sabotage.of(sabotage, str)  # refused here and not by each process
    began, err = monotonic(), screen(stderr=True)
    places = _places(devices)
    is_small = all(_software(place) for place in places)
    pool.close_all()  # others open them from here on
    size = {"mib": mib or (SMALL_MIB if is_small else 1024.0)}
    size["rows"] = rows or (SMALL_ROWS if is_small else 65_536)
    every = chosen(size["mib"], int(size["rows"]), pattern)
    if not every:
        names = ", ".join(dict.fromkeys(c.name for c in cases(MIB, 8)))
        raise UsageError("-k", f"no case has {pattern!r} in its name", names)
    found = Found(every, began)
    asked = {
        "places": [place.label for place in places],
        **size,
        "pattern": pattern,
        "rounds": rounds,
        # Their libraries take seconds to load, and on the CPU they would be no match.
        "with_peers": not is_small,
        "sabotage": sabotage,
    }
    keep = _Keeping(found, json_path, err)
    try:
        if smoke:
            most_s = budget_s * SMOKE_SHARE
            say(err, f"smoke --quick, at most {most_s:.0f} s")
            found.smoke = run_smoke(places, most_s)
        _measure(found, asked, began + budget_s, deadline, keep)
        found.is_partial = False
    finally:
        record = record_of(found)
        try:
            show(err if goes_to_stdout([json_path, plot_path]) else screen(), record)
        finally:
            keep.write(record, plot_path)
    return 1 if is_wrong(record) else 0


def _measure(
    found: Found, asked: dict[str, Any], until: float, deadline: float, keep: _Keeping
) -> None:
    with progress_on(keep.err) as bar:
        task = bar.add_task("the machine", total=len(found.cases))

        def heard(begun: str, rows: Sequence[dict[str, Any]]) -> None:
            bar.update(task, description=begun)
            if rows:
                bar.update(
                    task, completed=len({(r["case"], r["shape"]) for r in found.rows})
                )
                keep.case(rows)

        Measuring(found, asked, until, heard, deadline).run()


class _Keeping:
    """Writes what is known after each case: whatever ends this, that is there."""

    def __init__(self, found: Found, json_path: str | None, err: Console) -> None:
        self.found, self.err, self._json = found, err, json_path
        self._is_told = False

    def case(self, rows: Sequence[dict[str, Any]]) -> None:
        """After a case; a disk that is full is told once and does not end the rest."""
        if not self.err.is_terminal:
            say(self.err, told(rows))
        if self._json is None or goes_to_stdout([self._json]):
            return
        try:
            self.write(record_of(self.found))
        except RlxError as error:
            if not self._is_told:
                say(self.err, f"not written yet: {error}")
            self._is_told = True

    def write(self, record: Document, plot_path: str | None = None) -> None:
        """The record, and a picture of it where there is something to see.

        Errors   RecordingError.
        """
        puts: list[tuple[str, Put]] = []
        if self._json is not None:
            puts.append((self._json, partial(write_json, obj=record)))
        if plot_path is not None and any(row["ns"] for row in record["rows"]):
            how = picture_format(plot_path)
            puts.append((plot_path, partial(put_gpu_plot, record=record, how=how)))
        write_all(puts)


# --- which engines --------------------------------------------------------------------


def _software(place: Place) -> bool:
    """Does it compute on the CPU's own cores?"""
    return place == CPU or pool.backend(place.device.label, place.adapter).software


def _places(devices: Sequence[str]) -> list[Place]:
    """Those asked for, else every GPU, else every adapter.

    Errors   UsageError where there is none; AdapterMissing for one asked for.
    """
    if devices:
        named = options.places_of(devices)
        for place in named:
            pool.backend(place.device.label, place.adapter)
        return named
    there = [p for p in available_places() if p != CPU]
    gpus = [p for p in there if not _software(p)]
    if not there:
        raise UsageError(
            "bench gpu",
            "this machine has no adapter and no GPU library that works",
            "`rlxweb devices` tells why",
        )
    return gpus or there


# --- the smoke test -------------------------------------------------------------------


def run_smoke(places: Sequence[Place], most_s: float) -> dict[str, Any]:
    """`rlxweb smoke --quick` in a process of its own: its exit code, its engines."""
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "smoke.json"
        order = [sys.executable, "-m", "rlxweb", "smoke", "--quick"]
        order += [part for place in places for part in ("--device", place.label)]
        process = subprocess.Popen(
            [*order, "--json", str(report)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = _ended(process, most_s)
        finally:
            process.kill()
            process.wait()
        engines = _engines_in(report)
    seconds = round(monotonic() - began, 1)
    return {"exit_code": code, "seconds": seconds, "engines": engines}


def _ended(process: subprocess.Popen[bytes], most_s: float) -> int | None:
    """The exit code; None where it was stopped, when it says what it has so far."""
    try:
        return process.wait(most_s)
    except subprocess.TimeoutExpired:
        if sys.platform != "win32":
            process.send_signal(signal.SIGINT)
    try:
        process.wait(_LAST_WORDS_S)
    except subprocess.TimeoutExpired:
        pass
    return None


def _engines_in(report: Path) -> list[dict[str, Any]]:
    if not report.is_file():
        return []
    told = json.loads(report.read_text(encoding="utf-8"))
    wanted = ("key", "adapter", "driver", "word", "why", "counts", "seconds")
    return [{k: one.get(k) for k in wanted} for one in told["engines"]]
