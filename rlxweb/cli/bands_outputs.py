"""Output files of `rlxweb bands`: one row for each channel and band."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from rlxweb.batch.recording_band_power import BandRequest, FileBands
from rlxweb.batch.run_record_entries import epochs_entry, path_text, timing_entry
from rlxweb.cli.bands_plot import write_bands_picture
from rlxweb.cli.batch import AnalysisBatchResult
from rlxweb.cli.json_documents import (
    json_run_document,
    library_versions,
    rlxweb_version,
)
from rlxweb.cli.output_files import ResultWriter, check_output_paths
from rlxweb.cli.peaks_parquet import EPOCH_COLUMNS
from rlxweb.cli.plot_options import DEFAULT_PLOT_STYLE, PlotStyle
from rlxweb.cli.welch_output_options import picture_paths
from rlxweb.cli.welch_plot import PLOT_SUFFIXES, check_plot, picture_format
from rlxweb.core.errors import UsageError
from rlxweb.io import write_csv, write_json
from rlxweb.io.parquet_tables import (
    PARQUET_SUFFIX,
    ColumnValues,
    TableColumn,
    require_pyarrow,
    write_parquet,
)

SCHEMA = "rlxweb.bands/1"
COLUMNS = (
    TableColumn("file", "text", "", "path or URL of the recording"),
    TableColumn("channel", "text", "", "name of the channel"),
    TableColumn("unit", "text", "", "unit of the samples; null if the file has none"),
    TableColumn("fs", "float64", "Hz", "samples per second"),
    TableColumn("band", "text", "", "name of the band"),
    TableColumn("low_hz", "float64", "Hz", "lower edge"),
    TableColumn("high_hz", "float64", "Hz", "upper edge"),
    TableColumn(
        "power", "float64", "unit squared", "integral of the density over the band"
    ),
    TableColumn(
        "share",
        "float64",
        "",
        "power divided by the power between the lowest and the highest band edge",
    ),
    TableColumn(
        "peak_hz",
        "float64",
        "Hz",
        "frequency of the strongest local maximum in the band; null if there is none",
    ),
    TableColumn("device", "text", "", "device that computed the density"),
)


@dataclass(frozen=True, slots=True)
class BandsOutputs:
    """Files that a run writes; None where a file is not requested.

    style   of the picture
    """

    csv: str | None
    parquet: str | None
    json: str | None
    plot: str | None
    style: PlotStyle = DEFAULT_PLOT_STYLE

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.csv, self.parquet, self.json, self.plot

    def check(self, files: Sequence[str]) -> None:
        """Raise the errors of the outputs before the work begins instead of after
        it.
        """
        targets = [("--csv", self.csv), ("--json", self.json)]
        if self.parquet is not None:
            context = f"--parquet {self.parquet!r}"
            if Path(self.parquet).suffix.lower() != PARQUET_SUFFIX:
                raise UsageError(context, f"the file name must end in {PARQUET_SUFFIX}")
            require_pyarrow(context)
            targets.append(("--parquet", self.parquet))
        if self.plot is not None:
            check_plot(self.plot, PLOT_SUFFIXES)
            targets += [("--plot", path) for path in picture_paths(self.plot, files)]
        check_output_paths(files, targets)

    def picture_paths(self, batch: AnalysisBatchResult) -> dict[str, str]:
        """Return the path of each picture by the path of its recording."""
        if self.plot is None:
            return {}
        path_by_file = dict(
            zip(batch.files, picture_paths(self.plot, batch.files), strict=True)
        )
        return {result.path: path_by_file[result.path] for result in batch.results}

    def writers(
        self,
        batch: AnalysisBatchResult,
        band_results: Sequence[FileBands],
        request: BandRequest,
    ) -> Iterator[tuple[str, ResultWriter]]:
        """Yield each output path with the function that writes the file."""
        columns = table_columns(batch, request)
        if self.csv is not None:
            yield (
                self.csv,
                partial(write_bands_csv, columns=columns, band_results=band_results),
            )
        if self.parquet is not None:
            yield (
                self.parquet,
                partial(
                    write_bands_parquet,
                    columns=columns,
                    batch=batch,
                    band_results=band_results,
                    request=request,
                ),
            )
        if self.json is not None:
            yield (
                self.json,
                partial(
                    write_bands_json,
                    batch=batch,
                    band_results=band_results,
                    request=request,
                ),
            )
        pictures = self.picture_paths(batch)
        for file_bands in band_results if pictures else ():
            picture = pictures[file_bands.result.path]
            file_format = picture_format(picture)
            yield (
                picture,
                partial(
                    write_bands_picture,
                    file_bands=file_bands,
                    file_format=file_format,
                    style=self.style,
                ),
            )


FIT_COLUMNS = (
    TableColumn(
        "exponent", "float64", "", "exponent of the 1/f part: how steeply it falls"
    ),
    TableColumn(
        "offset",
        "float64",
        "log10 power",
        "value at 1 Hz that the 1/f part would have without its knee",
    ),
    TableColumn(
        "knee",
        "float64",
        "",
        "knee parameter of the 1/f part; 0 if the fit has no knee",
    ),
    TableColumn("r_squared", "float64", "", "R² of the fit to the log10 of the power"),
    TableColumn(
        "above_hz",
        "float64",
        "Hz",
        "frequency of the peak in the band that is highest above the 1/f part; null "
        "if there is none",
    ),
    TableColumn(
        "above_height",
        "float64",
        "log10 power",
        "height of the peak at above_hz over the 1/f part; null if there is none",
    ),
    TableColumn(
        "above_width",
        "float64",
        "Hz",
        "width of the peak at above_hz: two standard deviations; null if there is none",
    ),
)
"""Columns added when the 1/f part is fitted."""


def table_columns(
    batch: AnalysisBatchResult, request: BandRequest
) -> tuple[TableColumn, ...]:
    """Return the columns of a run's tables, with one for each requested value and
    ratio.
    """
    extra_columns: list[TableColumn] = []
    if request.shows_values:
        quantity = "share" if request.relative else "power"
        description = f"log10 of the {quantity}" if request.log else quantity
        extra_columns.append(
            TableColumn("value", "float64", "", f"requested value: {description}")
        )
    for numerator, denominator in request.ratios:
        description = f"power of {numerator} divided by power of {denominator}"
        extra_columns.append(
            TableColumn(f"{numerator}/{denominator}", "float64", "", description)
        )
    extra_columns += FIT_COLUMNS if request.fit is not None else ()
    extra_columns += EPOCH_COLUMNS if batch.settings.epochs is not None else ()
    return (*COLUMNS, *extra_columns)


def write_bands_csv(
    file: IO[bytes], columns: Sequence[TableColumn], band_results: Sequence[FileBands]
) -> None:
    """Write a CSV line for each channel and band."""
    names = [column.name for column in columns]
    rows = (
        tuple("" if row[name] is None else row[name] for name in names)
        for file_bands in band_results
        for row in file_bands.rows()
    )
    write_csv(file, names, rows)


def write_bands_parquet(
    file: IO[bytes],
    columns: Sequence[TableColumn],
    batch: AnalysisBatchResult,
    band_results: Sequence[FileBands],
    request: BandRequest,
) -> None:
    """Write a typed Parquet table with one row group for each recording."""

    def row_groups() -> Iterator[ColumnValues]:
        for file_bands in band_results:
            rows = list(file_bands.rows())
            if rows:
                yield {
                    column.name: [
                        row[column.name] if row[column.name] != "" else None
                        for row in rows
                    ]
                    for column in columns
                }

    metadata = {
        "schema": SCHEMA,
        "rlxweb": rlxweb_version(),
        "versions": library_versions(),
        "settings": batch.settings.as_json() | request.as_json(),
    }
    write_parquet(file, columns, row_groups(), {"rlxweb": json.dumps(metadata)})


def write_bands_json(
    file: IO[bytes],
    batch: AnalysisBatchResult,
    band_results: Sequence[FileBands],
    request: BandRequest,
) -> None:
    """Write the run record: settings, versions, decisions, all bands and all
    failures.
    """
    files = [
        {
            "path": path_text(file_bands.result.path),
            "format": file_bands.result.format,
            "groups": [
                {
                    "fs": float(group_bands.group.fs),
                    "n_samples": group_bands.group.n_samples,
                    "n_segments": group_bands.group.n_segments,
                    "nperseg": group_bands.group.spec.nperseg,
                    "engine": group_bands.group.engine,
                    "decision": group_bands.group.decision.as_json(),
                    **epochs_entry(group_bands.group),
                    **group_bands.as_json(),
                }
                for group_bands in file_bands.groups
            ],
            **timing_entry(file_bands.result.wall_s, file_bands.result.stages),
        }
        for file_bands in band_results
    ]
    settings = batch.settings.as_json() | request.as_json()
    record = json_run_document(SCHEMA, settings, files, batch.failures, batch.wall_s)
    write_json(file, record)
