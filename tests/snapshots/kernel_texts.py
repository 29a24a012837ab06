"""Record the text of every kernel that the samples of all ops generate.

A record maps a case to the kernels it runs, each by the hash of its text; the texts
themselves are kept beside it. WGSL is written for a GPU, for a device with WebGPU's
default limits, and for one without workgroup memory (a browser's SwiftShader); LLVM's
language for vectors of 32 bytes, whatever the machine; CUDA as CuPy gets it; modules of
WebAssembly by their hash alone.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rlxweb.codegen import (
    jit_cache,
    llvm_compiler,
    native_elementwise,
    native_row_reduction,
    native_thread_pool,
)
from rlxweb.codegen.elementwise_wasm import region_module
from rlxweb.codegen.llvm_builder import TYPE_NBYTES
from rlxweb.codegen.row_reduction_llvm import row_kernel_llvm_ir
from rlxweb.codegen.row_reduction_wasm import row_kernel_module
from rlxweb.codegen.wasm_native_program import program_module
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import DTypeError, Unsupported
from rlxweb.core.limits import Limits
from rlxweb.engines import cpu_native_program, cupy_elementwise
from rlxweb.engines.array import array_target
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.cupy_kernels import cuda_source
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, node_signature
from rlxweb.ir.op import registry
from rlxweb.ops.attention.cpu.wasm_codegen import attention_module
from rlxweb.ops.matmul.cpu import native as matmul
from rlxweb.ops.matmul.cpu.wasm_codegen import matmul_module
from rlxweb.ops.matmul.cpu.wasm_threaded import threaded_matmul_module
from rlxweb.ops.welch.cpu.llvm_kernel import WelchKernel
from rlxweb.ops.welch.cpu.llvm_top_k_search import register_count
from rlxweb.smoke.case import SmokeCase, checked_ops, sample_cases
from rlxweb.smoke.op_chain_cases import chain_cases
from tests.fake_gpu_port import FakePipeline, FakePort
from tests.graphs.row_reduction_graphs import handwritten_outputs
from tests.kernel_tables import WGSL_VARIANTS
from tests.snapshots.snapshot_files import RULE

FEATURES = ("shader-f16", "subgroup", "timestamp-query")
GPU = Limits(
    max_buffer_size=4 << 30,
    max_storage_buffer_binding_size=2 << 30,
    max_storage_buffers_per_shader_stage=16,
    min_storage_buffer_offset_alignment=32,
    max_compute_invocations_per_workgroup=1024,
    max_compute_workgroup_size_x=1024,
    max_compute_workgroup_storage_size=48 << 10,
)
DEVICES: Mapping[str, tuple[tuple[str, ...], Limits]] = {
    "gpu": (FEATURES, GPU),
    "default limits": (("shader-f16",), Limits()),
    "no workgroup memory": (
        (),
        Limits(max_compute_workgroup_storage_size=0),
    ),
}
"""Features and limits of each recorded device."""
VECTOR_NBYTES = 32


@dataclass(slots=True)
class KernelTexts:
    """Kernels by the hash of their text, and the kernels that each case runs."""

    texts: dict[str, str] = field(default_factory=dict)
    cases: dict[str, list[str]] = field(default_factory=dict)

    def add(self, case: str, text: str) -> None:
        """Record that a case runs a kernel."""
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.texts.setdefault(key, text)
        keys = self.cases.setdefault(case, [])
        if key not in keys:
            keys.append(key)


def case_samples() -> Iterator[SmokeCase]:
    """Yield each sample of each op as a graph, and chains of ops."""
    for op in checked_ops():
        yield from sample_cases(op)
    yield from chain_cases()


def open_fake_port(features: Sequence[str], limits: Limits) -> FakePort:
    """Return an open port without a device."""
    port = FakePort(features=features, limits=limits)
    run_blocking(port.open(AdapterRequest(features=tuple(features), limits=limits)))
    return port


ROW_FORMULAS = ("softmax", "layer norm", "ties", "scaled")
"""Reductions along rows as people write them by hand."""


def describe_shader(pipeline: FakePipeline) -> str:
    """Return a pipeline's source below a line with its other parameters."""
    constants = ", ".join(
        f"{name} = {value:g}" for name, value in pipeline.constants.items()
    )
    flags = " ".join([*pipeline.layout, *([] if pipeline.checked else ["unchecked"])])
    return f"// {constants}; {flags}\n{pipeline.source}"


def wgsl_kernels() -> dict[str, KernelTexts]:
    """Return the shaders for each of DEVICES, and those of every variant by itself."""
    records = {}
    graphs = {case.name: case.prepare().graph for case in case_samples()}
    for name, (features, limits) in DEVICES.items():
        port = open_fake_port(features, limits)
        engine = WebGpuEngine(port)
        kernels = records[f"wgsl, {name}"] = KernelTexts()
        for case, graph in graphs.items():
            # A pipeline that is there already would not be made again.
            engine.pipelines.clear()
            for handle in [*port.pipelines]:
                port.destroy(handle)
            try:
                plan = compile_graph(graph, engine.target)
                run_blocking(run_blocking(engine.prepare(plan)).close())
            except DTypeError:
                kernels.cases[case] = ["a type that the device lacks"]
                continue
            kernels.cases.setdefault(case, [])
            for pipeline in port.pipelines.values():
                kernels.add(case, describe_shader(pipeline))
    records["wgsl, variants"] = _variant_kernels()
    return records


def _variant_kernels() -> KernelTexts:
    """Return each variant's own dispatches for the samples it fits, without its
    gate.
    """
    kernels = KernelTexts()
    for row, op in ((row, registry.get(row.op)) for row in WGSL_VARIANTS):
        kernels.cases[row.name] = []
        for case in sample_cases(op):
            graph = case.prepare().graph
            node = graph.node(graph.outputs[0])
            if node.op != op.name:
                continue
            plan = row.build(*node_signature(graph, node)[1:], GPU)
            for dispatch in () if plan is None else plan.dispatches:
                kernels.add(row.name, f"{dispatch.shader}\n{dispatch.source or ''}")
    return kernels


def llvm_kernels() -> dict[str, KernelTexts]:
    """Return the LLVM IR of the CPU's compiled kernels, with no size threshold."""
    pool_texts = {
        name: native_thread_pool.thread_pool_llvm_ir(*words)
        for name, words in native_thread_pool._FUTEX_BY_ARCHITECTURE.items()
    }
    with _compile_everything() as texts:
        kernels = KernelTexts()
        engine = CpuEngine()
        for case in case_samples():
            texts.clear()
            trial = case.prepare()
            program = run_blocking(
                engine.prepare(compile_graph(trial.graph, engine.target))
            )
            for _ in range(2):  # constants are packed in the second run
                run_blocking(engine.run(program, trial.feeds))
            run_blocking(program.close())
            for text in texts:
                # Whoever has several processors needs it, in whatever case comes first.
                if text not in pool_texts.values():
                    kernels.add(case.name, text)
    for machine, text in pool_texts.items():
        kernels.add(f"crew, {machine}", text)
    for name in ROW_FORMULAS:
        for index, spec in enumerate(row_kernels_by_hand(name)):
            text = row_kernel_llvm_ir(spec.kernel, spec.is_scalar, VECTOR_NBYTES)
            kernels.add(f"rows, {name} {index}", text)
    sizes, sample_types = (64, 100, 255, 256, 1000, 4096), ("float", "double", "int")
    trends, result_types = ("none", "constant", "linear"), ("float", "double")
    for options in itertools.product(sizes, sample_types, trends, result_types):
        n, sample_type, trend, result_type = options
        if (sample_type == "double") > (result_type == "double"):
            continue
        lanes = VECTOR_NBYTES // TYPE_NBYTES[result_type]
        registers = register_count(min(8, n // 2 + 1), lanes)
        welch_kernel = WelchKernel(
            n, VECTOR_NBYTES, sample_type, trend, result_type, registers
        )
        kernels.add(
            f"welch, {n} {sample_type} {trend} {result_type}", welch_kernel.llvm_ir()
        )
    return {"llvm": kernels}


def row_kernels_by_hand(name: str) -> Iterator[native_row_reduction.RowKernelSpec]:
    """Yield the row kernels of a formula as people write it by hand."""
    graph = Graph(name)
    x, y = graph.input("x", (64, 300)), graph.input("y", (300,))
    graph.set_outputs(handwritten_outputs(name, graph, x, y))
    line_length = native_row_reduction.MAX_ROW_LENGTH
    plan = compile_graph(graph, replace(CpuEngine.target, line_length=line_length))
    for step in plan.steps:
        found = native_row_reduction.compilable_row_kernel(plan.graph, step.nodes)
        assert found is not None
        yield found.spec


@contextmanager
def _compile_everything() -> Iterator[list[str]]:
    """Compile every kernel at once, for vectors of one size; yield the list of their
    texts.

    LLVM leaves the code as it is, for time: its text is written before.
    """
    texts: list[str] = []
    processor, file_name = llvm_compiler.host_cpu, jit_cache.code_file_name
    object_code = llvm_compiler.compile_object
    fixed_cpu = replace(processor(), vector_nbytes=VECTOR_NBYTES)
    gates = (cpu_native_program, "MIN_STEPS", 0), (matmul, "MIN_WORK", 1)
    gates += ((native_elementwise, "MIN_WORK", 1),)
    gates += tuple(
        (native_row_reduction, name, 1) for name in ("MIN_WORK", "MIN_ROW_LENGTH")
    )
    previous = [(module, name, getattr(module, name)) for module, name, _ in gates]

    def record_text(text: str, *more: str) -> str:
        texts.append(text)
        return file_name(text, *more)

    def compile_unoptimized(text: str) -> bytes:
        llvm = llvm_compiler._get_llvm()
        target = llvm.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=fixed_cpu.name, features=fixed_cpu.features, opt=0
        )
        with llvm.create_context() as context:
            with llvm.parse_assembly(text, context) as parsed:
                return bytes(machine.emit_object(parsed))

    environment = {name: os.environ.get(name) for name in ("RLX_FAST", "RLX_CACHE_DIR")}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        os.environ.update(RLX_FAST="wait", RLX_CACHE_DIR=folder)
        llvm_compiler.host_cpu, jit_cache.code_file_name = (
            lambda: fixed_cpu,
            record_text,
        )
        llvm_compiler.compile_object = compile_unoptimized
        for module, name, value in gates:
            setattr(module, name, value)
        try:
            yield texts
        finally:
            llvm_compiler.host_cpu, jit_cache.code_file_name = (
                processor,
                file_name,
            )
            llvm_compiler.compile_object = object_code
            for module, name, value in previous:
                setattr(module, name, value)
            for name, value in environment.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def cuda_kernels() -> dict[str, KernelTexts]:
    """Return the CUDA source given to CuPy's compilers: regions, and the row
    kernels.
    """
    kernels = KernelTexts()
    target = array_target("CuPy", frozenset(DType))
    for case in case_samples():
        graph = case.prepare().graph
        plan = compile_graph(graph, target)
        for step in plan.steps:

            def record_kernel(*parts: str, preamble: str, name: str = case.name) -> Any:
                kernels.add(name, "\n".join((*parts, preamble)))
                return None

            if step.kind == "region":
                cupy_elementwise.build_region_kernel(plan.graph, step, record_kernel)
    for kind in ("float", "double"):
        kernels.add(f"lines of {kind}", cuda_source(kind))
    return {"cuda": kernels}


def wasm_kernels() -> dict[str, KernelTexts]:
    """Return the WebAssembly modules, by the hash of their bytes."""
    kernels = KernelTexts()
    modules = dict[str, bytes]()
    for fused in (False, True):
        rounding = "fused" if fused else "two roundings"
        modules |= {
            f"attention, {rounding}": attention_module(fused=fused),
            f"products, {rounding}": matmul_module(fused=fused),
            f"shares, {rounding}": threaded_matmul_module(fused=fused),
            f"native program, {rounding}": program_module(fused=fused),
        }
    for name in ROW_FORMULAS:
        for index, spec in enumerate(row_kernels_by_hand(name)):
            code = row_kernel_module(spec.kernel, spec.is_scalar)
            modules[f"rows, {name} {index}"] = code
    target = CpuEngine().target
    for case in case_samples():
        plan = compile_graph(case.prepare().graph, target)
        for at, step in enumerate(plan.steps):
            if step.kind != "region":
                continue
            reads = [*step.reads]
            try:
                code = region_module(
                    plan.graph, step.nodes, reads, [False] * len(reads)
                )
            except (Unsupported, KeyError):  # a type or an op that NumPy computes there
                continue
            modules[f"{case.name}, step {at}"] = code
    for name, code in modules.items():
        kernels.cases[name] = [
            hashlib.sha256(code).hexdigest()[:12],
            f"{len(code)} bytes",
        ]
    return {"wasm": kernels}


def record_wgsl() -> dict[str, str]:
    """Return the files of WGSL."""
    return _files("wgsl", wgsl_kernels())


def record_llvm() -> dict[str, str]:
    """Return the files of LLVM IR."""
    return _files("llvm", llvm_kernels())


def record_cuda() -> dict[str, str]:
    """Return the files of CUDA."""
    return _files("cuda", cuda_kernels())


def record_wasm() -> dict[str, str]:
    """Return the files of WebAssembly."""
    return _files("wasm", wasm_kernels())


def _files(language: str, records: Mapping[str, KernelTexts]) -> dict[str, str]:
    """Return an index of each record, one line per case, and one file with all texts.

    Texts that are alike lie beside each other, which packs them well.
    """
    texts: dict[str, str] = {}
    files = {}
    for name, kernels in records.items():
        texts |= kernels.texts
        cases = sorted(kernels.cases.items())
        lines = [f"{case}: {' '.join(keys)}".rstrip() for case, keys in cases]
        slug = name.replace(", ", "-").replace(" ", "-")
        files[f"kernels-{slug}.txt"] = "\n".join(lines) + "\n"
    if texts:
        in_order = sorted(texts.items(), key=lambda item: (item[1], item[0]))
        packed = "".join(f"\n{RULE} {key}\n{text}" for key, text in in_order)
        files[f"kernels-{language}-texts.txt.xz"] = packed
    return files
