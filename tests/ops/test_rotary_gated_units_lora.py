"""Compare rotary embedding, gated units and LoRA with published formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import IndexRefused, RlxError
from tests.ops.torch_comparison import (
    assert_close_to_torch,
    random_array,
    run_on_cpu,
)

pytestmark = pytest.mark.requires_torch
F = torch.nn.functional

FREQUENCIES = 100.0 ** (-np.arange(4) / 4)
ANGLES = np.arange(9)[:, None] * FREQUENCIES  # positions 0 … 8, heads of 8


def rotate_pairs(x: Any, angles: Any, interleaved: bool) -> Any:
    """Rotate pairs as complex numbers, times exp(i · angle), in float64."""
    half = angles.shape[-1]
    part = x[..., : 2 * half].astype(np.float64)
    even_and_odd = (slice(None, None, 2), slice(1, None, 2))
    a, b = (slice(half), slice(half, None)) if not interleaved else even_and_odd
    rotated = (part[..., a] + 1j * part[..., b]) * np.exp(1j * angles)
    out = x.astype(float)
    out[..., : 2 * half][..., a], out[..., : 2 * half][..., b] = (
        rotated.real,
        rotated.imag,
    )
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["rows", "heads", "flat"])
@pytest.mark.parametrize("positions_shape", [None, (5,), (2, 5)], ids=str)
def test_rope(interleaved: bool, layout: str, positions_shape: Any) -> None:
    """Heads have 11 elements, of which 8 are rotated; the table is longer than the
    rows.
    """
    x = random_array((2, 3, 5, 11))
    positions = np.arange(5)
    if positions_shape:
        positions = np.random.default_rng(1).integers(0, 9, positions_shape, np.int32)
    angles = ANGLES[positions] if positions.ndim == 1 else ANGLES[positions][:, None]
    want, options, operand = rotate_pairs(x, angles, interleaved), {}, x
    if layout == "flat":
        operand, want = (
            array.transpose(0, 2, 1, 3).reshape(2, 5, 33) for array in (x, want)
        )
        options = {"num_heads": 3}
    elif layout == "rows" and positions_shape != (2, 5):
        operand, want = x[0, 0], want[0, 0]

    def build(g: Any, x: Any, *positions: Any) -> Any:
        table = g.rope_table(9, 8, base=100.0)
        return g.rope(x, *table, *positions, interleaved=interleaved, **options)

    got = run_on_cpu(build, operand, *([positions] if positions_shape else []))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_position_outside_the_table_is_rejected() -> None:
    def build(g: Any, x: Any, positions: Any) -> Any:
        return g.rope(x, *g.rope_table(9, 4), positions)

    with pytest.raises(IndexRefused, match="index 9"):
        run_on_cpu(build, random_array((2, 4)), np.array([0, 9], np.int32))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gated_units(axis: int) -> None:
    x = random_array((4, 6, 8))
    t = torch.from_numpy(x)
    assert_close_to_torch(run_on_cpu(lambda g, x: g.glu(x, axis), x), F.glu(t, axis))
    up, gate = t.chunk(2, axis)
    assert_close_to_torch(
        run_on_cpu(lambda g, x: g.swiglu(x, axis), x), up * F.silu(gate)
    )
    assert_close_to_torch(
        run_on_cpu(lambda g, x: g.swiglu(x, axis, True), x), F.silu(up) * gate
    )
    assert_close_to_torch(
        run_on_cpu(lambda g, x: g.glu(x, axis, "gelu"), x), up * F.gelu(gate)
    )


@pytest.mark.parametrize("centred", [True, False])
def test_residual_sums_and_their_norms(centred: bool) -> None:
    x = random_array((3, 4, 9))
    y = random_array((3, 4, 9), 1)
    w = random_array((9,), 2)
    b = random_array((9,), 3)
    total = torch.from_numpy(x + y)
    want = F.layer_norm(total, (9,), torch.from_numpy(w), torch.from_numpy(b))
    if not centred:
        want = F.rms_norm(total, (9,), torch.from_numpy(w), 1e-5) + torch.from_numpy(b)
    name = "add_layer_norm" if centred else "add_rms_norm"
    assert_close_to_torch(
        run_on_cpu(lambda g, *t: getattr(g, name)(*t)[0], x, y, w, b), want
    )
    assert_close_to_torch(
        run_on_cpu(lambda g, *t: getattr(g, name)(*t)[1], x, y), total
    )


def test_lora() -> None:
    x, w, a, b = (random_array(s) for s in ((2, 3, 7), (7, 5), (7, 2), (2, 5)))
    merged = x.astype(float) @ (w.astype(float) + 0.25 * (a @ b))
    got = run_on_cpu(lambda g, *t: g.lora_matmul(*t, scale=0.25), x, w, a, b)
    np.testing.assert_allclose(got, merged, rtol=1e-4, atol=1e-5)


INVALID_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "must have the same shape [..., n]": lambda g, x: g.add_rms_norm(
        x, g.narrow(x, 0, 0, 2)
    ),
    "the last axis of cos and sin may be at most half": lambda g, x: g.rope(
        x, *g.rope_table(6, 10)
    ),
    "broadcast to": lambda g, x: g.rope(x, *g.rope_table(4, 8)),
    "num_heads >= 1 that divides the size": lambda g, x: g.rope(
        g.reshape(x, (1, 6, 8)), *g.rope_table(6, 4), num_heads=3
    ),
    "an even size": lambda g, x: g.rope(x, *g.rope_table(6, 7)),
    "the length of the axis must be even": lambda g, x: g.glu(g.narrow(x, 1, 0, 7)),
    "allowed: sigmoid": lambda g, x: g.glu(x, activation="exp"),
    "w [6, 8]": lambda g, x: g.lora_matmul(x, x, x, x),
    "scale must be finite": lambda g, x: g.lora_matmul(
        x, *(g.constant(np.ones((8, 8), np.float32)) for _ in range(3)), scale=np.inf
    ),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_operands_are_rejected(message: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        INVALID_CALLS[message](g, g.input("x", (6, 8)))
    assert message in str(caught.value)
