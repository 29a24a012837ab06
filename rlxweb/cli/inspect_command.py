"""`rlxweb inspect MODEL`: show a model's ops, shapes, dims, unsupported ops, memory and
run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.console import (
    format_count,
    make_console,
    make_progress,
    print_lines,
    print_table,
)
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.model_inputs import MODEL_ARGUMENT, load_model
from rlxweb.cli.output_files import check_output_paths, uses_stdout, write_results
from rlxweb.core.errors import UsageError, shown
from rlxweb.cost.decision import format_ns
from rlxweb.io import write_json
from rlxweb.onnx.model import Model
from rlxweb.onnx.model_summary import MISSING, ModelCosts, ModelSummary, summarize_model

SCHEMA = "rlxweb.inspect/1"
_MAX_PLACES = 6


def _parse_dims(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int]:
    """Parse sizes of dims written as NAME=SIZE."""
    dims: dict[str, int] = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not equals or not name or not (size.isascii() and size.isdigit()):
            raise UsageError(
                "--dim",
                f"got {shown(text)}",
                "expected NAME=SIZE",
                "write it like --dim batch=8",
            )
        options.check_not_repeated("--dim", name, dims)
        dims[name] = int(size)
    return dims


@click.command(name="inspect")
@MODEL_ARGUMENT
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    callback=_parse_dims,
    help="Size of a free dim; repeatable. The default size is 1.",
)
@options.devices_option("every available device")
@options.output_file_option("json", "Write the full report; - is stdout.")
def command(
    model: str, dims: dict[str, int], devices: Sequence[str], json_path: str | None
) -> None:
    """Inspect an ONNX model, the file MODEL, without running it.

    Shows its inputs and outputs with their dims, every op and how it is implemented,
    unsupported ops and their nodes, the memory needed and the predicted time of a run
    on each device.
    """
    check_output_paths([model], [("--json", json_path)], "model")
    places = options.parse_places(devices)
    with make_progress(make_console(stderr=True)) as bar:
        bar.add_task(f"inspect {model}", total=None)
        loaded = load_model(model)
        if not isinstance(loaded, Model):
            raise UsageError(
                f"inspect {model}",
                "the file is a saved rlxweb graph",
                "only ONNX models can be inspected",
                "run the graph with `rlxweb run`",
            )
        model_survey = summarize_model(loaded, dims, places)
    out = make_console(stderr=uses_stdout([json_path]))
    if json_path is not None:
        record = json_document(
            SCHEMA, versions=library_versions(), **model_survey.as_json()
        )
        write_results([(json_path, partial(write_json, obj=record))])
    _print_survey(out, model_survey)


def _print_survey(out: Console, model_survey: ModelSummary) -> None:
    """Print the inputs, outputs, ops and unsupported ops of a model."""
    model = model_survey.model
    opsets = ", ".join(f"{k or 'ai.onnx'} {v}" for k, v in model.opsets.items())
    producer_text = f" by {model.producer}" if model.producer else ""
    print_lines(
        out,
        f"{model.name}{producer_text}, opset {opsets}, "
        f"{_weights_summary(model_survey)}",
        *(f"  in   {port}" for port in model.inputs.values()),
        *(f"  out  {port}" for port in model.outputs.values()),
    )
    rows = [
        ((op.op, "red" if op.how == MISSING else ""), str(op.count), op.how)
        for op in model_survey.ops
    ]
    print_table(out, ("op", "count", "implemented by"), rows, right_aligned=["count"])
    for name, places in model_survey.missing.items():
        rest_text = (
            f", … {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
        )
        print_lines(
            out,
            f"not supported: {name}, at {', '.join(places[:_MAX_PLACES])}{rest_text}",
        )
    if model_survey.costs is not None:
        _print_sized(out, model_survey.costs)
    elif not model_survey.missing:
        print_lines(
            out,
            *("the model cannot be converted: " + model_survey.conversion_error).split(
                "\n"
            ),
        )


def _weights_summary(model_survey: ModelSummary) -> str:
    """Describe the size of the weights, by type for quantised ones."""
    total = f"{_format_nbytes(model_survey.weight_nbytes)} of weights"
    if len(model_survey.bytes_by_type) < 2:
        return total
    by_type = ", ".join(
        f"{_format_nbytes(n)} {name}"
        for name, n in model_survey.bytes_by_type.items()
        if n
    )
    return f"{total} ({by_type})"


def _print_sized(out: Console, sized: ModelCosts) -> None:
    """Print the cost and the candidates of a model whose dims have sizes."""
    dims = ", ".join(f"{name} {size}" for name, size in sized.dims.items())
    prefix = f"with {dims}: " if dims else ""
    print_lines(
        out,
        f"{prefix}{format_count(sized.nodes, 'node')}, {_format_count(sized.flops)} "
        f"operations, "
        f"{_format_nbytes(sized.params)} of weights in use, "
        f"{_format_nbytes(sized.values)} of buffers for other values",
    )
    unit_dims = [name for name, size in sized.dims.items() if size == 1]
    if unit_dims:
        flags = " ".join(f"--dim {name}=8" for name in unit_dims)
        print_lines(out, f"to set other sizes: {flags}")
    rows = [
        (
            candidate.device.label,
            candidate.engine,
            "–" if candidate.blocker else format_ns(candidate.predicted_ns),
            candidate.blocker or candidate.source,
        )
        for candidate in sized.candidates
    ]
    if rows:
        heads = ("device", "engine", "time per run", "source")
        print_table(out, heads, rows, right_aligned=heads[2:3], no_wrap=heads[:3])


def _format_nbytes(nbytes: float) -> str:
    """Format a number of bytes with a binary unit."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def _format_count(number: float) -> str:
    """Format a number with an SI prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.0f}"
