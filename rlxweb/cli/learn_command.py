"""`rlxweb learn FILE…`: a transform that is trained for recordings and a band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from rlxweb.errors import NotFinite, RlxError, UsageError
from rlxweb.io import Group, check_finite, open_recording, write_json
from rlxweb.io.access import Access
from rlxweb.jobs.entries import text_of
from rlxweb.jobs.settings import Settings, reading_of
from rlxweb.signal.learned.learn import PRICE, STEPS, Learned, learn_welch
from rlxweb.signal.learned.network import stages_of
from rlxweb.signal.learned.prunings import Pruning, front
from rlxweb.signal.request import PRESETS

SCHEMA = "rlxweb.learn/1"
SUFFIX = ".rlxl"
OUTPUTS = ("out", "json", "plot", "resume")
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
@options.file_path(
    "out",
    f"The transform ({SUFFIX}), for model= of rlx.welch_peaks.",
    required=True,
)
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
    _check_names(asked["out_path"], asked["plot_path"])
    outputs = {f"--{name}": asked[f"{name}_path"] for name in OUTPUTS}
    paths = [path for path in outputs.values() if path is not None]
    access: Access = asked.pop("storage")
    reading = reading_of(asked, access)
    err = screen(stderr=True)
    tell = partial(say, err, style="dim")
    recordings = recordings_of(files, paths, tell, _refuse, access)
    check_targets(recordings, outputs.items())
    begun = perf_counter()
    rows, fs = _read(recordings, reading, err, quiet)
    learned = _learned(rows, fs, asked, quiet)
    took = perf_counter() - begun
    write_all(_results(learned, recordings, asked, took))
    if asked["plot_path"] is not None:
        say(err, f"picture: {asked['plot_path']}")
    if not quiet:
        _show(err if goes_to_stdout(paths) else screen(), learned, asked, took)


def _check_names(out: str, plot: str | None) -> None:
    """Refuse names of files before the work. Errors  UsageError, Unsupported."""
    if Path(out).suffix.lower() != SUFFIX:
        problem = f"it is a transform, and the name does not end in {SUFFIX}"
        raise UsageError(f"--out {out!r}", problem, hint=f"name it {out}{SUFFIX}")
    if plot is not None:
        check_plot(plot)


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
                    if len(rates) > 1:
                        raise _two_rates(rates)
                    rows += map(_samples, group.pieces)
            bar.advance(task)
    left_out.tell(err, len(files))
    return rows, next(iter(rates))


def _samples(piece: Group) -> Any:
    """Samples (C, T). Errors  NotFinite with the file, the channel and the sample."""
    samples = piece.read()
    try:
        check_finite(samples, piece)
    except NotFinite as error:
        error.hint = "repair the file, or leave the channel out"
        raise
    return samples


def _two_rates(rates: dict[float, str]) -> UsageError:
    a, b = rates
    files = " and ".join(map(repr, dict.fromkeys(rates.values())))
    return UsageError(
        "learn a transform",
        f"there are channels at {a:g} and at {b:g} Hz in {files}",
        "a transform is for one rate",
        Advice("bring all to one, {}, or choose channels", resample=f"{a:g}"),
    )


def _learned(rows: list[Any], fs: float, asked: dict[str, Any], quiet: bool) -> Learned:
    adapter = asked["adapter"]
    device = Settings(device=asked["device"], adapter=adapter).asked_device
    names = "nperseg", "k", "preset", "window", "steps", "price", "seed"
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
            **{name: asked[name] for name in names},
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


def _results(
    learned: Learned, files: Sequence[str], asked: dict[str, Any], took: float
) -> Iterator[tuple[str, Put]]:
    """Yield each file that was asked for, with the function that writes it."""
    yield asked["out_path"], learned.save
    if asked["json_path"] is not None:
        names = "nperseg", "preset", "window", "detrend", "steps", "seed", "price"
        settings = {"band": list(asked["band"])} | {name: asked[name] for name in names}
        record = document(
            SCHEMA,
            versions=versions(),
            settings=settings,
            files=[text_of(path) for path in files],
            out=text_of(asked["out_path"]),
            **learned.as_json(),
            wall_s=took,
        )
        yield asked["json_path"], lambda file: write_json(file, record)
    if asked["plot_path"] is not None:
        how = picture_format(asked["plot_path"])
        dark = asked["dark"]
        yield asked["plot_path"], lambda file: put_picture(file, learned, how, dark)


def _show(out: Console, learned: Learned, asked: dict[str, Any], took: float) -> None:
    """The exact transform, what is on the front, and what to type next."""
    exact = learned.tried[0]
    shown = [exact, *(one for one in front(learned.tried) if one is not exact)]
    rows = [_row(learned, one) for one in shown]
    show_table(out, HEADS, rows, right=HEADS[1:], whole=HEADS)
    run = learned.trained.run
    engine = f" on {run.engine}" if run.engine else ""
    say(
        out,
        f"{counted(run.steps, 'step')}{engine}, {len(learned.examples.learned):,} "
        f"segments learned from, {len(learned.examples.rows):,} rows tested: "
        f"{took:.2f} s",
    )
    if learned.is_exact:
        said = f"nothing can be left out within {learned.transform.asked:g}"
        say(out, f"{said}: the file holds the exact transform of the band")
    say(out, f"next: {_usage(learned, asked)}")


def _usage(learned: Learned, asked: dict[str, Any]) -> str:
    """A call that takes the transform, as it is typed in Python."""
    model, (low, high) = learned.transform, asked["band"]
    options: dict[str, Any] = {"fs": model.fs, "nperseg": model.n}
    if asked["preset"] != "rlx":
        options["preset"] = asked["preset"]
    if asked["window"] is not None:
        options["window"] = asked["window"]
    if asked["detrend"] is not None:
        options["detrend"] = model.detrend or False
    options |= {"fmin": low, "fmax": high, "k": model.k}
    options |= {"strategy": "learned", "model": asked["out_path"]}
    words = (
        f"{name}={value:.15g}" if isinstance(value, float) else f"{name}={value!r}"
        for name, value in options.items()
    )
    return f"rlx.welch_peaks(x, {', '.join(words)})"


def _row(learned: Learned, one: Pruning) -> tuple[Cell, ...]:
    name, style = "exact" if one is learned.tried[0] else "pruned", ""
    if one is learned.chosen:
        name, style = f"{name}, chosen", "bold"
    cells = (
        name,
        f"{one.active:,}",
        f"{len(one.program.phases)} of {one.program.m}",
        f"{one.error:.2g}",
        f"{one.recall:.1%}",
        f"{one.program.share:.1%}",
    )
    return tuple((cell, style) for cell in cells)
