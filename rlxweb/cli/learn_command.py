"""`rlxweb learn FILE…`: a transform that is trained for recordings and a band."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from rlxweb.advice import Advice
from rlxweb.cli import options
from rlxweb.cli.bands_options import stretch
from rlxweb.cli.batch import LeftOut
from rlxweb.cli.inputs import recordings_of
from rlxweb.cli.learn_plot import put_picture
from rlxweb.cli.look import DARK
from rlxweb.cli.plot import check_plot, picture_format
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import Cell, counted, progress_on, say, screen, show_table
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.errors import RlxError, UsageError
from rlxweb.io import Recording, open_recording, write_json
from rlxweb.io.access import Access
from rlxweb.jobs.entries import text_of
from rlxweb.jobs.settings import OF_FILES, Settings, reading_of
from rlxweb.learn.learned import PRICE, STEPS, Learned, learn_welch
from rlxweb.learn.pruning import Tried, front
from rlxweb.signal.learned.butterflies import stages_of
from rlxweb.signal.request import PRESETS

SCHEMA = "rlxweb.learn/1"
SUFFIX = ".rlxl"
HEADS = ("", "gates", "transforms", "error", "peaks found", "arithmetic")
_ABOVE_0 = click.FloatRange(0, min_open=True)


def _power_of_two(ctx: click.Context, param: click.Parameter, value: int) -> int:
    try:
        stages_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}: butterflies meet in pairs") from None
    return value


@click.command(name="learn")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--n-fft",
    "--nperseg",
    "nperseg",
    type=int,
    default=256,
    show_default=True,
    callback=_power_of_two,
    help="Samples of a segment, a power of two.",
)
@click.option(
    "--band",
    metavar="LOW:HIGH",
    required=True,
    callback=stretch,
    help="The bins that it gives, in Hz: 0.5:45.",
)
@options.valued("--k", click.IntRange(1), options.K_HELP.replace("keep", "look for"))
@options.valued(
    "--error",
    click.FloatRange(0, 1, min_open=True, max_open=True),
    "What the power of a bin may be off by, relative, root mean square.",
    1e-3,
)
@options.file_path("out", f"The transform ({SUFFIX}), for model= of rlx.welch_peaks.")
@options.one_of("--preset", tuple(PRESETS), "Whose conventions.", "rlx")
@options.WINDOW
@options.one_of(
    "--detrend", ["none", "constant"], "What segments lose before [the preset's]."
)
@options.FS
@options.SAMPLES
@STORAGE
@options.valued("--steps", click.IntRange(0), "Steps of training.", STEPS)
@options.valued("--seed", click.IntRange(0), "Of what is drawn in training.", 0)
@options.valued(
    "--price", click.FloatRange(0), "Of open gates, against the error.", PRICE
)
@options.AUTO_DEVICE
@options.ADAPTER
@options.file_path(
    "resume", "Keep the training here: stopped by Ctrl-C, it goes on the next time."
)
@options.file_path("json", "Write the report; - is stdout.")
@options.file_path("plot", "Draw prunings and training (.png, .svg, .pdf).")
@DARK
@click.option("--quiet", "-q", is_flag=True, help="No table.")
def command(files: tuple[str, ...], quiet: bool, **asked: Any) -> None:
    """A transform that is trained for your recordings and your band.

    It begins as the exact FFT, with a gate on every butterfly, and is trained on the
    first part of each recording. What your spectra do not need is closed, and the rest
    is tested on the last part; the cheapest within --error is taken, and where none is
    that is the exact transform of the band. Spectra that fall steeply beyond the band
    lose most of the arithmetic, white ones nothing.

    Example  rlxweb learn night/*.edf --band 0.5:45 --error 1e-3 --out eeg.rlxl
    """
    outputs = _outputs(asked)
    targets = [(f"--{name}", asked[f"{name}_path"]) for name in outputs]
    named = [path for _, path in targets if path is not None]
    access: Access = asked.pop("storage")
    reading = reading_of(asked, access)
    for name in OF_FILES:
        del asked[name]
    err = screen(stderr=True)
    tell = partial(say, err, style="dim")
    meant = recordings_of(files, named, tell, _refuse, access)
    check_targets(meant, targets)
    begun = perf_counter()
    rows, fs = _read(meant, reading, err, quiet)
    learned = _learned(rows, fs, asked, quiet)
    took = perf_counter() - begun
    write_all(_puts(learned, meant, asked, took))
    if asked["plot_path"] is not None:
        say(err, f"picture: {asked['plot_path']}")
    if not quiet:
        _show(err if goes_to_stdout(named) else screen(), learned, asked, took)


def _outputs(asked: dict[str, Any]) -> tuple[str, ...]:
    """What is written, the names refused that cannot be.

    Errors   UsageError where --out is missing or ends in something else
    """
    out = asked["out_path"]
    if out is None:
        hint = f"give --out NAME{SUFFIX}"
        raise UsageError("--out", "what is trained has no file to go to", hint=hint)
    if Path(out).suffix.lower() != SUFFIX:
        problem = f"it is a transform, and the name does not end in {SUFFIX}"
        raise UsageError(f"--out {out!r}", problem, hint=f"name it {out}{SUFFIX}")
    if asked["plot_path"] is not None:
        picture_format(asked["plot_path"], (".png", ".svg", ".pdf"))
        check_plot(asked["plot_path"])
    return "out", "json", "plot", "resume"


def _refuse(name: str, error: RlxError) -> None:
    raise error


def _read(
    files: Sequence[str], reading: dict[str, Any], err: Console, quiet: bool
) -> tuple[list[Any], float]:
    """All channels of all recordings, in pieces without a gap, and their rate."""
    rows: list[Any] = []
    rates: dict[float, str] = {}
    left_out = LeftOut()
    with progress_on(err, shown=not quiet) as bar:
        task = bar.add_task("read", total=len(files))
        for path in files:
            bar.update(task, description=path)
            with open_recording(path, **reading) as recording:
                left_out.note(recording)
                for group in recording.signals:
                    rates.setdefault(group.fs, path)
                    _check_rates(rates)
                rows += _pieces(recording)
            bar.advance(task)
    left_out.tell(err, len(files))
    return rows, next(iter(rates))


def _pieces(recording: Recording) -> list[Any]:
    return [piece.read() for group in recording.signals for piece in group.pieces]


def _check_rates(rates: dict[float, str]) -> None:
    if len(rates) < 2:
        return
    (one, of_one), (other, of_other) = rates.items()
    where_ = f"{of_one!r} and {of_other!r}" if of_one != of_other else f"{of_one!r}"
    raise UsageError(
        "learn a transform",
        f"there are channels at {one:g} and at {other:g} Hz in {where_}",
        "a transform is for one rate",
        Advice("bring all to one, {}, or choose channels", resample=f"{one:g}"),
    )


def _learned(rows: list[Any], fs: float, asked: dict[str, Any], quiet: bool) -> Learned:
    adapter = asked["adapter"]
    device = Settings(device=asked["device"], adapter=adapter).asked_device
    own = {name: asked[name] for name in ("nperseg", "k", "preset", "window")}
    own |= {name: asked[name] for name in ("steps", "price", "seed")}
    low, high = asked["band"]
    detrend = asked["detrend"] or "preset"
    with progress_on(screen(stderr=True), shown=not quiet) as bar:
        task = bar.add_task("train", total=max(1, asked["steps"]))

        def told(step: int, loss: float) -> None:
            said = "prune and test" if step == asked["steps"] else "train"
            bar.update(task, description=f"{said}, loss {loss:.3g}", completed=step)

        return learn_welch(
            rows,
            fs,
            **own,
            fmin=low,
            fmax=high,
            max_error=asked["error"],
            detrend=None if detrend == "none" else detrend,
            device=device,
            adapter=adapter,
            save_to=asked["resume_path"],
            told=told,
            progress=False,
        )


def _puts(
    learned: Learned, files: Sequence[str], asked: dict[str, Any], took: float
) -> list[tuple[str, Put]]:
    low, high = asked["band"]
    names = ("nperseg", "preset", "window", "detrend", "steps", "seed", "price")
    record = document(
        SCHEMA,
        versions=versions(),
        settings={"band": [low, high], **{name: asked[name] for name in names}},
        files=[text_of(path) for path in files],
        out=text_of(asked["out_path"]),
        **learned.as_json(),
        wall_s=took,
    )
    plot = asked["plot_path"]
    how = "" if plot is None else picture_format(plot)
    every: dict[str, Put] = {
        "out": learned.save,
        "json": lambda file: write_json(file, record),
        "plot": lambda file: put_picture(file, learned, how, asked["dark"]),
    }
    named = ((asked[f"{name}_path"], put) for name, put in every.items())
    return [(path, put) for path, put in named if path is not None]


def _show(out: Console, learned: Learned, asked: dict[str, Any], took: float) -> None:
    """The exact transform, what is on the front, and what to type next."""
    exact = learned.tried[0]
    rows = [_row(learned, one) for one in front(learned.tried) if one is not exact]
    show_table(out, HEADS, [_row(learned, exact), *rows], right=HEADS[1:], whole=HEADS)
    own, run = learned.transform, learned.trained.run
    engine = f" on {run.engine}" if run.engine else ""
    say(
        out,
        f"{counted(run.steps, 'step')}{engine}, {len(learned.examples.learned):,} "
        f"segments learned from, {len(learned.examples.rows):,} rows tested: "
        f"{took:.2f} s",
    )
    if learned.is_exact:
        said = f"nothing can be left out within {own.asked:g}"
        say(out, f"{said}: the file holds the exact transform of the band")
    say(out, f"next: {_usage(learned, asked)}")


def _usage(learned: Learned, asked: dict[str, Any]) -> str:
    """A call that takes the transform, as it is typed in Python."""
    own, (low, high) = learned.transform, asked["band"]
    given: dict[str, Any] = {"fs": own.fs, "nperseg": own.n}
    if asked["preset"] != "rlx":
        given["preset"] = asked["preset"]
    if asked["window"] is not None:
        given["window"] = asked["window"]
    if asked["detrend"] is not None:
        given["detrend"] = own.detrend or False
    given |= {"fmin": low, "fmax": high, "k": own.k}
    given |= {"strategy": "learned", "model": asked["out_path"]}
    words = (
        f"{name}={value:.15g}" if isinstance(value, float) else f"{name}={value!r}"
        for name, value in given.items()
    )
    return f"rlx.welch_peaks(x, {', '.join(words)})"


def _row(learned: Learned, one: Tried) -> tuple[Cell, ...]:
    name = "exact" if one is learned.tried[0] else "pruned"
    is_chosen = one is learned.chosen
    style = "bold" if is_chosen else ""
    of = f"{len(one.program.phases)} of {one.program.m}"
    cells = (
        f"{name}, chosen" if is_chosen else name,
        f"{one.active:,}",
        of,
        f"{one.error:.2g}",
        f"{one.recall:.1%}",
        f"{one.program.cost / learned.whole_cost:.1%}",
    )
    return tuple((cell, style) for cell in cells)
