"""Check Dask arrays through `rlxweb.dask`: computed results are as declared lazily.

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
from rlxweb.batch.cluster import chunk_result
from rlxweb.batch.cluster.chunk_result import ChunkRunInfo
from rlxweb.batch.cluster.device_shares import tabulate_runs
from rlxweb.batch.cluster.worker_versions import MATCHED_PACKAGES
from rlxweb.core.errors import (
    ClusterError,
    DTypeError,
    NotFinite,
    RlxError,
    ShapeError,
    UnknownDevice,
    UsageError,
)
from rlxweb.cost.decision import Decision
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.cli_runners import ROOT, run_python
from tests.unit.signal.learned.red_noise import (
    BAND_LIMITS,
    FS,
    N,
    learned_result,
    red_noise,
)

PEAK_FIELDS = ("bins", "hz", "power", "count", "prominence")
X = np.random.default_rng(11).standard_normal((10, 512)).astype(np.float32)
LAZY = da.from_array(X, chunks=(4, -1))


def check_declared(lazy: Any, computed: NDArray[Any], label: str) -> None:
    """Check that shape, dtype and the shape of every block are as declared."""
    assert (lazy.shape, lazy.dtype) == (computed.shape, computed.dtype), label
    for block_index in np.ndindex(lazy.numblocks) if lazy.ndim else ():
        block = lazy.blocks[block_index]
        computed_block = block.compute(scheduler="synchronous")
        assert (block.shape, lazy.dtype) == (
            computed_block.shape,
            computed_block.dtype,
        ), label


def fail_if_computed(block: NDArray[Any]) -> NDArray[Any]:
    """Fail because a chunk is computed."""
    raise AssertionError("a chunk was computed")


@st.composite
def draw_chunked_array(draw: st.DrawFn) -> tuple[NDArray[Any], Any, int]:
    """Draw an array, the same array in chunks that are whole along one axis, and that
    axis.
    """
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(1, 5)) for _ in range(rank)]
    shape[axis] = draw(st.integers(16, 40))
    dtype = draw(st.sampled_from(["f4", "f8", "f2", "i2", "i8", "u1", ">f4"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = (rng.standard_normal(shape) * 40).astype(dtype)
    chunks: list[Any] = []
    for dim, n in enumerate(shape):
        first_chunk = n if dim == axis else draw(st.integers(0, n))
        chunks.append((first_chunk, n - first_chunk) if dim != axis else (n,))
    return x, da.from_array(x, chunks=tuple(chunks)), axis - draw(st.booleans()) * rank


@settings(max_examples=40, deadline=None)
@given(
    draw_chunked_array(),
    st.sampled_from(["bins", "peaks"]),
    st.sampled_from(["rlx", "mne"]),
)
def test_peaks_match_the_whole_array_and_their_declaration(
    case: tuple[NDArray[Any], Any, int], mode: Any, preset: str
) -> None:
    """Peaks are those of the whole array, to the bit, whatever the chunks.

    Empty chunks are among them.
    """
    x, lazy, axis = case
    options: dict[str, Any] = {"mode": mode, "preset": preset, "axis": axis}
    options |= {"device": "cpu", "nperseg": 16, "k": 3, "fs": 100}
    peaks = rd.welch_peaks(lazy, **options)
    want = rlxweb.welch_peaks(x, **options)
    computed = peaks.compute(scheduler="synchronous")
    for name in PEAK_FIELDS:
        expected, lazy_field = getattr(want, name), getattr(peaks, name)
        if expected is None:
            assert lazy_field is None
            assert getattr(computed, name) is None
            continue
        np.testing.assert_array_equal(getattr(computed, name), expected)
        check_declared(lazy_field, expected, name)


@settings(max_examples=40, deadline=None)
@given(draw_chunked_array(), st.sampled_from([None, 8, 16]), st.booleans())
def test_spectra_match_the_whole_array_and_their_declaration(
    case: tuple[NDArray[Any], Any, int], nperseg: int | None, one_sided: bool
) -> None:
    x, lazy, axis = case
    options: dict[str, Any] = {"axis": axis, "return_onesided": one_sided, "fmax": 30.0}
    options |= {"device": "cpu", "nperseg": nperseg or x.shape[axis], "fs": 100.0}
    hz, power = rd.welch(lazy, **options)
    expected_hz, expected = rlxweb.welch(x, **options)
    np.testing.assert_array_equal(hz, expected_hz)
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
def test_complex_samples_functions_and_window_arrays_are_passed_on(
    name: str, by_process: dict[str, Any]
) -> None:
    """Complex samples, a detrend function, which is pickled, and the samples of a
    window give the results of the whole array.
    """
    options: dict[str, Any] = {"nperseg": 64, "device": "cpu"}
    x = (X + 1j * X[::-1]).astype(np.complex64) if name == "complex" else X
    if name == "a function":
        options["detrend"] = lambda segment: segment - segment.mean(-1, keepdims=True)
    if name == "a window":
        options["window"] = np.bartlett(64)
    lazy = da.from_array(x, chunks=(4, -1))
    power = rd.welch(lazy, 10.0, **options)[1].compute(**by_process)
    np.testing.assert_array_equal(power, rlxweb.welch(x, 10.0, **options)[1])


def test_gpu_chunks_match_separate_calls_bit_for_bit(adapter: AdapterRequest) -> None:
    """A GPU's chunks give the bits of each alone, by threads that share the device."""
    (device,) = adapter.backends
    options: dict[str, Any] = {"nperseg": 64, "k": 3, "device": device}
    lazy_peaks = rd.welch_peaks(LAZY, 256, adapter=adapter.name, **options)
    peaks = lazy_peaks.compute(scheduler="threads")
    for start in range(0, 10, 4):
        chunk_peaks = rlxweb.welch_peaks(
            X[start : start + 4], 256, adapter=adapter.name, **options
        )
        for name in PEAK_FIELDS[:4]:
            got = getattr(peaks, name)[start : start + 4]
            np.testing.assert_array_equal(got, getattr(chunk_peaks, name))
    assert [decision.device for decision in peaks.decisions] == [device]


@pytest.mark.parametrize("share", [1 / 3, 0.9])
def test_the_table_counts_rows_and_tasks_of_each_device(share: float) -> None:
    """The table has the device with most rows first, and the reason of most.

    The order of the pieces makes no difference.
    """

    def make_run_info(rows: int, device: str, why: str, worker: str) -> ChunkRunInfo:
        return ChunkRunInfo(
            rows, device, "", device.upper(), Decision("device", why), worker
        )

    on_cuda = round(100 * share)
    run_infos = [
        make_run_info(on_cuda, "cuda", "predicted 2 ms", "b"),
        make_run_info(99 - on_cuda, "cpu", "no GPU", "a"),
        make_run_info(1, "cpu", "too small: 7 us", "c"),
    ]
    table = tabulate_runs(run_infos)
    assert table == tabulate_runs([run_infos[1], run_infos[0], run_infos[2]])
    first, second = sorted(
        ("cuda", "cpu"), key=lambda d: (d == "cuda") is (share < 0.5)
    )
    assert [device_share.device for device_share in table] == [first, second]
    by_device = {device_share.device: device_share for device_share in table}
    assert (by_device["cpu"].tasks, by_device["cpu"].workers) == (2, ("a", "c"))
    assert by_device["cuda"].row_share == on_cuda / 100
    assert by_device["cpu"].task_share == 2 / 3
    assert by_device["cpu"].why == "no GPU"
    first_line = str(table).splitlines()[0]
    assert f"{on_cuda} %" in first_line
    assert first_line.startswith(
        f"{round(100 * by_device[first].row_share)} % ran on {first}, "
    )
    assert str(tabulate_runs([])) == "nothing ran: the input has no rows"


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_every_scheduler_gives_the_same_results_and_decisions(
    scheduler: str, by_process: dict[str, Any]
) -> None:
    """Arrays and decisions of one `compute` are of the same tasks."""
    compute_options = (
        by_process if scheduler == "processes" else {"scheduler": scheduler}
    )
    options: dict[str, Any] = {"nperseg": 64, "k": 2, "device": "cpu"}
    peaks = rd.welch_peaks(LAZY, 256, **options)
    _, power = rd.welch(LAZY, 256.0, nperseg=64, device="cpu")
    computed_peaks, spectra, decisions = dask.compute(
        peaks, power, rd.decisions(peaks, power), **compute_options
    )
    want = rlxweb.welch_peaks(X, 256, **options)
    np.testing.assert_array_equal(computed_peaks.power, want.power)
    np.testing.assert_array_equal(
        spectra, rlxweb.welch(X, 256.0, nperseg=64, device="cpu")[1]
    )
    (share,) = decisions
    assert (share.device, share.rows, share.tasks) == ("cpu", 20, 6)
    assert (share.row_share, share.task_share) == (1.0, 1.0)
    assert str(decisions).startswith("100 % ran on cpu\n  cpu: 20 rows in 6 tasks on ")
    assert decisions.as_json()["devices"][0]["engine"] == want.engine
    assert computed_peaks.decisions.shares[0].rows == 10


def test_nothing_is_computed_or_opened_before_compute() -> None:
    """Naming a device that is missing here raises no error yet; naming an unknown
    device does.
    """
    x = LAZY.map_blocks(fail_if_computed, dtype=X.dtype, meta=X[:0])
    peaks = rd.welch_peaks(x, 256, 64, 2, device="cuda")
    rd.welch(x, 256.0, device="cuda")
    assert peaks.decisions.__dask_keys__()
    with pytest.raises(AssertionError, match="a chunk was computed"):
        peaks.count.compute(scheduler="synchronous")
    with pytest.raises(UnknownDevice):
        rd.welch_peaks(x, 256, 64, 2, device="gpux")


def test_each_chunk_is_computed_once_for_all_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fields, derived arrays and decisions together take one task a chunk."""
    calls: list[int] = []

    def count_call(by: Any, doing: str) -> None:
        calls.append(1)

    monkeypatch.setattr(
        "rlxweb.batch.cluster.welch_chunk_tasks.check_worker", count_call
    )
    peaks = rd.welch_peaks(LAZY, 256, 64, 2, device="cpu")
    mean = peaks.power.mean(axis=0)
    dask.compute(peaks, mean, peaks.hz, rd.decisions(mean), scheduler="synchronous")
    assert len(calls) == 3
    persisted, decisions = dask.persist(
        peaks, rd.decisions(peaks), scheduler="synchronous"
    )
    assert len(calls) == 6
    persisted.compute(scheduler="synchronous")
    assert persisted.decisions.compute(scheduler="synchronous") == decisions.compute()
    assert len(calls) == 6


def test_task_names_depend_on_arguments_and_chunks() -> None:
    """The same call has the same task names; arguments and chunks are part of them."""
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
    names = {other_peaks.bins.name for other_peaks in (first, *others)}
    assert len(names) == 1 + len(others)
    tasks = {key_split(key) for key in first.__dask_graph__()}
    assert "rlxweb-welch-peaks" in tasks


def test_arguments_are_one_graph_node() -> None:
    """A window of many samples is not sent with every task."""
    peaks = rd.welch_peaks(LAZY, 256, 64, 2, window=np.ones(64))
    graph = dict(peaks.__dask_optimize__(peaks.__dask_graph__(), peaks.__dask_keys__()))
    argument_keys = [key for key in graph if str(key).startswith("rlxweb-call-")]
    assert len(argument_keys) == 1
    assert (
        sum(
            "rlxweb-call" in map(key_split, _dependency_names(task))
            for task in graph.values()
        )
        == 3
    )


def test_chunk_is_read_in_the_task_that_computes_it() -> None:
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


def _dependency_names(task: Any) -> list[str]:
    return [key if isinstance(key, str) else key[0] for key in task.dependencies]


CHUNKED_ALONG_TIME = LAZY.rechunk((4, 128))
REFUSED_INPUTS = {
    "the time axis is cut": (
        CHUNKED_ALONG_TIME,
        UsageError,
        "axis 1 of size 512, is split into 4 chunks of 128; the axis must be in a "
        "single chunk of 512; use x.rechunk({1: -1}), or x.rechunk({0: 1, 1: -1}) to "
        "keep the chunk size",
    ),
    "chunks of unknown sizes": (
        LAZY[LAZY[:, 0] > 0],
        ShapeError,
        "unknown sizes (shape (?, 512)); the number of rows of every chunk must be "
        "known; compute the sizes first: x = x.compute_chunk_sizes()",
    ),
    "an array of NumPy": (X, DTypeError, "expected a dask.array"),
    "an array with labels": (SimpleNamespace(data=LAZY), DTypeError, "pass x.data"),
    "text": (LAZY.astype("U3"), DTypeError, "expected an array of numbers"),
    "a masked array": (da.ma.masked_less(LAZY, 0), DTypeError, "da.ma.filled"),
    "no rows": (LAZY[:0], UsageError, "the batch of shape [0] has no rows"),
    "no samples": (LAZY[:, :0], UsageError, "the signal has no samples"),
    "too short": (
        LAZY[:, :32],
        UsageError,
        "nperseg is 64; must be at most the length of the signal, 32",
    ),
}


@pytest.mark.parametrize("name", REFUSED_INPUTS)
def test_invalid_inputs_are_refused_at_once(name: str) -> None:
    x, error_type, message = REFUSED_INPUTS[name]
    with pytest.raises(error_type) as error_info:
        rd.welch_peaks(x, 256, 64, 2)
    assert isinstance(error_info.value, RlxError)
    assert message in str(error_info.value)


def test_inexact_options_are_checked_as_for_the_whole_array() -> None:
    """Options that allow an error, or a model trained for such rows, are allowed or
    refused as for the whole array.
    """
    options: Any = {"fs": FS, "nperseg": N, "preset": "scipy", "k": 3, **BAND_LIMITS}
    x = red_noise(4, 24_000, seed=5)
    lazy = da.from_array(x, chunks=(2, -1))
    for extra_options in (
        {"strategy": "learned", "model": learned_result().transform},
        {},
    ):
        row_options: Any = {**options, **extra_options, "max_error": 0.1}
        peaks = rd.welch_peaks(lazy, **row_options, device="cpu").compute()
        want = rlxweb.welch_peaks(x, **row_options, device="cpu")
        np.testing.assert_array_equal(peaks.bins, want.bins)
        np.testing.assert_allclose(peaks.power, want.power, rtol=0.1)
    for wrong_options, message in (
        ({"max_error": 2}, "max_error is 2"),
        ({"strategy": "learned"}, "a trained model is required"),
        (
            {"model": learned_result().transform, "fmax": 400.0},
            "the transform computes bins",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            rd.welch_peaks(lazy, **{**options, **wrong_options})


def test_advised_rechunk_solves_the_problem() -> None:
    peaks = rd.welch_peaks(
        CHUNKED_ALONG_TIME.rechunk({0: 1, 1: -1}), 256, 64, 2, device="cpu"
    )
    want = rlxweb.welch_peaks(X, 256, 64, 2, device="cpu")
    np.testing.assert_array_equal(peaks.bins, want.bins)


@pytest.mark.parametrize("shape", [(0, 512), (3, 0)])
def test_spectra_of_empty_arrays_are_empty(shape: tuple[int, ...]) -> None:
    """Spectra of no rows are empty, with SciPy's shapes."""
    hz, power = rd.welch(da.zeros(shape))
    assert (hz.shape, power.shape, power.compute().shape) == (shape, shape, shape)


def test_nonfinite_sample_is_named_by_its_row_in_the_whole_array(
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
    count = rd.welch_peaks(lazy, 256, 64, 2, nan="propagate").count.compute()
    assert count[3, 1] == 0


def test_a_worker_with_another_version_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task on a worker with another version refuses, since workers may join after the
    check.
    """
    monkeypatch.setattr(
        chunk_result, "_own_versions", lambda: dict.fromkeys(MATCHED_PACKAGES, "0.1")
    )
    lazy = rd.welch_peaks(LAZY, 256, 64, 2)
    with pytest.raises(
        ClusterError, match=r"rlxweb is 0\.1 on the worker and .* on the client"
    ):
        lazy.compute(scheduler="synchronous")


def test_decisions_of_other_arrays_are_refused() -> None:
    with pytest.raises(UsageError, match="is not computed from a lazy result"):
        rd.decisions(LAZY)
    _, power = rd.welch(LAZY, 256.0)
    assert rd.decisions((power.mean() * 2,)).compute()[0].rows == 10
    with pytest.raises(
        UsageError, match="decisions are lost when a result is persisted or computed"
    ):
        rd.decisions(power.persist())


def test_every_published_name_is_in_the_reference() -> None:
    page = (ROOT / "site/pages/reference/dask.md").read_text("utf-8")
    entries = [line for line in page.splitlines() if ":::" in line]
    documented = {line.rsplit(".", 1)[-1] for line in entries}
    assert documented == set(rd.__all__)
    assert all(callable(getattr(rd, name)) for name in rd.__all__)


def test_dask_is_loaded_on_first_use() -> None:
    """Dask is loaded when `rlxweb.dask` is used, or named where it is missing."""
    run_result = run_python(
        "-c",
        "import sys, rlxweb, rlxweb.dask\n"
        "assert not {'dask', 'distributed'} & set(sys.modules)\n"
        "sys.modules['dask'] = None\n"
        "try: rlxweb.dask.welch_peaks\n"
        "except rlxweb.RlxError as error: print(error)",
    )
    assert (run_result.code, run_result.err) == (0, "")
    assert 'dask is not installed; pip install "rlxweb[dask]"' in run_result.out
    assert "dask" in sys.modules
