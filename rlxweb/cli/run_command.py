"""`rlxweb run MODEL`: compute the outputs of a model for arrays from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import IO, Any

import click
import numpy as np

from rlxweb.batch.settings import requested_device
from rlxweb.cli import options
from rlxweb.cli.console import make_console, make_progress, print_lines, print_table
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.model_inputs import (
    MODEL_ARGUMENT,
    load_input_arrays,
    load_model,
    used_engine_name,
)
from rlxweb.cli.output_files import (
    ResultWriter,
    check_output_paths,
    uses_stdout,
    write_results,
)
from rlxweb.cost.decision import format_ns
from rlxweb.io import write_json, write_npz
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.onnx.model_signature import flatten_input

SCHEMA = "rlxweb.run/1"
TABLE_HEADERS = ("output", "type", "min", "mean", "max")


@click.command(name="run")
@MODEL_ARGUMENT
@click.option(
    "--input",
    "-i",
    "named",
    multiple=True,
    metavar="NAME=FILE",
    help="Array for the input NAME: an NPY file, FILE.npz:ARRAY, or numbers as JSON "
    "(sr=16000); repeatable.",
)
@options.value_option("--inputs", str, "NPZ file with one array per input.")
@options.AUTO_DEVICE
@options.ADAPTER
@options.value_option(
    "--repeats", click.IntRange(1, 10_000), "Number of runs; the median is shown.", 1
)
@click.option(
    "--strict", is_flag=True, help="If the device is lost, do not retry on another one."
)
@options.output_file_option("npz", "Write the outputs as named arrays.")
@options.output_file_option(
    "json", "Write the outputs and how they were computed; - is stdout."
)
@click.option("--explain", is_flag=True, help="Show where the model ran and why.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing.")
def command(
    model: str,
    named: tuple[str, ...],
    inputs: str | None,
    npz_path: str | None,
    json_path: str | None,
    quiet: bool,
    **option_values: Any,
) -> None:
    """Run MODEL, an ONNX file or a saved graph (.rlxg), on arrays from files.

    Free dims get their sizes from the arrays. `rlxweb inspect MODEL` shows the inputs
    of an ONNX model.

    Example  rlxweb run model.onnx --input x=x.npy --device gpu --npz out.npz
    """
    output_paths = ("--npz", npz_path), ("--json", json_path)
    check_output_paths([model], output_paths, "model")
    with make_progress(make_console(stderr=True), enabled=not quiet) as progress:
        task = progress.add_task(f"load {model}", total=None)
        loaded = load_model(model)
        feeds = load_input_arrays(named, inputs, loaded.inputs)
        progress.update(task, description=f"compile {model}")
        adapter = option_values["adapter"]
        device = requested_device(option_values["device"], adapter)
        run = partial(
            loaded.run,
            feeds,
            device=device,
            adapter=adapter,
            strict=option_values["strict"],
        )
        start_ns = perf_counter_ns()
        outputs = run()
        first_ns = perf_counter_ns() - start_ns
        progress.update(
            task, description=f"run {model}", total=option_values["repeats"]
        )
        times_ns = []
        for _ in range(option_values["repeats"] if option_values["repeats"] > 1 else 0):
            start_ns = perf_counter_ns()
            outputs = run()
            times_ns.append(perf_counter_ns() - start_ns)
            progress.advance(task)
    facts = {
        "model": model,
        "engine": used_engine_name(loaded, feeds, device, adapter),
        "first_ns": first_ns,
        "median_ns": int(np.median(times_ns)) if times_ns else None,
    }
    write_results(_output_writers(npz_path, json_path, outputs, facts))
    if not quiet:
        console = make_console(stderr=uses_stdout((npz_path, json_path)))
        print_table(
            console,
            TABLE_HEADERS,
            _table_rows(outputs),
            right_aligned=TABLE_HEADERS[2:],
            no_wrap=TABLE_HEADERS,
        )
        print_lines(console, _timing_text(facts))
        if option_values["explain"]:
            print_lines(console, *loaded.explain().split("\n"))


def _timing_text(facts: Mapping[str, Any]) -> str:
    median_ns = facts["median_ns"]
    median_text = "" if median_ns is None else f", then {format_ns(median_ns)} per run"
    engine = facts["engine"] or "nothing to compute"
    return (
        f"{engine}: {format_ns(facts['first_ns'])} including compilation{median_text}"
    )


def _table_rows(outputs: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for name, value in outputs.items():
        if value is None:
            yield name, "none", "", "", ""
        for leaf_name, array in flatten_input(name, value):
            yield (
                leaf_name,
                f"{format_shape(array.shape)} {array.dtype}",
                *_value_range(array),
            )


def _value_range(array: Any) -> tuple[str, str, str]:
    """Return the minimum, mean and maximum of an array as text."""
    if not array.size or array.dtype.kind not in "biuf":
        return "", "", ""
    float64_array = array.astype(np.float64)
    return (
        f"{float64_array.min():.6g}",
        f"{float64_array.mean():.6g}",
        f"{float64_array.max():.6g}",
    )


def _output_writers(
    npz_path: str | None,
    json_path: str | None,
    outputs: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Iterable[tuple[str, ResultWriter]]:
    if npz_path is not None:
        arrays = dict(
            pair
            for name, value in outputs.items()
            for pair in flatten_input(name, value)
        )

        def write_output_npz(file: IO[bytes]) -> None:
            write_npz(file, **arrays)

        yield npz_path, write_output_npz
    if json_path is not None:
        record = json_document(
            SCHEMA,
            versions=library_versions(),
            **facts,
            outputs=_output_entries(outputs),
        )
        yield json_path, partial(write_json, obj=record)


def _output_entries(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": leaf_name,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "values": array,
        }
        for name, value in outputs.items()
        for leaf_name, array in flatten_input(name, value)
    ]
