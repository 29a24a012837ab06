"""`rlxweb smoke`: check every engine of this machine for correctness and measure its
speed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.console import make_console, make_progress
from rlxweb.cli.json_documents import library_versions
from rlxweb.cli.smoke_browser import (
    add_browser_options,
    browser_engines,
    make_browser_launch,
    print_manual_address,
    settings_for_engine,
)
from rlxweb.cli.smoke_console_report import print_report
from rlxweb.cli.smoke_reports import (
    SmokeReportOptions,
    add_report_options,
    complete_report,
    print_comparison,
    print_known_failures,
    write_reports,
)
from rlxweb.core.device import parse_device
from rlxweb.core.errors import UsageError
from rlxweb.smoke.case import Level
from rlxweb.smoke.case_name_pattern import parse_pattern
from rlxweb.smoke.child_process import ChildLimits
from rlxweb.smoke.engine_discovery import discover_engines
from rlxweb.smoke.engine_run import EngineOutcome, EngineRun, SmokeSettings
from rlxweb.smoke.fault_injection import FaultInjector
from rlxweb.smoke.process_memory import default_memory_limit
from rlxweb.smoke.report import (
    ReportDocument,
    ReportRequest,
    build_report,
    matches_engine,
)
from rlxweb.smoke.smoke_engine import SmokeEngine
from rlxweb.smoke.tab.node_pyodide import INSTALL_HINT, WASM, find_node
from rlxweb.smoke.tab.pyodide_folder import find_pyodide_folder
from rlxweb.smoke.vulkan_drivers import add_icds

TOTAL_TIMEOUT_S: dict[Level, float] = {
    "quick": 900.0,
    "standard": 3600.0,
    "full": 14400.0,
}
"""Seconds allowed for all cases of an engine: many times what they take on a busy
machine.
"""
CASE_TIMEOUT_S = 60.0


def _parse_device_names(
    context: click.Context, option: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Split comma-separated and repeated names, without duplicates."""
    names = (name.strip() for text in value for name in text.split(","))
    return tuple(dict.fromkeys(filter(None, names)))


@click.command(name="smoke")
@options.devices_option("every engine found")
@click.option(
    "--quick",
    "level",
    flag_value="quick",
    help="Run fewer cases, about 20 s per engine.",
)
@click.option(
    "--full", "level", flag_value="full", help="Run every case; takes minutes."
)
@click.option(
    "-k",
    "pattern",
    metavar="PATTERN",
    default="",
    help="Run only matching cases: words joined by and, or, not ('softmax and not "
    "views'), or a pattern ('variants/fft/*').",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="D,D",
    callback=_parse_device_names,
    help="Devices that must be available with correct results; otherwise the exit code "
    "is 4.",
)
@click.option(
    "--icd",
    "drivers",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="F",
    help="JSON file of an additional Vulkan driver; repeatable.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="List every case and every missing engine."
)
@add_report_options
@add_browser_options
@click.option(
    "--deadline",
    type=options.FiniteFloatRange(min=0.1),
    default=CASE_TIMEOUT_S,
    show_default=True,
    help="Seconds after which a case counts as hung.",
)
@click.option(
    "--memory",
    type=options.FiniteFloatRange(min=0.1),
    metavar="GIB",
    help="Memory limit of an engine's process [half of the machine's memory].",
)
@click.option("--sabotage", default="", hidden=True, help="A test hook: KIND:PATTERN.")
def command(**option_values: Any) -> int:
    """Test every engine of this machine: correctness and speed.

    Every wgpu adapter, NumPy and every supported compute library run the same cases,
    each in a separate process. Results are compared with NumPy in float64.

    Exit codes: 0 all cases ran and gave right results; 1 a result was wrong, or an
    engine crashed, hung or exceeded its memory; 3 there was nothing to test; 4 a
    required engine is missing; 75 a device was lost; 130 interrupted, the report is
    partial.
    """
    return run_smoke_test(_SmokeRequest.from_params(option_values))


class _SmokeRequest:
    """Options of the command, validated before any work begins."""

    def __init__(self, option_values: Mapping[str, Any]) -> None:
        # Said at once, and not by each child.
        parse_pattern(option_values["pattern"])
        FaultInjector.parse(option_values["sabotage"], str)
        self.level: Level = option_values["level"] or "standard"
        self.devices: tuple[str, ...] = tuple(
            place.label for place in options.parse_places(option_values["devices"])
        )
        required_names: tuple[str, ...] = option_values["required"]
        required_places = options.parse_places(
            tuple(name for name in required_names if name != WASM)
        )
        self.required = tuple(place.label for place in required_places) + tuple(
            name for name in required_names if name == WASM
        )
        needs_wasm = option_values["wasm"] or WASM in required_names
        self.wasm_engines = _wasm_engines(needs_wasm, option_values["site"])
        self.verbose: bool = option_values["verbose"]
        self.report_options = SmokeReportOptions.from_params(option_values)
        self.launch = make_browser_launch({**option_values, "wasm": needs_wasm})
        self.drivers = [*map(os.path.abspath, option_values["drivers"])]
        nbytes = option_values["memory"]
        bounds = ChildLimits(
            start_s=max(120.0, option_values["deadline"]),
            case_s=option_values["deadline"],
            total_s=TOTAL_TIMEOUT_S[self.level],
            nbytes=default_memory_limit()
            if nbytes is None
            else int(nbytes * (1 << 30)),
        )
        self.environment = add_icds(os.environ, self.drivers)
        self.settings = SmokeSettings(
            self.level,
            option_values["pattern"],
            bounds,
            self.environment,
            option_values["sabotage"],
        )

    @classmethod
    def from_params(cls, option_values: Mapping[str, Any]) -> _SmokeRequest:
        return cls(option_values)


def run_smoke_test(request: _SmokeRequest) -> int:
    """Run the whole smoke test and return the exit code."""
    started_at, start_s = datetime.now(UTC).isoformat(timespec="seconds"), monotonic()
    settings = request.settings
    discovered = discover_engines(settings.limits, request.environment, request.drivers)
    with browser_engines(request.launch) as browser_tabs:
        selected = select_engines(discovered, request.devices, request.required)
        engines = replace_missing_engines(
            selected, [*browser_tabs, *request.wasm_engines]
        )
        outcomes = [EngineOutcome(engine) for engine in engines]
        interruption = _run_engines(outcomes, settings)
    has_results = any(outcome.rows for outcome in outcomes)
    if not interruption:
        _check_pattern_matched(settings.pattern, outcomes)
    requested_devices = request.devices if has_results else ()
    required = tuple(dict.fromkeys([*request.required, *requested_devices]))
    report_request = ReportRequest(
        request.level, settings.pattern, required, started_at, library_versions()
    )
    base_report = build_report(
        report_request, outcomes, monotonic() - start_s, interruption is not None
    )
    report = complete_report(base_report, request.report_options)
    _print_and_write(report, request)
    if interruption is not None:
        raise interruption
    return int(report["exit_code"])


def select_engines(
    discovered: Sequence[SmokeEngine],
    devices: Sequence[str],
    required: Sequence[str] = (),
) -> list[SmokeEngine]:
    """Select the engines of the given devices, or all that were found, and the required
    ones.

    A name that means none is an engine that is missing.
    """
    names = [*devices, *required]
    requested = [
        engine
        for name in names
        if name != WASM
        for engine in _engines_named(name, discovered)
    ]
    engines = [] if devices else list(discovered)
    return engines + [
        engine
        for index, engine in enumerate(requested)
        if engine not in engines + requested[:index]
    ]


def _engines_named(name: str, discovered: Sequence[SmokeEngine]) -> list[SmokeEngine]:
    matches = [
        engine
        for engine in discovered
        if matches_engine(name, engine.device, engine.adapter)
    ]
    if matches:
        return matches
    label, _, adapter_part = name.partition(":")
    same_device = [
        engine for engine in discovered if matches_engine(label, engine.device, "")
    ]
    missing_reasons = [engine.missing for engine in same_device if engine.missing]
    adapters = " and ".join(engine.adapter for engine in same_device if engine.adapter)
    why = f"no adapter name contains {adapter_part!r}" + (
        f"; found {adapters}" if adapters else ""
    )
    if len(missing_reasons) == len(same_device):
        why = (
            "; ".join(missing_reasons) or f"wgpu finds no {parse_device(label)} adapter"
        )
    return [SmokeEngine(label, adapter_part, missing=why)]


def replace_missing_engines(
    engines: Sequence[SmokeEngine], extra_engines: Sequence[SmokeEngine]
) -> list[SmokeEngine]:
    """Add extra engines and drop missing ones of the same device, such as WebGPU that
    only a browser has.
    """
    extra_devices = {extra_engine.device for extra_engine in extra_engines}
    remaining = [
        engine
        for engine in engines
        if not (engine.missing and engine.device in extra_devices)
    ]
    return [*remaining, *extra_engines]


def _run_engines(
    outcomes: list[EngineOutcome], settings: SmokeSettings
) -> BaseException | None:
    """Run the cases of every engine and fill the outcomes; return the interruption if
    the user stopped it.
    """
    console = make_console(stderr=True)
    try:
        with make_progress(console, enabled=not os.environ.get("CI")) as progress:
            task = progress.add_task("looking for engines", total=None)

            def show_case(outcome: EngineOutcome, case: str) -> None:
                n_done = len(outcome.rows) - outcome.not_run_count
                description = f"{outcome.engine.key}: {case}"
                progress.update(
                    task,
                    description=description,
                    completed=n_done,
                    total=len(outcome.rows),
                )

            for index, outcome in enumerate(outcomes):
                progress.update(task, description=outcome.engine.key, total=None)
                print_manual_address(console, outcome.engine)
                engine_settings = settings_for_engine(outcome.engine, settings)
                runner = EngineRun(outcome.engine, engine_settings, show_case)
                outcomes[index] = runner.outcome
                runner.run()
    except KeyboardInterrupt as interruption:
        return interruption
    return None


def _check_pattern_matched(pattern: str, outcomes: Sequence[EngineOutcome]) -> None:
    """Raise UsageError if the pattern matches no case of any engine."""
    available = [outcome for outcome in outcomes if outcome.is_open]
    if available and not any(outcome.rows or outcome.events for outcome in available):
        raise UsageError(
            f"-k {pattern!r}",
            "no case matches",
            "case names have the form family/op/…, as in samples/softmax/3",
            "list all names with `rlxweb smoke -v`",
        )


def _print_and_write(report: ReportDocument, request: _SmokeRequest) -> None:
    if not request.report_options.uses_stdout:
        console = make_console()
        print_report(console, report, request.verbose)
        print_known_failures(console, report)
        print_comparison(console, report, request.report_options)
    write_reports(report, request.report_options)


def _wasm_engines(is_requested: bool, site: str | None) -> list[SmokeEngine]:
    """Return NumPy in WebAssembly as one more engine, with the reason where it cannot
    run; none where it is not requested.
    """
    if not is_requested:
        return []
    node = find_node()
    if not node:
        return [_missing_wasm_engine(f"Node.js is not installed; {INSTALL_HINT}")]
    try:
        runtime = find_pyodide_folder(site)
    except UsageError as error:
        return [_missing_wasm_engine(str(error))]
    return [
        SmokeEngine(WASM, kind=WASM, launch={"node": node, "runtime": str(runtime)})
    ]


def _missing_wasm_engine(why: str) -> SmokeEngine:
    return SmokeEngine(WASM, kind=WASM, missing=why)
