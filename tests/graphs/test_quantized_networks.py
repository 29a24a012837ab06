"""Check graphs with packed matrices: nearly the same numbers, from far fewer bytes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import AttributeRefused, InputError, UsageError
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.engines_under_test import engine


def random_weights(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) / 8).astype(np.float32)


def network(rng: np.random.Generator, rows: Any) -> tuple[rlx.Graph, dict[str, Any]]:
    """Return a graph with a table, matrices in both orientations, a fused matmul, a
    constant, and matrices that cannot be packed.
    """
    params = {
        "table": random_weights(rng, 200, 96),
        "up": random_weights(rng, 96, 128),
        "down": random_weights(rng, 96, 128),
        "fused": random_weights(rng, 96, 96),
        "both": random_weights(rng, 96, 96),
    }
    constant = random_weights(rng, 96, 64)
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
def test_a_packed_network_is_nearly_the_same(
    rows: Any, bits: int, symmetric: bool, near: float, rng: np.random.Generator
) -> None:
    """A network with packed weights is near the original, and equals the one with the
    dequantized weights.

    It does so out of a file, too.
    """
    g, params = network(rng, rows)
    options: dict[str, Any] = {"bits": bits, "group_size": 32, "symmetric": symmetric}
    packed_graph, packed = rlx.quantize_weights(g, params, **options)
    parts = {"words", "scales"} | (set() if symmetric else {"biases"})
    names = {f"{n}.{part}" for n in ("table", "up", "down", "fused") for part in parts}
    assert set(packed_graph.named("param")) == set(packed) == names | {"both"}
    assert bool(packed_graph.dims) == (rows == "rows")
    ids = rng.integers(-200, 200, (3, 7)).astype(np.int32)
    file = io.BytesIO()
    packed_graph.save(file, packed)
    assert len(file.getvalue()) < 0.5 * sum(a.nbytes for a in params.values())
    got = next(iter(rlx.load(file.getvalue()).run({"ids": ids}, device="cpu").values()))
    (want,) = _run_graph(g, params, ids)
    assert 0 < np.abs(got - want).max() < near * np.abs(want).max()
    # Exactly: the same graph with the floats that were packed.
    dequantized_params = dict(params)
    for name in ("table", "up", "down", "fused"):
        is_transposed = name in ("table", "down")
        matrix = params[name] if is_transposed else params[name].T
        quantized = rlx.quantize(np.ascontiguousarray(matrix), **options)
        size = matrix.shape[1]
        dequantized = rlx.dequantize(*quantized, bits=bits, group_size=32, size=size)
        dequantized_params[name] = dequantized if is_transposed else dequantized.T
    (same,) = _run_graph(packed_graph, packed, ids)
    np.testing.assert_array_equal(same, got)
    (floats,) = _run_graph(g, dequantized_params, ids)
    constant_error = 0.01 if bits == 8 else 0.2  # which is packed as well
    assert np.abs(same - floats).max() < constant_error * np.abs(want).max()


def _run_graph(g: rlx.Graph, params: dict[str, Any], ids: Any) -> list[Any]:
    compiled = rlx.Session("cpu").compile(g)
    for name, array in params.items():
        compiled.set_param(name, array)
    return list(compiled.run({"ids": ids}))


@pytest.mark.requires_wgpu
def test_a_packed_table_on_an_adapter(
    adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    g, params = network(rng, 3)
    packed_graph, packed = rlx.quantize_weights(g, params, 4, 32)
    feeds = {"ids": rng.integers(0, 200, (3, 7)).astype(np.int32), **packed}
    want = engine(None).run(packed_graph, feeds)[0]
    got = engine(adapter).run(packed_graph, feeds)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_unpackable_weights_are_refused(rng: np.random.Generator) -> None:
    g, params = network(rng, 3)
    bare = rlx.Graph()
    bare.set_outputs([bare.input("x", (2, 96)) @ bare.param("w", (96, 96))])
    with pytest.raises(InputError, match="pass the values of the params by name"):
        rlx.quantize_weights(bare)
    with pytest.raises(AttributeRefused, match="2, 4 or 8"):
        rlx.quantize_weights(g, params, 5)
    with pytest.raises(UsageError, match="a mapping of names to arrays"):
        rlx.quantize_weights(g, [1])  # type: ignore[arg-type]
