"""Graphs whose matrices were packed: nearly the same numbers, of far fewer bytes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import AttributeRefused, InputError, UsageError
from rlxweb.gpu.port import Want
from tests.agreement import engine


def weights(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) / 8).astype(np.float32)


def network(rng: np.random.Generator, rows: Any) -> tuple[rlx.Graph, dict[str, Any]]:
    """A table, a layer each way, a fused one, a constant, and what stays: a matrix that
    is added too, a left operand.
    """
    params = {
        "table": weights(rng, 200, 96),
        "up": weights(rng, 96, 128),
        "down": weights(rng, 96, 128),
        "fused": weights(rng, 96, 96),
        "both": weights(rng, 96, 96),
    }
    constant = weights(rng, 96, 64)
    g = rlx.Graph("network")
    ids = g.input("ids", (rows, 7), "i32")
    p = {name: g.param(name, array.shape) for name, array in params.items()}
    x = g.gather(p["table"], ids)
    x = g.gelu(x @ p["up"]) @ p["down"].T
    bias = g.constant(np.full(96, 0.5, np.float32))
    x = g.apply("fused_matmul_bias_act", x, p["fused"], bias, activation="relu")
    x = x @ p["both"] + p["both"][0]
    g.set_outputs([x @ g.constant(constant)])
    return g, params


@pytest.mark.parametrize("rows", [3, "rows"])
@pytest.mark.parametrize(
    ("bits", "symmetric", "near"), [(8, True, 0.02), (4, False, 0.3)]
)
def test_a_network_is_nearly_the_same(
    rows: Any, bits: int, symmetric: bool, near: float, rng: np.random.Generator
) -> None:
    """A network with packed weights is near the first, and gives what they hold.

    It does so out of a file, too.
    """
    g, params = network(rng, rows)
    how: dict[str, Any] = {"bits": bits, "group_size": 32, "symmetric": symmetric}
    made, packed = rlx.quantize_weights(g, params, **how)
    parts = {"words", "scales"} | (set() if symmetric else {"biases"})
    names = {f"{n}.{part}" for n in ("table", "up", "down", "fused") for part in parts}
    assert set(made.named("param")) == set(packed) == names | {"both"}
    assert bool(made.dims) == (rows == "rows")
    ids = rng.integers(-200, 200, (3, 7)).astype(np.int32)
    file = io.BytesIO()
    made.save(file, packed)
    assert len(file.getvalue()) < 0.5 * sum(a.nbytes for a in params.values())
    got = next(iter(rlx.load(file.getvalue()).run({"ids": ids}, device="cpu").values()))
    (want,) = _run(g, params, ids)
    assert 0 < np.abs(got - want).max() < near * np.abs(want).max()
    # Exactly: the same graph with the floats that were packed.
    held = dict(params)
    for name in ("table", "up", "down", "fused"):
        is_turned = name in ("table", "down")
        of = params[name] if is_turned else params[name].T
        parts_of = rlx.quantize(np.ascontiguousarray(of), **how)
        size = of.shape[1]
        back = rlx.dequantize(*parts_of, bits=bits, group_size=32, size=size)
        held[name] = back if is_turned else back.T
    (same,) = _run(made, packed, ids)
    np.testing.assert_array_equal(same, got)
    (floats,) = _run(g, held, ids)
    constant = 0.01 if bits == 8 else 0.2  # which is packed as well
    assert np.abs(same - floats).max() < constant * np.abs(want).max()


def _run(g: rlx.Graph, params: dict[str, Any], ids: Any) -> list[Any]:
    compiled = rlx.Session("cpu").compile(g)
    for name, array in params.items():
        compiled.set_param(name, array)
    return list(compiled.run({"ids": ids}))


@pytest.mark.requires_wgpu
def test_a_packed_table_on_an_adapter(adapter: Want, rng: np.random.Generator) -> None:
    g, params = network(rng, 3)
    made, packed = rlx.quantize_weights(g, params, 4, 32)
    feeds = {"ids": rng.integers(0, 200, (3, 7)).astype(np.int32), **packed}
    want = engine(None).run(made, feeds)[0]
    got = engine(adapter).run(made, feeds)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_packed_is_said(rng: np.random.Generator) -> None:
    g, params = network(rng, 3)
    bare = rlx.Graph()
    bare.set_outputs([bare.input("x", (2, 96)) @ bare.param("w", (96, 96))])
    with pytest.raises(InputError, match="give the values by name"):
        rlx.quantize_weights(bare)
    with pytest.raises(AttributeRefused, match="2, 4 or 8"):
        rlx.quantize_weights(g, params, 5)
    with pytest.raises(UsageError, match="arrays by name"):
        rlx.quantize_weights(g, [1])  # type: ignore[arg-type]
