"""What a run over recordings should leave behind, and what that asks of it.

Owns which files are written, and in which order of things they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlxweb.cli.batch import Done
from rlxweb.cli.look import PLAIN, Look
from rlxweb.cli.outputs import put_csv, put_json, put_npz
from rlxweb.cli.peaks_table import check_table, put_parquet
from rlxweb.cli.plot import PAGES, check_plot, picture_format, put_plot
from rlxweb.cli.targets import Put, check_targets
from rlxweb.errors import UsageError
from rlxweb.jobs.results import FileResult
from rlxweb.streams import is_stream

TABLE_FILES = 32
"""Of more recordings nobody reads a table, where what is done need not be held."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run should leave behind; paths are None where not asked for.

    out         the peaks as one Parquet file
    all_peaks   show every peak on a terminal, in as many blocks as it takes
    look        of the picture
    jobs        processes of this machine that do the recordings
    resume      take up what an earlier run has done; False forgets it, None refuses it
    """

    out: str | None = None
    csv: str | None = None
    npz: str | None = None
    json: str | None = None
    plot: str | None = None
    explain: bool = False
    quiet: bool = False
    all_peaks: bool = True
    keep_going: bool = False
    resume: bool | None = None
    jobs: int = 1
    look: Look = PLAIN

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.out, self.csv, self.npz, self.json, self.plot

    @property
    def spectra(self) -> bool:
        """Does anything show more of a spectrum than its peaks?"""
        return self.npz is not None or self.plot is not None

    @property
    def noted_beside(self) -> str | None:
        """The output beside which a run notes what it has done; None: it does not.

        Errors   UsageError where that was asked for and cannot be
        """
        if self.out is not None or self.resume is None:
            return self.out
        for path in (self.csv, self.json):
            if path is not None and not is_stream(path):
                return path
        raise UsageError(
            "--resume" if self.resume else "--no-resume",
            "what is done is noted beside an output, and none is asked for",
            hint="give --out, --csv or --json the name of a file",
        )

    def shows_table(self, n_files: int) -> bool:
        """Is there a table for people, in a run of so many files?"""
        return not self.quiet and (self.noted_beside is None or n_files <= TABLE_FILES)

    def holds(self, n_files: int) -> bool:
        """Does anything need the results of all files at once?"""
        if self.noted_beside is None:
            return True
        return self.spectra or self.explain or self.shows_table(n_files)

    def check(self, files: Sequence[str]) -> None:
        """Refuse now what would be refused after the work is done."""
        if self.resume and self.spectra:
            raise UsageError(
                "--resume",
                "spectra are not noted, and --npz and --plot show them",
                hint="leave --npz and --plot out; a run of their own can follow",
            )
        named = [("--out", self.out), ("--csv", self.csv)]
        named += [("--npz", self.npz), ("--json", self.json)]
        if self.out is not None:
            check_table(self.out)
        if self.plot is not None:
            check_plot(self.plot, PAGES)
            named += [("--plot", picture) for picture in pictures_of(self.plot, files)]
        check_targets(files, named)

    def puts(self, done: Done) -> Iterator[tuple[str, Put]]:
        """Every file that is to be written, and what writes it."""
        if self.out is not None:
            yield self.out, partial(put_parquet, done=done)
        if self.csv is not None:
            yield self.csv, partial(put_csv, done=done)
        if self.npz is not None:
            yield self.npz, partial(put_npz, results=done.results)
        if self.json is not None:
            yield self.json, partial(put_json, done=done)
        for result, picture in self.pictures(done):
            how = picture_format(picture)
            yield picture, partial(put_plot, result=result, how=how, look=self.look)

    def pictures(self, done: Done) -> list[tuple[FileResult, str]]:
        """The result and the path of every picture."""
        if self.plot is None:
            return []
        named = pictures_of(self.plot, done.files)
        picture = dict(zip(done.files, named, strict=True))
        return [(result, picture[result.path]) for result in done.results]


def pictures_of(plot: str, files: Sequence[str]) -> list[str]:
    """One picture per file; several files get their stem put into the name."""
    if len(files) == 1 or is_stream(plot):
        return [plot] * len(files)
    target, stems = Path(plot), [Path(file).stem for file in files]
    if len(set(stems)) != len(stems):
        stems = [Path(file).name.replace(".", "-") for file in files]
    if len(set(stems)) != len(stems):
        raise UsageError(
            f"--plot {plot!r}",
            "two of the files share a name, so their pictures would too",
            hint="plot them one at a time",
        )
    return [
        str(target.with_name(f"{target.stem}-{stem}{target.suffix}")) for stem in stems
    ]
