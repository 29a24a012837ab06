"""Grouped products, selective scans, causal convolutions, against others' formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import RlxError
from tests.agreement import Array
from tests.ops.test_windows_by_torch import drawn, ours, same

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional


@pytest.mark.parametrize("said", ["groups", "offsets", "sizes"])
def test_rows_by_groups(said: str) -> None:
    """An empty group, and rows behind the last one's end, which are zeros."""
    x, w = drawn((9, 5)), drawn((4, 5, 6), 1)
    groups = np.array([0, 0, 0, 2, 2, 3, 3, -1, 4], np.int32)
    given = {
        "groups": groups,
        "offsets": np.array([3, 3, 5, 7], np.int32),
        "sizes": np.array([3, 0, 2, 2], np.int32),
    }[said]
    want = np.zeros((9, 6))
    for row, group in enumerate(groups[:7]):
        want[row] = x[row].astype(float) @ w[group]
    got = ours(lambda g, x, w, at: g.grouped_matmul(x, w, **{said: at}), x, w, given)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert not got[7:].any()


def scanned(x: Any, delta: Any, a: Any, b: Any, c: Any, h: Any) -> tuple[Any, Any]:
    """Step by step in float64, with a state [B, D, N] as the paper has it."""
    made = []
    for t in range(x.shape[1]):
        step = delta[:, t, :, None]
        h = np.exp(step * a) * h + step * b[:, t, None, :] * x[:, t, :, None]
        made.append((h * c[:, t, None, :]).sum(-1))
    return np.stack(made, 1), h


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


@pytest.mark.parametrize("parts", [(12,), (1,) * 12, (5, 7)], ids=str)
def test_mamba_s_recurrence(parts: tuple[int, ...]) -> None:
    """Mamba's recurrence is right, in pieces between which the state goes on."""
    B, L, D, N = 2, 12, 6, 4
    x, delta, z = (drawn((B, L, D), n) for n in range(3))
    b, c = drawn((B, L, N), 3), drawn((B, L, N), 4)
    a, d, bias = -np.exp(drawn((D, N), 5)), drawn((D,), 6), drawn((D,), 7)
    wide = [one.astype(float) for one in (x, softplus(delta + bias), a, b, c)]
    want, last = scanned(*wide, np.zeros((B, D, N)))
    want = (want + d * x) * z / (1 + np.exp(-z))
    state: list[Array] = []
    made, at = [], 0
    for length in parts:
        x_, delta_, b_, c_, z_ = (o[:, at : at + length] for o in (x, delta, b, c, z))
        fed = [x_, delta_, a, b_, c_, d, z_, bias, *state]

        def build(g: Any, *given: Any) -> Any:
            h = given[8] if len(given) > 8 else None
            return g.selective_scan(*given[:8], delta_softplus=True, state=h)

        y, *state = both(build, *fed)
        made.append(y)
        at += length
    np.testing.assert_allclose(np.concatenate(made, 1), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state[0].transpose(0, 2, 1), last, rtol=1e-4, atol=1e-5)


def both(build: Callable[..., Any], *arrays: Array) -> list[Array]:
    """All outputs of a graph of the arrays as inputs, on the CPU."""
    g = rlx.Graph("parts")
    given = [g.input(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    g.set_outputs(build(g, *given))
    fed = {f"x{i}": a for i, a in enumerate(arrays)}
    return rlx.Session("cpu").compile(g).run(fed)


@pytest.mark.parametrize("size", [1, 4])
def test_causal_convolutions(size: int) -> None:
    """Causal convolutions are PyTorch's padded ones, in two parts as well."""
    x, w, b = drawn((2, 9, 5)), drawn((5, size), 1), drawn((5,), 2)
    turned = torch.from_numpy(x).transpose(1, 2)
    weight = torch.from_numpy(w)[:, None]
    padded = F.pad(turned, (size - 1, 0))
    want = F.conv1d(padded, weight, torch.from_numpy(b), groups=5).transpose(1, 2)
    whole, last = both(lambda g, *t: g.causal_conv1d(*t), x, w, b)
    same(whole, want)
    first, state = both(lambda g, *t: g.causal_conv1d(*t), x[:, :2], w, b)
    rest, state = both(lambda g, *t: g.causal_conv1d(*t), x[:, 2:], w, b, state)
    same(np.concatenate([first, rest], 1), want)
    np.testing.assert_array_equal(state, last)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "w [G, K, N]": lambda g, x: g.grouped_matmul(x, x, g.constant([0, 1])),
    "0 of groups, offsets and sizes": lambda g, x: g.grouped_matmul(x, x),
    "an integer for each, [3]": lambda g, x: g.grouped_matmul(
        g.reshape(x, (2, 12)), g.reshape(x, (3, 4, 2)), offsets=g.constant([1, 2])
    ),
    "a [D, N], with 1 number": lambda g, x: g.selective_scan(x, x, x, x, x),
    "b [2, 3, 4]; it is [2, 3, 2] here": lambda g, x: g.selective_scan(
        x, x, g.constant(np.ones((4, 2), np.float32)), x, x
    ),
    "weight [D, K]": lambda g, x: g.causal_conv1d(x, x),
    "a state is [2, 2, 4] here": lambda g, x: g.causal_conv1d(
        x, g.constant(np.ones((4, 3), np.float32)), state=x
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_does_not_fit_is_refused(says: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        REFUSED[says](g, g.input("x", (2, 3, 4)))
    assert says in str(caught.value)
