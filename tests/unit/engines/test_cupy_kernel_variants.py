"""CuPy kernel variants without CUDA: the kernels' source, run on the host.

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

from rlxweb.core.errors import Unsupported
from rlxweb.engines import cupy_kernel_variants
from rlxweb.engines.array import ArrayEngine, array_target
from rlxweb.engines.cupy_kernel_variants import block_sizes, block_threads
from rlxweb.engines.cupy_kernels import cuda_source
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.protocol import EngineIdentity
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ops.welch.parameters import WelchParameters
from rlxweb.smoke.case import sample_cases
from tests.engines_under_test import EngineUnderTest
from tests.kernel_tables import direct_function
from tests.lanes.cuda_on_host import HostCudaModule

needs_gcc = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ runs the kernels' text; it is not here"
)
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc compiles for GPUs; it is not here"
)
CUPY_VARIANTS = cupy_kernel_variants.cupy_variants(
    np, partial(HostCudaModule, options=("-fmad=false",))
)
VARIANT_BY_OP = {row.op: row for row in CUPY_VARIANTS}


def numpy_engine_with_variants(*variants: Any) -> ArrayEngine:
    return ArrayEngine(
        np,
        EngineIdentity("NumPy for CuPy"),
        array_target("NumPy for CuPy", frozenset(DType)),
        to_device=np.asarray,
        to_host=np.asarray,
        variants=variants,
    )


@needs_gcc
@pytest.mark.parametrize("variant", CUPY_VARIANTS, ids=lambda row: row.name)
def test_each_variant_matches_its_reference(variant: Any) -> None:
    """Each variant matches its op's reference on up to 4,096 rows (more take
    minutes).
    """
    cupy_engine = EngineUnderTest("CuPy", numpy_engine_with_variants(variant))
    before = len(HostCudaModule.launched)
    mismatches = []
    for case in sample_cases(registry.get(variant.op)):
        trial = case.prepare()
        if any(
            cupy_engine.ndim > 1 and cupy_engine.shape[0] > 4096
            for cupy_engine in trial.feeds.values()
        ):
            continue
        verdict = trial.judge(cupy_engine.run(trial.graph, trial.feeds))
        mismatches += [f"{case.name}: {verdict.reason}"] if verdict.reason else []
    assert mismatches == []
    assert variant.op == "frame" or len(HostCudaModule.launched) > before


SPECIAL_ROWS = np.random.default_rng(5).standard_normal((6, 300)).astype(np.float32)
SPECIAL_ROWS[0, [3, 200]] = np.inf
SPECIAL_ROWS[1, 7] = -np.inf
SPECIAL_ROWS[2, [0, 250]] = np.nan
SPECIAL_ROWS[3, 9] = np.nan
SPECIAL_ROWS[4] = -np.inf
SPECIAL_ROWS[5] = np.repeat(SPECIAL_ROWS[5, :60], 5)  # ties
SPECIAL_ROWS[5, 10:14] = 0.0, -0.0, 50.0, 50.0


@needs_gcc
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm", "topk"])
def test_special_values_and_ties_match_the_reference(op: str, dtype: Any) -> None:
    """NaN, infinities and ties match the reference, on rows for 64 lanes and 32."""
    attrs = {"axis": -1, "eps": 1e-5, "k": 9}
    for n in (300, 41):
        x = SPECIAL_ROWS[:, :n].astype(dtype)
        parameters = [np.linspace(1, 2, n, dtype=dtype)] * 2 if "norm" in op else []
        with np.errstate(all="ignore"):
            want = registry.get(op).reference(np, attrs, x, *parameters)
        got = direct_function(VARIANT_BY_OP[op])(attrs, x, *parameters)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@needs_gcc
def test_peaks_put_ties_to_the_smaller_bin_and_nan_last() -> None:
    """Ties go to the smaller bin and NaN comes last, also when every bin is
    requested.
    """
    power = np.array([[1, np.nan, 3, 3, np.inf], [np.nan] * 4 + [-np.inf]], np.float32)
    got = direct_function(VARIANT_BY_OP["power_peaks"])({"k": 5}, power)
    assert got[:, ::2].tolist() == [[4, 2, 3, 0, 1], [4, 0, 1, 2, 3]]
    np.testing.assert_array_equal(got[0, 1::2], [np.inf, 3, 3, 1, np.nan])


@needs_gcc
@pytest.mark.parametrize("block_bytes", [1, 3000, 20_000])
@pytest.mark.parametrize("detrend", ["none", "constant", "linear"])
def test_welch_in_blocks_is_welch_at_once(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int, detrend: str
) -> None:
    """Blocked Welch equals Welch at once: by frames, parts, rows; with offset, odd and
    padded sizes.
    """
    monkeypatch.setattr(cupy_kernel_variants, "MAX_FRAME_BYTES", block_bytes)
    x = np.random.default_rng(1).standard_normal((5, 300)) + 40.0
    window = np.hanning(45) + 0.1
    attrs = dict(hop=20, segments=0, detrend=detrend, doubling=True, nfft=70, scale=0.5)
    want = registry.get("welch_power").reference(np, attrs, x, window)
    got = direct_function(VARIANT_BY_OP["welch_power"])(attrs, x, window)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    power = direct_function(VARIANT_BY_OP["welch_power"])
    assert power(attrs, x.astype("f4"), window.astype("f4")).dtype == "f4"


def test_memory_of_frames_is_bounded() -> None:
    """A gibibyte with eightfold overlap is computed in blocks; so is a single row of
    that size.
    """
    for rows, width in ((65_536, 4096), (1, 1 << 28)):
        plan = WelchParameters(rows, width, 256, 32, (width - 256) // 32 + 1, 256)
        rows_per_block, frames_per_block = block_sizes(plan, 4)
        block_nbytes = (
            min(rows_per_block, rows) * frames_per_block * (256 + 2 * 129) * 4
        )
        assert (
            0.9 * cupy_kernel_variants.MAX_FRAME_BYTES
            < block_nbytes
            <= cupy_kernel_variants.MAX_FRAME_BYTES
        )
    assert [block_threads(n) for n in (1, 256, 257, 2048, 1 << 20)] == [
        32,
        32,
        64,
        256,
        256,
    ]


def test_an_engine_with_one_variant_has_separate_caches() -> None:
    """Programs are not shared between engines with other kernels; "" is no variant."""
    engine = numpy_engine_with_variants(*CUPY_VARIANTS)
    caches = engine_caches(engine)
    for name in (CUPY_VARIANTS[0].name, ""):
        other = engine.with_variant(name)
        assert {variant.name for variant in other.kernels.variants} <= {name}
        assert engine_caches(other) is not caches
    assert engine_caches(engine) is caches
    with pytest.raises(Unsupported, match="no such"):
        engine.with_variant("no such")


def test_gates_leave_unsuited_cases_to_the_reference() -> None:
    """Float16, other axes, short rows and many peaks use the reference."""
    for op, attrs, shape, dtype, can_run in (
        ("softmax", {"axis": -1}, (4, 64), DType.F32, True),
        ("softmax", {"axis": 0}, (64, 64), DType.F32, False),
        ("softmax", {"axis": -1}, (4, 64), DType.F16, False),
        ("softmax", {"axis": 1}, (4, 31), DType.F64, False),
        ("topk", {"k": 32}, (4, 64), DType.F32, True),
        ("topk", {"k": 33}, (4, 64), DType.F32, False),
        ("topk", {"k": 2}, (4, 64), DType.I32, False),
    ):
        tensor_type = cupy_kernel_variants.TensorType(shape, dtype)
        assert (
            VARIANT_BY_OP[op].can_run((tensor_type,), tensor_type, attrs) is can_run
        ), (op, attrs, shape)


@needs_nvcc
@pytest.mark.parametrize("kind", ["float", "double"])
def test_nvcc_compiles_the_source_without_spills(kind: str, tmp_path: Path) -> None:
    """The source compiles with the engine's flag and spills no register at 256
    lanes.
    """
    (tmp_path / "k.cu").write_text(cuda_source(kind), encoding="utf-8")
    command = "nvcc -arch=sm_90 -fmad=false -cubin -Xptxas -v -o k.cubin k.cu".split()
    compiler_output = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stderr
    assert compiler_output.count(" 0 bytes spill stores") == 6
    assert "warning" not in compiler_output
