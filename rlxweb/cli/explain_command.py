"""`rlxweb explain`: every way a Welch job could run, what each costs, and the pick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np
from rich.console import Console

from rlxweb.calibration.known import known_record
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.choose.chooser import best_of
from rlxweb.choose.seed import seed_candidates
from rlxweb.cli import options
from rlxweb.cli.record import document
from rlxweb.cli.screen import counted, say, screen
from rlxweb.cli.storage import STORAGE
from rlxweb.decision.candidate import comparison, ranked
from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_decision, explain_json
from rlxweb.device import Device
from rlxweb.devices.place import Place, available_places, engine_key
from rlxweb.errors import RlxError, UsageError
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.io import open_recording, write_json
from rlxweb.jobs.settings import Settings, group_spec, group_taken
from rlxweb.signal.crossover import crossover, welch_candidates
from rlxweb.signal.offers import STRATEGIES, WelchJob, engine_for
from rlxweb.signal.peaks_asked import checked_min_segments
from rlxweb.signal.presets import from_preset

SCHEMA = "rlxweb.explain_command/1"
SEED_NOTE = (
    "RLX's formulas price ultra as 1 and the others as 2 segments, whatever is asked"
)
SIZE = click.IntRange(1, 1 << 40)
LONGEST = 1 << 24
MOST_GIB = 1.5
"""--measure refuses rows that take more memory."""
MEASURE = Stopwatch(samples=9, least=7, budget_ns=2e9)


@click.command(name="explain")
@click.argument("file", required=False)
@click.option("--batch", type=SIZE, help="Rows, without a FILE [32].")
@click.option(
    "--n-fft",
    "--nperseg",
    "n_fft",
    type=click.IntRange(1, LONGEST),
    default=256,
    show_default=True,
)
@click.option("--k", type=SIZE, help=options.K_HELP)
@click.option(
    "--segments",
    "--nsegments",
    "segments",
    type=SIZE,
    help="Segments per row [8].",
)
@options.FS
@options.CHANNELS
@options.ARRAY
@options.LAYOUT
@STORAGE
@options.PRECISION
@options.devices("all")
@options.MIN_SEGMENTS
@options.one_of(
    "--cost-mode",
    ["calibrated", "seed"],
    "seed: RLX's published formulas.",
    "calibrated",
)
@click.option("--measure", is_flag=True, help="Run every way and compare.")
@click.option("--json", "as_json", is_flag=True, help="The decisions as JSON.")
def command(file: str | None, as_json: bool, **asked: Any) -> None:
    """Say where a Welch job would run and why: of FILE, or of the numbers given.

    Every candidate with its terms, the model's own error, what blocks it, and from
    which batch on another engine would win. Nothing is computed unless --measure asks.
    """
    named = options.places_of(asked["devices"])
    if asked["cost_mode"] == "calibrated":
        for place in named:
            engine_key(place)  # raises where it cannot be opened
    places = named or list(available_places())
    found = [
        (title, _decision(job, places, asked)) for title, job in _jobs(file, asked)
    ]
    raced = _raced(places) if asked["cost_mode"] == "calibrated" else {}
    if as_json:
        jobs = [{"job": title, **explain_json(d)} for title, d in found]
        write_json("-", document(SCHEMA, jobs=jobs, raced=raced))
        return
    console = screen()
    for title, decision in found:
        print_decision(console, decision, title)
    for label, races in raced.items():
        for race in races:
            say(console, f"'{label}' raced {race}")


def _raced(places: Sequence[Place]) -> dict[str, list[str]]:
    """Of each place how the ways to run Welch peaks ended, where they were raced."""
    records = ((place.label, known_record(place)) for place in places)
    found = {
        label: [str(race) for race in record.races if race.op == "welch_row_peaks"]
        for label, record in records
        if record is not None
    }
    return {label: races for label, races in found.items() if races}


def print_decision(console: Console, decision: Decision, title: str = "") -> None:
    """The decision as prose, under a title."""
    head = [title] if title else []
    say(console, *head, *explain_decision(decision).split("\n"))


def _jobs(file: str | None, asked: dict[str, Any]) -> list[tuple[str, WelchJob]]:
    if file is None:
        return [_job_of_numbers(asked)]
    if asked["batch"]:
        raise UsageError("--batch", "the file says how many rows there are")
    which = {name: asked[name] for name in ("fs", "channels", "array", "layout")}
    settings = Settings(
        nperseg=asked["n_fft"],
        nsegments=asked["segments"],
        precision=asked["precision"],
    )
    jobs = []
    with open_recording(
        file,
        **which | {"channels": which["channels"] or None},
        storage_options=asked["storage"],
    ) as recording:
        for group in recording.signals:
            spec = group_spec(settings, group, settings.nperseg_of(group))
            n_rows = len(group.channels)
            title = f"{recording.path}: {counted(n_rows, 'channel')} at {group.fs:g} Hz"
            job = _job(spec, n_rows, group.n_samples, asked)
            jobs.append((title, replace(job, taken=group_taken(settings, group))))
    return jobs


def _job_of_numbers(asked: dict[str, Any]) -> tuple[str, WelchJob]:
    for name in ("fs", "channels", "array", "layout"):
        if asked[name] not in (None, ()):
            raise UsageError(f"--{name}", "there is no FILE that it could be of")
    batch, segments = asked["batch"] or 32, asked["segments"] or 8
    n_fft = asked["n_fft"]
    n_samples = n_fft + (segments - 1) * max(1, n_fft // 2)
    spec = from_preset("rlx", n_samples, nperseg=n_fft, dtype=np.float32)
    job = _job(spec, batch, n_samples, asked)
    rows = f"{batch:,} row{'s' * (batch != 1)}"
    return f"Welch peaks of {rows}, {segments} × {n_fft} samples, k {job.k}", job


def _job(
    spec: WelchSpec, n_rows: int, n_samples: int, asked: dict[str, Any]
) -> WelchJob:
    k = Settings(k=asked["k"]).k_of(spec)
    segments = spec.segments_of(n_samples)
    least = checked_min_segments(asked["min_segments"], segments)
    return WelchJob(spec, n_rows, n_samples, k, "bins", least)


def _decision(
    job: WelchJob, places: Sequence[Place], asked: dict[str, Any]
) -> Decision:
    if asked["cost_mode"] == "seed":
        found = seed_candidates(places, job.n_rows, job.spec.nfft, job.k)
    else:
        found = welch_candidates(job, places)
    if all(c.blocker for c in found):
        # Asked for by name: ways that nobody has measured are open then.
        found = best_of(job, found, "").decision.candidates
    if asked["measure"]:
        _check_memory(job)
        found = tuple(_measured(c, job) for c in found)
    open_ = [c for c in found if not c.blocker]
    picked = open_[0] if open_ else best_of(job, found, "").candidate
    numbers: dict[str, Any] = {
        "rows": job.n_rows,
        "n_fft": job.spec.nfft,
        "segments": job.spec.segments_of(job.n_samples),
        "k": job.k,
    }
    if asked["cost_mode"] == "seed":
        numbers["notes"] = [SEED_NOTE]
    elif picked.terms is not None:
        numbers["crossover"] = crossover(job, places)
    what = f"{picked.strategy} on {picked.engine}"
    return Decision(what, comparison(picked, found), numbers, ranked(found))


def _check_memory(job: WelchJob) -> None:
    gib = 4 * job.n_rows * job.n_samples / 2**30
    if gib > MOST_GIB:
        raise UsageError(
            "--measure",
            f"the rows take {gib:.3g} GiB",
            f"at most {MOST_GIB} GiB are made up",
            "leave it out or ask about a smaller --batch",
        )


def _measured(candidate: Any, job: WelchJob) -> Any:
    """The candidate with the median time of real runs; blocked ones as they are."""
    on_host = STRATEGIES[candidate.strategy].on_host
    elsewhere = on_host and candidate.device is not Device.CPU
    if candidate.blocker or elsewhere:
        return candidate
    spec = job.by(candidate).spec
    shape = (job.n_rows, job.n_samples)
    x = np.random.default_rng(0).standard_normal(shape)
    x = (1000 * x).astype(np.int16) if spec.is_digital else x.astype(spec.dtype)
    try:
        engine = engine_for(candidate, job)
        timing = MEASURE.time(lambda: drive(engine.strongest(x, spec, job.k)))
    except (RlxError, MemoryError) as error:
        return replace(candidate, blocker=f"it failed: {error or 'out of memory'}")
    return replace(candidate, measured_ns=timing.ns)
