"""FFT arithmetic (factors, roots of unity, chirps) and the text of butterflies.

Butterfly text is run here as Python, so that the generator is judged without a device.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.codegen import fft_arithmetic as plan
from rlxweb.codegen.butterfly import WgslButterflyBuilder
from rlxweb.codegen.kernel_launch_records import build_launches
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import registry
from rlxweb.ops.fft.wgsl import plan as calls
from rlxweb.ops.fft.wgsl import variants as fft
from rlxweb.ops.fft.wgsl.in_place import digit_reversed_cell, root_powers
from rlxweb.ops.welch.wgsl import workgroup as welch
from tests.unit.ops.single_op_runner import tensor_types


@given(st.integers(1, 5000))
def test_prime_factors_multiply_back(n: int) -> None:
    factors = plan.prime_factors(n)
    assert math.prod(factors) == n
    assert all(n % d for n in factors for d in range(2, math.isqrt(n) + 1))
    assert list(factors) == sorted(factors)


@given(st.integers(1, 1 << 18), st.sampled_from([4, 8, 16, 32]))
def test_radices_multiply_back_and_only_primes_exceed_bound(
    n: int, max_radix: int
) -> None:
    radices = plan.radices(n, max_radix)
    assert math.prod(radices) == n
    assert all(r <= max_radix or plan.prime_factors(r) == (r,) for r in radices)


def test_radices_are_few_and_even() -> None:
    """1024 in two passes of 32, not 64 and 16; 256 of at most 8 in three."""
    assert plan.radices(1024, 32) == (32, 32)
    assert plan.radices(256, 8) == (8, 8, 4)
    assert plan.radices(1, 16) == (1,)


@given(st.integers(1, 100_000))
def test_next_fast_length_has_small_factors(min_length: int) -> None:
    length = plan.next_fast_length(min_length)
    assert length >= min_length
    assert max(plan.prime_factors(length), default=1) <= 5
    between = range(min_length, length)
    assert all(max(plan.prime_factors(n), default=1) > 5 for n in between)


@pytest.mark.parametrize(
    ("min_length", "size"), [(5, 5), (64, 64), (65, 80), (2017, 2048)]
)
def test_bluestein_length_is_multiple_of_16(min_length: int, size: int) -> None:
    assert plan.bluestein_length(min_length) == size


def test_roots_are_exact_in_float32() -> None:
    n = 1 << 18
    w = plan.complex_roots_of_unity(n)
    exact = np.exp(-2j * np.pi * np.arange(n) / n)
    assert np.abs(w - exact).max() < 1e-15
    assert plan.roots_of_unity(8, 5).shape == (10,)


@pytest.mark.parametrize("n", [67, 509, 65_537])
def test_chirp_phase_is_exact_for_long_rows(n: int) -> None:
    """Index t² is reduced in integers; floats would lose the phase."""
    t = n - 1
    phase = (t * t) % (2 * n)
    assert abs(plan.chirp(n)[t] - np.exp(-1j * np.pi * phase / n)) < 1e-15


@pytest.mark.parametrize("n", [2, 3, 67, 101])
def test_chirp_filter_gives_fft_of_any_length(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=n) + 1j * rng.normal(size=n)
    size = plan.next_fast_length(2 * n - 1)
    spread = np.fft.fft(x * plan.chirp(n), size) * plan.chirp_filter(n, size)
    got = (np.fft.ifft(spread) * size)[:n] * plan.chirp(n)
    np.testing.assert_allclose(got, np.fft.fft(x), atol=1e-10)


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


def run_let_lines(lines: list[str], variables: dict[str, float]) -> dict[str, float]:
    """Run an emitter's `let` lines as Python statements."""
    scope = {"fma": lambda a, b, c: a * b + c, "f32": float, **variables}
    for line in lines:
        match = re.fullmatch(r"let (\w+) = (.*);", line)
        assert match, line
        text = re.sub(r"\b(\d+)u\b", r"\1", match[2]).replace(" / ", " // ")
        scope[match[1]] = eval(text, {}, scope)
    return scope


@pytest.mark.parametrize("n", range(1, 33))
def test_butterfly_text_computes_dft(n: int) -> None:
    rng = np.random.default_rng(n)
    z = rng.normal(size=n) + 1j * rng.normal(size=n)
    e = WgslButterflyBuilder()
    ys = e.dft([(f"re{k}", f"im{k}") for k in range(n)])
    variables = {f"re{k}": z[k].real for k in range(n)}
    variables |= {f"im{k}": z[k].imag for k in range(n)}
    scope = run_let_lines(e.lines, variables)
    got = np.array([scope[re] + 1j * scope[im] for re, im in ys])
    np.testing.assert_allclose(got, np.fft.fft(z), atol=1e-5)


@pytest.mark.parametrize("radices", [(16, 16), (8, 8, 4), (5, 3, 2), (7,)])
def test_cells_are_digit_reversed(radices: tuple[int, ...]) -> None:
    """Every bin has its own cell, whose most significant digit is the bin's least
    significant.
    """
    n = math.prod(radices)
    e = WgslButterflyBuilder()
    name = digit_reversed_cell(e, "i", radices, n)
    cells = [run_let_lines(e.lines, {"i": i})[name] for i in range(n)]
    assert sorted(cells) == list(range(n))
    assert cells[1] == n // radices[0] or n == radices[0]


def test_twiddle_powers_are_read_or_multiplied() -> None:
    """Only 6 of 16 powers are read, and all are right."""
    e, read = WgslButterflyBuilder(), []

    def read_root(k: int) -> tuple[str, str]:
        read.append(k)
        return f"c{k}", f"s{k}"

    names = root_powers(e, 16, read_root)
    w = np.exp(-2j * np.pi * np.arange(16) / 256)
    variables = {f"c{k}": w[k].real for k in read} | {f"s{k}": w[k].imag for k in read}
    scope = {"1.0": 1.0, "0.0": 0.0, **run_let_lines(e.lines, variables)}
    values = [complex(scope[re], scope[im]) for re, im in names]
    assert read == [1, 2, 3, 4, 8, 12]
    np.testing.assert_allclose(values, w, atol=1e-15)


def declared_workgroup_bytes(source: str) -> int:
    """Return the workgroup memory that a module's text declares, in bytes."""
    width = {"f32": 4, "u32": 4, "vec4<f32>": 16, "atomic<u32>": 4}
    total = 0
    for kind in re.findall(r"var<workgroup> \w+: ([^;]+);", source):
        array = re.fullmatch(r"array<(.+), (\d+)>", kind)
        total += width[array[1]] * int(array[2]) if array else width[kind]
    return total


def variant_plans(limits: Limits) -> list[KernelPlan]:
    """Return the kernel plans of all FFT and Welch variants for a spread of lengths,
    without those that are None.
    """
    plans = []
    for n in (2, 17, 64, 256, 300, 1024, 4096):
        for make_rule in (fft.workgroup_fft_rule, fft.unrolled_fft_rule):
            types = tensor_types((50, n))
            input_type = registry.get("rfft").output_type(types, {"norm": "backward"})
            plans.append(
                make_rule("rfft")(types, input_type, {"norm": "backward"}, limits)
            )
        for detrend in ("none", "linear"):
            types = tensor_types((50, 3 * n), (n,))
            op = registry.get("welch_row_peaks")
            attrs = op.check_attrs({"hop": n, "k": 2, "detrend": detrend})
            output_type = op.output_type(types, attrs)
            plans.append(
                welch.plan_welch_per_workgroup(types, output_type, attrs, limits)
            )
    return [kernel_plan for kernel_plan in plans if kernel_plan is not None]


@pytest.mark.parametrize("limits", [Limits(), tiny_limits()], ids=["default", "shrunk"])
def test_plans_state_their_workgroup_memory(limits: Limits) -> None:
    """A plan with a wrong size would be refused by the driver instead of by rlxweb."""
    for kernel_plan in variant_plans(limits):
        for dispatch in kernel_plan.dispatches:
            assert (
                declared_workgroup_bytes(dispatch.source or "") <= dispatch.shared_bytes
            )
            assert dispatch.shared_bytes <= limits.max_compute_workgroup_storage_size


def test_primes_up_to_61_use_passes() -> None:
    """The per-workgroup kernel, which could hold few of them, leaves such primes to
    passes.
    """
    types = tensor_types((9, 2 * 37 * 37))
    attrs = {"inverse": False, "norm": "backward"}
    assert fft.workgroup_fft_rule("fft")(types, types[0], attrs, Limits()) is None
    kernel_plan = fft.unrolled_fft_rule("fft")(types, types[0], attrs, Limits())
    assert kernel_plan is not None
    assert len(kernel_plan.dispatches) == 2


def test_bluestein_only_for_large_primes() -> None:
    def shader_names(n: int) -> list[str]:
        kernel_plan = calls.plan_complex_fft(3, n, False, "backward")
        return [dispatch.shader for dispatch in kernel_plan.dispatches]

    assert shader_names(61) == ["fft_pass"]
    assert shader_names(67)[0] == "fft_modulate"
    assert calls.smooth_lengths(67, True) == (plan.bluestein_length(133),)
    assert calls.smooth_lengths(134, True) == (plan.bluestein_length(133),)


def test_passes_share_one_table_and_two_scratch_buffers() -> None:
    kernel_plan = calls.plan_complex_fft(3, 4096, True, "backward")
    assert len(kernel_plan.dispatches) == 6
    assert (len(kernel_plan.tables), len(kernel_plan.scratch)) == (1, 2)


def test_every_variant_can_be_launched() -> None:
    """No plan needs more loop iterations or bindings than a default device has."""
    for kernel_plan in variant_plans(Limits()):
        for dispatch in kernel_plan.dispatches:
            dtypes = [DType.F32] * len(dispatch.accesses)
            assert build_launches(dispatch, dtypes, Limits())
