"""Compare every kernel on every engine with NumPy in float64: (op x kernel x engine).

The kernels are the rows of the tables that the engines themselves take; the cases are
the samples of each op and those of tests/ops/kernel_cases, each for a seam of a kernel.
A new kernel is run on all cases of its op, and a new case by all kernels that fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

import hypothesis
import hypothesis.strategies as st
import pytest

from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines import cpu_native_program
from rlxweb.engines.cpu import CPU_VARIANTS, CpuEngine
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import node_signature
from rlxweb.ir.op import EXACT, Tolerance, registry
from rlxweb.ops.kernel_variant import COPY, KernelVariant, load_kernels
from rlxweb.smoke.case import checked_ops
from rlxweb.smoke.case import sample_cases as smoke_samples
from rlxweb.smoke.op_chain_cases import chain_cases
from tests.conftest import ADAPTERS, require_engine
from tests.cpu_kernel_settings import (
    cpu_setting,
    is_compiled,
    only_program_kernels,
    settings_of,
)
from tests.engines_under_test import Array, adapter_engine, describe_mismatch
from tests.kernel_tables import NUMPY_VARIANTS, WGSL_TABLE
from tests.ops.kernel_cases.case import KernelCase, Trial
from tests.ops.kernel_cases.table import CASES_BY_OP, DRAWN_CASES, TORCH_CASES
from tests.ops.op_cases import sample_cases, view_cases
from tests.suite_tiers import CASE_STEP, OTHER_ADAPTERS, Sampler

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

PROGRAM_KERNELS = load_kernels("native program")
NOT_HERE = {
    "by WebAssembly": "" if IN_BROWSER else "it runs in a browser's Python alone",
    "by Workers too": "tests/unit/ops/test_web_workers.py has the Workers it needs",
    "compiled": "no compiler is in a browser" if IN_BROWSER else "",
}
"""End of a kernel's name → why no case reaches it in this Python, if that is so."""
TOLERANCES = {
    "conv": Tolerance(atol=2e-6, relative_to_peak=True),
    "attention": Tolerance(rtol=2e-5, atol=4e-6),
    "matmul": Tolerance(rtol=2e-6, atol=2e-6, relative_to_peak=True),
    "short runs": Tolerance(rtol=1e-6, atol=1e-6, relative_to_peak=True),
    "in a native program": Tolerance(rtol=2e-5, atol=2e-6, relative_to_peak=True),
    "fused": Tolerance(rtol=2e-5, atol=5e-6, relative_to_peak=True),
}
"""Op, name of a kernel or the end of it, or "fused" with other ops → tolerance on the
CPU, where it is not the op's, which is for all engines and for samples.
"""
TORCH_TOLERANCE = Tolerance(rtol=1e-4, atol=1e-5)
TORCH_TOLERANCES = {
    "fold": Tolerance(rtol=1e-6, atol=1e-6),
    **{f"max_unpool{rank}d": EXACT for rank in (1, 2, 3)},
}
"""Reason of a case → tolerance against PyTorch, where it is less."""
WITHOUT_SPECIAL_VALUES = {
    **dict.fromkeys(["copy", "frame", "gather", "pad", "reshape"], "it moves bits"),
    **dict.fromkeys(
        """cross_power fft irfft log_mel psd_real rfft segment_power segment_spectra
        stft welch_peaks welch_power welch_row_peaks""".split(),
        "one NaN or infinity makes a whole spectrum NaN",
    ),
    **dict.fromkeys(["lstm", "rnn"], "its kernels are those of gru"),
    **dict.fromkeys(
        ["linear_recurrence", "quantized_matmul"], "products and sums keep NaN"
    ),
}
"""Ops whose kernels no case tries on NaN, infinity and ties → why."""
KERNELS_OF_DRAWN_CASES = {
    "matmul": "matmul, blocks of 64",
    "topk": "topk, workgroup a row",
}
"""Drawn cases → kernel that takes them on an adapter."""


def has_to_take(case: KernelCase, kernel: KernelVariant) -> bool:
    """Return whether a case names a kernel as one that has to take it."""
    return any(name in kernel.name for name in case.kernels)


def is_named(kernel: KernelVariant) -> bool:
    """Return whether a case names a kernel that every tier tries."""
    return any(
        has_to_take(case, kernel) and not case.is_full
        for case in CASES_BY_OP[kernel.op]
    )


@dataclass
class KernelTrials:
    """Cases and samples that a kernel is tried on.

    named    cases that name it: each has to be taken
    others   cases for other kernels of the op that it fits too
    samples  samples of the op that it fits, plain and through views
    refused  cases that name it and that it does not fit
    """

    named: list[Trial]
    others: list[Trial]
    samples: list[Trial]
    refused: list[Trial]

    @classmethod
    def of_kernel(
        cls, kernel: KernelVariant, fits: Callable[[Trial], bool], is_full_tier: bool
    ) -> KernelTrials:
        cases = [
            (case, case.trial())
            for case in CASES_BY_OP[kernel.op]
            if is_full_tier or not case.is_full
        ]
        named = [trial for case, trial in cases if has_to_take(case, kernel)]
        others = [
            trial
            for case, trial in cases
            if not has_to_take(case, kernel) and not case.is_exclusive and fits(trial)
        ]
        samples = (
            (*sample_cases(kernel.op), *view_cases(kernel.op))
            if kernel.op in registry
            else ()
        )
        sample_trials = (Trial.of_sample(kernel.op, sample) for sample in samples)
        return cls(
            [trial for trial in named if fits(trial)],
            others,
            [trial for trial in sample_trials if fits(trial)],
            [trial for trial in named if not fits(trial)],
        )


def mismatches(
    trial: Trial, results: Sequence[list[Array]], tolerance: Tolerance
) -> list[str]:
    """Return a line for each output of each run that is wrong."""
    lines = []
    for number, outputs in enumerate(results, 1):
        for got, want, node_id in zip(
            outputs, trial.expected, trial.graph.outputs, strict=True
        ):
            dtype = trial.graph.node(node_id).type.dtype
            reason = describe_mismatch(got, want, dtype, tolerance)
            if reason:
                lines.append(f"{trial.label}, run {number}: {reason}")
    return lines


def run_on(engine: CpuEngine | WebGpuEngine, trial: Trial) -> list[list[Array]]:
    """Return the outputs of each run: three where weights are params, which are packed
    from the second run on.
    """
    graph = trial.graph
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    try:
        for name in graph.named("param"):
            run_blocking(program.set_param(name, trial.feeds[name]))
        feeds = {name: trial.feeds[name] for name in graph.named("input")}
        run_count = 3 if graph.named("param") else 1
        return [run_blocking(engine.run(program, feeds)) for _ in range(run_count)]
    finally:
        run_blocking(program.close())


def refusals(trials: Iterable[Trial]) -> list[str]:
    """Return a line for each case that names a kernel and does not fit it."""
    return [f"{trial.label}: refused" for trial in trials]


# --- the CPU: NumPy, compiled code, native programs, WebAssembly ---------------------


def fits_cpu(kernel: KernelVariant, trial: Trial) -> bool:
    """Return whether a kernel may take a case once its gate is about results alone."""
    _, inputs, out, attrs = node_signature(trial.graph, trial.node)
    if not out.numel:
        return False
    if kernel in PROGRAM_KERNELS:
        unit = cpu_native_program.ProgramUnit((trial.node,))
        lanes = cpu_native_program._vector_bytes() // 4
        return cpu_native_program.can_run_natively(trial.graph, unit, lanes)
    # By what KernelVariant says of gates; those of compiled kernels also refuse types.
    if kernel in NUMPY_VARIANTS:
        opened = replace(kernel, gate=None)
        return inputs[0].dtype.is_float and opened.can_run(inputs, out, attrs)
    return kernel.can_run(inputs, out, attrs)


def cpu_tolerance(kernel: KernelVariant, trial: Trial) -> Tolerance:
    """Return the tolerance of a kernel: the op's is what all engines keep to."""
    end = kernel.name.rpartition(", ")[2]
    for name in (kernel.name, end, "fused" if trial.is_composed else trial.op):
        if name in TOLERANCES and not trial.is_sample:
            return TOLERANCES[name]
    return registry.get(trial.op).tolerance


def cpu_failures(
    kernel: KernelVariant, setting: str, trial: Trial, answers: list[bool]
) -> list[str]:
    """Return a line for each wrong output, or if another kernel computed it."""
    builds: list[None] = []
    build = kernel.build

    def note_build(*arguments: object) -> object:
        builds.append(None)
        return build(*arguments)

    answers.clear()
    observed = replace(kernel, build=note_build)
    if kernel in PROGRAM_KERNELS:
        others = [variant for variant in CPU_VARIANTS if variant.op != kernel.op]
        with only_program_kernels([observed]) as runs:
            results = run_on(CpuEngine(variants=others), trial)
        is_used = bool(runs and builds)
    else:
        results = run_on(CpuEngine(variants=[replace(observed, gate=None)]), trial)
        is_used = bool(builds)
    failures = mismatches(trial, results, cpu_tolerance(kernel, trial))
    if setting == "not compiled":
        if any(answers):
            failures.append(f"{trial.label}: compiled code ran")
    elif not is_used:
        failures.append(f"{trial.label}: another kernel ran")
    return failures


def missing_code(kernel: KernelVariant, trial: Trial, answers: list[bool]) -> list[str]:
    """Return a line if a kernel of compiled code fell back to NumPy."""
    if any(answers) or not kernel.name.endswith(", compiled"):
        return []
    return [f"{trial.label}: no compiled code ran"]


def missing_reason(kernel: KernelVariant) -> str:
    """Return why no case reaches a kernel in this Python, or ""."""
    return NOT_HERE.get(kernel.name.rpartition(", ")[2], "")


CPU_KERNELS = [
    kernel for kernel in (*CPU_VARIANTS, *PROGRAM_KERNELS) if not missing_reason(kernel)
]


@pytest.mark.parametrize(
    ("kernel", "setting"),
    [
        pytest.param(
            kernel,
            setting,
            id=f"{kernel.name}-{setting}",
            marks=[pytest.mark.requires_fast] if is_compiled(kernel) else [],
        )
        for kernel in CPU_KERNELS
        for setting in settings_of(kernel)
    ],
)
def test_cpu_kernel_agrees(
    kernel: KernelVariant, setting: str, is_full_tier: bool, sampled: Sampler
) -> None:
    """A kernel on NumPy arrays is right past its gate; one of compiled code also by
    threads, with code for other processors, and while nothing is compiled.
    """
    with cpu_setting(setting) as answers:
        tried = KernelTrials.of_kernel(
            kernel, lambda trial: fits_cpu(kernel, trial), is_full_tier
        )
        chosen = [*tried.named]
        if setting == "here":
            sample_count = None if kernel in NUMPY_VARIANTS else 8
            chosen += sampled(tried.others, 10, quick=2)
            chosen += sampled(tried.samples, sample_count, quick=2)
        else:
            if setting == "not compiled":
                chosen = [trial for trial in chosen if not trial.is_exclusive]
            chosen = [*sampled(chosen or tried.samples, 12, quick=3)]
        assert chosen, "no case reaches this kernel"
        failures = refusals(tried.refused)
        for trial in chosen:
            failures += cpu_failures(kernel, setting, trial, answers)
            if setting != "not compiled" and trial in tried.named:
                failures += missing_code(kernel, trial, answers)
    assert not failures, "\n".join(failures)


def test_kernels_are_tried_on_special_values() -> None:
    """An op cannot get a kernel without a case of NaN, infinity or ties for it."""
    ops = {kernel.op for kernel in (*CPU_VARIANTS, *WGSL_TABLE.variants)}
    tried = {
        op for op, cases in CASES_BY_OP.items() if any(case.edit for case in cases)
    }
    # Where nothing is compiled, as in a browser tab, fewer ops have kernels.
    assert ops - tried == WITHOUT_SPECIAL_VALUES.keys() & ops


def test_a_kernel_is_tried_in_its_dtypes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel of some dtypes cannot take a case of another, whatever its gate is."""
    (kernel,) = (variant for variant in NUMPY_VARIANTS if variant.op == "relu")
    kernel = replace(kernel, dtypes=frozenset({DType.F64}))
    monkeypatch.setattr(sys.modules[__name__], "NUMPY_VARIANTS", [kernel])
    trials = [Trial.of_sample("relu", sample) for sample in sample_cases("relu")]
    tried = [trial for trial in trials if fits_cpu(kernel, trial)]
    assert {trial.node.type.dtype for trial in tried} == {DType.F64}


@pytest.mark.slow
@pytest.mark.requires_fast
def test_native_programs_agree(sampled: Sampler) -> None:
    """Samples of every op, however small, and chains of ops are right as programs.

    In one process, so that what is compiled for one sample is there for the next:
    kernels are shared by what they say they are made for.
    """
    samples = [case for op in checked_ops() for case in smoke_samples(op)]
    cases = [*sampled(samples, len(samples) // 12, quick=100), *chain_cases()]
    engine, failures = CpuEngine(), []
    with cpu_setting("here"), only_program_kernels(PROGRAM_KERNELS) as runs:
        for case in cases:
            prepared = case.prepare()
            program = run_blocking(
                engine.prepare(compile_graph(prepared.graph, engine.target))
            )
            for _ in range(2):  # the second has packed constants
                outputs = run_blocking(engine.run(program, prepared.feeds))
                reason = prepared.judge(outputs).reason
                failures += [f"{case.name}: {reason}"] if reason else []
            run_blocking(program.close())
    assert not failures, "\n".join(failures)
    assert len(runs) > len(cases) // 3


@pytest.mark.parametrize("op", sorted({*CASES_BY_OP} - {COPY, ""}))
def test_reference_agrees(op: str, sampled: Sampler) -> None:
    """The op's reference in float32, which computes where no kernel fits, is right."""
    cases = [case for case in CASES_BY_OP[op] if not case.is_exclusive]
    failures = []
    for case in sampled(cases, 20, quick=5):
        trial = case.trial()
        results = run_on(CpuEngine(variants=()), trial)
        failures += mismatches(trial, results, registry.get(op).tolerance)
    assert not failures, "\n".join(failures)


@pytest.mark.requires_torch
@pytest.mark.parametrize("why", TORCH_CASES)
def test_torch_agrees(why: str) -> None:
    """The CPU computes by the kernels that it chooses what PyTorch computes."""
    torch = import_module("torch")
    failures = []
    for case in TORCH_CASES[why]:
        trial = case.trial()
        assert case.torch is not None
        tensors = map(torch.from_numpy, trial.feeds.values())
        want = case.torch(torch, *tensors, **case.attrs).numpy()
        judged = replace(trial, make_expected=partial(list, [want]))
        results = run_on(CpuEngine(), trial)
        failures += mismatches(
            judged, results, TORCH_TOLERANCES.get(why, TORCH_TOLERANCE)
        )
    assert not failures, "\n".join(failures)


# --- WGSL ----------------------------------------------------------------------------


class WgslKernelRunner:
    """A device that has one kernel alone, and notes when it makes a plan."""

    def __init__(
        self,
        kernel: KernelVariant,
        open_engine: Callable[[KernelVariant], WebGpuEngine],
    ) -> None:
        self.kernel, self.plans = kernel, [None]
        self.engine = open_engine(replace(kernel, build=self._note_plan))

    def _note_plan(self, *arguments: object) -> object:
        plan = self.kernel.build(*arguments)
        self.plans.append(plan)
        return plan

    def fits(self, trial: Trial) -> bool:
        """Return whether the kernel may compute a case; of a copy only a run knows."""
        if not trial.dtypes <= self.engine.target.array_dtypes:
            return False
        if trial.op == COPY:
            return True
        selected = self.engine.kernel_selector.select_kernel(
            *node_signature(trial.graph, trial.node)
        )
        return selected is not None and selected.variant == self.kernel.name

    def failures(self, trials: Iterable[Trial], is_named: bool = True) -> list[str]:
        """Return a line for each wrong output, and for each copy by another kernel that
        has to be by this.
        """
        failures = []
        for trial in trials:
            self.plans.clear()
            results = run_on(self.engine, trial)
            if trial.op != COPY:
                tolerance = registry.get(trial.op).tolerance
                failures += mismatches(trial, results, tolerance)
                continue
            failures += mismatches(trial, results, EXACT)
            if is_named and not any(self.plans):
                failures.append(f"{trial.label}: another kernel ran")
        return failures


def on_adapter(kernel: KernelVariant, request: AdapterRequest) -> WgslKernelRunner:
    """Return the runner of a kernel on an adapter."""
    return WgslKernelRunner(
        kernel, lambda observed: adapter_engine(request, variants=[observed])
    )


def feature_marks(kernel: KernelVariant) -> list[pytest.MarkDecorator]:
    """Return the mark of the feature that a kernel needs, if it needs one."""
    return [pytest.mark.feature(kernel.feature)] if kernel.feature else []


@pytest.mark.slow
@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("device", "kernel"),
    [
        pytest.param(
            device,
            kernel,
            id=f"{device}-{kernel.name}",
            marks=[
                *feature_marks(kernel),
                *(
                    []
                    if device == "lavapipe" or is_named(kernel)
                    else [pytest.mark.full]
                ),
            ],
        )
        for device in ADAPTERS
        for kernel in WGSL_TABLE.variants
    ],
    scope="module",
)
def test_wgsl_kernel_agrees(
    kernel: KernelVariant,
    device: str,
    is_full_tier: bool,
    sampled: Sampler,
    request: pytest.FixtureRequest,
) -> None:
    """A kernel in WGSL is right on every case that it fits, whether or not the table
    prefers another.

    Other tiers than the full one take the cases that name it on lavapipe, or a sample
    where none does, and a sixth of them on each of the other adapters.
    """
    require_engine(device, request.config)
    runner = on_adapter(kernel, ADAPTERS[device])
    tried = KernelTrials.of_kernel(kernel, runner.fits, is_full_tier)
    named, more = tried.named, [*tried.others, *tried.samples]
    if not is_full_tier and device == "lavapipe":
        more = sampled(tried.others, 2, quick=1)
        more = more or ([] if named else sampled(tried.samples, 1, quick=1))
    elif not is_full_tier:
        more, named = [], named[OTHER_ADAPTERS[device] % (len(named) or 1) :: CASE_STEP]
    assert named or more, "no case reaches this kernel"
    # That a type is missing is for `test_agreement` to say.
    dtypes = runner.engine.target.array_dtypes
    failures = refusals(trial for trial in tried.refused if trial.dtypes <= dtypes)
    failures += [*runner.failures(named), *runner.failures(more, False)]
    assert not failures, "\n".join(failures)


def split_cases(kernel: KernelVariant) -> list[KernelCase]:
    """Return the cases that are several pieces where a binding holds 64 KiB and a
    grid's side is 13.
    """
    return [
        case
        for case in CASES_BY_OP[kernel.op]
        if case.is_split and has_to_take(case, kernel)
    ]


SPLIT_KERNELS = [kernel for kernel in WGSL_TABLE.variants if split_cases(kernel)]


@pytest.mark.slow
@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, id=kernel.name, marks=feature_marks(kernel))
        for kernel in SPLIT_KERNELS
    ],
)
def test_split_kernel_agrees(kernel: KernelVariant) -> None:
    """Tile origins come as uniforms, and memory next to a tile is left unchanged."""
    limits = replace(
        AdapterRequest().limits,
        max_storage_buffer_binding_size=1 << 16,
        max_buffer_size=4 << 20,
        max_compute_workgroups_per_dimension=13,
        min_storage_buffer_offset_alignment=256,
    )
    runner = on_adapter(kernel, replace(ADAPTERS["lavapipe"], limits=limits))
    trials = [case.trial() for case in split_cases(kernel)]
    assert all(map(runner.fits, trials))
    failures = runner.failures(trials)
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.requires_dawn
def test_kernels_agree_on_dawn(is_full_tier: bool) -> None:
    """Tint is stricter than naga on barriers, names and types.

    SwiftShader compiles what Tint made for seconds: other tiers than the full one take
    the first case of each op, and of attention the one of wide heads.
    """
    port = WgpuPort(library="wgpudawn")
    run_blocking(port.open(AdapterRequest()))
    failures: list[str] = []
    first_kernels = {
        kernel.op: kernel for kernel in reversed(SPLIT_KERNELS) if not kernel.feature
    }
    try:
        for kernel in SPLIT_KERNELS if is_full_tier else first_kernels.values():
            if kernel.feature:
                continue
            runner = WgslKernelRunner(
                kernel, lambda observed: WebGpuEngine(port, variants=[observed])
            )
            wide_heads = [
                case
                for case in CASES_BY_OP[kernel.op]
                if kernel.op == "attention" and "wide heads" in case.why
            ]
            cases = [*wide_heads, *split_cases(kernel)]
            trials = [case.trial() for case in cases[: None if is_full_tier else 1]]
            assert all(map(runner.fits, trials))
            failures += runner.failures(trials)
    finally:
        run_blocking(port.close())
    assert not failures, "\n".join(failures)


# --- cases drawn at random, and what the tables hold ---------------------------------


@pytest.mark.parametrize("name", DRAWN_CASES)
@hypothesis.settings(max_examples=80)
@hypothesis.given(st.data())
def test_drawn_cases_agree(name: str, data: st.DataObject) -> None:
    """Cases of any size are right by the reference and by each of the CPU's kernels."""
    case = data.draw(DRAWN_CASES[name])
    trial = case.trial()
    with cpu_setting("here") as answers:
        results = run_on(CpuEngine(variants=()), trial)
        tolerance = registry.get(trial.op).tolerance
        assert mismatches(trial, results, tolerance) == []
        for kernel in CPU_KERNELS:
            if kernel.op == case.op and fits_cpu(kernel, trial):
                assert cpu_failures(kernel, "here", trial, answers) == [], kernel.name


@pytest.mark.slow
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", KERNELS_OF_DRAWN_CASES)
@hypothesis.settings(max_examples=12)
@hypothesis.given(st.data())
def test_drawn_cases_agree_on_an_adapter(name: str, data: st.DataObject) -> None:
    """On lavapipe alone: what is drawn differs in arithmetic, not in what it asks."""
    trial = data.draw(DRAWN_CASES[name]).trial()
    kernel = WGSL_TABLE.with_name(KERNELS_OF_DRAWN_CASES[name])[0]
    runner = on_adapter(kernel, ADAPTERS["lavapipe"])
    hypothesis.assume(runner.fits(trial))
    assert runner.failures([trial]) == []


def test_cases_name_kernels_that_exist() -> None:
    """A kernel that is renamed is not lost to the cases that have to run on it."""
    listed = load_kernels("cpu")  # those of a tab too
    kernels = [*listed, *CPU_VARIANTS, *PROGRAM_KERNELS, *WGSL_TABLE.variants]
    assert [
        f"{case.label}: {name}"
        for cases in CASES_BY_OP.values()
        for case in cases
        for name in case.kernels
        if not any(name in row.name and row.op == case.op for row in kernels)
    ] == []


def test_reasons_for_kernels_without_cases_are_needed() -> None:
    """Each end of a name that excuses a kernel from its cases is that of one."""
    assert {*NOT_HERE} <= {
        kernel.name.rpartition(", ")[2] for kernel in load_kernels("cpu")
    }
