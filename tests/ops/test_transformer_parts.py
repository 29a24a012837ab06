"""Rotary embedding, gated units and LoRA by the methods, against formulas of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import IndexRefused, RlxError
from tests.ops.test_windows_by_torch import drawn, ours, same

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional

TURNS = 100.0 ** (-np.arange(4) / 4)
ANGLES = np.arange(9)[:, None] * TURNS  # positions 0 … 8, heads of 8


def turned(x: Any, angles: Any, interleaved: bool) -> Any:
    """Pairs as complex numbers, times exp(i · angle), in float64."""
    half = angles.shape[-1]
    part = x[..., : 2 * half].astype(np.float64)
    cut = (slice(None, None, 2), slice(1, None, 2))
    a, b = (slice(half), slice(half, None)) if not interleaved else cut
    made, out = (
        (part[..., a] + 1j * part[..., b]) * np.exp(1j * angles),
        x.astype(float),
    )
    out[..., : 2 * half][..., a], out[..., : 2 * half][..., b] = made.real, made.imag
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["rows", "heads", "flat"])
@pytest.mark.parametrize("places", [None, (5,), (2, 5)], ids=str)
def test_rope(interleaved: bool, layout: str, places: Any) -> None:
    """Heads of 11, of which 8 are turned; the table is longer than the rows."""
    x = drawn((2, 3, 5, 11))
    at = np.arange(5)
    if places:
        at = np.random.default_rng(1).integers(0, 9, places, np.int32)
    angles = ANGLES[at] if at.ndim == 1 else ANGLES[at][:, None]
    want, how, given = turned(x, angles, interleaved), {}, x
    if layout == "flat":
        given, want = (one.transpose(0, 2, 1, 3).reshape(2, 5, 33) for one in (x, want))
        how = {"num_heads": 3}
    elif layout == "rows" and places != (2, 5):
        given, want = x[0, 0], want[0, 0]

    def build(g: Any, x: Any, *at: Any) -> Any:
        table = g.rope_table(9, 8, base=100.0)
        return g.rope(x, *table, *at, interleaved=interleaved, **how)

    got = ours(build, given, *([at] if places else []))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_position_outside_the_table_is_refused() -> None:
    def build(g: Any, x: Any, at: Any) -> Any:
        return g.rope(x, *g.rope_table(9, 4), at)

    with pytest.raises(IndexRefused, match="index 9"):
        ours(build, drawn((2, 4)), np.array([0, 9], np.int32))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gated_units(axis: int) -> None:
    x = drawn((4, 6, 8))
    t = torch.from_numpy(x)
    same(ours(lambda g, x: g.glu(x, axis), x), F.glu(t, axis))
    up, gate = t.chunk(2, axis)
    same(ours(lambda g, x: g.swiglu(x, axis), x), up * F.silu(gate))
    same(ours(lambda g, x: g.swiglu(x, axis, True), x), F.silu(up) * gate)
    same(ours(lambda g, x: g.glu(x, axis, "gelu"), x), up * F.gelu(gate))


@pytest.mark.parametrize("centred", [True, False])
def test_residual_sums_and_their_norms(centred: bool) -> None:
    x, y, w, b = drawn((3, 4, 9)), drawn((3, 4, 9), 1), drawn((9,), 2), drawn((9,), 3)
    total = torch.from_numpy(x + y)
    want = F.layer_norm(total, (9,), torch.from_numpy(w), torch.from_numpy(b))
    if not centred:
        want = F.rms_norm(total, (9,), torch.from_numpy(w), 1e-5) + torch.from_numpy(b)
    name = "add_layer_norm" if centred else "add_rms_norm"
    same(ours(lambda g, *t: getattr(g, name)(*t)[0], x, y, w, b), want)
    same(ours(lambda g, *t: getattr(g, name)(*t)[1], x, y), total)


def test_lora() -> None:
    x, w, a, b = (drawn(s) for s in ((2, 3, 7), (7, 5), (7, 2), (2, 5)))
    merged = x.astype(float) @ (w.astype(float) + 0.25 * (a @ b))
    got = ours(lambda g, *t: g.lora_matmul(*t, scale=0.25), x, w, a, b)
    np.testing.assert_allclose(got, merged, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "two alike, [..., n]": lambda g, x: g.add_rms_norm(x, g.narrow(x, 0, 0, 2)),
    "one angle for two": lambda g, x: g.rope(x, *g.rope_table(6, 10)),
    "broadcast to": lambda g, x: g.rope(x, *g.rope_table(4, 8)),
    "a multiple of the heads": lambda g, x: g.rope(
        g.reshape(x, (1, 6, 8)), *g.rope_table(6, 4), num_heads=3
    ),
    "size even": lambda g, x: g.rope(x, *g.rope_table(6, 7)),
    "its length is even": lambda g, x: g.glu(g.narrow(x, 1, 0, 7)),
    "allowed: sigmoid": lambda g, x: g.glu(x, activation="exp"),
    "w [6, 8]": lambda g, x: g.lora_matmul(x, x, x, x),
    "scale is finite": lambda g, x: g.lora_matmul(
        x, *(g.constant(np.ones((8, 8), np.float32)) for _ in range(3)), scale=np.inf
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_does_not_fit_is_refused(says: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        REFUSED[says](g, g.input("x", (6, 8)))
    assert says in str(caught.value)
