"""Arguments that convolutions, pools and folds refuse, and how they say it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.pool.windows import pool_windows

MAX_POOL = registry.get("max_pool")


@pytest.mark.parametrize("dilation", [1, 4, 9])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_empty_windows_are_rejected(dilation: int, ceil_mode: bool) -> None:
    """Windows without an element are rejected; a check of every window says which
    are.
    """
    for size, pad, step in product((1, 2, 5), (0, 1, 4, 8), (1, 3)):
        attrs = {"kernel": 3, "strides": step, "dilations": dilation, "pads": pad}
        full_attrs = MAX_POOL.check_attrs({**attrs, "ceil_mode": ceil_mode})
        x = TensorType((1, 1, size), DType.F32)
        if size + 2 * pad <= 2 * dilation:
            continue  # no window fits at all
        count = pool_windows(x.shape, full_attrs).out_shape[0]
        windows = [
            {i * step - pad + k * dilation for k in range(3)} for i in range(count)
        ]
        if all(window & set(range(size)) for window in windows):
            assert MAX_POOL.infer((x,), full_attrs).shape == (1, 1, count)
            continue
        with pytest.raises(RlxError, match="must contain an element"):
            MAX_POOL.infer((x,), full_attrs)


INVALID_CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    r"conv1d of \[1, 4, 6, 6\]: the array has rank 4": lambda g, x, w: g.conv1d(x, w),
    "the array has 4 channels": lambda g, x, w: g.conv(x, g.narrow(w, 1, 0, 3)),
    "groups=3 with weights": lambda g, x, w: g.conv(x, w, groups=3),
    "a window spans 11 elements on spatial axis 0": lambda g, x, w: g.conv(
        x, w, dilation=5
    ),
    "strides=.0.": lambda g, x, w: g.conv(x, w, stride=0),
    "strides=.1, 1, 1.": lambda g, x, w: g.conv(x, w, stride=(1, 1, 1)),
    "pads=.-1.": lambda g, x, w: g.conv(x, w, padding=-1),
    "padding='smae'": lambda g, x, w: g.conv(x, w, padding="smae"),
    "the result would be smaller": lambda g, x, w: g.conv(
        x, w, padding="same", stride=2
    ),
    r"bias has shape \[4\]; expected shape \[2\], one number per output": (
        lambda g, x, w: g.conv(x, w, g.constant(np.zeros(4, np.float32)))
    ),
    "operands are f32 and f16": lambda g, x, w: g.conv(x, g.cast(w, "f16")),
    r"a kernel \[0, 0\]": lambda g, x, w: g.max_pool(x, 0),
    "each window must contain an element": lambda g, x, w: g.max_pool(x, 2, padding=2),
    "use pads smaller than the windows": lambda g, x, w: g.max_pool(x, 3, 1, 1 << 40),
    "p=0.0": lambda g, x, w: g.lp_pool(x, 0.0, 2),
    "to 0 elements": lambda g, x, w: g.conv_transpose(x, w[:, :2], padding=4),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_arguments_are_rejected_with_both_numbers(message: str) -> None:
    g = rlx.Graph("bad")
    x, w = g.input("x", (1, 4, 6, 6)), g.input("w", (2, 4, 3, 3))
    with pytest.raises(RlxError, match=message):
        INVALID_CALLS[message](g, x, w)


INVALID_FOLD_CALLS: dict[str, Callable[[Any, Tensor], Any]] = {
    "have 35 windows of 4 elements": lambda g, x: g.fold(x, (6, 8), 2),
    "stride=0": lambda g, x: g.fold(x, (6, 8), 2, stride=0),
    "each of the 2 spatial axes": lambda g, x: g.fold(x, (6, 8), (2, 2, 2)),
    "the same shape [N, C, …]": lambda g, x: g.max_unpool(x, g.narrow(x, 0, 0, 1), 2),
}


@pytest.mark.parametrize("message", INVALID_FOLD_CALLS)
def test_invalid_fold_and_unpool_are_rejected(message: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        INVALID_FOLD_CALLS[message](g, g.input("x", (2, 4, 36)))
    assert message in str(caught.value)
