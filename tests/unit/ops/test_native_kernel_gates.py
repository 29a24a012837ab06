"""Which ops the compiled kernels of the CPU take, and which are left to NumPy."""

from __future__ import annotations

from typing import Any

import pytest

from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.conv.cpu import native as conv
from rlxweb.ops.recurrent.cpu import native as recurrent
from rlxweb.ops.reduce.cpu import numpy as numpy_reduce
from rlxweb.ops.reduce.cpu.native import ReductionAxes, reduction_axes

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.usefixtures("wait_for_compilation"),
]

CONV = registry.get("conv")
CONV_KERNELS = {kernel.name: kernel for kernel in conv.KERNELS}


def tensor_type(shape: Shape, dtype: DType = DType.F32) -> TensorType:
    return TensorType(shape, dtype)


def test_convolution_gates() -> None:
    """Float32 of few channels is compiled, unless its weights would leave the cache."""
    attrs = CONV.check_attrs({})
    gate = CONV_KERNELS["conv, compiled"].gate
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
    im2col_gate = CONV_KERNELS["conv, windows in cache"].gate
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


def test_many_rows_of_many_units_are_left_to_numpy() -> None:
    (gru_variant,) = (variant for variant in recurrent.KERNELS if variant.op == "gru")

    attrs = registry.get("gru").check_attrs({"direction": "bidirectional"})

    def can_run(rows: int, units: int) -> bool:
        x = TensorType((5, rows, 6 * units), DType.F32)
        w = TensorType((2, units, 3 * units), DType.F32)
        return gru_variant.can_run(
            (x, w), TensorType((6, 2, rows, units), DType.F32), attrs
        )

    assert can_run(64, 32)
    assert can_run(4, 256)
    assert not can_run(64, 256)
    assert not can_run(0, 32)


@pytest.mark.parametrize(
    ("shape", "reduced", "axes"),
    [
        ((4, 7), (1,), ReductionAxes(4, 7, 1)),
        ((4, 7), (0,), ReductionAxes(1, 4, 7)),
        ((4, 1, 7), (0, 1), ReductionAxes(1, 4, 7)),
        ((2, 3, 4, 5), (1, 2), ReductionAxes(2, 12, 5)),
        ((2, 3, 4, 5), (2, 3), ReductionAxes(6, 20, 1)),
        ((2, 3), (0, 1), ReductionAxes(1, 6, 1)),
        ((2, 3, 4), (0, 2), None),
        ((1, 1), (0,), None),
    ],
)
def test_axes_merge_into_three(shape: Any, reduced: Any, axes: Any) -> None:
    assert reduction_axes(shape, reduced) == axes


def test_few_or_short_sums_are_left_to_numpy() -> None:
    few, short = ((100, 600), (1,)), ((90_000, 300), (1,))
    for shape, axes in (few, short):
        types = (TensorType(shape, DType.F32),)
        attrs = {"axes": axes, "keep_dim": False}
        assert not numpy_reduce.is_supported(types, types[0], attrs)


def test_nothing_compiled_is_selected_when_compilation_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = TensorType((64, 64), DType.F32)
    arguments = registry.get("softmax"), (x,), x, {"axis": -1}
    assert "softmax, as a row kernel" in CpuEngine().variants_for(*arguments)
    monkeypatch.setenv("RLX_FAST", "off")
    assert "softmax, as a row kernel" not in CpuEngine().variants_for(*arguments)
