"""Requested outputs of a run over recordings, and the checks and work they require.

Owns which files are written, and in which order of things they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlxweb.batch.results import FileResult
from rlxweb.cli.batch import AnalysisBatchResult
from rlxweb.cli.output_files import ResultWriter, check_output_paths
from rlxweb.cli.peaks_parquet import check_parquet_path, write_peaks_parquet
from rlxweb.cli.plot_options import DEFAULT_PLOT_STYLE, PlotStyle
from rlxweb.cli.welch_outputs import write_peaks_csv, write_run_json, write_spectra_npz
from rlxweb.cli.welch_plot import (
    PLOT_SUFFIXES,
    check_plot,
    picture_format,
    write_spectra_picture,
)
from rlxweb.core.errors import UsageError
from rlxweb.core.output_streams import is_stream

MAX_TABLE_FILES = 32
"""Maximum number of recordings whose results are held for a table, in a run that keeps
a journal.
"""


@dataclass(frozen=True, slots=True)
class WelchOutputOptions:
    """Requested outputs of a run; paths are None where not requested.

    out         the peaks as one Parquet file
    all_peaks   show every peak on a terminal, in as many blocks as it takes
    style       of the picture
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
    style: PlotStyle = DEFAULT_PLOT_STYLE

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.out, self.csv, self.npz, self.json, self.plot

    @property
    def needs_spectra(self) -> bool:
        """Return True if an output shows more of a spectrum than its peaks."""
        return self.npz is not None or self.plot is not None

    @property
    def journaled_output(self) -> str | None:
        """Path of the output next to which the run keeps its journal; None if it keeps
        none.

        Errors   UsageError where that was asked for and cannot be
        """
        if self.out is not None or self.resume is None:
            return self.out
        for path in (self.csv, self.json):
            if path is not None and not is_stream(path):
                return path
        raise UsageError(
            "--resume" if self.resume else "--no-resume",
            "it requires an output file",
            hint="add --out, --csv or --json with a file name",
        )

    def shows_table(self, n_files: int) -> bool:
        """Return True if a run of `n_files` files prints a table."""
        return not self.quiet and (
            self.journaled_output is None or n_files <= MAX_TABLE_FILES
        )

    def needs_all_results(self, n_files: int) -> bool:
        """Return True if an output needs the results of all files at once."""
        if self.journaled_output is None:
            return True
        return self.needs_spectra or self.explain or self.shows_table(n_files)

    def check(self, files: Sequence[str]) -> None:
        """Refuse invalid outputs before the work instead of after it."""
        if self.resume and self.needs_spectra:
            raise UsageError(
                "--resume",
                "the earlier run saved no spectra, which --npz and --plot need",
                hint="omit --npz and --plot, and write these outputs in a separate run",
            )
        output_paths = [("--out", self.out), ("--csv", self.csv)]
        output_paths += [("--npz", self.npz), ("--json", self.json)]
        if self.out is not None:
            check_parquet_path(self.out)
        if self.plot is not None:
            check_plot(self.plot, PLOT_SUFFIXES)
            output_paths += [
                ("--plot", picture) for picture in picture_paths(self.plot, files)
            ]
        check_output_paths(files, output_paths)

    def writers(self, batch: AnalysisBatchResult) -> Iterator[tuple[str, ResultWriter]]:
        """Yield every file to write and the function that writes it."""
        if self.out is not None:
            yield self.out, partial(write_peaks_parquet, batch=batch)
        if self.csv is not None:
            yield self.csv, partial(write_peaks_csv, batch=batch)
        if self.npz is not None:
            yield self.npz, partial(write_spectra_npz, results=batch.results)
        if self.json is not None:
            yield self.json, partial(write_run_json, batch=batch)
        for result, picture in self.result_pictures(batch):
            file_format = picture_format(picture)
            yield (
                picture,
                partial(
                    write_spectra_picture,
                    result=result,
                    file_format=file_format,
                    style=self.style,
                ),
            )

    def result_pictures(
        self, batch: AnalysisBatchResult
    ) -> list[tuple[FileResult, str]]:
        """Return the result and the path of every picture."""
        if self.plot is None:
            return []
        paths = picture_paths(self.plot, batch.files)
        path_by_file = dict(zip(batch.files, paths, strict=True))
        return [(result, path_by_file[result.path]) for result in batch.results]


def picture_paths(plot: str, files: Sequence[str]) -> list[str]:
    """Return one picture path per file; with several files, each path contains the
    file's stem.
    """
    if len(files) == 1 or is_stream(plot):
        return [plot] * len(files)
    base_path, stems = Path(plot), [Path(file).stem for file in files]
    if len(set(stems)) != len(stems):
        stems = [Path(file).name.replace(".", "-") for file in files]
    if len(set(stems)) != len(stems):
        raise UsageError(
            f"--plot {plot!r}",
            "two recordings have the same name, so their pictures would overwrite each "
            "other",
            hint="plot them one at a time",
        )
    return [
        str(base_path.with_name(f"{base_path.stem}-{stem}{base_path.suffix}"))
        for stem in stems
    ]
