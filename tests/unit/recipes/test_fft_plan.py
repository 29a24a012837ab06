"""The numbers of a transform: factors, roots, chirps; and the text of butterflies.

Butterfly text is run here as Python, so that the generator is judged without a device.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import registry
from rlxweb.kernels.launch import launches
from rlxweb.limits import Limits, shrunk
from rlxweb.recipes import fft_calls as calls
from rlxweb.recipes import fft_plan as plan
from rlxweb.recipes import fft_variants as fft
from rlxweb.recipes import welch_variants as welch
from rlxweb.recipes.butterfly import Emitter
from rlxweb.recipes.fft_rows import place, powers
from tests.unit.ops.alone import types_of


@given(st.integers(1, 5000))
def test_prime_factors_multiply_back(n: int) -> None:
    factors = plan.prime_factors(n)
    assert math.prod(factors) == n
    assert all(n % d for n in factors for d in range(2, math.isqrt(n) + 1))
    assert list(factors) == sorted(factors)


@given(st.integers(1, 1 << 18), st.sampled_from([4, 8, 16, 32]))
def test_radices_multiply_back_and_only_primes_pass_the_bound(
    n: int, most: int
) -> None:
    found = plan.radices(n, most)
    assert math.prod(found) == n
    assert all(r <= most or plan.prime_factors(r) == (r,) for r in found)


def test_radices_are_few_and_even() -> None:
    """1024 in two passes of 32, not 64 and 16; 256 of at most 8 in three."""
    assert plan.radices(1024, 32) == (32, 32)
    assert plan.radices(256, 8) == (8, 8, 4)
    assert plan.radices(1, 16) == (1,)


@given(st.integers(1, 100_000))
def test_good_lengths_are_the_next_of_small_factors(least: int) -> None:
    found = plan.good_length(least)
    assert found >= least
    assert max(plan.prime_factors(found), default=1) <= 5
    between = range(least, found)
    assert all(max(plan.prime_factors(n), default=1) > 5 for n in between)


@pytest.mark.parametrize(("least", "size"), [(5, 5), (64, 64), (65, 80), (2017, 2048)])
def test_rings_are_of_whole_fours_of_fours(least: int, size: int) -> None:
    assert plan.ring_length(least) == size


def test_roots_are_right_to_the_last_bit_of_float32() -> None:
    n = 1 << 18
    w = plan.complex_roots(n)
    exact = np.exp(-2j * np.pi * np.arange(n) / n)
    assert np.abs(w - exact).max() < 1e-15
    assert plan.roots(8, 5).shape == (10,)


@pytest.mark.parametrize("n", [67, 509, 65_537])
def test_chirp_keeps_its_phase_for_long_rows(n: int) -> None:
    """t² is reduced in whole numbers; in floats it would lose the phase."""
    t = n - 1
    turn = (t * t) % (2 * n)
    assert abs(plan.chirp(n)[t] - np.exp(-1j * np.pi * turn / n)) < 1e-15


@pytest.mark.parametrize("n", [2, 3, 67, 101])
def test_chirp_filter_makes_a_transform_of_any_length(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=n) + 1j * rng.normal(size=n)
    size = plan.good_length(2 * n - 1)
    spread = np.fft.fft(x * plan.chirp(n), size) * plan.chirp_filter(n, size)
    found = (np.fft.ifft(spread) * size)[:n] * plan.chirp(n)
    np.testing.assert_allclose(found, np.fft.fft(x), atol=1e-10)


@pytest.mark.parametrize(
    ("inverse", "norm", "want"),
    [
        (False, "backward", 1.0),
        (True, "backward", 0.25),
        (False, "forward", 0.25),
        (True, "forward", 1.0),
        (True, "ortho", 0.5),
        (True, "none", 1.0),
        (False, "none", 1.0),
    ],
)
def test_norms_scale_as_numpy_does(inverse: bool, norm: str, want: float) -> None:
    assert plan.norm_scale(4, inverse, norm) == want


def run(lines: list[str], known: dict[str, float]) -> dict[str, float]:
    """The `let` lines of an emitter as Python statements."""
    scope = {"fma": lambda a, b, c: a * b + c, "f32": float, **known}
    for line in lines:
        match = re.fullmatch(r"let (\w+) = (.*);", line)
        assert match, line
        text = re.sub(r"\b(\d+)u\b", r"\1", match[2]).replace(" / ", " // ")
        scope[match[1]] = eval(text, {}, scope)
    return scope


@pytest.mark.parametrize("n", range(1, 33))
def test_butterfly_text_is_a_transform(n: int) -> None:
    rng = np.random.default_rng(n)
    z = rng.normal(size=n) + 1j * rng.normal(size=n)
    e = Emitter()
    ys = e.dft([(f"re{k}", f"im{k}") for k in range(n)])
    known = {f"re{k}": z[k].real for k in range(n)}
    known |= {f"im{k}": z[k].imag for k in range(n)}
    scope = run(e.lines, known)
    found = np.array([scope[re] + 1j * scope[im] for re, im in ys])
    np.testing.assert_allclose(found, np.fft.fft(z), atol=1e-5)


@pytest.mark.parametrize("radices", [(16, 16), (8, 8, 4), (5, 3, 2), (7,)])
def test_places_are_the_reversed_digits(radices: tuple[int, ...]) -> None:
    """Every bin has its own cell; its lowest digit is the cell's highest."""
    n = math.prod(radices)
    e = Emitter()
    name = place(e, "i", radices, n)
    cells = [run(e.lines, {"i": i})[name] for i in range(n)]
    assert sorted(cells) == list(range(n))
    assert cells[1] == n // radices[0] or n == radices[0]


def test_powers_are_read_or_multiplied() -> None:
    """Of 16 powers only 6 are read, and all are right."""
    e, read = Emitter(), []

    def root(k: int) -> tuple[str, str]:
        read.append(k)
        return f"c{k}", f"s{k}"

    found = powers(e, 16, root)
    w = np.exp(-2j * np.pi * np.arange(16) / 256)
    known = {f"c{k}": w[k].real for k in read} | {f"s{k}": w[k].imag for k in read}
    scope = {"1.0": 1.0, "0.0": 0.0, **run(e.lines, known)}
    values = [complex(scope[re], scope[im]) for re, im in found]
    assert read == [1, 2, 3, 4, 8, 12]
    np.testing.assert_allclose(values, w, atol=1e-15)


def declared_bytes(source: str) -> int:
    """Workgroup memory that a module's text declares."""
    width = {"f32": 4, "u32": 4, "vec4<f32>": 16, "atomic<u32>": 4}
    total = 0
    for kind in re.findall(r"var<workgroup> \w+: ([^;]+);", source):
        array = re.fullmatch(r"array<(.+), (\d+)>", kind)
        total += width[array[1]] * int(array[2]) if array else width[kind]
    return total


def recipes(limits: Limits) -> list[Recipe]:
    """Every variant's recipe over a spread of lengths; None left out."""
    out = []
    for n in (2, 17, 64, 256, 300, 1024, 4096):
        for make in (fft.group_recipe, fft.pass_recipe):
            types = types_of((50, n))
            kind = registry.get("rfft").output_type(types, {"norm": "backward"})
            out.append(make("rfft")(types, kind, {"norm": "backward"}, limits))
        for detrend in ("none", "linear"):
            types = types_of((50, 3 * n), (n,))
            op = registry.get("welch_row_peaks")
            attrs = op.check_attrs({"hop": n, "k": 2, "detrend": detrend})
            made = op.output_type(types, attrs)
            out.append(welch.group_recipe(types, made, attrs, limits))
    return [recipe for recipe in out if recipe is not None]


@pytest.mark.parametrize("limits", [Limits(), shrunk()], ids=["default", "shrunk"])
def test_recipes_say_how_much_workgroup_memory_they_declare(limits: Limits) -> None:
    """A recipe that lies about it would be refused by the driver, not by us."""
    for recipe in recipes(limits):
        for call in recipe.calls:
            assert declared_bytes(call.source or "") <= call.shared_bytes
            assert call.shared_bytes <= limits.max_compute_workgroup_storage_size


def test_primes_to_61_are_butterflies_of_passes() -> None:
    """A workgroup, whose lanes would hold few of them, leaves them to passes."""
    types = types_of((9, 2 * 37 * 37))
    attrs = {"inverse": False, "norm": "backward"}
    assert fft.group_recipe("fft")(types, types[0], attrs, Limits()) is None
    recipe = fft.pass_recipe("fft")(types, types[0], attrs, Limits())
    assert recipe is not None
    assert len(recipe.calls) == 2


def test_bluestein_is_for_large_primes_only() -> None:
    def shaders(n: int) -> list[str]:
        recipe = calls.complex_recipe(3, n, False, "backward")
        return [call.shader for call in recipe.calls]

    assert shaders(61) == ["fft_pass"]
    assert shaders(67)[0] == "fft_modulate"
    assert calls.smooth_lengths(67, True) == (plan.ring_length(133),)
    assert calls.smooth_lengths(134, True) == (plan.ring_length(133),)


def test_passes_share_one_table_and_two_scratches() -> None:
    recipe = calls.complex_recipe(3, 4096, True, "backward")
    assert len(recipe.calls) == 6
    assert (len(recipe.tables), len(recipe.scratch)) == (1, 2)


def test_every_variant_can_be_launched() -> None:
    """No recipe counts more loop turns, or binds more, than a default device has."""
    for recipe in recipes(Limits()):
        for call in recipe.calls:
            dtypes = [DType.F32] * len(call.accesses)
            assert launches(call, dtypes, Limits())
