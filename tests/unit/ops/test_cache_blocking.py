"""Ops computed in blocks of rows give the results of their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.codegen.array_tiles import TILE_ELEMENTS
from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.cache_blocking import (
    MIN_BLOCKED_ELEMENTS,
    RowAxesRule,
    attr_axis,
    blocked_op,
    is_large,
    last_axis,
    split_operands,
)

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *(("softmax", (90, 100, 33), {"axis": axis}) for axis in (0, 1, 2)),
    ("softmax", (MIN_BLOCKED_ELEMENTS,), {"axis": 0}),
    ("layer_norm", (90, 100, 33), {"axis": 2}),
    ("layer_norm", (33, 90, 100), {"axis": 0}),
    ("rms_norm", (4100, 70), {"axis": 1}),
    ("cumsum", (300, 1070), {"axis": 0}),
    ("cumsum", (1300, 270), {"axis": 1}),
    ("fft", (260, 1024), {}),
    ("rfft", (7, 100, 400), {}),
    ("irfft", (260, 1026), {"n": 1024}),
    ("stft", (3, 2, 50_000), {"length": 64, "hop": 16}),
    ("stft", (270_000,), {"length": 64, "hop": 16}),
]  # fmt: skip

ROW_AXES: dict[str, RowAxesRule] = {
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm", "cumsum"), attr_axis),
    **dict.fromkeys(("fft", "rfft", "irfft", "psd_real", "log_mel", "stft"), last_axis),
}


def random_inputs(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> list[Any]:
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(shape, np.float32)]
    if op in ("layer_norm", "rms_norm"):
        inputs += list(rng.standard_normal((2, shape[attrs["axis"]]), np.float32))
    return inputs


@pytest.mark.parametrize(("op", "shape", "attrs"), CASES)
def test_blocks_give_the_references_values(
    op: str, shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    op_record = registry.get(op)
    checked_attrs = op_record.check_attrs(attrs)
    inputs = random_inputs(op, shape, attrs)
    types = tuple(TensorType(array.shape, as_dtype(array.dtype)) for array in inputs)
    assert is_large(types, op_record.output_type(types, checked_attrs), checked_attrs)
    want = op_record.reference(np, checked_attrs, *inputs)
    actual = blocked_op(op, ROW_AXES[op])(checked_attrs, *inputs)
    assert actual.dtype == want.dtype
    # Where lines are short, NumPy adds them up in another order.
    np.testing.assert_allclose(actual, want, 1e-5, 1e-5)


def test_log_mel() -> None:
    rng = np.random.default_rng(4)
    inputs = rng.random((600, 512), np.float32), rng.random((40, 129), np.float32)
    op_record = registry.get("log_mel")
    attrs = op_record.check_attrs({})
    want = op_record.reference(np, attrs, *inputs)
    np.testing.assert_allclose(
        blocked_op("log_mel", last_axis)(attrs, *inputs), want, 1e-5, 1e-5
    )


def test_blocks_respect_the_size_limit() -> None:
    """Blocks respect the size limit, except for long rows; columns are grouped side by
    side.
    """
    shape = (1000, 1000)
    tiles = split_operands(last_axis, {}, shape, (1000, 1002))
    assert [x[0] for x in tiles.input_tiles] == [y[0] for y in tiles.output_tiles]
    assert tiles.input_tiles[0][0] == slice(0, TILE_ELEMENTS // 1000)
    long_shape = (3, 10 * TILE_ELEMENTS)
    assert (
        len(split_operands(attr_axis, {"axis": 1}, long_shape, long_shape).input_tiles)
        == 3
    )
    high_shape = (10 * TILE_ELEMENTS, 130)
    columns = split_operands(attr_axis, {"axis": 0}, high_shape, high_shape)
    assert [indices[1].start for indices in columns.input_tiles] == [0, 64, 128]


def test_small_or_single_row_arrays_are_not_split() -> None:
    attrs = {"axis": 0}
    types = (TensorType((MIN_BLOCKED_ELEMENTS - 1,), DType.F32),)
    assert not is_large(types, types[0], attrs)
    assert (
        len(
            split_operands(
                attr_axis, attrs, (MIN_BLOCKED_ELEMENTS,), (MIN_BLOCKED_ELEMENTS,)
            ).input_tiles
        )
        == 1
    )


@pytest.mark.parametrize("op", ROW_AXES)
def test_the_cpu_engine_has_blocked_variants(op: str) -> None:
    names = [row.name for row in CpuEngine().kernels.for_op(op)]
    assert f"{op}, in parts" in names
