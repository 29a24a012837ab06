"""`rlxweb inspect MODEL`: its ops, shapes and dims, what is missing, memory, time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.model_files import MODEL, opened
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import counted, progress_on, say, screen, show_table
from rlxweb.cli.targets import check_targets, goes_to_stdout, write_all
from rlxweb.decision.terms import human_ns
from rlxweb.errors import UsageError, shown
from rlxweb.io import write_json
from rlxweb.onnx.model import Model
from rlxweb.onnx.survey import MISSING, Sized, Survey, survey

SCHEMA = "rlxweb.inspect/1"
_PLACES = 6


def _dims(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not equals or not name or not (size.isascii() and size.isdigit()):
            raise UsageError(
                "--dim", f"{shown(text)} is none", "it is written NAME=SIZE", "batch=8"
            )
        options.check_new("--dim", name, found)
        found[name] = int(size)
    return found


@click.command(name="inspect")
@MODEL
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    callback=_dims,
    help="The size of a free dim; repeatable. Of the others it is 1.",
)
@options.devices("every device that is there")
@options.file_path("json", "All that is known; - is stdout.")
def command(
    model: str, dims: dict[str, int], devices: Sequence[str], json_path: str | None
) -> None:
    """Look into a model, the file MODEL of ONNX: nothing of it is run.

    Its inputs and outputs with their dims, every op and who does it, what is missing
    and where it stands, how much memory it takes and how long a run is expected to
    take, device by device.
    """
    check_targets([model], [("--json", json_path)], "model")
    places = options.places_of(devices)
    with progress_on(screen(stderr=True)) as bar:
        bar.add_task(f"inspect {model}", total=None)
        loaded = opened(model)
        if not isinstance(loaded, Model):
            raise UsageError(
                f"inspect {model}",
                "it is a graph that rlxweb saved",
                "models of ONNX are inspected",
                "run it: rlxweb run",
            )
        found = survey(loaded, dims, places)
    out = screen(stderr=goes_to_stdout([json_path]))
    if json_path is not None:
        record = document(SCHEMA, versions=versions(), **found.as_json())
        write_all([(json_path, partial(write_json, obj=record))])
    _show(out, found)


def _show(out: Console, found: Survey) -> None:
    model = found.model
    opsets = ", ".join(f"{k or 'ai.onnx'} {v}" for k, v in model.opsets.items())
    by = f" by {model.producer}" if model.producer else ""
    say(
        out,
        f"{model.name}{by}, opset {opsets}, {_weights(found)}",
        *(f"  in   {port}" for port in model.inputs.values()),
        *(f"  out  {port}" for port in model.outputs.values()),
    )
    rows = [
        ((one.op, "red" if one.how == MISSING else ""), str(one.count), one.how)
        for one in found.ops
    ]
    show_table(out, ("op", "times", "done by"), rows, right=["times"])
    for name, places in found.missing.items():
        more = f", … {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        say(out, f"missing: {name}, at {', '.join(places[:_PLACES])}{more}")
    if found.sized is not None:
        _show_sized(out, found.sized)
    elif not found.missing:
        say(out, *("not converted: " + found.why_not).split("\n"))


def _weights(found: Survey) -> str:
    """The bytes of the weights, of quantised ones by type."""
    whole = f"{_size(found.weights)} of weights"
    if len(found.kinds) < 2:
        return whole
    each = ", ".join(f"{_size(n)} {name}" for name, n in found.kinds.items() if n)
    return f"{whole} ({each})"


def _show_sized(out: Console, sized: Sized) -> None:
    dims = ", ".join(f"{name} {size}" for name, size in sized.dims.items())
    of = f"with {dims}: " if dims else ""
    say(
        out,
        f"{of}{counted(sized.nodes, 'node')}, {_count(sized.flops)} operations, "
        f"{_size(sized.params)} of weights in use, {_size(sized.values)} of values",
    )
    ones = [name for name, size in sized.dims.items() if size == 1]
    if ones:
        flags = " ".join(f"--dim {name}=8" for name in ones)
        say(out, f"other sizes are asked for: {flags}")
    rows = [
        (
            way.device.label,
            way.engine,
            "–" if way.blocker else human_ns(way.predicted_ns),
            way.blocker or way.source,
        )
        for way in sized.candidates
    ]
    if rows:
        heads = ("device", "engine", "a run", "by")
        show_table(out, heads, rows, right=["a run"], whole=heads[:3])


def _size(nbytes: float) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def _count(number: float) -> str:
    for factor, word in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {word}"
    return f"{number:.0f}"
