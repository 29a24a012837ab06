"""Every tile, vector width and tiling of compiled products and convolutions."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.codegen.native_calls import ParallelNativeFunction
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.conv.cpu.llvm import convolution_llvm_ir, convolution_tiles
from rlxweb.ops.conv.cpu.native import KERNELS, conv_kernels, exported_kernel
from rlxweb.ops.matmul.cpu import native as matmul
from rlxweb.ops.matmul.cpu.llvm import matmul_llvm_ir, matmul_tiles
from rlxweb.ops.matmul.cpu.native import (
    MatmulKernelKey,
    MatmulSizes,
    choose_tiling,
    matmul_into,
    matmul_kernels,
    run_matmul,
)
from tests.cpu_kernel_settings import narrow_vectors
from tests.float32_products import check_close, random_floats

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.usefixtures("wait_for_compilation"),
]


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_matmul_compiles_for_every_vector_width(
    nbytes: int, rng: np.random.Generator
) -> None:
    """The kernel compiles for each vector width and runs at those of this processor."""
    for tile in matmul_tiles(nbytes):
        code = LoadedCode(compile_object(matmul_llvm_ir(tile, nbytes)))
        if nbytes > host_cpu().vector_nbytes:
            continue
        x = random_floats(rng, tile.rows + 3, 9)
        y = random_floats(rng, 9, tile.vectors * nbytes // 4 + 1)
        out = np.full((x.shape[0], y.shape[1]), np.nan, np.float32)
        sizes = MatmulSizes(1, *x.shape, y.shape[1], True)
        tiling = matmul.MatmulTiling(tile, 2, 1, x.shape[0])
        with narrow_vectors(nbytes):
            run_matmul(
                ParallelNativeFunction.from_code(code, "product"),
                sizes,
                tiling,
                (x, y),
                out,
            )
        check_close(out, x.astype(float) @ y, 9)


@given(
    rows=st.integers(4, 70),
    terms=st.sampled_from([1, 2, 63, 511, 512, 513, 1024, 1300]),
    columns=st.integers(16, 150),
    threads=st.integers(1, 8),
    spare=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=120, deadline=None)
def test_products_of_any_sizes(
    rows: int, terms: int, columns: int, threads: int, spare: int, seed: int
) -> None:
    """Products of any sizes are right with any tiling and thread count."""
    lanes = host_cpu().vector_nbytes // 4
    sizes = MatmulSizes(1, rows, terms, columns, True)
    tiling = choose_tiling(sizes, lanes, threads)
    if tiling is None:
        assert columns < lanes or rows < 8
        return
    rng = np.random.default_rng(seed)
    x = random_floats(rng, rows, terms)
    y = random_floats(rng, terms, columns + spare)[:, :columns]
    out = np.full((rows, columns), np.nan, np.float32)
    kernel = matmul_kernels.get_kernel(MatmulKernelKey(tiling.tile))
    assert kernel is not None
    run_matmul(kernel, sizes, tiling, (x, y), out)
    check_close(out, x.astype(float) @ y, terms)


@pytest.mark.parametrize("case", ["few terms", "few columns", "float64", "transposed"])
def test_products_left_to_blas(
    case: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few terms or columns, doubles and transposed matrices are BLAS's to multiply."""
    compiled = Mock(side_effect=AssertionError("compiled code ran"))
    monkeypatch.setattr(matmul, "run_matmul", compiled)
    terms = 3 if case == "few terms" else 900
    columns = 3 if case == "few columns" else 300
    x, y = random_floats(rng, 200, terms), random_floats(rng, terms, columns)
    if case == "float64":
        x, y = x.astype(np.float64), y.astype(np.float64)
    if case == "transposed":
        y = np.asfortranarray(y)
    out = np.empty((200, columns), x.dtype)
    matmul_into(x, y, out)
    check_close(out, x.astype(float) @ y, terms)


def check_convolution() -> None:
    """Compare the compiled convolution with the reference in float64."""
    op, kernel = registry.get("conv"), KERNELS[0]
    rng = np.random.default_rng(5)
    arrays = random_floats(rng, 2, 3, 5, 70), random_floats(rng, 11, 3, 2, 3)
    attrs = op.check_attrs({"pads": 1})
    types = tuple(TensorType(array.shape, DType.F32) for array in arrays)
    want = op.reference(np, attrs, *(array.astype(np.float64) for array in arrays))
    got = kernel.build(types, op.output_type(types, attrs), attrs)(attrs, *arrays)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_convolution_tile_of_every_width(
    nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of every width are right, with channels and rows left over."""
    if nbytes > host_cpu().vector_nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
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
        with narrow_vectors(nbytes):
            check_convolution()
