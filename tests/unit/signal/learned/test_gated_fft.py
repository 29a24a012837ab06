"""The gated FFT network and the program built from it compute the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned import gated_fft
from rlxweb.signal.learned.gated_fft import (
    PrunedFftProgram,
    all_open_gates,
    apply_butterflies,
    bit_reversal_order,
    block_weights,
    cheapest_program,
    count_active_gates,
    exact_program,
    needed_butterflies,
    stage_count,
)


def apply_network(gates: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return all bins (B, n) of rows (B, n), computed by the network."""
    rows = x[:, bit_reversal_order(x.shape[1])]
    re, im = apply_butterflies(list(gates), rows, np.zeros_like(rows))
    return np.asarray(re + 1j * im)


@pytest.mark.parametrize("n", [4, 8, 64, 512])
def test_open_gates_compute_the_fft(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((3, n))
    np.testing.assert_allclose(
        apply_network(all_open_gates(n), x), np.fft.fft(x), atol=1e-12 * n
    )


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 100, -4])
def test_lengths_that_are_no_power_of_two_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="not a power of two"):
        stage_count(n)


def test_samples_are_taken_in_bit_reversed_order() -> None:
    assert bit_reversal_order(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]


@st.composite
def networks_and_bands(draw: st.DrawFn) -> tuple[np.ndarray, BinRange]:
    """Draw gates, most of them open and some blocks closed, and a band."""
    n = 1 << draw(st.integers(2, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gates = rng.random((stage_count(n), n // 2)) >= draw(
        st.sampled_from([0, 0.02, 0.4])
    )
    for stage in range(len(gates)):
        blocks = gates[stage].reshape(-1, 1 << stage)
        blocks[rng.random(len(blocks)) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = False
    first = draw(st.integers(0, n // 2))
    return gates, BinRange(first, draw(st.integers(first, n // 2)) + 1)


@settings(max_examples=60)
@given(networks_and_bands())
def test_program_equals_the_network(
    network_and_band: tuple[np.ndarray, BinRange],
) -> None:
    """A program equals the network, with any gates and any bins."""
    gates, band = network_and_band
    n = 2 * gates.shape[1]
    x = np.random.default_rng(n).standard_normal((2, n))
    program = cheapest_program(gates, band)
    sums = np.einsum("ksp,kp->sk", program.bin_terms(x), program.weights)
    np.testing.assert_allclose(
        sums, apply_network(gates, x)[:, band.bins], atol=1e-11 * n
    )
    assert program.m * program.stride == n
    assert list(program.phases) == sorted(set(program.phases))


@settings(max_examples=40)
@given(networks_and_bands())
def test_unneeded_gates_change_no_bin(
    network_and_band: tuple[np.ndarray, BinRange],
) -> None:
    """Butterflies that no bin needs may be open or closed."""
    gates, band = network_and_band
    n = 2 * gates.shape[1]
    x = np.random.default_rng(n).standard_normal((1, n))
    needed_gates = needed_butterflies(gates, band)
    for filled in (gates & needed_gates, gates | ~needed_gates):
        np.testing.assert_allclose(
            apply_network(filled, x)[:, band.bins],
            apply_network(gates, x)[:, band.bins],
            atol=1e-11 * n,
        )
    assert count_active_gates(gates, band) == int((gates & needed_gates).sum())
    assert count_active_gates(gates & needed_gates, band) == count_active_gates(
        gates, band
    )


def test_one_bin_needs_a_tree_of_butterflies() -> None:
    """One bin of n samples needs n - 1 butterflies: n / 2 at first, one at last."""
    for n in (8, 64):
        counts = needed_butterflies(all_open_gates(n), BinRange(3, 4)).sum(axis=1)
        assert counts.tolist() == [n >> (stage + 1) for stage in range(stage_count(n))]


def test_all_bins_of_an_open_network_are_one_transform() -> None:
    program = exact_program(64, BinRange(0, 33))
    assert (program.m, program.phases, program.relative_cost) == (64, (0,), 1.0)
    np.testing.assert_array_equal(program.weights, np.ones((33, 1)))


def test_few_bins_of_an_open_network_are_shorter_transforms() -> None:
    program = exact_program(1024, BinRange(0, 20))
    assert program.m < 1024
    assert len(program.phases) == program.stride
    assert program.cost < exact_program(1024, BinRange(0, 513)).cost


def test_block_weights_at_the_top_and_the_bottom() -> None:
    band = BinRange(0, 5)
    assert (block_weights(all_open_gates(16), band, 4) == 1).all()
    want = np.exp(
        -2j * np.pi * np.multiply.outer(np.arange(5), bit_reversal_order(16)) / 16
    )
    np.testing.assert_allclose(
        block_weights(all_open_gates(16), band, 0), want, atol=1e-14
    )


def test_programs_with_too_many_weights_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing the lowest gates would give each sample a weight in each bin."""
    monkeypatch.setattr(gated_fft, "MAX_WEIGHTS", 1000)
    gates = all_open_gates(256)
    gates[0, ::2] = False
    with pytest.raises(ValueError, match="more than 1,000 weights for 100 bins"):
        cheapest_program(gates, BinRange(0, 100))
    assert isinstance(
        cheapest_program(all_open_gates(256), BinRange(0, 129)), PrunedFftProgram
    )
