"""Compare every op on every engine with NumPy in float64, on samples chosen by tier.

One test per op and engine names each sample that is wrong; `--full` takes all of them.
Types that an engine has not are refused with a reason, never computed in another type.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import numpy as np
import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import LimitExceeded, RlxError
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.protocol import Array, DeviceBuffer
from rlxweb.engines.webgpu import input_bindings
from rlxweb.engines.webgpu.device_arrays import WebGpuDeviceBuffer
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.engines.webgpu.input_bindings import BufferPlacement
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.smoke import case as smoke
from rlxweb.smoke.special_value_cases import nonfinite_cases
from tests.conftest import ADAPTERS, MISSING_FEATURES
from tests.engines_under_test import (
    EngineUnderTest,
    describe_mismatch,
    engine,
    guarded_engine,
    missing_features,
    strided_view,
)
from tests.kernel_tables import NUMPY_VARIANTS, WGSL_TABLE
from tests.ops.op_cases import OpCase, op_names, sample_cases, view_cases
from tests.suite_tiers import Sampler, thin_out_cases

NAMES = op_names()
NONFINITE_CASES: dict[str, list[smoke.SmokeCase]] = {}
for _case in nonfinite_cases():
    NONFINITE_CASES.setdefault(_case.op, []).append(_case)
EACH_THIRD_OP = pytest.mark.parametrize("name", thin_out_cases(NAMES, 3))
"""A third of the ops, for guarantees that do not depend on the op."""
# By op and not by test, so that what one test compiled is still there for the next.
EACH_OP = pytest.mark.parametrize("name", NAMES, scope="module")


def case_failures(runner: EngineUnderTest, cases: Iterable[OpCase]) -> list[str]:
    """Return a line for each case that the engine computes wrong; at least one case
    must be given.
    """
    failures: list[str] = []
    cases = [*cases]
    assert cases, "no case was given"
    for case in cases:
        missing_dtypes = case.dtypes - runner.engine.target.array_dtypes
        try:
            failures += mismatch_lines(
                runner, case, runner.run(case.graph, case.feeds)[0]
            )
        except LimitExceeded as error:
            # Reads are merged word by word, so halves need a binding each.
            if DType.F16 not in case.dtypes or "supports at most 3" not in error.rule:
                failures.append(f"{case.label} on {runner.name}: {error}")
        except RlxError as error:  # one line, so that the other samples are seen too
            # What runs all the same, because its values fit, was judged like any other.
            if missing_dtypes and "the device has no" in str(error):
                continue
            failures.append(
                f"{case.label} on {runner.name}: {type(error).__name__}: {error}"
            )
    return failures


def mismatch_lines(runner: EngineUnderTest, case: OpCase, got: object) -> list[str]:
    """Return the line for one wrong case, or none."""
    op = registry.get(case.graph.node(case.graph.outputs[0]).op)
    mismatch = describe_mismatch(got, case.expected, case.output_dtype, op.tolerance)
    return [f"{case.label} on {runner.name}: {mismatch}"] if mismatch else []


def nonfinite_failures(
    runner: EngineUnderTest, name: str, sampled: Sampler
) -> list[str]:
    """Return a line for each result with NaN or infinity in one input that differs from
    NumPy.

    Those of a sample are fed to one program.
    """
    failures = []
    by_sample = groupby(
        NONFINITE_CASES.get(name, ()), lambda case: case.name.split("/")[2]
    )
    for group in sampled([list(group) for _, group in by_sample], 1, quick=1):
        prepared_cases = {case.name: case.prepare() for case in group}
        with runner.prepare(next(iter(prepared_cases.values())).graph) as run:
            mismatches = {
                k: prepared.judge(run(prepared.feeds)).reason
                for k, prepared in prepared_cases.items()
            }
        failures += [
            f"{k} on {runner.name}: {mismatch}"
            for k, mismatch in mismatches.items()
            if mismatch
        ]
    return failures


def small_cases(cases: Iterable[OpCase]) -> list[OpCase]:
    return [case for case in cases if case.is_small]


@pytest.mark.parametrize("name", NAMES)
def test_numpy_agrees(name: str, sampled: Sampler) -> None:
    """NumPy in float32 stays within the op's tolerance, plain and through views."""
    assert case_failures(engine(None), sample_cases(name)) == []
    assert nonfinite_failures(engine(None), name, sampled) == []
    assert case_failures(engine(None), sampled(view_cases(name), 4, quick=4)) == []
    unoptimised = engine(None, optimise=False)
    assert (
        case_failures(unoptimised, sampled(small_cases(sample_cases(name)), 4, quick=2))
        == []
    )
    if name in {row.op for row in NUMPY_VARIANTS}:
        plain_runner = engine(None, variants=False)
        assert (
            case_failures(plain_runner, sampled(sample_cases(name), 4, quick=4)) == []
        )
        assert case_failures(plain_runner, sampled(view_cases(name), 2, quick=1)) == []


@EACH_THIRD_OP
def test_strided_arrays_give_the_same_results(name: str) -> None:
    """Transposed, reversed and gappy arrays give what dense ones give."""
    runner = engine(None)
    failures = []
    for index, case in enumerate(small_cases(sample_cases(name))):
        feeds = {k: strided_view(array, index) for k, array in case.feeds.items()}
        failures += mismatch_lines(runner, case, runner.run(case.graph, feeds)[0])
    assert failures == []


@pytest.mark.requires_wgpu
@EACH_OP
def test_adapter_agrees(
    name: str, adapter: AdapterRequest, is_full_tier: bool, sampled: Sampler
) -> None:
    """The adapter stays within the op's tolerance, or refuses the type.

    Of sums, products, norms, softmax, rankings also with one odd value in each input.
    The shaders are the same for all adapters: other tiers than the full one take more
    samples on one of them, and the first samples on the others.
    """
    runner = engine(adapter)
    if not is_full_tier and adapter is not ADAPTERS["lavapipe"]:
        assert (
            case_failures(runner, [*sample_cases(name)[:1], *view_cases(name)[:1]])
            == []
        )
        return
    assert case_failures(runner, sampled(sample_cases(name), 2, quick=2)) == []
    assert nonfinite_failures(runner, name, sampled) == []
    assert case_failures(runner, sampled(view_cases(name), 1, quick=1)) == []


@pytest.mark.requires_wgpu
@EACH_THIRD_OP
def test_adapter_agrees_without_rewrites(name: str, sampled: Sampler) -> None:
    """The answer is right without the optimiser, which runs in Python alike for all
    adapters.
    """
    runner = engine(ADAPTERS["lavapipe"], optimise=False)
    assert (
        case_failures(runner, sampled(small_cases(view_cases(name)), 1, quick=1)) == []
    )


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", [*filter(WGSL_TABLE.for_op, NAMES)], scope="module")
def test_adapter_agrees_without_variants(
    name: str, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """An op's base kernel is right without its faster variants."""
    cases = sampled(sample_cases(name), 2, quick=1)
    assert case_failures(engine(adapter, variants=False), cases) == []


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.requires_wgpu
@EACH_OP
def test_no_kernel_writes_past_its_buffers(
    name: str, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """The smaller samples, plain and through views, write only within their buffers."""
    runner = guarded_engine(adapter)

    def runnable(cases: Iterable[OpCase]) -> list[OpCase]:
        accepts = runner.engine.target.array_dtypes
        return [case for case in small_cases(cases) if case.dtypes <= accepts]

    views = sampled(view_cases(name), 1, quick=1)
    runnable_cases = runnable([*sampled(sample_cases(name), 2, quick=2), *views])
    runnable_cases = runnable_cases or runnable(sample_cases(name))[:1]
    for case in runnable_cases:
        runner.run(case.graph, case.feeds)
    assert runner.engine.port.checked_count >= len(runnable_cases) > 0


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", NAMES)
def test_adapter_agrees_under_tiny_limits(name: str, sampled: Sampler) -> None:
    """Splitting, folding and merging under tiny limits change no answer; one adapter
    suffices.
    """
    runner = engine(ADAPTERS["lavapipe"], limits=tiny_limits())
    assert (
        case_failures(runner, sampled(small_cases(sample_cases(name)), 1, quick=1))
        == []
    )


@pytest.mark.slow
@pytest.mark.requires_wgpu
@EACH_THIRD_OP
def test_adapter_agrees_on_views_under_tiny_limits(name: str, sampled: Sampler) -> None:
    """Operands that are views are right under tiny limits as well."""
    runner = engine(ADAPTERS["lavapipe"], limits=tiny_limits())
    assert (
        case_failures(runner, sampled(small_cases(view_cases(name)), 1, quick=1)) == []
    )


@pytest.mark.full
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", NAMES)
def test_adapter_agrees_on_large_samples_under_tiny_limits(name: str) -> None:
    """Large samples, split into thousands of chunks under tiny limits, are right."""
    runner = engine(ADAPTERS["lavapipe"], limits=tiny_limits())
    all_cases = (*sample_cases(name), *view_cases(name))
    assert (
        case_failures(runner, [case for case in all_cases if not case.is_small]) == []
    )


def padded_device_array(
    engine: WebGpuEngine, array: Array
) -> tuple[DeviceBuffer, DeviceBuffer]:
    """Upload an array with other values before and after it; return its part and the
    whole buffer.
    """
    kind = array.dtype.kind
    filler = {"f": np.nan, "b": 1, "V": 0x7FC0}.get(kind)  # V: a NaN of bfloat16
    filler = np.iinfo(array.dtype).max if filler is None else filler
    padding = np.full(128, filler, array.dtype)
    whole_buffer = run_blocking(
        engine.put(np.concatenate([padding, array.reshape(-1), padding]))
    )
    return whole_buffer.part(128, array.shape), whole_buffer


def resident_input_mismatch(engine: WebGpuEngine, case: OpCase) -> str:
    """Describe what differs when the inputs are device arrays, or return ""."""
    program = run_blocking(engine.prepare(compile_graph(case.graph, engine.target)))
    for param in case.graph.named("param"):
        run_blocking(program.set_param(param, case.feeds[param]))
    feeds = {n: np.asarray(case.feeds[n]) for n in case.graph.named("input")}
    want = [out.tobytes() for out in run_blocking(engine.run(program, feeds))]
    device_arrays = {
        n: padded_device_array(engine, array) for n, array in feeds.items()
    }
    before = [
        run_blocking(engine.get(whole_buffer)).tobytes()
        for _, whole_buffer in device_arrays.values()
    ]
    device_feeds = {n: part for n, (part, _) in device_arrays.items()}
    outputs = run_blocking(engine.run(program, device_feeds, [False] * len(want)))
    after = [
        run_blocking(engine.get(whole_buffer)).tobytes()
        for _, whole_buffer in device_arrays.values()
    ]
    copies, _ = program.bindings.bind(
        {h: buffer_placement(device_feeds[n]) for n, h in program.input_handles.items()}
    )
    run_blocking(program.close())
    if after != before:
        return f"{case.label}: an input was written"
    if copies:
        return f"{case.label}: {len(copies)} inputs were copied"
    return (
        "" if [out.tobytes() for out in outputs] == want else f"{case.label}: outputs"
    )


def buffer_placement(device_buffer: DeviceBuffer) -> BufferPlacement:
    assert isinstance(device_buffer, WebGpuDeviceBuffer)
    return device_buffer.placement


@pytest.mark.requires_wgpu
@EACH_THIRD_OP
def test_device_arrays_are_only_read(
    name: str, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    """Device arrays bound in place give the same bits as copies and are only read.

    What lies beside them in the same buffer is nothing to a kernel.
    """
    monkeypatch.setattr(input_bindings, "MIN_BIND_BYTES", 0)
    webgpu_engine = engine(ADAPTERS["lavapipe"]).engine
    supported_cases = [
        c
        for c in small_cases(sample_cases(name))
        if not c.dtypes - webgpu_engine.target.array_dtypes
    ]
    cases = sampled(supported_cases, 1, quick=1)
    assert [
        failure for c in cases if (failure := resident_input_mismatch(webgpu_engine, c))
    ] == []


@pytest.mark.requires_wgpu
def test_float16_runs_where_the_adapter_has_it(adapter: AdapterRequest) -> None:
    """An adapter lists f16 exactly when it has the feature; some sample asks for it."""
    webgpu_engine = engine(adapter).engine
    has = "shader-f16" in webgpu_engine.facts.features
    assert (DType.F16 in webgpu_engine.target.array_dtypes) is has
    assert any(
        DType.F16 in case.dtypes for name in NAMES for case in sample_cases(name)
    )


@pytest.mark.requires_wgpu
def test_adapter_lacks_exactly_the_listed_features(adapter: AdapterRequest) -> None:
    """An adapter lacks exactly the features in LACKS; a driver that lost f16 fails
    here.
    """
    words = {word for name in ADAPTERS for word in MISSING_FEATURES.get(name, ())}
    (name,) = (name for name, want in ADAPTERS.items() if want is adapter)
    assert missing_features(engine(adapter), words) == MISSING_FEATURES.get(name, set())


def test_nonfinite_cases_cover_mixing_ops() -> None:
    assert {*NONFINITE_CASES} > {"max", "softmax", "topk", "attention"}
