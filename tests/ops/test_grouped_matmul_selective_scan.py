"""Compare grouped products, selective scans and causal convolutions with published
formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from tests.engines_under_test import Array
from tests.ops.torch_comparison import (
    assert_close_to_torch,
    random_array,
    run_on_cpu,
)

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional


@pytest.mark.parametrize("keyword", ["groups", "offsets", "sizes"])
def test_grouped_matmul(keyword: str) -> None:
    """A group may be empty, and rows after the last group's end are zeros."""
    x, w = random_array((9, 5)), random_array((4, 5, 6), 1)
    groups = np.array([0, 0, 0, 2, 2, 3, 3, -1, 4], np.int32)
    group_argument = {
        "groups": groups,
        "offsets": np.array([3, 3, 5, 7], np.int32),
        "sizes": np.array([3, 0, 2, 2], np.int32),
    }[keyword]
    want = np.zeros((9, 6))
    for row, group in enumerate(groups[:7]):
        want[row] = x[row].astype(float) @ w[group]
    got = run_on_cpu(
        lambda g, x, w, group_operand: g.grouped_matmul(
            x, w, **{keyword: group_operand}
        ),
        x,
        w,
        group_argument,
    )
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert not got[7:].any()


def selective_scan_reference(
    x: Any, delta: Any, a: Any, b: Any, c: Any, h: Any
) -> tuple[Any, Any]:
    """Compute a selective scan step by step in float64, with a state [B, D, N] as in
    the paper.
    """
    outputs = []
    for t in range(x.shape[1]):
        step = delta[:, t, :, None]
        h = np.exp(step * a) * h + step * b[:, t, None, :] * x[:, t, :, None]
        outputs.append((h * c[:, t, None, :]).sum(-1))
    return np.stack(outputs, 1), h


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


@pytest.mark.parametrize("chunk_lengths", [(12,), (1,) * 12, (5, 7)], ids=str)
def test_selective_scan_in_chunks(chunk_lengths: tuple[int, ...]) -> None:
    """Mamba's recurrence is right, also in chunks that pass the state on."""
    B, L, D, N = 2, 12, 6, 4
    x, delta, z = (random_array((B, L, D), n) for n in range(3))
    b, c = random_array((B, L, N), 3), random_array((B, L, N), 4)
    a = -np.exp(random_array((D, N), 5))
    d = random_array((D,), 6)
    bias = random_array((D,), 7)
    float64_operands = [
        array.astype(float) for array in (x, softplus(delta + bias), a, b, c)
    ]
    want, last = selective_scan_reference(*float64_operands, np.zeros((B, D, N)))
    want = (want + d * x) * z / (1 + np.exp(-z))
    state: list[Array] = []
    outputs, start = [], 0
    for length in chunk_lengths:
        x_, delta_, b_, c_, z_ = (
            array_part[:, start : start + length] for array_part in (x, delta, b, c, z)
        )
        arrays = [x_, delta_, a, b_, c_, d, z_, bias, *state]

        def build(g: Any, *operands: Any) -> Any:
            h = operands[8] if len(operands) > 8 else None
            return g.selective_scan(*operands[:8], delta_softplus=True, state=h)

        y, *state = run_all_outputs(build, *arrays)
        outputs.append(y)
        start += length
    np.testing.assert_allclose(np.concatenate(outputs, 1), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state[0].transpose(0, 2, 1), last, rtol=1e-4, atol=1e-5)


def run_all_outputs(build: Callable[..., Any], *arrays: Array) -> list[Array]:
    """Return all outputs of a graph with the arrays as inputs, on the CPU."""
    g = rlx.Graph("parts")
    operands = [g.input(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    g.set_outputs(build(g, *operands))
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    return rlx.Session("cpu").compile(g).run(feeds)


@pytest.mark.parametrize("size", [1, 4])
def test_causal_convolutions(size: int) -> None:
    """Causal convolutions are PyTorch's padded ones, in two parts as well."""
    x, w, b = random_array((2, 9, 5)), random_array((5, size), 1), random_array((5,), 2)
    channels_first = torch.from_numpy(x).transpose(1, 2)
    weight = torch.from_numpy(w)[:, None]
    padded = F.pad(channels_first, (size - 1, 0))
    want = F.conv1d(padded, weight, torch.from_numpy(b), groups=5).transpose(1, 2)
    full_output, last = run_all_outputs(lambda g, *t: g.causal_conv1d(*t), x, w, b)
    assert_close_to_torch(full_output, want)
    first_part, state = run_all_outputs(
        lambda g, *t: g.causal_conv1d(*t), x[:, :2], w, b
    )
    second_part, state = run_all_outputs(
        lambda g, *t: g.causal_conv1d(*t), x[:, 2:], w, b, state
    )
    assert_close_to_torch(np.concatenate([first_part, second_part], 1), want)
    np.testing.assert_array_equal(state, last)


INVALID_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "w [G, K, N]": lambda g, x: g.grouped_matmul(x, x, g.constant([0, 1])),
    "no assignment of rows to groups": lambda g, x: g.grouped_matmul(x, x),
    "expected shape [3], one integer per group": lambda g, x: g.grouped_matmul(
        g.reshape(x, (2, 12)), g.reshape(x, (3, 4, 2)), offsets=g.constant([1, 2])
    ),
    "operand a must be [D, N] with N at least 1": lambda g, x: g.selective_scan(
        x, x, x, x, x
    ),
    "b [2, 3, 4]; expected [2, 3, 2]": lambda g, x: g.selective_scan(
        x, x, g.constant(np.ones((4, 2), np.float32)), x, x
    ),
    "weight [channels, kernel size]": lambda g, x: g.causal_conv1d(x, x),
    "expected state [2, 2, 4]": lambda g, x: g.causal_conv1d(
        x, g.constant(np.ones((4, 3), np.float32)), state=x
    ),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_operands_are_rejected(message: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        INVALID_CALLS[message](g, g.input("x", (2, 3, 4)))
    assert message in str(caught.value)
