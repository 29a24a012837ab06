"""Arrays in their padding by machine code: NumPy's copies, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.backends import cpu_phases
from rlxweb.backends.cpu_phases import PhasesCall, function_of, phase_kernels
from rlxweb.host.phases import lengths_of, phases_of
from rlxweb.machine.library import Code, object_code
from rlxweb.machine.phases import STRIDES, phases_text
from rlxweb.recipes.windows import Windows

pytestmark = pytest.mark.requires_fast
THREE = tuple[int, int, int]


@pytest.fixture(autouse=True)
def _wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


@pytest.mark.parametrize("nbytes", [16, 32, 64])
@pytest.mark.parametrize("stride", [*STRIDES, 0])
def test_it_can_be_compiled_for_any_vectors(stride: int, nbytes: int) -> None:
    assert function_of(Code(object_code(phases_text(stride, nbytes)))).address


def each(least: int, most: int) -> st.SearchStrategy[THREE]:
    one = st.integers(least, most)
    return st.tuples(one, one, one)


@given(
    channels=st.integers(1, 5),
    size=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 50)),
    kernel=each(1, 5),
    strides=each(1, 4),
    dilations=each(1, 3),
    pads=st.tuples(each(0, 4), each(0, 4)),
)
@settings(max_examples=200, deadline=None)
def test_any_windows(
    channels: int,
    size: THREE,
    kernel: THREE,
    strides: THREE,
    dilations: THREE,
    pads: tuple[THREE, THREE],
) -> None:
    before, after = pads
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [sum(one) for one in zip(before, size, after, strict=True)]
    out = tuple(
        max(0, n - r) // s + 1 for n, r, s in zip(whole, reach, strides, strict=True)
    )
    windows = Windows(size, kernel, strides, dilations, before, out)
    x = np.random.default_rng(7).standard_normal((2, channels, *size), np.float32)
    made = PhasesCall(2, channels, windows)
    found, want = made(x), phases_of(x, windows)
    assert found.shape[5:] == lengths_of(windows)
    np.testing.assert_array_equal(found, want)
    if not made.is_there:
        assert not phase_kernels.state(made.kind)


def test_threads_share_the_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_phases, "_THREADED", 0)
    windows = Windows(
        (1, 9, 33), (1, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1), (1, 5, 17)
    )
    x = np.random.default_rng(7).standard_normal((3, 41, 1, 9, 33), np.float32)
    for _ in range(20):
        found = PhasesCall(3, 41, windows)(x)
        np.testing.assert_array_equal(found, phases_of(x, windows))
