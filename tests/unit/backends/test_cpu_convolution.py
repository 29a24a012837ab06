"""Convolutions on the CPU, as machine code and by BLAS: what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.backends import cpu_convolution
from rlxweb.backends.cpu_convolution import COMPILED, conv_kernels, function_of
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, registry
from rlxweb.ir.shape import Shape
from rlxweb.machine.convolution import Tile, convolution_text, tiles
from rlxweb.machine.library import Code, object_code, processor

pytestmark = pytest.mark.requires_fast

CONV = registry.get("conv")
ROWS = {row.name: row for row in COMPILED}


@pytest.fixture(autouse=True)
def _wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def run(row: Variant, attrs: Attrs, *arrays: np.ndarray) -> np.ndarray:
    """A row on a node of its own."""
    types = tuple(TensorType(one.shape, DType.F32) for one in arrays)
    made: np.ndarray = row.of(types, CONV.output_type(types, attrs), attrs)(
        attrs, *arrays
    )
    return made


def check(x: Shape, w: Shape, attrs: dict[str, Any], *names: str) -> None:
    """Rows against the reference in float64."""
    rng = np.random.default_rng(sum(x) + sum(w))
    arrays = [rng.standard_normal(shape, np.float32) for shape in (x, w)]
    full = CONV.check_attrs(attrs)
    want = CONV.reference(np, full, *(one.astype(np.float64) for one in arrays))
    for name in names or ROWS:
        found = run(ROWS[name], full, *arrays)
        assert found.shape == want.shape
        assert found.dtype == np.float32
        peak = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * peak, err_msg=name)


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
def test_any_window(
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
    """Convolutions of any window are right by BLAS and, for long lines, compiled."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = (
        max(size[0], reach[0] - pads[0] - pads[2]),
        max(size[1], reach[1] - pads[1] - pads[3]),
    )
    x, w = (batch, groups * channels, *size), (groups * made, channels, *kernel)
    attrs = {"strides": strides, "dilations": dilations, "pads": pads}
    check(x, w, {**attrs, "groups": groups})


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
def test_threads_share_lines_and_channels(
    x: Shape, w: Shape, attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_convolution, "_THREADED", 1)
    check(x, w, attrs)


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_tile_of_every_width(
    nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of every width are right, with channels and lines left over."""
    if nbytes > processor().nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    here = processor()
    wanted = type(here)(here.name, here.features, nbytes, here.llvm)
    monkeypatch.setattr(cpu_convolution.library, "processor", lambda: wanted)
    for tile in tiles(nbytes):
        made = function_of(Code(object_code(convolution_text(tile, nbytes))))
        monkeypatch.setattr(conv_kernels, "ready", lambda about, made=made: made)
        monkeypatch.setattr(
            "rlxweb.machine.convolution.tiles", lambda nbytes, tile=tile: [tile]
        )
        check((2, 3, 5, 70), (11, 3, 2, 3), {"pads": 1}, "conv, compiled")


def of(shape: Shape, dtype: DType = DType.F32) -> TensorType:
    return TensorType(shape, dtype)


def test_what_is_compiled() -> None:
    """Float32 of few channels is compiled, unless its weights would leave the cache."""
    full = CONV.check_attrs({})
    gate = ROWS["conv, compiled"].gate
    x, w, out = (1, 32, 40, 40), (8, 32, 3, 3), (1, 8, 38, 38)
    assert gate((of(x), of(w)), of(out), full)
    assert not gate((of(x, DType.F64), of(w, DType.F64)), of(out, DType.F64), full)
    assert not gate((of(x), of((16, *w[1:]))), of((1, 16, 38, 38)), full)
    assert not gate((of((1, 99, 32)), of((1, 99, 1))), of((1, 1, 32)), full)
    steps = CONV.check_attrs({"strides": 2})
    assert gate((of((1, 32, 99, 99)), of(w)), of((1, 8, 49, 49)), steps)
    large = ((1, 9999, 9, 9), (8, 9999, 3, 3), (1, 8, 7, 7))
    assert not gate((of(large[0]), of(large[1])), of(large[2]), full)
    wide = ROWS["conv, windows in cache"].gate
    assert wide((of(x, DType.F64), of(w, DType.F64)), of(out, DType.F64), full)
    assert not wide((of(x, DType.I32), of(w, DType.I32)), of(out, DType.I32), full)


def test_blas_serves_until_the_code_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    conv_kernels._made.clear()
    check((1, 4, 30, 40), (6, 4, 3, 3), {})
    assert any(conv_kernels.state(Tile(*tile)) for tile in tiles(processor().nbytes))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_number_stays_in_its_windows(odd: float) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1, 2, 12, 33)).astype(np.float32)
    w = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    x[0, 1, 5, 20] = odd
    full = CONV.check_attrs({"pads": 1})
    want = CONV.reference(np, full, x.astype(np.float64), w.astype(np.float64))
    for row in COMPILED:
        found = run(row, full, x, w)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))
