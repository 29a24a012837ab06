"""The network of butterflies and the program that is made of it: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned import compact
from rlxweb.signal.learned.butterflies import (
    active,
    bit_reversed,
    needed,
    run,
    stages_of,
    weights_at,
)
from rlxweb.signal.learned.compact import Compact, compacted, exact
from rlxweb.signal.learned.transform import spectra


def all_open(n: int) -> np.ndarray:
    return np.ones((stages_of(n), n // 2), np.bool_)


@pytest.mark.parametrize("n", [4, 8, 64, 512])
def test_with_all_gates_open_it_is_the_transform(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((3, n))
    np.testing.assert_allclose(run(all_open(n), x), np.fft.fft(x), atol=1e-12 * n)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 100, -4])
def test_what_is_no_power_of_two_has_no_stages(n: int) -> None:
    with pytest.raises(ValueError, match="no power of two"):
        stages_of(n)


def test_samples_are_taken_in_bit_reversed_order() -> None:
    assert bit_reversed(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Gates, most of them open, some blocks closed, and a run of bins."""
    n = 1 << draw(st.integers(2, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gates = rng.random((stages_of(n), n // 2)) >= draw(st.sampled_from([0, 0.02, 0.4]))
    for stage in range(len(gates)):
        blocks = gates[stage].reshape(-1, 1 << stage)
        blocks[rng.random(len(blocks)) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = False
    first = draw(st.integers(0, n // 2))
    return gates, np.arange(first, draw(st.integers(first, n // 2)) + 1)


@settings(max_examples=60)
@given(networks())
def test_the_program_computes_what_the_network_does(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    """Whatever is closed, and whichever bins are wanted."""
    gates, bins = drawn
    n = 2 * gates.shape[1]
    x = np.random.default_rng(n).standard_normal((2, n))
    program = compacted(gates, bins)
    found = spectra(program, Band(int(bins[0]), int(bins[-1]) + 1), x)
    np.testing.assert_allclose(found, run(gates, x)[:, bins], atol=1e-11 * n)
    assert program.m * program.stride == n
    assert list(program.phases) == sorted(set(program.phases))


@settings(max_examples=40)
@given(networks())
def test_what_is_not_needed_changes_no_bin(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    """Butterflies beyond `needed` may be open or closed."""
    gates, bins = drawn
    n = 2 * gates.shape[1]
    x = np.random.default_rng(n).standard_normal((1, n))
    wanted = needed(gates, bins)
    for filled in (gates & wanted, gates | ~wanted):
        np.testing.assert_allclose(
            run(filled, x)[:, bins], run(gates, x)[:, bins], atol=1e-11 * n
        )
    assert active(gates, bins) == int((gates & wanted).sum())
    assert active(gates & wanted, bins) == active(gates, bins)


def test_one_bin_needs_a_tree_of_butterflies() -> None:
    """Of n samples n - 1: n / 2 at the first stage, one at the last."""
    for n in (8, 64):
        counts = needed(all_open(n), np.array([3])).sum(axis=1)
        assert counts.tolist() == [n >> (stage + 1) for stage in range(stages_of(n))]


def test_all_bins_of_an_open_network_are_one_transform() -> None:
    program = exact(64, np.arange(33))
    assert (program.m, program.phases) == (64, (0,))
    np.testing.assert_array_equal(program.weights, np.ones((33, 1)))


def test_few_bins_of_an_open_network_are_shorter_transforms() -> None:
    program = exact(1024, np.arange(20))
    assert program.m < 1024
    assert len(program.phases) == program.stride
    assert program.cost < exact(1024, np.arange(513)).cost


def test_weights_at_the_top_are_one_and_at_the_bottom_the_transforms() -> None:
    bins = np.arange(5)
    assert (weights_at(all_open(16), bins, 4) == 1).all()
    want = np.exp(-2j * np.pi * np.multiply.outer(bins, bit_reversed(16)) / 16)
    np.testing.assert_allclose(weights_at(all_open(16), bins, 0), want, atol=1e-14)


def test_a_program_with_more_weights_than_are_worth_it_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lowest gates closed, each sample would be weighed in each bin."""
    monkeypatch.setattr(compact, "MOST_WEIGHTS", 1000)
    gates = all_open(256)
    gates[0, ::2] = False
    with pytest.raises(ValueError, match="weights of 100 bins"):
        compacted(gates, np.arange(100))
    assert isinstance(compacted(all_open(256), np.arange(129)), Compact)
