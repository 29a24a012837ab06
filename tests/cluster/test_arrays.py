"""Dask arrays through `rlxweb.dask`: what it promises lazily is what is computed.

Everything is compared with rlxweb itself on the whole array, or with SciPy, by Dask's
schedulers of one machine.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.signal
from dask.base import key_split
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import rlxweb
import rlxweb.dask as rd
from rlxweb.dask import piece
from rlxweb.dask.piece import Ran
from rlxweb.dask.shares import counted
from rlxweb.dask.workers import ALIKE
from rlxweb.decision.decision import Decision
from rlxweb.errors import (
    ClusterError,
    DTypeError,
    NotFinite,
    RlxError,
    ShapeError,
    UnknownDevice,
    UsageError,
)
from rlxweb.gpu.port import Want
from tests.command_line import ROOT, python
from tests.unit.signal.learned.steep import BAND, FS, N, learned, steep

NAMES = ("bins", "hz", "power", "count", "prominence")
X = np.random.default_rng(11).standard_normal((10, 512)).astype(np.float32)
LAZY = da.from_array(X, chunks=(4, -1))


def check_declared(lazy: Any, computed: NDArray[Any], what: str) -> None:
    """Shape, dtype and the shape of every block are as promised."""
    assert (lazy.shape, lazy.dtype) == (computed.shape, computed.dtype), what
    for at in np.ndindex(lazy.numblocks) if lazy.ndim else ():
        block = lazy.blocks[at]
        found = block.compute(scheduler="synchronous")
        assert (block.shape, lazy.dtype) == (found.shape, found.dtype), what


def refuses_to_be_read(block: NDArray[Any]) -> NDArray[Any]:
    raise AssertionError("a chunk was computed")


@st.composite
def chunked(draw: st.DrawFn) -> tuple[NDArray[Any], Any, int]:
    """An array, the same in chunks that are whole along one axis, and that axis."""
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(1, 5)) for _ in range(rank)]
    shape[axis] = draw(st.integers(16, 40))
    dtype = draw(st.sampled_from(["f4", "f8", "f2", "i2", "i8", "u1", ">f4"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = (rng.standard_normal(shape) * 40).astype(dtype)
    chunks: list[Any] = []
    for at, n in enumerate(shape):
        first = n if at == axis else draw(st.integers(0, n))
        chunks.append((first, n - first) if at != axis else (n,))
    return x, da.from_array(x, chunks=tuple(chunks)), axis - draw(st.booleans()) * rank


@settings(max_examples=40, deadline=None)
@given(chunked(), st.sampled_from(["bins", "peaks"]), st.sampled_from(["rlx", "mne"]))
def test_peaks_are_those_of_the_whole_array_and_as_declared(
    case: tuple[NDArray[Any], Any, int], mode: Any, preset: str
) -> None:
    """Peaks are those of the whole array, to the bit, whatever the chunks.

    Empty chunks are among them.
    """
    x, lazy, axis = case
    how: dict[str, Any] = {"mode": mode, "preset": preset, "axis": axis}
    how |= {"device": "cpu", "nperseg": 16, "k": 3, "fs": 100}
    found = rd.welch_peaks(lazy, **how)
    want = rlxweb.welch_peaks(x, **how)
    whole = found.compute(scheduler="synchronous")
    for name in NAMES:
        expected, one = getattr(want, name), getattr(found, name)
        if expected is None:
            assert one is None
            assert getattr(whole, name) is None
            continue
        np.testing.assert_array_equal(getattr(whole, name), expected)
        check_declared(one, expected, name)


@settings(max_examples=40, deadline=None)
@given(chunked(), st.sampled_from([None, 8, 16]), st.booleans())
def test_spectra_are_those_of_the_whole_array_and_as_declared(
    case: tuple[NDArray[Any], Any, int], nperseg: int | None, one_sided: bool
) -> None:
    x, lazy, axis = case
    how: dict[str, Any] = {"axis": axis, "return_onesided": one_sided, "fmax": 30.0}
    how |= {"device": "cpu", "nperseg": nperseg or x.shape[axis], "fs": 100.0}
    hz, power = rd.welch(lazy, **how)
    hz_of_all, expected = rlxweb.welch(x, **how)
    np.testing.assert_array_equal(hz, hz_of_all)
    np.testing.assert_array_equal(power.compute(scheduler="synchronous"), expected)
    check_declared(power, expected, "power")


def test_spectra_agree_with_scipy_chunk_by_chunk() -> None:
    """Spectra agree with SciPy by `map_blocks`, a warning of short rows too."""
    x = LAZY.astype(np.float64)[:, :200]
    with pytest.warns(UserWarning, match="nperseg=256 is greater"):
        hz, power = rd.welch(x, 50.0)
    want = x.map_blocks(
        lambda block: scipy.signal.welch(block, 50.0, nperseg=200)[1],
        dtype=np.float64,
        chunks=(x.chunks[0], (101,)),
    )
    np.testing.assert_allclose(power, want, rtol=1e-9)
    np.testing.assert_array_equal(
        hz, scipy.signal.welch(X[0, :200], 50.0, nperseg=200)[0]
    )


@pytest.mark.parametrize("name", ["complex", "a function", "a window"])
def test_what_has_no_number_to_compare_goes_through(
    name: str, by_process: dict[str, Any]
) -> None:
    """Complex samples; a detrend function, which is pickled; samples of a window."""
    how: dict[str, Any] = {"nperseg": 64, "device": "cpu"}
    x = (X + 1j * X[::-1]).astype(np.complex64) if name == "complex" else X
    if name == "a function":
        how["detrend"] = lambda segment: segment - segment.mean(-1, keepdims=True)
    if name == "a window":
        how["window"] = np.bartlett(64)
    lazy = da.from_array(x, chunks=(4, -1))
    power = rd.welch(lazy, 10.0, **how)[1].compute(**by_process)
    np.testing.assert_array_equal(power, rlxweb.welch(x, 10.0, **how)[1])


def test_on_a_gpu_each_chunk_gives_the_bits_that_it_gives_alone(adapter: Want) -> None:
    """A GPU's chunks give the bits of each alone, by threads that share the device."""
    (device,) = adapter.backends
    how: dict[str, Any] = {"nperseg": 64, "k": 3, "device": device}
    found = rd.welch_peaks(LAZY, 256, adapter=adapter.name, **how)
    whole = found.compute(scheduler="threads")
    for at in range(0, 10, 4):
        alone = rlxweb.welch_peaks(X[at : at + 4], 256, adapter=adapter.name, **how)
        for name in NAMES[:4]:
            got = getattr(whole, name)[at : at + 4]
            np.testing.assert_array_equal(got, getattr(alone, name))
    assert [one.device for one in whole.decisions] == [device]


@pytest.mark.parametrize("share", [1 / 3, 0.9])
def test_the_table_counts_rows_and_tasks_of_each_device(share: float) -> None:
    """The table has the device with most rows first, and the reason of most.

    The order of the pieces makes no difference.
    """

    def ran(rows: int, device: str, why: str, worker: str) -> Ran:
        return Ran(rows, device, "", device.upper(), Decision("device", why), worker)

    on_cuda = round(100 * share)
    pieces = [
        ran(on_cuda, "cuda", "predicted 2 ms", "b"),
        ran(99 - on_cuda, "cpu", "no GPU", "a"),
        ran(1, "cpu", "too small: 7 us", "c"),
    ]
    table = counted(pieces)
    assert table == counted([pieces[1], pieces[0], pieces[2]])
    first, second = sorted(
        ("cuda", "cpu"), key=lambda d: (d == "cuda") is (share < 0.5)
    )
    assert [one.device for one in table] == [first, second]
    by_device = {one.device: one for one in table}
    assert (by_device["cpu"].tasks, by_device["cpu"].workers) == (2, ("a", "c"))
    assert by_device["cuda"].row_share == on_cuda / 100
    assert by_device["cpu"].task_share == 2 / 3
    assert by_device["cpu"].why == "no GPU"
    said = str(table).splitlines()[0]
    assert f"{on_cuda} %" in said
    assert said.startswith(
        f"{round(100 * by_device[first].row_share)} % ran on {first}, "
    )
    assert str(counted([])) == "nothing ran: there are no rows"


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_every_scheduler_gives_the_same_and_says_where(
    scheduler: str, by_process: dict[str, Any]
) -> None:
    """Arrays and decisions of one `compute` are of the same tasks."""
    by = by_process if scheduler == "processes" else {"scheduler": scheduler}
    how: dict[str, Any] = {"nperseg": 64, "k": 2, "device": "cpu"}
    peaks = rd.welch_peaks(LAZY, 256, **how)
    _, power = rd.welch(LAZY, 256.0, nperseg=64, device="cpu")
    whole, spectra, where = dask.compute(peaks, power, rd.decisions(peaks, power), **by)
    want = rlxweb.welch_peaks(X, 256, **how)
    np.testing.assert_array_equal(whole.power, want.power)
    np.testing.assert_array_equal(
        spectra, rlxweb.welch(X, 256.0, nperseg=64, device="cpu")[1]
    )
    (share,) = where
    assert (share.device, share.rows, share.tasks) == ("cpu", 20, 6)
    assert (share.row_share, share.task_share) == (1.0, 1.0)
    assert str(where).startswith("100 % ran on cpu\n  cpu: 20 rows in 6 tasks on ")
    assert where.as_json()["devices"][0]["engine"] == want.engine
    assert whole.decisions.shares[0].rows == 10


def test_nothing_is_computed_or_opened_before_it_is_asked_for() -> None:
    """A device that is not here is no error yet; one there is not at all is."""
    x = LAZY.map_blocks(refuses_to_be_read, dtype=X.dtype, meta=X[:0])
    peaks = rd.welch_peaks(x, 256, 64, 2, device="cuda")
    rd.welch(x, 256.0, device="cuda")
    assert peaks.decisions.__dask_keys__()
    with pytest.raises(AssertionError, match="a chunk was computed"):
        peaks.count.compute(scheduler="synchronous")
    with pytest.raises(UnknownDevice):
        rd.welch_peaks(x, 256, 64, 2, device="gpux")


def test_each_chunk_is_computed_once_whatever_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fields, derived arrays and decisions together take one task a chunk."""
    seen: list[int] = []

    def seen_here(by: Any, doing: str) -> None:
        seen.append(1)

    monkeypatch.setattr("rlxweb.dask.chunks.check_worker", seen_here)
    peaks = rd.welch_peaks(LAZY, 256, 64, 2, device="cpu")
    mean = peaks.power.mean(axis=0)
    dask.compute(peaks, mean, peaks.hz, rd.decisions(mean), scheduler="synchronous")
    assert len(seen) == 3
    kept, where = dask.persist(peaks, rd.decisions(peaks), scheduler="synchronous")
    assert len(seen) == 6
    kept.compute(scheduler="synchronous")
    assert kept.decisions.compute(scheduler="synchronous") == where.compute()
    assert len(seen) == 6


def test_names_are_those_of_the_question() -> None:
    """The same question has the same names; arguments and chunks are part of it."""
    first = rd.welch_peaks(LAZY, 256, 64, 2)
    assert rd.welch_peaks(LAZY, fs=256, nperseg=64, k=2).bins.name == first.bins.name
    others = [
        rd.welch_peaks(LAZY, 256, 64, 3),
        rd.welch_peaks(LAZY, 256, 64, 2, device="cpu"),
        rd.welch_peaks(LAZY, 256, 64, 2, window=np.ones(64)),
        rd.welch_peaks(LAZY, 256, 64, 2, window=np.full(64, 2.0)),
        rd.welch_peaks(LAZY.rechunk((5, -1)), 256, 64, 2),
        rd.welch_peaks(LAZY + 1, 256, 64, 2),
    ]
    names = {one.bins.name for one in (first, *others)}
    assert len(names) == 1 + len(others)
    tasks = {key_split(key) for key in first.__dask_graph__()}
    assert "rlxweb-welch-peaks" in tasks


def test_arguments_are_one_node_of_the_graph() -> None:
    """A window of many samples is not sent with every task."""
    peaks = rd.welch_peaks(LAZY, 256, 64, 2, window=np.ones(64))
    graph = dict(peaks.__dask_optimize__(peaks.__dask_graph__(), peaks.__dask_keys__()))
    holds = [key for key in graph if str(key).startswith("rlxweb-call-")]
    assert len(holds) == 1
    assert (
        sum("rlxweb-call" in map(key_split, _needs(one)) for one in graph.values()) == 3
    )


def test_what_reads_a_chunk_is_in_the_task_that_computes_it() -> None:
    """No block of samples goes from the task that reads it to another."""
    rows = da.map_blocks(np.ones, (2, 512), chunks=((2, 2, 2), 512), dtype=float)
    cube = da.map_blocks(np.ones, (2, 64, 3), chunks=((2, 2), 64, 3), dtype=float)
    for lazy, tasks in (
        (rd.welch_peaks(rows, 256, 64, 2).bins, 3 + 1),
        (rd.welch(rows, 256, nperseg=64)[1], 3 + 1),
        (rd.welch(cube, 256, nperseg=64, axis=1)[1], 2 + 1),
    ):
        assert len(dict(dask.optimize(lazy)[0].__dask_graph__())) == tasks
        lazy.compute(scheduler="synchronous")
    peaks = dask.optimize(rd.welch_peaks(rows, 256, 64, 2))[0]
    names = {key_split(key) for key in dict(peaks.__dask_graph__())}
    assert all(name.startswith("rlxweb-") for name in names), names


def _needs(task: Any) -> list[str]:
    return [key if isinstance(key, str) else key[0] for key in task.dependencies]


CUT = LAZY.rechunk((4, 128))
REFUSED = {
    "the time axis is cut": (
        CUT,
        UsageError,
        "axis 1 of 512, is cut into 4 chunks of 128; a row must lie in one chunk of "
        "512; x.rechunk({1: -1}), or x.rechunk({0: 1, 1: -1}) for chunks of the size",
    ),
    "chunks of unknown sizes": (
        LAZY[LAZY[:, 0] > 0],
        ShapeError,
        "unknown sizes, shape (?, 512); the rows of every chunk must be known; "
        "x = x.compute_chunk_sizes()",
    ),
    "an array of NumPy": (X, DTypeError, "a dask.array is wanted"),
    "an array with labels": (SimpleNamespace(data=LAZY), DTypeError, "x.data is one"),
    "text": (LAZY.astype("U3"), DTypeError, "an array of numbers is wanted"),
    "a masked array": (da.ma.masked_less(LAZY, 0), DTypeError, "da.ma.filled"),
    "no rows": (LAZY[:0], UsageError, "the batch [0] has no rows"),
    "no samples": (LAZY[:, :0], UsageError, "the signal has no samples"),
    "too short": (LAZY[:, :32], UsageError, "nperseg is 64; the signal has 32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_at_once(name: str) -> None:
    x, kind, said = REFUSED[name]
    with pytest.raises(kind) as caught:
        rd.welch_peaks(x, 256, 64, 2)
    assert isinstance(caught.value, RlxError)
    assert said in str(caught.value)


def test_ways_that_are_off_are_allowed_or_refused_as_of_the_whole_array() -> None:
    """The error that is allowed, and a model that was trained for such rows."""
    asked: Any = {"fs": FS, "nperseg": N, "preset": "scipy", "k": 3, **BAND}
    x = steep(4, 24_000, seed=5)
    lazy = da.from_array(x, chunks=(2, -1))
    for more in ({"strategy": "learned", "model": learned().transform}, {}):
        own: Any = {**asked, **more, "max_error": 0.1}
        found = rd.welch_peaks(lazy, **own, device="cpu").compute()
        whole = rlxweb.welch_peaks(x, **own, device="cpu")
        np.testing.assert_array_equal(found.bins, whole.bins)
        np.testing.assert_allclose(found.power, whole.power, rtol=0.1)
    for wrong, words in (
        ({"max_error": 2}, "max_error is 2"),
        ({"strategy": "learned"}, "needs a trained model"),
        ({"model": learned().transform, "fmax": 400.0}, "it gives bins"),
    ):
        with pytest.raises(UsageError, match=words):
            rd.welch_peaks(lazy, **{**asked, **wrong})


def test_the_rechunk_that_is_advised_mends_it() -> None:
    found = rd.welch_peaks(CUT.rechunk({0: 1, 1: -1}), 256, 64, 2, device="cpu")
    want = rlxweb.welch_peaks(X, 256, 64, 2, device="cpu")
    np.testing.assert_array_equal(found.bins, want.bins)


@pytest.mark.parametrize("shape", [(0, 512), (3, 0)])
def test_spectra_of_nothing_are_empty(shape: tuple[int, ...]) -> None:
    """Spectra of no rows are empty, with SciPy's shapes."""
    hz, power = rd.welch(da.zeros(shape))
    assert (hz.shape, power.shape, power.compute().shape) == (shape, shape, shape)


def test_a_sample_that_is_not_finite_is_named_by_its_row_in_the_whole_array(
    by_process: dict[str, Any],
) -> None:
    bad = X.reshape(5, 2, 512).copy()
    bad[3, 1, 7] = np.nan
    lazy = da.from_array(bad, chunks=(2, 1, -1))
    for call in (
        lambda: rd.welch_peaks(lazy, 256, 64, 2).compute(scheduler="threads"),
        lambda: rd.welch(lazy, 256.0)[1].compute(**by_process),
    ):
        with pytest.raises(NotFinite, match=r"channel \[3, 1\] is nan at sample 7"):
            call()
    one = rd.welch_peaks(lazy, 256, 64, 2, nan="propagate").count.compute()
    assert one[3, 1] == 0


def test_a_worker_with_another_version_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task itself looks, for workers come after anybody has asked."""
    monkeypatch.setattr(piece, "_versions", lambda: dict.fromkeys(ALIKE, "0.1"))
    lazy = rd.welch_peaks(LAZY, 256, 64, 2)
    with pytest.raises(ClusterError, match=r"rlxweb is 0\.1 there and .* here"):
        lazy.compute(scheduler="synchronous")


def test_decisions_of_what_has_none_are_refused() -> None:
    with pytest.raises(UsageError, match="does not come of a lazy result"):
        rd.decisions(LAZY)
    _, power = rd.welch(LAZY, 256.0)
    assert rd.decisions((power.mean() * 2,)).compute()[0].rows == 10
    with pytest.raises(UsageError, match="has forgotten"):
        rd.decisions(power.persist())


def test_every_published_name_is_in_the_reference() -> None:
    page = (ROOT / "site/pages/reference/dask.md").read_text("utf-8")
    entries = [line for line in page.splitlines() if ":::" in line]
    documented = {line.rsplit(".", 1)[-1] for line in entries}
    assert documented == set(rd.__all__)
    assert all(callable(getattr(rd, name)) for name in rd.__all__)


def test_the_door_loads_dask_when_it_is_used() -> None:
    """Dask is loaded when `rlxweb.dask` is used, or named where it is missing."""
    said = python(
        "-c",
        "import sys, rlxweb, rlxweb.dask\n"
        "assert not {'dask', 'distributed'} & set(sys.modules)\n"
        "sys.modules['dask'] = None\n"
        "try: rlxweb.dask.welch_peaks\n"
        "except rlxweb.RlxError as error: print(error)",
    )
    assert (said.code, said.err) == (0, "")
    assert 'dask is not installed; pip install "rlxweb[dask]"' in said.out
    assert "dask" in sys.modules
