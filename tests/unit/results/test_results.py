"""Results become tables, files and pictures, and come back to the last bit."""

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
from rlxweb.errors import RecordingError, RlxError, Unsupported, UsageError
from rlxweb.results import stored
from rlxweb.results.labels import Labels
from rlxweb.results.tables import table_of

FS = 200.0
X = np.random.default_rng(5).standard_normal((2, 3, 3000)).cumsum(-1)
X += 40 * np.sin(2 * np.pi * 11 * np.arange(3000) / FS)
LABELS = Labels(("night", "channel"), (None, ("Cz", "<b>", "脳")), "uV")


def peaks(**options: Any) -> Any:
    return rlx.welch_peaks(X, FS, 256, 3, mode="peaks", preset="scipy", **options)


RESULTS: dict[str, Callable[[], Any]] = {
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


def same(a: Any, b: Any) -> bool:
    """Compare all arrays and names of both."""
    ours, theirs = a.labelled(), b.labelled()
    assert ours.about == theirs.about
    for one, other in zip(ours.axes, theirs.axes, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    for one, other in zip(ours.variables, theirs.variables, strict=True):
        assert one._replace(values=None) == other._replace(values=None)  # type: ignore[arg-type]
        np.testing.assert_array_equal(one.values, other.values)
        assert one.values.dtype == other.values.dtype
    return repr(a) == repr(b) and a.labels == b.labels


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_files_hold_all_of_it(name: str, suffix: str, tmp_path: Path) -> None:
    found = RESULTS[name]()
    found = found.named(LABELS) if found.labelled().axes[0].name == "epoch" else found
    path = tmp_path / f"result{suffix}"
    found.save(path)
    again = type(found).load(path)
    assert same(found, again)
    if hasattr(found, "decision"):
        assert found.decision == again.decision
        assert (found.spec, found.times) == (again.spec, again.times)
        assert (found.spectrum is None) == (again.spectrum is None)
        assert found.explain() == again.explain()


@pytest.mark.parametrize("name", RESULTS)
def test_tables_are_alike_in_every_library(name: str) -> None:
    found = RESULTS[name]()
    table = table_of(found.labelled())
    arrow = pa.RecordBatchReader.from_stream(found).read_all()
    frame = found.to_pandas()
    columns = [column.name for column in table.columns]
    assert arrow.column_names == list(frame.columns) == columns
    assert found.to_polars().columns == columns
    for column in table.columns:
        own = np.asarray(table.values[column.name])
        np.testing.assert_array_equal(frame[column.name].to_numpy(), own)
        np.testing.assert_array_equal(
            np.array(arrow[column.name].to_pylist(), own.dtype), own
        )
    assert same(found, pickle.loads(pickle.dumps(found)))


def test_a_row_of_the_table_is_a_value_at_its_place() -> None:
    found = rlx.welch(X, FS).named(LABELS)
    frame = found.to_pandas()
    one = frame[(frame["night"] == 1) & (frame["channel"] == "<b>")]
    np.testing.assert_array_equal(one["power"], found.power[1, 1])
    np.testing.assert_array_equal(one["frequency"], found.f)
    assert found.to_arrow().schema.field("power").metadata[b"unit"] == "µV²/Hz".encode()
    array = found.to_xarray()
    np.testing.assert_array_equal(
        array.sel(night=1, channel="<b>").to_numpy(), found.power[1, 1]
    )
    assert array.attrs["units"] == "µV²/Hz"


def test_peaks_that_are_not_there_have_no_row() -> None:
    found = rlx.welch_peaks(np.zeros((2, 512)), 1.0, 64, 3, mode="peaks")
    assert len(found.to_pandas()) == 0
    assert len(pl.DataFrame(found)) == 0
    assert "<svg" not in found._repr_html_()


def test_the_spectrum_that_is_kept_is_that_of_welch() -> None:
    for batch in (X, X.astype(np.float32), X[0, 0]):
        found = rlx.welch_peaks(batch, FS, 256, 3, preset="scipy", spectrum=True)
        plain = rlx.welch_peaks(batch, FS, 256, 3, preset="scipy")
        assert found.spectrum is not None
        np.testing.assert_array_equal(
            found.spectrum.power, rlx.welch(batch, FS, nperseg=256).power
        )
        np.testing.assert_array_equal(found.bins, plain.bins)
        assert plain.spectrum is None
        assert found.spectrum.quantity == "density"
    assert rlx.welch_peaks(X, FS, spectrum=True).spectrum.quantity == "squares"
    part = rlx.welch_peaks(X, FS, 256, 1, fmin=5, fmax=30, spectrum=True)
    assert part.spectrum is not None
    assert part.spectrum.power.shape[-1] == 129


def test_time_is_told_in_stages() -> None:
    for _ in range(3):
        found = peaks()
        assert 0 < found.wall_s < 600
        assert found.wall_s == pytest.approx(sum(found.stages.values()))
        assert set(found.stages) == {"choose", "compute"}
        assert dict(found.ran.stages) == found.stages
    whole = rlx.welch_peaks(X, FS, spectrum=True)
    assert whole.spectrum is not None
    assert whole.spectrum.ran == whole.ran
    told = whole.as_json()
    assert (told["wall_s"], told["stages"]) == (whole.wall_s, whole.stages)
    for one in (rlx.welch(X, FS), rlx.multitaper(X, FS), rlx.coherence(X, X, FS)):
        stages = dict(one.ran.stages)
        assert "compute" in stages
        assert set(stages) <= {"choose", "compute"}
        assert min(stages.values()) >= 0
        assert 0 < sum(stages.values()) <= one.ran.wall_s + 1e-9
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


@pytest.mark.parametrize("name", RESULTS)
def test_a_notebook_shows_a_picture(name: str) -> None:
    """A picture is well-formed and has nothing of a page, whatever the names say."""
    found = RESULTS[name]()
    batch = found.labelled().axes[0].name == "epoch"
    html = (found.named(LABELS) if batch else found)._repr_html_()
    parseString(html)
    assert len(html) < 200_000
    assert "<svg" in html
    assert "<b>" not in html
    assert "nan" not in re.sub(r'href="[^"]*"', "", html)


@pytest.mark.parametrize("kind", ["damaged", "text", "another", "plain npz", "suffix"])
def test_what_is_no_result_is_refused(kind: str, tmp_path: Path) -> None:
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


def test_a_table_that_is_none_of_ours(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(RecordingError, match="no result of rlxweb"):
        rlx.Spectrum.load(tmp_path / "a.parquet")


def test_a_file_takes_only_so_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_MOST", 1000)
    with pytest.raises(UsageError, match=r"save it as \.npz"):
        rlx.welch(X, FS).save(tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("library", ["pandas", "polars", "xarray"])
def test_a_missing_library_is_named(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unsupported, match=f"the package {library}.*pip install"):
        getattr(rlx.welch(X, FS), f"to_{library}")()


def test_a_spectrum_goes_into_what_takes_a_density() -> None:
    found = rlx.welch(X.swapaxes(0, 2), FS, axis=0)
    bands = rlx.band_power_of(found, bands={"a": (8, 13)})
    np.testing.assert_array_equal(
        bands.absolute,
        rlx.band_power_of(found.f, np.moveaxis(found.power, 0, -1), {"a": (8, 13)})
        .absolute,
    )  # fmt: skip
    with pytest.raises(UsageError, match="a coherence was given"):
        rlx.aperiodic(rlx.coherence(X, X, FS))
    with pytest.raises(UsageError, match="frequencies alone"):
        rlx.band_power_of(found.f)


def other_values(plain: Any) -> Iterator[tuple[str, Any]]:
    """Copies of plain data, each with another value, or none, at one place in it."""
    for name, own in plain.items():
        rest = {key: one for key, one in plain.items() if key != name}
        yield f"no {name}", rest
        for value in (7, "x", None, [], {}, [{}], [[None] * 9]):
            if type(value) is not type(own):
                yield f"{name} {value}", {**rest, name: value}
        if isinstance(own, dict):
            for what, inner in other_values(own):
                yield f"{name} {what}", {**rest, name: inner}


@pytest.mark.parametrize("name", ["peaks and spectrum", "welch", "bands", "aperiodic"])
def test_files_of_another_form_are_refused(name: str, tmp_path: Path) -> None:
    """JSON of the wrong form, or an array that is missing: an error, no traceback."""
    found, path = RESULTS[name](), tmp_path / "result.npz"
    found.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays.pop("rlxweb_result")))
    refused = 0
    for _, plain in other_values(header):
        np.savez(path, **arrays, rlxweb_result=np.array(json.dumps(plain)))
        try:
            repr(type(found).load(path))
        except RlxError:
            refused += 1
    assert refused > 20
    for missing in arrays:
        less = {key: one for key, one in arrays.items() if key != missing}
        np.savez(path, **less, rlxweb_result=np.array(json.dumps(header)))
        with contextlib.suppress(RlxError):  # some are there on request only
            repr(type(found).load(path))
