"""CuPy engine without CUDA: its plumbing and its expressions, over NumPy.

The stand-in has NumPy's arrays, and computes the text of a kernel line by line: every
expression is a Python one too. That a GPU's compiler and functions give the same is
seen on a GPU alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import AdapterMissing
from rlxweb.engines import cupy_engine
from rlxweb.engines.cupy_elementwise import CUDA_EXPRESSIONS
from rlxweb.engines.cupy_engine import open_cupy
from rlxweb.engines.registry_row import always_present, array_library, open_and_test
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.elementwise.activation import erfc
from rlxweb.ops.elementwise.unary_math import erf
from rlxweb.smoke.case import sample_cases
from rlxweb.smoke.special_value_cases import elementwise_cases
from tests.engines_under_test import EngineUnderTest
from tests.lanes.cuda_on_host import HostCudaModule

ASSIGNMENT_PATTERN = re.compile(r"(float|double|bool) (v\d+) = (.*);")
C_TYPES = {"float": np.float32, "double": np.float64, "bool": np.bool_}


def c_cast(dtype: type) -> Any:
    """Return a C-style cast such as `float(0.5)` that also takes arrays."""
    return lambda value: np.asarray(value, dtype)[()]


C_FUNCTIONS: dict[str, Any] = {
    **{k: c_cast(v) for k, v in C_TYPES.items()},
    **{n: getattr(np, n) for n in "abs exp tanh log sqrt sin cos tan rint pow".split()},
    **{n: getattr(np, n) for n in "floor ceil trunc exp2 expm1 log2 log1p".split()},
    **{n: getattr(np, n) for n in "sinh cosh asinh acosh atanh asin acos".split()},
    "fmod": np.fmod,
    "atan": np.arctan,
    "erf": lambda x: erf(np, x),
    "erfc": lambda x: erfc(np, x),
    "select": lambda c, a, b: np.where(c, a, b),
}


class FakeElementwiseKernel:
    """Stand-in for `cupy.ElementwiseKernel`, interpreted line by line."""

    created = 0

    def __init__(
        self, ins: str, outs: str, body: str, name: str, *, preamble: str, options: Any
    ) -> None:
        assert options == ("-fmad=false",)
        assert "select" in preamble
        FakeElementwiseKernel.created += 1
        self.ins = [declaration.split() for declaration in ins.split(", ")]
        (self.out,) = (declaration.split()[0] for declaration in outs.split(", "))
        *self.lines, self.last = body.split("\n")

    def __call__(self, *arrays: Any) -> Any:
        namespace = dict(C_FUNCTIONS)
        for (kind, name), array in zip(self.ins, arrays, strict=True):
            assert array.dtype == kind
            namespace[name] = array
        for line in self.lines:
            match = ASSIGNMENT_PATTERN.fullmatch(line)
            assert match, line
            value = np.asarray(eval(match[3], namespace))
            # C would have computed in double where a literal is one: none may be.
            assert value.dtype == C_TYPES[match[1]], line
            namespace[match[2]] = value
        return namespace[re.fullmatch(r"out = (v\d+);", self.last)[1]]  # type: ignore[index]


class FakeStream:
    """Stand-in for `cupy.cuda.Stream`: the current one within a block, and its
    waits.
    """

    current: ClassVar[list[FakeStream | None]] = [None]

    def __init__(self, *, non_blocking: bool) -> None:
        assert non_blocking
        self.wait_count = 0

    def __enter__(self) -> None:
        FakeStream.current.append(self)

    def __exit__(self, *error: object) -> None:
        assert FakeStream.current.pop() is self

    def synchronize(self) -> None:
        assert FakeStream.current[-1] is self
        self.wait_count += 1


def fake_cupy(count: int = 2, hip: bool = False) -> Any:
    names = ["NVIDIA A", "NVIDIA B"]
    runtime = SimpleNamespace(
        is_hip=hip,
        getDeviceCount=lambda: count,
        getDeviceProperties=lambda index: {"name": names[index].encode()},
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13010,
    )
    return SimpleNamespace(
        __version__="14.0",
        ElementwiseKernel=FakeElementwiseKernel,
        RawModule=HostCudaModule,
        ascontiguousarray=np.ascontiguousarray,
        empty=np.empty,
        fft=np.fft,
        lib=np.lib,
        asarray=np.asarray,
        asnumpy=np.array,
        array=np.array,
        from_dlpack=np.from_dlpack,
        cuda=SimpleNamespace(
            runtime=runtime, Device=lambda index: np.errstate(), Stream=FakeStream
        ),
    )


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install the stand-in where the engine imports CuPy."""
    fake = fake_cupy()
    monkeypatch.setattr(
        cupy_engine,
        "import_library",
        lambda name, doing, hint: fake if name == "cupy" else np,
    )
    return fake


def test_every_expression_matches_its_reference(cupy: Any) -> None:
    """Expressions match their references on samples and special values of every op."""
    runner = EngineUnderTest("CuPy", run_blocking(open_cupy()))
    mismatches = []
    cases = [
        case for name in CUDA_EXPRESSIONS for case in sample_cases(registry.get(name))
    ]
    cases += [
        c for c in elementwise_cases((1,)) if c.op in CUDA_EXPRESSIONS or not c.op
    ]
    before = FakeElementwiseKernel.created
    for case in cases:
        trial = case.prepare()
        verdict = trial.judge(runner.run(trial.graph, trial.feeds))
        mismatches += [f"{case.name}: {verdict.reason}"] if verdict.reason else []
    assert mismatches == []
    assert FakeElementwiseKernel.created - before > 300


def test_region_is_one_kernel(cupy: Any) -> None:
    """A region is one kernel and a cast has none; without kernels the numbers are the
    same.
    """
    graph = Graph("chain")
    x, y = graph.input("x", (3, 4)), graph.input("y", 4)
    warm = graph.where(graph.gt(x, 0.5), graph.gelu(x) * y, x - 2.0)
    graph.set_outputs([warm, graph.cast(graph.exp(y) * 8.0, "i32")])
    feeds = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)}
    feeds["y"] = np.arange(4, dtype=np.float32)
    engine: Any = run_blocking(open_cupy())
    kernels_before = FakeElementwiseKernel.created
    outs = EngineUnderTest("CuPy", engine).run(graph, feeds)
    assert FakeElementwiseKernel.created - kernels_before == 1
    engine._kernel = None
    for got, want in zip(
        outs, EngineUnderTest("bare", engine).run(graph, feeds), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_all_work_is_in_the_engine_stream(cupy: Any) -> None:
    """All work is in the engine's own stream, which is synchronized when arrays are
    handed over.
    """
    engine: Any = run_blocking(open_cupy())
    streams: set[object] = set()
    make_kernel = engine._kernel
    engine._kernel = lambda *text, **options: record_streams(
        streams, make_kernel(*text, **options)
    )
    for name in ("_to_device", "copy_to_host", "copy_array", "_from_dlpack"):
        setattr(engine, name, record_streams(streams, getattr(engine, name)))
    graph = Graph("chain")
    graph.set_outputs([graph.exp(graph.input("x", 4) * 2.0)])
    x = np.arange(4, dtype=np.float32)
    with FakeStream(non_blocking=True) as _:
        program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
        device_array = run_blocking(engine.put(x))
        (output,) = run_blocking(engine.run(program, {"x": device_array}, [True]))
        np.testing.assert_allclose(
            run_blocking(engine.get(output)), np.exp(x * 2), rtol=1e-6
        )
        assert engine._stream.wait_count == 0
        imported = run_blocking(engine.take(x))
        assert engine._stream.wait_count == 1
        np.testing.assert_array_equal(imported.lend(copy=True), x)
        assert engine._stream.wait_count == 2
        run_blocking(engine.run(program, {"x": x}))
    assert streams == {engine._stream}
    assert FakeStream.current == [None]


def record_streams(
    streams: set[object], work: Callable[..., Any]
) -> Callable[..., Any]:
    """Wrap a function so that it records the stream in which it is called."""

    def recorded_call(*arguments: Any) -> Any:
        streams.add(FakeStream.current[-1])
        return work(*arguments)

    return recorded_call


def test_a_gpu_is_chosen_by_its_name(cupy: Any) -> None:
    """A GPU is chosen by its name, and reported with library, runtime and driver."""
    identity = run_blocking(open_cupy("cuda", "b")).identity
    assert (identity.adapter, identity.api) == ("NVIDIA B", "cuda")
    assert identity.driver == "CuPy 14.0, runtime 13000, driver 13010"
    assert not identity.software
    for kind, adapter, words in (
        (
            "cuda",
            "radeon",
            r"no device name contains 'radeon'; available: \['NVIDIA A', 'NVIDIA B'\]",
        ),
        ("hip", "", "this CuPy is built for cuda"),
    ):
        with pytest.raises(AdapterMissing, match=words):
            run_blocking(open_cupy(kind, adapter))


def test_missing_or_broken_cupy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names a missing library, a missing driver, or wrong results."""
    with pytest.raises(AdapterMissing, match=r"cupy cannot be loaded.*rlxweb\[cuda\]"):
        run_blocking(open_cupy())
    fake = fake_cupy()
    monkeypatch.setattr(
        cupy_engine, "import_library", lambda name, *_: fake if name == "cupy" else np
    )

    def no_driver() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: too old")

    fake.cuda.runtime.getDeviceCount = no_driver
    with pytest.raises(AdapterMissing, match="cudaErrorInsufficientDriver"):
        run_blocking(open_cupy())
    fake.cuda.runtime.getDeviceCount = lambda: 1
    fake.asnumpy = lambda array: np.array(array) * 1.5
    with pytest.raises(AdapterMissing, match="computes a wrong result"):
        run_blocking(
            open_and_test(array_library("CuPy", "cupy", "cuda", always_present), "")
        )
