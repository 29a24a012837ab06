"""Convolutions on the CPU, compiled and by BLAS, match the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.conv.cpu import native as cpu_native_convolution
from rlxweb.ops.conv.cpu.llvm import (
    ConvolutionTile,
    convolution_llvm_ir,
    convolution_tiles,
)
from rlxweb.ops.conv.cpu.native import (
    KERNELS,
    conv_kernels,
    exported_kernel,
)
from rlxweb.ops.kernel_variant import KernelVariant

pytestmark = pytest.mark.requires_fast

CONV = registry.get("conv")
TESTED_VARIANTS = {row.name: row for row in KERNELS}


@pytest.fixture(autouse=True)
def _wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def run_variant(
    variant: KernelVariant, attrs: Attrs, *arrays: np.ndarray
) -> np.ndarray:
    """Run a variant on a node of its own."""
    types = tuple(TensorType(array.shape, DType.F32) for array in arrays)
    output: np.ndarray = variant.build(types, CONV.output_type(types, attrs), attrs)(
        attrs, *arrays
    )
    return output


def check_convolution(x: Shape, w: Shape, attrs: dict[str, Any], *names: str) -> None:
    """Compare variants with the reference in float64."""
    rng = np.random.default_rng(sum(x) + sum(w))
    arrays = [rng.standard_normal(shape, np.float32) for shape in (x, w)]
    full_attrs = CONV.check_attrs(attrs)
    want = CONV.reference(
        np, full_attrs, *(array.astype(np.float64) for array in arrays)
    )
    for name in names or TESTED_VARIANTS:
        got = run_variant(TESTED_VARIANTS[name], full_attrs, *arrays)
        assert got.shape == want.shape
        assert got.dtype == np.float32
        peak = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * peak, err_msg=name)


@given(
    batch=st.integers(1, 2),
    groups=st.sampled_from([1, 1, 2, 5]),
    channels=st.integers(1, 4),
    made=st.integers(1, 9),
    size=st.tuples(st.integers(1, 9), st.integers(1, 40)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 6)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    pads=st.tuples(*(st.integers(0, 4),) * 4),
)
@settings(max_examples=80)
def test_any_window_geometry(
    batch: int,
    groups: int,
    channels: int,
    made: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> None:
    """Convolutions of any window are right by BLAS and, for long rows, compiled."""
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = (
        max(size[0], extents[0] - pads[0] - pads[2]),
        max(size[1], extents[1] - pads[1] - pads[3]),
    )
    x, w = (batch, groups * channels, *size), (groups * made, channels, *kernel)
    attrs = {"strides": strides, "dilations": dilations, "pads": pads}
    check_convolution(x, w, {**attrs, "groups": groups})


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((2, 3, 2000), (8, 3, 9), {"strides": 2, "pads": 4}),
        ((1, 2, 7, 8, 40), (5, 2, 3, 2, 3), {"pads": 1}),
        ((1, 40, 14, 14), (70, 40, 3, 3), {"pads": 1}),
        ((3, 24, 56, 56), (24, 1, 3, 3), {"pads": 1, "groups": 24}),
        ((1, 24, 30, 30), (48, 1, 5, 5), {"strides": 2, "groups": 24}),
        ((1, 64, 20, 20), (64, 64, 1, 1), {}),
    ],
    ids=str,
)
def test_threads_share_rows_and_channels(
    x: Shape, w: Shape, attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_native_convolution, "_MIN_THREADED_WORK", 1)
    check_convolution(x, w, attrs)


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_tile_of_every_width(
    nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of every width are right, with channels and rows left over."""
    if nbytes > host_cpu().vector_nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    host = host_cpu()
    narrowed = type(host)(host.name, host.features, nbytes, host.llvm_version)
    monkeypatch.setattr(
        cpu_native_convolution.llvm_compiler, "host_cpu", lambda: narrowed
    )
    for tile in convolution_tiles(nbytes):
        kernel = exported_kernel(
            LoadedCode(compile_object(convolution_llvm_ir(tile, nbytes)))
        )
        monkeypatch.setattr(
            conv_kernels, "get_kernel", lambda about, kernel=kernel: kernel
        )
        monkeypatch.setattr(
            "rlxweb.ops.conv.cpu.llvm.convolution_tiles",
            lambda nbytes, tile=tile: [tile],
        )
        check_convolution((2, 3, 5, 70), (11, 3, 2, 3), {"pads": 1}, "conv, compiled")


def tensor_type(shape: Shape, dtype: DType = DType.F32) -> TensorType:
    return TensorType(shape, dtype)


def test_convolution_gates() -> None:
    """Float32 of few channels is compiled, unless its weights would leave the cache."""
    attrs = CONV.check_attrs({})
    gate = TESTED_VARIANTS["conv, compiled"].gate
    x, w, out = (1, 32, 40, 40), (8, 32, 3, 3), (1, 8, 38, 38)
    assert gate((tensor_type(x), tensor_type(w)), tensor_type(out), attrs)
    assert not gate(
        (tensor_type(x, DType.F64), tensor_type(w, DType.F64)),
        tensor_type(out, DType.F64),
        attrs,
    )
    assert not gate(
        (tensor_type(x), tensor_type((16, *w[1:]))), tensor_type((1, 16, 38, 38)), attrs
    )
    assert not gate(
        (tensor_type((1, 99, 32)), tensor_type((1, 99, 1))),
        tensor_type((1, 1, 32)),
        attrs,
    )
    strided_attrs = CONV.check_attrs({"strides": 2})
    assert gate(
        (tensor_type((1, 32, 99, 99)), tensor_type(w)),
        tensor_type((1, 8, 49, 49)),
        strided_attrs,
    )
    large = ((1, 9999, 9, 9), (8, 9999, 3, 3), (1, 8, 7, 7))
    assert not gate(
        (tensor_type(large[0]), tensor_type(large[1])), tensor_type(large[2]), attrs
    )
    im2col_gate = TESTED_VARIANTS["conv, windows in cache"].gate
    assert im2col_gate(
        (tensor_type(x, DType.F64), tensor_type(w, DType.F64)),
        tensor_type(out, DType.F64),
        attrs,
    )
    assert not im2col_gate(
        (tensor_type(x, DType.I32), tensor_type(w, DType.I32)),
        tensor_type(out, DType.I32),
        attrs,
    )


def test_blas_runs_until_code_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    conv_kernels._kernels.clear()
    check_convolution((1, 4, 30, 40), (6, 4, 3, 3), {})
    assert any(
        conv_kernels.missing_reason(ConvolutionTile(*tile))
        for tile in convolution_tiles(host_cpu().vector_nbytes)
    )


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinity_stay_in_their_windows(odd: float) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1, 2, 12, 33)).astype(np.float32)
    w = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    x[0, 1, 5, 20] = odd
    attrs = CONV.check_attrs({"pads": 1})
    want = CONV.reference(np, attrs, x.astype(np.float64), w.astype(np.float64))
    for variant in KERNELS:
        got = run_variant(variant, attrs, x, w)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
