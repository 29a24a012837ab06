"""`rlxweb explain`: every way a Welch job could run, what each costs, and the pick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np
from rich.console import Console

from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.choose.chooser import best_of
from rlxweb.cli.job import Settings, group_spec
from rlxweb.cli.versions import rlxweb_version
from rlxweb.decision.candidate import comparison, ranked
from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_decision, explain_json
from rlxweb.device import Device
from rlxweb.devices.place import Place, available_places, engine_key, parse_place
from rlxweb.errors import RlxError, UsageError
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.io import open_recording, write_json
from rlxweb.rlx.seed_candidates import seed_candidates
from rlxweb.signal.crossover import crossover, welch_candidates
from rlxweb.signal.offers import ON_HOST, WelchJob, engine_for
from rlxweb.signal.presets import from_preset
from rlxweb.signal.welch_peaks import checked_k, checked_min_segments

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
    "--n-fft", type=click.IntRange(1, LONGEST), default=256, show_default=True
)
@click.option("--k", type=SIZE, default=16, show_default=True)
@click.option("--segments", type=SIZE, help="Segments per row [8].")
@click.option("--fs", type=float, help="Rate in Hz, for files that carry none.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="D",
    help="A device, or device:part of an adapter's name; repeatable. Default: all.",
)
@click.option("--min-segments", type=click.IntRange(1), help="1 allows 'ultra'.")
@click.option(
    "--cost-mode",
    type=click.Choice(["calibrated", "seed"]),
    default="calibrated",
    show_default=True,
    help="seed: RLX's published formulas.",
)
@click.option("--measure", is_flag=True, help="Run every way and compare.")
@click.option("--json", "as_json", is_flag=True, help="The decisions as JSON.")
def command(file: str | None, as_json: bool, **options: Any) -> None:
    """Say where a Welch job would run and why: of FILE, or of the numbers given.

    Every candidate with its terms, the model's own error, what blocks it, and from
    which batch on another engine would win. Nothing is computed unless --measure asks.
    """
    asked = dict.fromkeys(parse_place(d) for d in options["devices"])
    if options["cost_mode"] == "calibrated":
        for place in asked:
            engine_key(place)  # raises where it cannot be opened
    places = list(asked) or list(available_places())
    found = [
        (title, _decision(job, places, options)) for title, job in _jobs(file, options)
    ]
    if as_json:
        document = {
            "schema": SCHEMA,
            "rlxweb": rlxweb_version(),
            "jobs": [{"job": title, **explain_json(d)} for title, d in found],
        }
        write_json("-", document)
        return
    console = Console()
    for title, decision in found:
        print_decision(console, decision, title)


def print_decision(console: Console, decision: Decision, title: str = "") -> None:
    """The decision as prose, under a title."""
    text = (
        f"{title}\n{explain_decision(decision)}"
        if title
        else explain_decision(decision)
    )
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _jobs(file: str | None, options: dict[str, Any]) -> list[tuple[str, WelchJob]]:
    if file is None:
        return [_job_of_numbers(options)]
    if options["batch"]:
        raise UsageError("--batch", "the file says how many rows there are")
    settings = Settings(
        fs=options["fs"],
        nperseg=options["n_fft"],
        k=options["k"],
        nsegments=options["segments"],
        device=_asked_device(options["devices"]),
    )
    jobs = []
    with open_recording(file, fs=options["fs"]) as recording:
        for group in recording.groups:
            spec = group_spec(settings, group, settings.nperseg_of(group))
            n_rows = len(group.channels)
            noun = "channel" if n_rows == 1 else "channels"
            title = f"{file}: {n_rows} {noun} at {group.fs:g} Hz"
            jobs.append((title, _job(spec, n_rows, group.n_samples, options)))
    return jobs


def _job_of_numbers(options: dict[str, Any]) -> tuple[str, WelchJob]:
    if options["fs"] is not None:
        raise UsageError("--fs", "there is no FILE whose rate it could be")
    batch, segments = options["batch"] or 32, options["segments"] or 8
    n_fft = options["n_fft"]
    n_samples = n_fft + (segments - 1) * max(1, n_fft // 2)
    spec = from_preset("rlx", n_samples, nperseg=n_fft, dtype=np.float32)
    job = _job(spec, batch, n_samples, options)
    rows = f"{batch:,} row{'s' * (batch != 1)}"
    return f"Welch peaks of {rows}, {segments} × {n_fft} samples, k {job.k}", job


def _job(
    spec: WelchSpec, n_rows: int, n_samples: int, options: dict[str, Any]
) -> WelchJob:
    k = checked_k(options["k"], spec.n_freqs, "bins")
    segments = spec.segments_of(n_samples)
    least = checked_min_segments(options["min_segments"], segments)
    return WelchJob(spec, n_rows, n_samples, k, "bins", least)


def _asked_device(devices: Sequence[str]) -> str:
    """As `rlxweb welch --device` would have it: devices alone compute float32."""
    asked = [parse_place(d).device for d in devices]
    return asked[0].label if asked and Device.CPU not in asked else "auto"


def _decision(
    job: WelchJob, places: Sequence[Place], options: dict[str, Any]
) -> Decision:
    if options["cost_mode"] == "seed":
        found = seed_candidates(places, job.n_rows, job.spec.nfft, job.k)
    else:
        found = welch_candidates(job, places)
    if all(c.blocker for c in found):
        # Asked for by name: ways that nobody has measured are open then.
        found = best_of(job, found, "").decision.candidates
    if options["measure"]:
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
    if options["cost_mode"] == "seed":
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
    elsewhere = candidate.strategy in ON_HOST and candidate.device is not Device.CPU
    if candidate.blocker or elsewhere:
        return candidate
    spec = job.by(candidate).spec
    shape = (job.n_rows, job.n_samples)
    x = np.random.default_rng(0).standard_normal(shape).astype(spec.dtype)
    try:
        engine = engine_for(candidate)
        timing = MEASURE.time(lambda: drive(engine.strongest(x, spec, job.k)))
    except (RlxError, MemoryError) as error:
        return replace(candidate, blocker=f"it failed: {error or 'out of memory'}")
    return replace(candidate, measured_ns=timing.ns)
