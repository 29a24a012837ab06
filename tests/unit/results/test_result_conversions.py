"""Results convert to tables, files and plots, and load back bit for bit."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.dom.minidom import parseString

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rlxweb as rlx
from rlxweb.core.errors import RecordingError, RlxError, Unsupported, UsageError
from rlxweb.results import result_files
from rlxweb.results.labelled_arrays import to_long_table
from rlxweb.results.labels import Labels

FS = 200.0
X = np.random.default_rng(5).standard_normal((2, 3, 3000)).cumsum(-1)
X += 40 * np.sin(2 * np.pi * 11 * np.arange(3000) / FS)
LABELS = Labels(("night", "channel"), (None, ("Cz", "<b>", "脳")), "uV")


def peaks(**options: Any) -> Any:
    return rlx.welch_peaks(X, FS, 256, 3, mode="peaks", preset="scipy", **options)


RESULT_FACTORIES: dict[str, Callable[[], Any]] = {
    "peaks": peaks,
    "peaks and spectrum": lambda: peaks(spectrum=True),
    "bins": lambda: rlx.welch_peaks(X[0, 0], FS, 256, 3),
    "welch": lambda: rlx.welch(X, FS),
    "welch, axis": lambda: rlx.welch(X.swapaxes(0, 2), FS, axis=0),
    "csd": lambda: rlx.csd(X, X[..., ::-1], FS),
    "coherence": lambda: rlx.coherence(X, X[..., ::-1], FS),
    "multitaper": lambda: rlx.multitaper(X, FS),
    "spectrogram": lambda: rlx.spectrogram(X, FS),
    "spectrogram, axis": lambda: rlx.spectrogram(X.swapaxes(0, 2), FS, axis=0),
    "stft": lambda: rlx.stft(X, FS),
    "morlet": lambda: rlx.tfr_morlet(X, FS, [8.0, 11.0], decim=10),
    "bands": lambda: rlx.band_power(X, FS),
    "aperiodic": lambda: rlx.aperiodic(rlx.welch(X, FS), fmax=60),
}


def is_same_result(a: Any, b: Any) -> bool:
    """Compare all arrays, names and labels of both results."""
    ours, theirs = a.labelled(), b.labelled()
    assert ours.metadata == theirs.metadata
    for our_item, their_item in zip(ours.axes, theirs.axes, strict=True):
        np.testing.assert_array_equal(our_item.values, their_item.values)
    for our_item, their_item in zip(ours.variables, theirs.variables, strict=True):
        assert our_item._replace(values=None) == their_item._replace(values=None)  # type: ignore[arg-type]
        np.testing.assert_array_equal(our_item.values, their_item.values)
        assert our_item.values.dtype == their_item.values.dtype
    return repr(a) == repr(b) and a.labels == b.labels


@pytest.mark.parametrize("name", RESULT_FACTORIES)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_file_round_trip(name: str, suffix: str, tmp_path: Path) -> None:
    result = RESULT_FACTORIES[name]()
    result = (
        result.named(LABELS) if result.labelled().axes[0].name == "epoch" else result
    )
    path = tmp_path / f"result{suffix}"
    result.save(path)
    loaded = type(result).load(path)
    assert is_same_result(result, loaded)
    if hasattr(result, "decision"):
        assert result.decision == loaded.decision
        assert (result.spec, result.times) == (loaded.spec, loaded.times)
        assert (result.spectrum is None) == (loaded.spectrum is None)
        assert result.explain() == loaded.explain()


@pytest.mark.parametrize("name", RESULT_FACTORIES)
def test_tables_agree_in_every_library(name: str) -> None:
    result = RESULT_FACTORIES[name]()
    table = to_long_table(result.labelled())
    arrow = pa.RecordBatchReader.from_stream(result).read_all()
    frame = result.to_pandas()
    columns = [column.name for column in table.columns]
    assert arrow.column_names == list(frame.columns) == columns
    assert result.to_polars().columns == columns
    for column in table.columns:
        column_values = np.asarray(table.values[column.name])
        np.testing.assert_array_equal(frame[column.name].to_numpy(), column_values)
        np.testing.assert_array_equal(
            np.array(arrow[column.name].to_pylist(), column_values.dtype), column_values
        )
    assert is_same_result(result, pickle.loads(pickle.dumps(result)))


def test_table_rows_match_array_positions() -> None:
    result = rlx.welch(X, FS).named(LABELS)
    frame = result.to_pandas()
    selected_rows = frame[(frame["night"] == 1) & (frame["channel"] == "<b>")]
    np.testing.assert_array_equal(selected_rows["power"], result.power[1, 1])
    np.testing.assert_array_equal(selected_rows["frequency"], result.f)
    assert (
        result.to_arrow().schema.field("power").metadata[b"unit"] == "µV²/Hz".encode()
    )
    array = result.to_xarray()
    np.testing.assert_array_equal(
        array.sel(night=1, channel="<b>").to_numpy(), result.power[1, 1]
    )
    assert array.attrs["units"] == "µV²/Hz"


def test_missing_peaks_have_no_table_row() -> None:
    result = rlx.welch_peaks(np.zeros((2, 512)), 1.0, 64, 3, mode="peaks")
    assert len(result.to_pandas()) == 0
    assert len(pl.DataFrame(result)) == 0
    assert "<svg" not in result._repr_html_()


def test_returned_spectrum_equals_welch() -> None:
    for batch in (X, X.astype(np.float32), X[0, 0]):
        result = rlx.welch_peaks(batch, FS, 256, 3, preset="scipy", spectrum=True)
        plain = rlx.welch_peaks(batch, FS, 256, 3, preset="scipy")
        assert result.spectrum is not None
        np.testing.assert_array_equal(
            result.spectrum.power, rlx.welch(batch, FS, nperseg=256).power
        )
        np.testing.assert_array_equal(result.bins, plain.bins)
        assert plain.spectrum is None
        assert result.spectrum.quantity == "density"
    assert rlx.welch_peaks(X, FS, spectrum=True).spectrum.quantity == "squares"
    band_limited = rlx.welch_peaks(X, FS, 256, 1, fmin=5, fmax=30, spectrum=True)
    assert band_limited.spectrum is not None
    assert band_limited.spectrum.power.shape[-1] == 129


def test_run_time_is_split_into_stages() -> None:
    for _ in range(3):
        result = peaks()
        assert 0 < result.wall_s < 600
        assert result.wall_s == pytest.approx(sum(result.stages.values()))
        assert set(result.stages) == {"choose", "compute"}
        assert dict(result.ran.stages) == result.stages
    with_spectrum = rlx.welch_peaks(X, FS, spectrum=True)
    assert with_spectrum.spectrum is not None
    assert with_spectrum.spectrum.ran == with_spectrum.ran
    plain = with_spectrum.as_json()
    assert (plain["wall_s"], plain["stages"]) == (
        with_spectrum.wall_s,
        with_spectrum.stages,
    )
    for estimate in (rlx.welch(X, FS), rlx.multitaper(X, FS), rlx.coherence(X, X, FS)):
        stages = dict(estimate.ran.stages)
        assert "compute" in stages
        assert set(stages) <= {"choose", "compute"}
        assert min(stages.values()) >= 0
        assert 0 < sum(stages.values()) <= estimate.ran.wall_s + 1e-9
    assert rlx.welch(X, FS).ran.wall_s > 0
    assert "NumPy" in rlx.coherence(X, X, FS, device="cpu").explain()
    for method in ("welch", "multitaper"):
        bands = rlx.band_power(X, FS, method=method, device="cpu")
        assert bands.ran.wall_s > 0
        assert bands.explain().startswith(f"ran on {bands.engine}: ")
    spectrum = rlx.welch(X, FS, device="cpu")
    assert (
        rlx.band_power_of(spectrum).ran == rlx.aperiodic(spectrum).ran == spectrum.ran
    )
    assert rlx.band_power_of(spectrum.f, spectrum.power).explain() == ""


@pytest.mark.parametrize("name", RESULT_FACTORIES)
def test_notebook_shows_svg(name: str) -> None:
    """The SVG is well-formed and names in the data cannot inject markup."""
    result = RESULT_FACTORIES[name]()
    is_batch = result.labelled().axes[0].name == "epoch"
    html = (result.named(LABELS) if is_batch else result)._repr_html_()
    parseString(html)
    assert len(html) < 200_000
    assert "<svg" in html
    assert "<b>" not in html
    assert "nan" not in re.sub(r'href="[^"]*"', "", html)


@pytest.mark.parametrize("kind", ["damaged", "text", "another", "plain npz", "suffix"])
def test_invalid_result_file_is_rejected(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    error: type[Exception] = RecordingError
    if kind == "damaged":
        peaks().save(path)
        path.write_bytes(path.read_bytes()[:-40])
    elif kind == "text":
        path.write_text("no")
    elif kind == "another":
        rlx.welch(X, FS).save(path)
        error = UsageError
    elif kind == "plain npz":
        np.savez(path, a=np.ones(2))
    else:
        path, error = tmp_path / "a.csv", UsageError
    with pytest.raises(error, match=r"loading|known: \.npz"):
        rlx.WelchPeaks.load(path)


def test_foreign_parquet_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(RecordingError, match="no rlxweb result"):
        rlx.Spectrum.load(tmp_path / "a.parquet")


def test_parquet_metadata_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "_MAX_PARQUET_METADATA_NBYTES", 1000)
    with pytest.raises(UsageError, match=r"save the result as \.npz"):
        rlx.welch(X, FS).save(tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("library", ["pandas", "polars", "xarray"])
def test_missing_library_is_named(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = f"package {library} is not installed; pip install {library}$"
    with pytest.raises(Unsupported, match=message):
        getattr(rlx.welch(X, FS), f"to_{library}")()


def test_spectrum_is_accepted_as_density() -> None:
    result = rlx.welch(X.swapaxes(0, 2), FS, axis=0)
    bands = rlx.band_power_of(result, bands={"a": (8, 13)})
    np.testing.assert_array_equal(
        bands.absolute,
        rlx.band_power_of(result.f, np.moveaxis(result.power, 0, -1), {"a": (8, 13)})
        .absolute,
    )  # fmt: skip
    with pytest.raises(UsageError, match="has quantity 'coherence'"):
        rlx.aperiodic(rlx.coherence(X, X, FS))
    with pytest.raises(UsageError, match="psd is missing"):
        rlx.band_power_of(result.f)


def changed_documents(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of a JSON document, each with one value replaced or removed."""
    for name, entry_value in document.items():
        others = {key: entry for key, entry in document.items() if key != name}
        yield f"no {name}", others
        for value in (7, "x", None, [], {}, [{}], [[None] * 9]):
            if type(value) is not type(entry_value):
                yield f"{name} {value}", {**others, name: value}
        if isinstance(entry_value, dict):
            for change, inner in changed_documents(entry_value):
                yield f"{name} {change}", {**others, name: inner}


@pytest.mark.parametrize("name", ["peaks and spectrum", "welch", "bands", "aperiodic"])
def test_malformed_files_raise_rlx_error(name: str, tmp_path: Path) -> None:
    """Malformed JSON or a missing array raises an RlxError instead of another
    exception.
    """
    result, path = RESULT_FACTORIES[name](), tmp_path / "result.npz"
    result.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays.pop("rlxweb_result")))
    refusal_count = 0
    for _, document in changed_documents(header):
        np.savez(path, **arrays, rlxweb_result=np.array(json.dumps(document)))
        try:
            repr(type(result).load(path))
        except RlxError:
            refusal_count += 1
    assert refusal_count > 20
    for missing in arrays:
        remaining = {key: array for key, array in arrays.items() if key != missing}
        np.savez(path, **remaining, rlxweb_result=np.array(json.dumps(header)))
        with contextlib.suppress(RlxError):  # some are there on request only
            repr(type(result).load(path))
