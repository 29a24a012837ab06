"""Compare quantised ops with formulas in NumPy, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.engines_under_test import EngineUnderTest, engine


def check_half_step_rounding(rng: np.random.Generator, runner: EngineUnderTest) -> None:
    """Check halves of steps, which a division that is not rounded as IEEE requires
    would move.
    """
    scale = rng.uniform(1e-4, 3.0, 600).astype(np.float32)
    scale[:5] = 3e-30, 5e-21, 2.0**-64, 1e30, 1.1e36
    steps = rng.integers(-140, 140, (11, 600)) + rng.choice([0.0, 0.5], (11, 600))
    x = (steps * scale).astype(np.float32)
    x[0, :3], scale[7] = (np.inf, -np.inf, np.nan), 2e-3
    zero = rng.integers(-9, 10, 600).astype(np.int8)
    g = rlx.Graph("halves")
    operand = g.input("x", x.shape)
    q = g.quantize_linear(operand, g.constant(scale), g.constant(zero), axis=1, bits=7)
    g.set_outputs([q, g.round_divide(operand, g.constant(scale))])
    got, rounded = runner.run(g, {"x": x})
    with np.errstate(invalid="ignore"):
        want = np.rint(x / scale)
    np.testing.assert_array_equal(rounded, want)
    expected = np.clip(np.nan_to_num(want, nan=-zero[2]) + zero, -64, 63)
    np.testing.assert_array_equal(got, expected.astype(np.int8))


def test_numpy_rounds_halves_of_steps(rng: np.random.Generator) -> None:
    check_half_step_rounding(rng, engine(None))


@pytest.mark.requires_wgpu
def test_adapters_round_halves_of_steps(
    adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    check_half_step_rounding(rng, engine(adapter))


def run_on_cpu(build: Callable[..., Any], *arrays: Any) -> Any:
    g = rlx.Graph("one")
    tensors = [g.input(f"x{n}", a.shape, a.dtype) for n, a in enumerate(arrays)]
    g.set_outputs([build(g, *tensors)])
    feeds = {f"x{n}": a for n, a in enumerate(arrays)}
    return rlx.Session("cpu").compile(g).run(feeds)[0]


def test_quantize_round_trip_in_blocks(rng: np.random.Generator) -> None:
    """The last block is shorter; 4 bits are stored in u8."""
    x = rng.normal(0, 2, (5, 10)).astype(np.float32)
    scale = rng.uniform(0.1, 0.4, (5, 3)).astype(np.float32)
    element_scales = np.repeat(scale, 4, 1)[:, :10]
    want = np.clip(np.rint(x / element_scales) + 8, 0, 15)
    options = {"axis": -1, "block_size": 4}
    got = run_on_cpu(
        lambda g, x: g.quantize_linear(x, scale, 8, dtype="u8", bits=4, **options), x
    )
    np.testing.assert_array_equal(got, want.astype(np.uint8))
    dequantized = run_on_cpu(
        lambda g, q: g.dequantize_linear(q, scale, 8, **options), got
    )
    np.testing.assert_array_equal(
        dequantized, (want.astype(np.float32) - 8) * element_scales
    )


def test_long_integer_products_are_exact(rng: np.random.Generator) -> None:
    """700 products of up to 65,025 exceed what f32 represents exactly."""
    x, y = rng.integers(0, 256, (2, 3, 700)), rng.integers(-128, 128, (2, 700, 4))
    x[0, 0], y[0, :, 0] = 255, -128
    rows, columns = np.array([0, 3, 255]), rng.integers(-128, 128, 4)
    rows[0], columns[0] = 0, 127
    want = (x - rows[:, None]) @ (y - columns)

    def build(g: Any, x: Any, y: Any) -> Any:
        zeros = (g.constant(rows.astype(np.uint8)), g.constant(columns.astype(np.int8)))
        return g.matmul_integer(x, y, *zeros)

    got = run_on_cpu(build, x.astype(np.uint8), y.astype(np.int8))
    np.testing.assert_array_equal(got, want)


def test_dynamic_range_includes_zero(rng: np.random.Generator) -> None:
    x = rng.uniform(1, 3, (4, 5)).astype(np.float32)
    for values in (x, -x, 0 * x):
        q, scale, zero = (
            run_on_cpu(
                lambda g, x, index=index: g.dynamic_quantize_linear(x)[index], values
            )
            for index in range(3)
        )
        value_range = max(values.max(), 0) - min(values.min(), 0)
        assert scale == np.float32(value_range / np.float32(255) or 1)
        assert int(zero) == (255 if (values < 0).any() else 0)
        np.testing.assert_allclose((q - float(zero)) * scale, values, atol=scale / 2)


INVALID_CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "expected f16, f32": lambda g, x, q: g.quantize_linear(q, 0.1),
    "scale [3]": lambda g, x, q: g.quantize_linear(x, [0.1] * 3),
    "expected [6, 2] for axis 1 in blocks of 4": lambda g, x, q: g.dequantize_linear(
        q, np.ones((6, 3)), block_size=4
    ),
    "bits=9 for i8": lambda g, x, q: g.quantize_linear(x, 0.1, dtype="i8", bits=9),
    "quant_min=3": lambda g, x, q: g.apply(
        "quantize_linear",
        *(x, g.constant(np.float32(1)), g.constant(np.int8(0))),
        quant_min=3,
        quant_max=3,
    ),
    "K mismatch": lambda g, x, q: g.matmul_integer(q, q),
    "operand 0 is f32": lambda g, x, q: g.matmul_integer(x, x),
    "dimension -2 is 6": lambda g, x, q: g.matmul_integer(
        q, g.transpose(q, (1, 0)), [1, 2]
    ),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_operands_are_rejected(message: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        INVALID_CALLS[message](g, g.input("x", (6, 8)), g.input("q", (6, 8), "u8"))
    assert message in str(caught.value)
