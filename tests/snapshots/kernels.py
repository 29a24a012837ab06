"""Record the text of every kernel that the samples of all ops lead to.

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

from rlxweb.backends import cpu_products, cpu_regions, cpu_tape, cupy_regions
from rlxweb.backends.array import array_target
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cupy_kernels import cuda_text
from rlxweb.backends.wasm_attention_text import attention_module
from rlxweb.backends.wasm_lines_text import lines_module
from rlxweb.backends.wasm_region_text import region_module
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import DTypeError, Unsupported
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.limits import Limits
from rlxweb.machine import crew, library, store
from rlxweb.machine.estimate import Estimate
from rlxweb.machine.search import registers_for
from rlxweb.machine.text import SIZE
from rlxweb.machine.wasm_products import products_module
from rlxweb.machine.wasm_shares import shares_module
from rlxweb.machine.wasm_tape import tape_module
from rlxweb.recipes.variants import VARIANTS
from rlxweb.smoke.case import Case, checked_ops, plain
from rlxweb.smoke.chains import chain_cases
from tests.fake_port import FakePipeline, FakePort
from tests.snapshots.recorded import RULE

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
"""The features of the device and its limits."""
VECTOR_NBYTES = 32


@dataclass(slots=True)
class Kernels:
    """Kernels by the hash of their text, and which of them each case runs."""

    texts: dict[str, str] = field(default_factory=dict)
    cases: dict[str, list[str]] = field(default_factory=dict)

    def add(self, case: str, text: str) -> None:
        """Note that a case runs a kernel."""
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.texts.setdefault(key, text)
        run = self.cases.setdefault(case, [])
        if key not in run:
            run.append(key)


def samples() -> Iterator[Case]:
    """Yield each sample of each op as a graph, and chains of ops."""
    for op in checked_ops():
        yield from plain(op)
    yield from chain_cases()


def opened(features: Sequence[str], limits: Limits) -> FakePort:
    """Return an open port without a device."""
    port = FakePort(features=features, limits=limits)
    drive(port.open(Want(features=tuple(features), limits=limits)))
    return port


def shader_of(made: FakePipeline) -> str:
    """Return the text of a pipeline under a line with all else it is made of."""
    about = ", ".join(f"{name} = {one:g}" for name, one in made.constants.items())
    flags = " ".join([*made.layout, *([] if made.checked else ["unchecked"])])
    return f"// {about}; {flags}\n{made.source}"


def wgsl() -> dict[str, Kernels]:
    """Record what each of DEVICES is given, and what every variant by itself writes."""
    found = {}
    graphs = {case.name: case.make().graph for case in samples()}
    for name, (features, limits) in DEVICES.items():
        port = opened(features, limits)
        backend = WebGpuBackend(port)
        kernels = found[f"wgsl, {name}"] = Kernels()
        for case, graph in graphs.items():
            # A pipeline that is there already would not be made again.
            backend.pipelines.forget()
            for handle in [*port.pipelines]:
                port.destroy(handle)
            try:
                plan = compile_graph(graph, backend.target)
                drive(backend.release(drive(backend.prepare(plan))))
            except DTypeError:
                kernels.cases[case] = ["a type that the device lacks"]
                continue
            kernels.cases.setdefault(case, [])
            for made in port.pipelines.values():
                kernels.add(case, shader_of(made))
    found["wgsl, variants"] = _variants()
    return found


def _variants() -> Kernels:
    """Record each variant's own calls for the samples it fits, its gate left aside."""
    kernels = Kernels()
    for row, op in ((row, registry.get(row.op)) for row in VARIANTS):
        kernels.cases[row.name] = []
        for case in plain(op):
            graph = case.make().graph
            node = graph.node(graph.outputs[0])
            if node.op != op.name:
                continue
            types = tuple(graph.node(i).type for i in node.inputs)
            made = row.recipe(types, node.type, node.attrs, GPU)
            for call in () if made is None else made.calls:
                kernels.add(row.name, f"{call.shader}\n{call.source or ''}")
    return kernels


def llvm() -> dict[str, Kernels]:
    """Record what the CPU's compiled kernels are made of, with no gate shut by size."""
    crews = {name: crew.crew_text(*words) for name, words in crew._FUTEX.items()}
    with _every_gate_open() as texts:
        kernels = Kernels()
        backend = CpuBackend()
        for case in samples():
            texts.clear()
            trial = case.make()
            program = drive(backend.prepare(compile_graph(trial.graph, backend.target)))
            for _ in range(2):  # constants are packed in the second run
                drive(backend.run(program, trial.feeds))
            drive(backend.release(program))
            for text in texts:
                # Whoever has several processors needs it, in whatever case comes first.
                if text not in crews.values():
                    kernels.add(case.name, text)
    for machine, text in crews.items():
        kernels.add(f"crew, {machine}", text)
    sizes, samples_of = (64, 100, 255, 256, 1000, 4096), ("float", "double", "int")
    trends, answers = ("none", "constant", "linear"), ("float", "double")
    for how in itertools.product(sizes, samples_of, trends, answers):
        n, sample, trend, answer = how
        if (sample == "double") > (answer == "double"):
            continue
        lanes = VECTOR_NBYTES // SIZE[answer]
        registers = registers_for(min(8, n // 2 + 1), lanes)
        made = Estimate(n, VECTOR_NBYTES, sample, trend, answer, registers)
        kernels.add(f"welch, {n} {sample} {trend} {answer}", made.text())
    return {"llvm": kernels}


@contextmanager
def _every_gate_open() -> Iterator[list[str]]:
    """Have all be compiled at once, for vectors of one size; yield what is made.

    LLVM leaves the code as it is, for time: its text is written before.
    """
    texts: list[str] = []
    processor, file_name = library.processor, store.file_name
    object_code = library.object_code
    here = replace(processor(), nbytes=VECTOR_NBYTES)
    gates = (cpu_tape, "LEAST_STEPS", 0), (cpu_products, "LEAST", 1)
    gates += ((cpu_regions, "LEAST_WORK", 1),)
    before = [(room, name, getattr(room, name)) for room, name, _ in gates]

    def noted(text: str, *more: str) -> str:
        texts.append(text)
        return file_name(text, *more)

    def slow_code(text: str) -> bytes:
        llvm = library._llvm()
        target = llvm.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=here.name, features=here.features, opt=0
        )
        with llvm.create_context() as context:
            with llvm.parse_assembly(text, context) as module:
                return bytes(machine.emit_object(module))

    asked = {name: os.environ.get(name) for name in ("RLX_FAST", "RLX_CACHE_DIR")}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        os.environ.update(RLX_FAST="wait", RLX_CACHE_DIR=folder)
        library.processor, store.file_name = lambda: here, noted
        library.object_code = slow_code
        for room, name, value in gates:
            setattr(room, name, value)
        try:
            yield texts
        finally:
            library.processor, store.file_name = processor, file_name
            library.object_code = object_code
            for room, name, value in before:
                setattr(room, name, value)
            for name, value in asked.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def cuda() -> dict[str, Kernels]:
    """Record what CuPy's compilers are given: regions, and the kernels of lines."""
    kernels = Kernels()
    target = array_target("CuPy", frozenset(DType))
    for case in samples():
        graph = case.make().graph
        plan = compile_graph(graph, target)
        for step in plan.steps:

            def make(*parts: str, preamble: str, name: str = case.name) -> Any:
                kernels.add(name, "\n".join((*parts, preamble)))
                return None

            if step.kind == "region":
                cupy_regions.region_kernel(plan.graph, step, make)
    for kind in ("float", "double"):
        kernels.add(f"lines of {kind}", cuda_text(kind))
    return {"cuda": kernels}


def wasm() -> dict[str, Kernels]:
    """Record the modules of WebAssembly, by the hash of their bytes."""
    kernels = Kernels()
    modules = {"lines": lines_module()}
    for fused in (False, True):
        about = "fused" if fused else "two roundings"
        modules |= {
            f"attention, {about}": attention_module(fused=fused),
            f"products, {about}": products_module(fused=fused),
            f"shares, {about}": shares_module(fused=fused),
            f"tape, {about}": tape_module(fused=fused),
        }
    target = CpuBackend().target
    for case in samples():
        plan = compile_graph(case.make().graph, target)
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
    return _files("wgsl", wgsl())


def record_llvm() -> dict[str, str]:
    """Return the files of LLVM's language."""
    return _files("llvm", llvm())


def record_cuda() -> dict[str, str]:
    """Return the files of CUDA."""
    return _files("cuda", cuda())


def record_wasm() -> dict[str, str]:
    """Return the files of WebAssembly."""
    return _files("wasm", wasm())


def _files(language: str, records: Mapping[str, Kernels]) -> dict[str, str]:
    """Return an index of each record, a line per case, and the texts of all together.

    Texts that are alike lie beside each other, which packs them well.
    """
    texts: dict[str, str] = {}
    files = {}
    for name, kernels in records.items():
        texts |= kernels.texts
        cases = sorted(kernels.cases.items())
        lines = [f"{case}: {' '.join(run)}".rstrip() for case, run in cases]
        slug = name.replace(", ", "-").replace(" ", "-")
        files[f"kernels-{slug}.txt"] = "\n".join(lines) + "\n"
    if texts:
        in_order = sorted(texts.items(), key=lambda item: (item[1], item[0]))
        packed = "".join(f"\n{RULE} {key}\n{text}" for key, text in in_order)
        files[f"kernels-{language}-texts.txt.xz"] = packed
    return files
