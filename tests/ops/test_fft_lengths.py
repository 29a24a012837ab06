"""Test transforms of every length: relative L2 error against numpy.fft in float64.

All lengths 1 … 512, primes and powers of two to 2^18, real and complex, by NumPy, by
the declared shader passes and, for a spread of lengths, by every faster variant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph, node_signature
from rlxweb.ir.op import registry
from tests.conftest import ADAPTERS
from tests.engines_under_test import Array, EngineUnderTest, adapter_engine, engine
from tests.suite_tiers import Sampler

MAX_ERROR = 2e-6
SHORT = tuple(range(1, 513))
PRIMES = (521, 1009, 2053, 4099, 8191, 65_537)
POWERS = tuple(1 << e for e in range(10, 19))
SPREAD = (1, 2, 3, 5, 16, 17, 31, 32, 33, 60, 96, 97, 128, 243, 251, 256, 300, 343, 360)
SPREAD += (384, 500, 509, 512)


def complex_to_blocks(z: Array) -> Array:
    return np.concatenate([z.real, z.imag], axis=-1)


def transform_errors(runner: EngineUnderTest, n: int, rows: int) -> dict[str, float]:
    """Return relative L2 errors of fft, rfft and irfft of length n, from one run."""
    rng = np.random.default_rng(n)
    block = rng.normal(size=(rows, 2 * n)).astype(np.float32)
    real = block[:, :n].copy()
    half = complex_to_blocks(np.fft.rfft(real)).astype(np.float32)
    g = Graph()
    x, r, h = (
        g.input(name, array.shape)
        for name, array in (("x", block), ("r", real), ("h", half))
    )
    g.set_outputs([g.fft(x), g.rfft_block(r), g.apply("irfft", h, n=n)])
    got = runner.run(g, {"x": block, "r": real, "h": half})
    wide = block.astype(np.float64)
    bins = n // 2 + 1
    spectrum = half[:, :bins].astype(np.float64) + 1j * half[:, bins:]
    want = (
        complex_to_blocks(np.fft.fft(wide[:, :n] + 1j * wide[:, n:])),
        complex_to_blocks(np.fft.rfft(real.astype(np.float64))),
        np.fft.irfft(spectrum, n),
    )
    return {
        name: float(np.linalg.norm(a - b) / np.linalg.norm(b))
        for name, a, b in zip(("fft", "rfft", "irfft"), got, want, strict=True)
    }


def inaccurate_lengths(
    runner: EngineUnderTest, lengths: Sequence[int], rows: int = 2
) -> list[str]:
    failures = []
    for n in lengths:
        for name, error in transform_errors(runner, n, rows).items():
            if not error <= MAX_ERROR:
                failures.append(f"{name} of {n} on {runner.name}: {error:.1e}")
    return failures


def test_numpy_transforms_every_length() -> None:
    assert inaccurate_lengths(engine(None), (*SHORT, *PRIMES, *POWERS)) == []


@pytest.mark.requires_wgpu
@pytest.mark.full
def test_shader_passes_transform_every_length(adapter: AdapterRequest) -> None:
    """Shader passes transform every length, all on one adapter, some on others.

    Which passes a length takes is the same for all.
    """
    short = SHORT if adapter == ADAPTERS["lavapipe"] else SPREAD
    assert inaccurate_lengths(engine(adapter, variants=False), (*short, *PRIMES)) == []


@pytest.mark.requires_wgpu
def test_long_rows_are_transformed(adapter: AdapterRequest, sampled: Sampler) -> None:
    max_count = 3 if adapter == ADAPTERS["lavapipe"] else 2
    assert (
        inaccurate_lengths(engine(adapter), sampled(POWERS, max_count, quick=3), rows=1)
        == []
    )


@pytest.mark.requires_wgpu
def test_variants_transform_a_spread_of_lengths(
    adapter: AdapterRequest, sampled: Sampler
) -> None:
    """Nine rows: more than one vector of lanes, and not a multiple of it."""
    max_count = 5 if adapter == ADAPTERS["lavapipe"] else 3
    assert (
        inaccurate_lengths(engine(adapter), sampled(SPREAD, max_count, quick=8), rows=9)
        == []
    )


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("op", "n"),
    [
        ("fft", 3 * 37),
        ("rfft", 2 * 61),
        ("irfft", 2 * 53),
        pytest.param("fft", 2 * 59, marks=pytest.mark.full),
    ],
)
def test_primes_up_to_61_use_one_butterfly(
    op: str, n: int, adapter: AdapterRequest
) -> None:
    """Primes to 61, above any radix that is chosen freely, are one butterfly."""
    engine = adapter_engine(adapter).with_variant(f"{op}, unrolled passes")
    graph = Graph("primes")
    width = {"fft": 2 * n, "rfft": n, "irfft": 2 * (n // 2 + 1)}[op]
    attrs = {"n": n} if op == "irfft" else {}
    output = graph.apply(op, graph.input("x", (21, width)), **attrs)
    graph.set_outputs([output])
    node_op, *rest = node_signature(graph, graph.node(output.id))
    assert engine.variants_for(node_op, *rest) == (f"{op}, unrolled passes",)
    x = np.random.default_rng(n).standard_normal((21, width)).astype(np.float32)
    (got,) = EngineUnderTest("passes", engine).run(graph, {"x": x})
    node = graph.node(output.id)
    want = registry.get(op).reference(np, node.attrs, x.astype(np.float64))
    assert np.abs(got - want).max() < MAX_ERROR * np.abs(want).max()
