"""CuPy's table of variants where there is no CUDA: the kernels' own text, on the host.

Each row alone gives what the ops' references give. The text runs by g++, lane by
lane, and is compiled for a GPU by nvcc; that a GPU computes the same is seen on one.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.backends import cupy_variants
from rlxweb.backends.array import ArrayBackend, array_target
from rlxweb.backends.cupy_kernels import cuda_text
from rlxweb.backends.cupy_variants import blocks, lanes
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.recipes.welch_plan import WelchPlan
from rlxweb.smoke.case import plain
from tests.agreement import Engine
from tests.lanes.on_host import HostModule

needs_gcc = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ runs the kernels' text; it is not here"
)
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc compiles for GPUs; it is not here"
)
ROWS = cupy_variants.cupy_variants(np, partial(HostModule, options=("-fmad=false",)))
BY_OP = {row.op: row for row in ROWS}


def backend(*rows: Any) -> ArrayBackend:
    return ArrayBackend(
        np,
        array_target("NumPy for CuPy", frozenset(DType)),
        name="NumPy for CuPy",
        to_device=np.asarray,
        to_host=np.asarray,
        variants=rows,
    )


@needs_gcc
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_alone_gives_what_its_reference_gives(row: Any) -> None:
    """A row gives its op's reference on up to 4,096 rows (more take minutes)."""
    one, before = Engine("CuPy", backend(row)), len(HostModule.launched)
    said = []
    for case in plain(registry.get(row.op)):
        trial = case.make()
        if any(one.ndim > 1 and one.shape[0] > 4096 for one in trial.feeds.values()):
            continue
        found = trial.judge(one.run(trial.graph, trial.feeds))
        said += [f"{case.name}: {found.why}"] if found.why else []
    assert said == []
    assert row.op == "frame" or len(HostModule.launched) > before


LINES = np.random.default_rng(5).standard_normal((6, 300)).astype(np.float32)
LINES[0, [3, 200]] = np.inf
LINES[1, 7] = -np.inf
LINES[2, [0, 250]] = np.nan
LINES[3, 9] = np.nan
LINES[4] = -np.inf
LINES[5] = np.repeat(LINES[5, :60], 5)  # ties
LINES[5, 10:14] = 0.0, -0.0, 50.0, 50.0


@needs_gcc
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm", "topk"])
def test_special_values_and_ties_are_the_references(op: str, dtype: Any) -> None:
    """NaN, infinities and ties are the references', on lines for 64 lanes and 32."""
    attrs = {"axis": -1, "eps": 1e-5, "k": 9}
    for n in (300, 41):
        x = LINES[:, :n].astype(dtype)
        more = [np.linspace(1, 2, n, dtype=dtype)] * 2 if "norm" in op else []
        with np.errstate(all="ignore"):
            want = registry.get(op).reference(np, attrs, x, *more)
        got = BY_OP[op].run(attrs, x, *more)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@needs_gcc
def test_peaks_put_ties_to_the_smaller_bin_and_nan_last() -> None:
    """A line of few numbers among NaN too, all of it asked for."""
    power = np.array([[1, np.nan, 3, 3, np.inf], [np.nan] * 4 + [-np.inf]], np.float32)
    got = BY_OP["power_peaks"].run({"k": 5}, power)
    assert got[:, ::2].tolist() == [[4, 2, 3, 0, 1], [4, 0, 1, 2, 3]]
    np.testing.assert_array_equal(got[0, 1::2], [np.inf, 3, 3, 1, np.nan])


@needs_gcc
@pytest.mark.parametrize("room", [1, 3000, 20_000])
@pytest.mark.parametrize("detrend", ["none", "constant", "linear"])
def test_welch_in_blocks_is_welch_at_once(
    monkeypatch: pytest.MonkeyPatch, room: int, detrend: str
) -> None:
    """Welch in blocks is Welch at once: by frames, parts, rows; offset, odd, padded."""
    monkeypatch.setattr(cupy_variants, "FRAMES_BYTES", room)
    x = np.random.default_rng(1).standard_normal((5, 300)) + 40.0
    window = np.hanning(45) + 0.1
    attrs = dict(hop=20, segments=0, detrend=detrend, doubling=True, nfft=70, scale=0.5)
    want = registry.get("welch_power").reference(np, attrs, x, window)
    got = BY_OP["welch_power"].run(attrs, x, window)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert (
        BY_OP["welch_power"].run(attrs, x.astype("f4"), window.astype("f4")).dtype
        == "f4"
    )


def test_memory_of_frames_is_bounded() -> None:
    """A gibibyte, eightfold overlapped, goes in blocks; so does one row of it."""
    for rows, width in ((65_536, 4096), (1, 1 << 28)):
        plan = WelchPlan(rows, width, 256, 32, (width - 256) // 32 + 1, 256)
        each, together = blocks(plan, 4)
        held = min(each, rows) * together * (256 + 2 * 129) * 4
        assert 0.9 * cupy_variants.FRAMES_BYTES < held <= cupy_variants.FRAMES_BYTES
    assert [lanes(n) for n in (1, 256, 257, 2048, 1 << 20)] == [32, 32, 64, 256, 256]


def test_gates_leave_to_the_reference_what_a_row_does_not_suit() -> None:
    """Half floats, other axes, short lines and many peaks go by the reference."""
    for op, attrs, shape, dtype, takes in (
        ("softmax", {"axis": -1}, (4, 64), DType.F32, True),
        ("softmax", {"axis": 0}, (64, 64), DType.F32, False),
        ("softmax", {"axis": -1}, (4, 64), DType.F16, False),
        ("softmax", {"axis": 1}, (4, 31), DType.F64, False),
        ("topk", {"k": 32}, (4, 64), DType.F32, True),
        ("topk", {"k": 33}, (4, 64), DType.F32, False),
        ("topk", {"k": 2}, (4, 64), DType.I32, False),
    ):
        kind = cupy_variants.TensorType(shape, dtype)
        assert BY_OP[op].takes((kind,), kind, attrs) is takes, (op, attrs, shape)


@needs_nvcc
@pytest.mark.parametrize("kind", ["float", "double"])
def test_nvcc_takes_the_text_and_spills_nothing(kind: str, tmp_path: Path) -> None:
    """The text compiles with the engine's flag and spills nothing at 256 lanes."""
    (tmp_path / "k.cu").write_text(cuda_text(kind), encoding="utf-8")
    order = "nvcc -arch=sm_90 -fmad=false -cubin -Xptxas -v -o k.cubin k.cu".split()
    said = subprocess.run(
        order, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stderr
    assert said.count(" 0 bytes spill stores") == 6
    assert "warning" not in said
