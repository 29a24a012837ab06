"""`rlxweb smoke`: does every engine of this machine compute right, and how fast?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.record import versions
from rlxweb.cli.screen import progress_on, screen
from rlxweb.cli.smoke_reports import (
    Wanted,
    completed,
    report_options,
    show_comparison,
    show_known,
    write,
)
from rlxweb.cli.smoke_tab import (
    announce,
    launch_of,
    settings_for,
    tab_engines,
    tab_options,
)
from rlxweb.cli.smoke_table import show_report
from rlxweb.device import parse_device
from rlxweb.errors import UsageError
from rlxweb.smoke.case import Level
from rlxweb.smoke.discovery import discover
from rlxweb.smoke.engine import Engine
from rlxweb.smoke.icds import with_icds
from rlxweb.smoke.memory import fair_nbytes
from rlxweb.smoke.pattern import pattern_of
from rlxweb.smoke.process import Bounds
from rlxweb.smoke.report import Asked, Document, document, fits
from rlxweb.smoke.run import Outcome, Settings, Trying
from rlxweb.smoke.sabotage import Sabotage
from rlxweb.smoke.tab.node import GET_NODE, WASM, node_path
from rlxweb.smoke.tab.runtime import runtime_folder

TOTAL_S: dict[Level, float] = {"quick": 900.0, "standard": 3600.0, "full": 14400.0}
"""Seconds for all cases of an engine: many times what they take on a busy machine."""
CASE_S = 60.0


def _listed(
    context: click.Context, option: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Names after commas or given repeatedly, each once."""
    names = (name.strip() for text in value for name in text.split(","))
    return tuple(dict.fromkeys(filter(None, names)))


@click.command(name="smoke")
@options.devices("every engine that is found")
@click.option("--quick", "level", flag_value="quick", help="About 20 s an engine.")
@click.option("--full", "level", flag_value="full", help="Everything; minutes.")
@click.option(
    "-k",
    "pattern",
    metavar="PATTERN",
    default="",
    help="Only cases with such names: words joined by and, or, not, as in 'softmax and "
    "not views', or a pattern as in 'variants/fft/*'.",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="D,D",
    callback=_listed,
    help="Devices that must be there and right; otherwise the exit code is 4.",
)
@click.option(
    "--icd",
    "drivers",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="F",
    help="A Vulkan driver's JSON file, besides those that are found; repeatable.",
)
@click.option("--verbose", "-v", is_flag=True, help="Every case, and what is missing.")
@report_options
@tab_options
@click.option(
    "--deadline",
    type=click.FloatRange(min=0.1),
    default=CASE_S,
    show_default=True,
    help="Seconds after which a case counts as hung.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.1),
    metavar="GIB",
    help="What an engine's process may take [half of what the machine has].",
)
@click.option("--sabotage", default="", hidden=True, help="A test hook: KIND:PATTERN.")
def command(**given: Any) -> int:
    """Try every engine of this machine: is it right, and how fast?

    Every adapter of wgpu, NumPy and every library that computes are asked the same
    cases, each in a process of its own, and judged by NumPy in float64.

    Exit codes: 0 all that was to be tried ran and was right; 1 something was wrong,
    crashed, hung or took too much memory; 3 there was nothing to test; 4 a required
    engine is missing; 75 a device was lost; 130 stopped, the report has what was done.
    """
    return run(_Given.of(given))


class _Given:
    """The options, checked before anything is begun."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        # Said at once, and not by each child.
        pattern_of(given["pattern"])
        Sabotage.of(given["sabotage"], str)
        self.level: Level = given["level"] or "standard"
        self.devices: tuple[str, ...] = tuple(
            place.label for place in options.places_of(given["devices"])
        )
        names: tuple[str, ...] = given["required"]
        places = options.places_of(tuple(name for name in names if name != WASM))
        self.required = tuple(place.label for place in places) + tuple(
            name for name in names if name == WASM
        )
        is_wasm = given["wasm"] or WASM in names
        self.wasm = _wasm_engines(is_wasm, given["site"])
        self.verbose: bool = given["verbose"]
        self.wanted = Wanted.of(given)
        self.launch = launch_of({**given, "wasm": is_wasm})
        self.drivers = [*map(os.path.abspath, given["drivers"])]
        nbytes = given["memory"]
        bounds = Bounds(
            start_s=max(120.0, given["deadline"]),
            case_s=given["deadline"],
            total_s=TOTAL_S[self.level],
            nbytes=fair_nbytes() if nbytes is None else int(nbytes * (1 << 30)),
        )
        self.environment = with_icds(os.environ, self.drivers)
        self.settings = Settings(
            self.level,
            given["pattern"],
            bounds,
            self.environment,
            given["sabotage"],
        )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _Given:
        return cls(given)


def run(asked: _Given) -> int:
    """The whole test; the exit code."""
    began, clock = datetime.now(UTC).isoformat(timespec="seconds"), monotonic()
    settings = asked.settings
    found = discover(settings.bounds, asked.environment, asked.drivers)
    with tab_engines(asked.launch) as tabs:
        here = chosen(found, asked.devices, asked.required)
        engines = with_tabs(here, [*tabs, *asked.wasm])
        outcomes = [Outcome(engine) for engine in engines]
        stopped = _try(outcomes, settings)
    ran = any(outcome.rows for outcome in outcomes)
    if not stopped:
        _check_matched(settings.pattern, outcomes)
    named = asked.devices if ran else ()
    required = tuple(dict.fromkeys([*asked.required, *named]))
    told = Asked(asked.level, settings.pattern, required, began, versions())
    made = document(told, outcomes, monotonic() - clock, stopped is not None)
    report = completed(made, asked.wanted)
    _show(report, asked)
    if stopped is not None:
        raise stopped
    return int(report["exit_code"])


def chosen(
    found: Sequence[Engine], devices: Sequence[str], required: Sequence[str] = ()
) -> list[Engine]:
    """The engines of the devices, without any all that were found; and the required.

    A name that means none is an engine that is missing.
    """
    names = [*devices, *required]
    meant = [one for name in names if name != WASM for one in _meant(name, found)]
    picked = [] if devices else list(found)
    return picked + [
        one for at, one in enumerate(meant) if one not in picked + meant[:at]
    ]


def _meant(name: str, found: Sequence[Engine]) -> list[Engine]:
    mine = [one for one in found if fits(name, one.device, one.adapter)]
    if mine:
        return mine
    label, _, part = name.partition(":")
    others = [one for one in found if fits(label, one.device, "")]
    gone = [one.missing for one in others if one.missing]
    named = " and ".join(one.adapter for one in others if one.adapter)
    why = f"no adapter's name holds {part!r}" + (f"; there is {named}" if named else "")
    if len(gone) == len(others):
        why = "; ".join(gone) or f"wgpu finds no {parse_device(label)} adapter"
    return [Engine(label, part, missing=why)]


def with_tabs(engines: Sequence[Engine], tabs: Sequence[Engine]) -> list[Engine]:
    """Those of tabs stand for what this machine itself has not: WebGPU in a tab."""
    there = {tab.device for tab in tabs}
    kept = [one for one in engines if not (one.missing and one.device in there)]
    return [*kept, *tabs]


def _try(outcomes: list[Outcome], settings: Settings) -> BaseException | None:
    """Fill the outcomes; what stopped that, if the user did."""
    err = screen(stderr=True)
    try:
        with progress_on(err, shown=not os.environ.get("CI")) as bar:
            task = bar.add_task("looking for engines", total=None)

            def heard(outcome: Outcome, case: str) -> None:
                done = len(outcome.rows) - outcome.left
                said = f"{outcome.engine.key}: {case}"
                bar.update(
                    task, description=said, completed=done, total=len(outcome.rows)
                )

            for at, outcome in enumerate(outcomes):
                bar.update(task, description=outcome.engine.key, total=None)
                announce(err, outcome.engine)
                own = settings_for(outcome.engine, settings)
                trying = Trying(outcome.engine, own, heard)
                outcomes[at] = trying.outcome
                trying.run()
    except KeyboardInterrupt as stopped:
        return stopped
    return None


def _check_matched(pattern: str, outcomes: Sequence[Outcome]) -> None:
    """Errors   UsageError for a pattern that no case of any engine fits."""
    opened = [outcome for outcome in outcomes if outcome.is_open]
    if opened and not any(outcome.rows or outcome.events for outcome in opened):
        raise UsageError(
            f"-k {pattern!r}",
            "no case has such a name",
            "names are family/op/…, as in samples/softmax/3",
            "`rlxweb smoke -v` shows them all",
        )


def _show(report: Document, asked: _Given) -> None:
    if not asked.wanted.takes_stdout:
        console = screen()
        show_report(console, report, asked.verbose)
        show_known(console, report)
        show_comparison(console, report, asked.wanted)
    write(report, asked.wanted)


def _wasm_engines(is_asked: bool, site: str | None) -> list[Engine]:
    """NumPy in WebAssembly as one more engine, with the reason where it cannot be
    tried; none where nobody asks.
    """
    if not is_asked:
        return []
    node = node_path()
    if not node:
        return [_missing(f"node is not there; {GET_NODE}")]
    try:
        runtime = runtime_folder(site)
    except UsageError as error:
        return [_missing(str(error))]
    return [Engine(WASM, kind=WASM, launch={"node": node, "runtime": str(runtime)})]


def _missing(why: str) -> Engine:
    return Engine(WASM, kind=WASM, missing=why)
