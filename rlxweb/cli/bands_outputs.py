"""What the files of `rlxweb bands` hold: a row for each channel and band."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from rlxweb.cli.bands_plot import put_picture
from rlxweb.cli.batch import Done
from rlxweb.cli.look import PLAIN, Look
from rlxweb.cli.peaks_table import OF_EPOCHS
from rlxweb.cli.plot import PAGES, check_plot, picture_format
from rlxweb.cli.record import rlxweb_version, run_document, versions
from rlxweb.cli.targets import Put, check_targets
from rlxweb.cli.wanted import pictures_of
from rlxweb.errors import UsageError
from rlxweb.io import write_csv, write_json
from rlxweb.io.parquet import SUFFIX, Column, Rows, check_parquet, write_parquet
from rlxweb.jobs.bands import Banded, BandsAsked
from rlxweb.jobs.entries import epochs_entry, ran_entry, text_of

SCHEMA = "rlxweb.bands/1"
COLUMNS = (
    Column("file", "text", "", "the recording, as it was named"),
    Column("channel", "text", "", "its name"),
    Column("unit", "text", "", "of the samples; null where the file names none"),
    Column("fs", "float64", "Hz", "samples per second"),
    Column("band", "text", "", "its name"),
    Column("low_hz", "float64", "Hz", "lower edge"),
    Column("high_hz", "float64", "Hz", "upper edge"),
    Column("power", "float64", "unit squared", "integral of the density"),
    Column("share", "float64", "", "of the power from the lowest to the highest edge"),
    Column("peak_hz", "float64", "Hz", "strongest local maximum; null without one"),
    Column("device", "text", "", "where the density was computed"),
)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files that a run should leave behind; None where not asked for.

    look    of the picture
    """

    csv: str | None
    parquet: str | None
    json: str | None
    plot: str | None
    look: Look = PLAIN

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.csv, self.parquet, self.json, self.plot

    def check(self, files: Sequence[str]) -> None:
        """Refuse now what would be refused after the work is done."""
        named = [("--csv", self.csv), ("--json", self.json)]
        if self.parquet is not None:
            doing = f"--parquet {self.parquet!r}"
            if Path(self.parquet).suffix.lower() != SUFFIX:
                raise UsageError(doing, f"the name does not end in {SUFFIX}")
            check_parquet(doing)
            named.append(("--parquet", self.parquet))
        if self.plot is not None:
            check_plot(self.plot, PAGES)
            named += [("--plot", path) for path in pictures_of(self.plot, files)]
        check_targets(files, named)

    def pictures(self, done: Done) -> dict[str, str]:
        """The path of every picture, by the recording it is of."""
        if self.plot is None:
            return {}
        every = dict(zip(done.files, pictures_of(self.plot, done.files), strict=True))
        return {one.path: every[one.path] for one in done.results}

    def puts(
        self, done: Done, found: Sequence[Banded], asked: BandsAsked
    ) -> Iterator[tuple[str, Put]]:
        """Every file that is to be written, and what writes it."""
        columns = columns_of(done, asked)
        if self.csv is not None:
            yield self.csv, partial(put_csv, columns=columns, found=found)
        if self.parquet is not None:
            yield (
                self.parquet,
                partial(
                    put_parquet, columns=columns, done=done, found=found, asked=asked
                ),
            )
        if self.json is not None:
            yield self.json, partial(put_json, done=done, found=found, asked=asked)
        pictures = self.pictures(done)
        for one in found if pictures else ():
            picture = pictures[one.result.path]
            how = picture_format(picture)
            yield picture, partial(put_picture, found=one, how=how, look=self.look)


OF_FIT = (
    Column("exponent", "float64", "", "of the 1/f part: how steeply it falls"),
    Column("offset", "float64", "log10 power", "of the 1/f part at 1 Hz"),
    Column("knee", "float64", "", "of the 1/f part; 0 where it is a line"),
    Column("r_squared", "float64", "", "of the fit, in log10 power"),
    Column("above_hz", "float64", "Hz", "the highest peak above the 1/f part in it"),
    Column("above_height", "float64", "log10 power", "its height; null without one"),
    Column("above_width", "float64", "Hz", "its width, two standard deviations"),
)
"""Beside these, where the 1/f part was fitted."""


def columns_of(done: Done, asked: BandsAsked) -> tuple[Column, ...]:
    """Of the tables of a run: what was asked for has columns of its own."""
    more: list[Column] = []
    if asked.shows_values:
        what = "share" if asked.relative else "power"
        said = f"log10 of the {what}" if asked.log else f"the {what}"
        more.append(Column("value", "float64", "", f"what was asked for: {said}"))
    for over, under in asked.ratios:
        said = f"power of {over} over that of {under}"
        more.append(Column(f"{over}/{under}", "float64", "", said))
    more += OF_FIT if asked.fit is not None else ()
    more += OF_EPOCHS if done.settings.epochs is not None else ()
    return (*COLUMNS, *more)


def put_csv(
    file: IO[bytes], columns: Sequence[Column], found: Sequence[Banded]
) -> None:
    """A line for each channel and band."""
    names = [column.name for column in columns]
    rows = (
        tuple("" if row[name] is None else row[name] for name in names)
        for one in found
        for row in one.rows()
    )
    write_csv(file, names, rows)


def put_parquet(
    file: IO[bytes],
    columns: Sequence[Column],
    done: Done,
    found: Sequence[Banded],
    asked: BandsAsked,
) -> None:
    """The same, typed; one group of rows for each recording."""

    def groups() -> Iterator[Rows]:
        for one in found:
            rows = list(one.rows())
            if rows:
                yield {
                    column.name: [
                        row[column.name] if row[column.name] != "" else None
                        for row in rows
                    ]
                    for column in columns
                }

    about = {
        "schema": SCHEMA,
        "rlxweb": rlxweb_version(),
        "versions": versions(),
        "settings": done.settings.as_json() | asked.as_json(),
    }
    write_parquet(file, columns, groups(), {"rlxweb": json.dumps(about)})


def put_json(
    file: IO[bytes], done: Done, found: Sequence[Banded], asked: BandsAsked
) -> None:
    """The run record: settings, versions, decisions, every band, and what failed."""
    files = [
        {
            "path": text_of(one.result.path),
            "format": one.result.format,
            "groups": [
                {
                    "fs": float(own.group.fs),
                    "n_samples": own.group.n_samples,
                    "n_segments": own.group.n_segments,
                    "nperseg": own.group.spec.nperseg,
                    "engine": own.group.engine,
                    "decision": own.group.decision.as_json(),
                    **epochs_entry(own.group),
                    **own.as_json(),
                }
                for own in one.groups
            ],
            **ran_entry(one.result.wall_s, one.result.stages),
        }
        for one in found
    ]
    settings = done.settings.as_json() | asked.as_json()
    record = run_document(SCHEMA, settings, files, done.failed, done.wall_s)
    write_json(file, record)
