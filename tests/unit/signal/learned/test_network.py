"""The network of butterflies and the program that is made of it: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned import network
from rlxweb.signal.learned.network import (
    Program,
    active,
    bit_reversed,
    block_weights,
    butterflies,
    exact,
    needed,
    open_gates,
    program_of,
    stages_of,
)


def run(gates: np.ndarray, x: np.ndarray) -> np.ndarray:
    """All bins (B, n) of rows (B, n), through the network."""
    rows = x[:, bit_reversed(x.shape[1])]
    re, im = butterflies(list(gates), rows, np.zeros_like(rows))
    return np.asarray(re + 1j * im)


@pytest.mark.parametrize("n", [4, 8, 64, 512])
def test_with_all_gates_open_it_is_the_transform(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((3, n))
    np.testing.assert_allclose(run(open_gates(n), x), np.fft.fft(x), atol=1e-12 * n)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 100, -4])
def test_what_is_no_power_of_two_has_no_stages(n: int) -> None:
    with pytest.raises(ValueError, match="no power of two"):
        stages_of(n)


def test_samples_are_taken_in_bit_reversed_order() -> None:
    assert bit_reversed(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, Band]:
    """Gates, most of them open, some blocks closed, and a band."""
    n = 1 << draw(st.integers(2, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gates = rng.random((stages_of(n), n // 2)) >= draw(st.sampled_from([0, 0.02, 0.4]))
    for stage in range(len(gates)):
        blocks = gates[stage].reshape(-1, 1 << stage)
        blocks[rng.random(len(blocks)) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = False
    first = draw(st.integers(0, n // 2))
    return gates, Band(first, draw(st.integers(first, n // 2)) + 1)


@settings(max_examples=60)
@given(networks())
def test_the_program_computes_what_the_network_does(
    drawn: tuple[np.ndarray, Band],
) -> None:
    """A program computes what the network does, with any gates and any bins."""
    gates, band = drawn
    n = 2 * gates.shape[1]
    x = np.random.default_rng(n).standard_normal((2, n))
    program = program_of(gates, band)
    sums = np.einsum("ksp,kp->sk", program.terms(x), program.weights)
    np.testing.assert_allclose(sums, run(gates, x)[:, band.bins], atol=1e-11 * n)
    assert program.m * program.stride == n
    assert list(program.phases) == sorted(set(program.phases))


@settings(max_examples=40)
@given(networks())
def test_what_is_not_needed_changes_no_bin(
    drawn: tuple[np.ndarray, Band],
) -> None:
    """Butterflies beyond `needed` may be open or closed."""
    gates, band = drawn
    n = 2 * gates.shape[1]
    x = np.random.default_rng(n).standard_normal((1, n))
    wanted = needed(gates, band)
    for filled in (gates & wanted, gates | ~wanted):
        np.testing.assert_allclose(
            run(filled, x)[:, band.bins], run(gates, x)[:, band.bins], atol=1e-11 * n
        )
    assert active(gates, band) == int((gates & wanted).sum())
    assert active(gates & wanted, band) == active(gates, band)


def test_one_bin_needs_a_tree_of_butterflies() -> None:
    """One bin of n samples needs n - 1 butterflies: n / 2 at first, one at last."""
    for n in (8, 64):
        counts = needed(open_gates(n), Band(3, 4)).sum(axis=1)
        assert counts.tolist() == [n >> (stage + 1) for stage in range(stages_of(n))]


def test_all_bins_of_an_open_network_are_one_transform() -> None:
    program = exact(64, Band(0, 33))
    assert (program.m, program.phases, program.share) == (64, (0,), 1.0)
    np.testing.assert_array_equal(program.weights, np.ones((33, 1)))


def test_few_bins_of_an_open_network_are_shorter_transforms() -> None:
    program = exact(1024, Band(0, 20))
    assert program.m < 1024
    assert len(program.phases) == program.stride
    assert program.cost < exact(1024, Band(0, 513)).cost


def test_weights_at_the_top_are_one_and_at_the_bottom_the_transforms() -> None:
    band = Band(0, 5)
    assert (block_weights(open_gates(16), band, 4) == 1).all()
    want = np.exp(-2j * np.pi * np.multiply.outer(np.arange(5), bit_reversed(16)) / 16)
    np.testing.assert_allclose(block_weights(open_gates(16), band, 0), want, atol=1e-14)


def test_a_program_with_more_weights_than_are_worth_it_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lowest gates closed, each sample would be weighed in each bin."""
    monkeypatch.setattr(network, "MOST_WEIGHTS", 1000)
    gates = open_gates(256)
    gates[0, ::2] = False
    with pytest.raises(ValueError, match="weights of 100 bins"):
        program_of(gates, Band(0, 100))
    assert isinstance(program_of(open_gates(256), Band(0, 129)), Program)
