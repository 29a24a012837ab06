"""`rlxweb run MODEL`: the outputs of a model for arrays of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import IO, Any

import click
import numpy as np

from rlxweb.cli import options
from rlxweb.cli.model_files import MODEL, engine_of, given_arrays, opened
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import progress_on, say, screen, show_table
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.decision.terms import human_ns
from rlxweb.io import write_json, write_npz
from rlxweb.ir.shape import show
from rlxweb.jobs.settings import Settings
from rlxweb.onnx.signature import leaves

SCHEMA = "rlxweb.run/1"
HEADS = ("output", "type", "least", "mean", "most")


@click.command(name="run")
@MODEL
@click.option(
    "--input",
    "-i",
    "named",
    multiple=True,
    metavar="NAME=FILE",
    help="An input's array: an NPY file, FILE.npz:ARRAY, or numbers as JSON "
    "(sr=16000); repeatable.",
)
@options.valued("--inputs", str, "NPZ file with an array for each input.")
@options.AUTO_DEVICE
@options.ADAPTER
@options.valued(
    "--repeats", click.IntRange(1, 10_000), "Runs; their median is told.", 1
)
@click.option("--strict", is_flag=True, help="A lost run is not done again elsewhere.")
@options.file_path("npz", "The outputs as arrays, under their names.")
@options.file_path("json", "The outputs, and how they came about; - is stdout.")
@click.option("--explain", is_flag=True, help="Say where it ran and why.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing.")
def command(
    model: str,
    named: tuple[str, ...],
    inputs: str | None,
    npz_path: str | None,
    json_path: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Run a model on arrays of files: MODEL is of ONNX, or a graph saved (.rlxg).

    Free dims take the sizes of the arrays. What a model wants is said by `rlxweb
    inspect MODEL`.

    Example  rlxweb run model.onnx --input x=x.npy --device gpu --npz out.npz
    """
    targets = ("--npz", npz_path), ("--json", json_path)
    check_targets([model], targets, "model")
    with progress_on(screen(stderr=True), shown=not quiet) as bar:
        task = bar.add_task(f"load {model}", total=None)
        loaded = opened(model)
        feeds = given_arrays(named, inputs, loaded.inputs)
        bar.update(task, description=f"compile {model}")
        settings = Settings(device=asked["device"], adapter=asked["adapter"])
        device, adapter = settings.asked_device, asked["adapter"]
        run = partial(
            loaded.run, feeds, device=device, adapter=adapter, strict=asked["strict"]
        )
        begun = perf_counter_ns()
        outs = run()
        first = perf_counter_ns() - begun
        bar.update(task, description=f"run {model}", total=asked["repeats"])
        times = []
        for _ in range(asked["repeats"] if asked["repeats"] > 1 else 0):
            begun = perf_counter_ns()
            outs = run()
            times.append(perf_counter_ns() - begun)
            bar.advance(task)
    facts = {
        "model": model,
        "engine": engine_of(loaded, feeds, device, adapter),
        "first_ns": first,
        "median_ns": int(np.median(times)) if times else None,
    }
    write_all(_puts(npz_path, json_path, outs, facts))
    if not quiet:
        out = screen(stderr=goes_to_stdout((npz_path, json_path)))
        show_table(out, HEADS, _rows(outs), right=HEADS[2:], whole=HEADS)
        say(out, _told(facts))
        if asked["explain"]:
            say(out, *loaded.explain().split("\n"))


def _told(facts: Mapping[str, Any]) -> str:
    again = facts["median_ns"]
    more = "" if again is None else f", then {human_ns(again)} a run"
    engine = facts["engine"] or "nothing was left to compute"
    return f"{engine}: {human_ns(facts['first_ns'])} with compiling{more}"


def _rows(outs: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for name, given in outs.items():
        if given is None:
            yield name, "none", "", "", ""
        for own, array in leaves(name, given):
            yield own, f"{show(array.shape)} {array.dtype}", *_numbers(array)


def _numbers(array: Any) -> tuple[str, str, str]:
    """The least, the mean and the greatest of an array."""
    if not array.size or array.dtype.kind not in "biuf":
        return "", "", ""
    wide = array.astype(np.float64)
    return f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"


def _puts(
    npz_path: str | None,
    json_path: str | None,
    outs: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Iterable[tuple[str, Put]]:
    if npz_path is not None:
        arrays = dict(pair for name, one in outs.items() for pair in leaves(name, one))

        def put_npz(file: IO[bytes]) -> None:
            write_npz(file, **arrays)

        yield npz_path, put_npz
    if json_path is not None:
        record = document(SCHEMA, versions=versions(), **facts, outputs=_entries(outs))
        yield json_path, partial(write_json, obj=record)


def _entries(outs: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": own,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "values": array,
        }
        for name, one in outs.items()
        for own, array in leaves(name, one)
    ]
