"""`rlxweb explain`: every candidate of a Welch job with its cost, and the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np
from rich.console import Console

from rlxweb.batch.recording_analysis import recording_job
from rlxweb.batch.settings import Settings, group_spec
from rlxweb.cli import options
from rlxweb.cli.console import format_count, make_console, print_lines
from rlxweb.cli.json_documents import json_document
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.core.device import Device
from rlxweb.core.errors import RlxError, UsageError
from rlxweb.core.function_options import call_arguments
from rlxweb.cost.decision import (
    Decision,
    comparison_text,
    explain_decision,
    explain_json,
    rank_candidates,
)
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.io import open_recording, write_json
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.calibration.engine_calibration_lookup import known_record
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.choice_by_rlx_constants import seed_candidates
from rlxweb.select.chooser import fastest_of
from rlxweb.select.device_and_adapter import DevicePlace, available_places, engine_key
from rlxweb.signal.batch_size_crossover import crossover_text, welch_candidates
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_candidates import STRATEGIES, WelchJob, engine_for_candidate
from rlxweb.signal.welch_engine import SampleRows, WelchEngine
from rlxweb.signal.welch_peaks import welch_peaks
from rlxweb.signal.welch_peaks_arguments import validate_min_segments

SCHEMA = "rlxweb.explain_command/1"
SEED_NOTE = (
    "RLX's cost formulas ignore --segments and assume 1 segment for the strategy "
    "'ultra', 2 segments for the other strategies"
)
_READ_NAMES = ("fs", "channels", "array", "layout")
POSITIVE_SIZE = click.IntRange(1, 1 << 40)
MAX_N_FFT = 1 << 24
MAX_MEASURED_GIB = 1.5
"""Largest size of the rows that --measure generates."""
STOPWATCH = Stopwatch(samples=9, min_samples=7, budget_ns=2e9)


@click.command(name="explain")
@click.argument("file", required=False)
@click.option(
    "--batch", type=POSITIVE_SIZE, help="Number of rows; only without FILE [32]."
)
@click.option(
    "--n-fft",
    "--nperseg",
    "n_fft",
    type=click.IntRange(1, MAX_N_FFT),
    default=256,
    show_default=True,
)
@options.declared_options(welch_peaks, "k")
@click.option(
    "--segments",
    "--nsegments",
    "segments",
    type=POSITIVE_SIZE,
    help="Segments per row [8].",
)
@options.declared_options(open_recording, *_READ_NAMES)
@STORAGE_OPTION
@options.declared_options(welch_peaks, "precision")
@options.devices_option("all")
@options.MIN_SEGMENTS
@options.choice_option(
    "--cost-mode",
    ["calibrated", "seed"],
    "calibrated: this machine's calibration; seed: RLX's published formulas.",
    "calibrated",
)
@click.option(
    "--measure", is_flag=True, help="Run every candidate and compare the times."
)
@click.option("--json", "as_json", is_flag=True, help="Print the decisions as JSON.")
def command(file: str | None, as_json: bool, **option_values: Any) -> None:
    """Explain where a Welch job would run, for FILE or for the given sizes.

    Lists every candidate with its cost terms, the error of the cost model, the reason
    if it cannot run, and the batch size from which another engine would be faster.
    Nothing is computed without --measure.
    """
    requested_places = options.parse_places(option_values["devices"])
    if option_values["cost_mode"] == "calibrated":
        for place in requested_places:
            engine_key(place)  # raises where it cannot be opened
    places = requested_places or list(available_places())
    decisions = [
        (title, _decide(job, places, option_values))
        for title, job in _requested_jobs(file, option_values)
    ]
    race_results = (
        _race_results(places) if option_values["cost_mode"] == "calibrated" else {}
    )
    if as_json:
        jobs = [
            {"job": title, **explain_json(job_decision)}
            for title, job_decision in decisions
        ]
        write_json("-", json_document(SCHEMA, jobs=jobs, raced=race_results))
        return
    console = make_console()
    for title, decision in decisions:
        print_decision(console, decision, title)
    for label, races in race_results.items():
        for race in races:
            print_lines(console, f"autotuning on '{label}': {race}")


def _race_results(places: Sequence[DevicePlace]) -> dict[str, list[str]]:
    """Return the autotuning results of Welch peaks by place, where they were
    measured.
    """
    calibrations = ((place.label, known_record(place)) for place in places)
    results = {
        label: [str(race) for race in calibration.races if race.op == "welch_row_peaks"]
        for label, calibration in calibrations
        if calibration is not None
    }
    return {label: races for label, races in results.items() if races}


def print_decision(console: Console, decision: Decision, title: str = "") -> None:
    """Print a decision as prose under a title."""
    heading = [title] if title else []
    print_lines(console, *heading, *explain_decision(decision).split("\n"))


def _requested_jobs(
    file: str | None, option_values: dict[str, Any]
) -> list[tuple[str, WelchJob]]:
    """Return the jobs to explain with their titles: one per group of the file, or one
    of the given sizes.
    """
    if file is None:
        return [_job_from_sizes(option_values)]
    if option_values["batch"]:
        raise UsageError(
            "--batch",
            "it cannot be combined with FILE, which determines the number of rows",
        )
    reading = call_arguments({name: option_values[name] for name in _READ_NAMES})
    settings = Settings(
        nperseg=option_values["n_fft"],
        nsegments=option_values["segments"],
        precision=option_values["precision"],
    )
    if option_values["min_segments"] is not None:
        raise UsageError(
            "--min-segments",
            "it cannot be combined with FILE, of which all segments are averaged",
        )
    jobs = []
    with open_recording(
        file, **reading, storage_options=option_values["storage"]
    ) as recording:
        for group in recording.signals:
            spec = group_spec(settings, group, settings.nperseg_for(group))
            n_rows = len(group.channels)
            title = (
                f"{recording.path}: {format_count(n_rows, 'channel')} at "
                f"{group.fs:g} Hz"
            )
            jobs.append((title, recording_job(group, spec, settings)))
    return jobs


def _job_from_sizes(option_values: dict[str, Any]) -> tuple[str, WelchJob]:
    """Return the job of the sizes given as options, with its title."""
    for name in _READ_NAMES:
        if option_values[name] not in (None, ()):
            raise UsageError(f"--{name}", "it requires a FILE")
    batch, segments = option_values["batch"] or 32, option_values["segments"] or 8
    n_fft = option_values["n_fft"]
    n_samples = n_fft + (segments - 1) * max(1, n_fft // 2)
    spec = spec_from_preset("rlx", n_samples, nperseg=n_fft, dtype=np.float32)
    job = _make_job(spec, batch, n_samples, option_values)
    rows = f"{batch:,} row{'s' * (batch != 1)}"
    return f"Welch peaks of {rows}, {segments} × {n_fft} samples, k {job.k}", job


def _make_job(
    spec: WelchSpec, n_rows: int, n_samples: int, option_values: dict[str, Any]
) -> WelchJob:
    """Return the Welch job of rows that have this specification."""
    segments = spec.segments_per_row(n_samples)
    min_segments = validate_min_segments(option_values["min_segments"], segments)
    k = _peak_count(spec, option_values)
    return WelchJob(spec, n_rows, n_samples, k, "bins", min_segments)


def _peak_count(spec: WelchSpec, option_values: dict[str, Any]) -> int:
    """Return how many peaks are requested. Raises UsageError."""
    return Settings(k=option_values["k"]).peak_search(spec).k


def _decide(
    job: WelchJob, places: Sequence[DevicePlace], option_values: dict[str, Any]
) -> Decision:
    """Price the candidates of a job, time them if requested, and return the
    decision.
    """
    k = _peak_count(job.spec, option_values)
    if option_values["cost_mode"] == "seed":
        candidates = seed_candidates(places, job.n_rows, job.spec.nfft, k)
    else:
        candidates = welch_candidates(job, places)
    if all(c.blocker for c in candidates):
        # Asked for by name: ways that nobody has measured are open then.
        candidates = fastest_of(job, candidates, "").decision.candidates
    if option_values["measure"]:
        _check_memory(job)
        candidates = tuple(_measure_candidate(c, job) for c in candidates)
    available = [c for c in candidates if not c.blocker]
    picked = available[0] if available else fastest_of(job, candidates, "").candidate
    numbers: dict[str, Any] = {
        "rows": job.n_rows,
        "n_fft": job.spec.nfft,
        "segments": job.spec.segments_per_row(job.n_samples),
        "k": k,
    }
    if option_values["cost_mode"] == "seed":
        numbers["notes"] = [SEED_NOTE]
    elif picked.terms is not None:
        numbers["crossover"] = crossover_text(job, places)
    choice = f"{picked.strategy} on {picked.engine}"
    return Decision(
        choice,
        comparison_text(picked, candidates),
        numbers,
        rank_candidates(candidates),
    )


def _check_memory(job: WelchJob) -> None:
    """Raise UsageError if the rows to measure take too much memory."""
    gib = 4 * job.n_rows * job.n_samples / 2**30
    if gib > MAX_MEASURED_GIB:
        raise UsageError(
            "--measure",
            f"the rows need {gib:.3g} GiB",
            f"at most {MAX_MEASURED_GIB} GiB of test data are generated",
            "omit --measure, or use fewer rows: reduce --batch or, for FILE, select "
            "channels with -c",
        )


def _measure_candidate(candidate: Any, job: WelchJob) -> Any:
    """Return the candidate with the median time of real runs; blocked ones
    unchanged.
    """
    on_host = STRATEGIES[candidate.strategy].runs_on_host
    is_wrong_device = on_host and candidate.device is not Device.CPU
    if candidate.blocker or is_wrong_device:
        return candidate
    spec = job.job_for_candidate(candidate).spec
    shape = (job.n_rows, job.n_samples)
    x = np.random.default_rng(0).standard_normal(shape)
    x = (1000 * x).astype(np.int16) if spec.is_digital else x.astype(spec.dtype)
    try:
        engine = engine_for_candidate(candidate, job)
        timing = STOPWATCH.time(lambda: run_blocking(_run(engine, x, spec, job.k)))
    except (RlxError, MemoryError) as error:
        return replace(candidate, blocker=f"failed: {error or 'out of memory'}")
    return replace(candidate, measured_ns=timing.ns)


async def _run(engine: WelchEngine, x: SampleRows, spec: WelchSpec, k: int) -> None:
    """Compute k peaks of each row, or the spectra that a recording's job asks for."""
    await (engine.strongest_bins(x, spec, k) if k else engine.power(x, spec))
