"""CuPy's engine where there is no CUDA: its plumbing and its expressions, over NumPy.

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

from rlxweb.backends import cupy_arrays
from rlxweb.backends.cupy_arrays import open_cupy
from rlxweb.backends.cupy_regions import TEXT
from rlxweb.backends.row import arrays, nothing_missing, safely
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.activation import erfc
from rlxweb.ops.functions import erf
from rlxweb.smoke.case import plain
from rlxweb.smoke.special import elementwise_cases
from tests.agreement import Engine
from tests.lanes.on_host import HostModule

LINE = re.compile(r"(float|double|bool) (v\d+) = (.*);")
KINDS = {"float": np.float32, "double": np.float64, "bool": np.bool_}


def cast(kind: type) -> Any:
    """`float(0.5)` as in C, of arrays too."""
    return lambda value: np.asarray(value, kind)[()]


WORDS: dict[str, Any] = {
    **{k: cast(v) for k, v in KINDS.items()},
    **{n: getattr(np, n) for n in "abs exp tanh log sqrt sin cos tan rint pow".split()},
    **{n: getattr(np, n) for n in "floor ceil trunc exp2 expm1 log2 log1p".split()},
    **{n: getattr(np, n) for n in "sinh cosh asinh acosh atanh asin acos".split()},
    "fmod": np.fmod,
    "atan": np.arctan,
    "erf": lambda x: erf(np, x),
    "erfc": lambda x: erfc(np, x),
    "select": lambda c, a, b: np.where(c, a, b),
}


class Kernel:
    """`cupy.ElementwiseKernel`, line by line."""

    made = 0

    def __init__(
        self, ins: str, outs: str, body: str, name: str, *, preamble: str, options: Any
    ) -> None:
        assert options == ("-fmad=false",)
        assert "select" in preamble
        Kernel.made += 1
        self.ins = [one.split() for one in ins.split(", ")]
        (self.out,) = (one.split()[0] for one in outs.split(", "))
        *self.lines, self.last = body.split("\n")

    def __call__(self, *arrays: Any) -> Any:
        known = dict(WORDS)
        for (kind, name), array in zip(self.ins, arrays, strict=True):
            assert array.dtype == kind
            known[name] = array
        for line in self.lines:
            match = LINE.fullmatch(line)
            assert match, line
            made = np.asarray(eval(match[3], known))
            # C would have computed in double where a literal is one: none may be.
            assert made.dtype == KINDS[match[1]], line
            known[match[2]] = made
        return known[re.fullmatch(r"out = (v\d+);", self.last)[1]]  # type: ignore[index]


class Stream:
    """`cupy.cuda.Stream`: the current one within a block, and what was waited for."""

    current: ClassVar[list[Stream | None]] = [None]

    def __init__(self, *, non_blocking: bool) -> None:
        assert non_blocking
        self.waited = 0

    def __enter__(self) -> None:
        Stream.current.append(self)

    def __exit__(self, *error: object) -> None:
        assert Stream.current.pop() is self

    def synchronize(self) -> None:
        assert Stream.current[-1] is self
        self.waited += 1


def standin(count: int = 2, hip: bool = False) -> Any:
    names = ["NVIDIA A", "NVIDIA B"]
    runtime = SimpleNamespace(
        is_hip=hip,
        getDeviceCount=lambda: count,
        getDeviceProperties=lambda at: {"name": names[at].encode()},
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13010,
    )
    return SimpleNamespace(
        __version__="14.0",
        ElementwiseKernel=Kernel,
        RawModule=HostModule,
        ascontiguousarray=np.ascontiguousarray,
        empty=np.empty,
        fft=np.fft,
        lib=np.lib,
        asarray=np.asarray,
        asnumpy=np.array,
        array=np.array,
        from_dlpack=np.from_dlpack,
        cuda=SimpleNamespace(
            runtime=runtime, Device=lambda at: np.errstate(), Stream=Stream
        ),
    )


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, found where CuPy would be."""
    fake = standin()
    monkeypatch.setattr(
        cupy_arrays,
        "library",
        lambda name, doing, hint: fake if name == "cupy" else np,
    )
    return fake


def test_every_expression_gives_what_its_reference_gives(cupy: Any) -> None:
    """Expressions give their references on samples and special values of every op."""
    one = Engine("CuPy", drive(open_cupy()))
    said = []
    cases = [case for name in TEXT for case in plain(registry.get(name))]
    cases += [c for c in elementwise_cases((1,)) if c.op in TEXT or not c.op]
    before = Kernel.made
    for case in cases:
        trial = case.make()
        found = trial.judge(one.run(trial.graph, trial.feeds))
        said += [f"{case.name}: {found.why}"] if found.why else []
    assert said == []
    assert Kernel.made - before > 300


def test_a_region_is_one_kernel_and_what_has_no_row_none(cupy: Any) -> None:
    """A cast has none; without kernels the numbers are the same."""
    graph = Graph("chain")
    x, y = graph.input("x", (3, 4)), graph.input("y", 4)
    warm = graph.where(graph.gt(x, 0.5), graph.gelu(x) * y, x - 2.0)
    graph.set_outputs([warm, graph.cast(graph.exp(y) * 8.0, "i32")])
    feeds = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)}
    feeds["y"] = np.arange(4, dtype=np.float32)
    backend: Any = drive(open_cupy())
    made = Kernel.made
    outs = Engine("CuPy", backend).run(graph, feeds)
    assert Kernel.made - made == 1
    backend._kernel = None
    for got, want in zip(outs, Engine("bare", backend).run(graph, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_all_work_is_in_a_stream_of_the_engines_own(cupy: Any) -> None:
    """All work is in the engine's own stream, which is waited for at a hand-over."""
    backend: Any = drive(open_cupy())
    seen: set[object] = set()
    make = backend._kernel
    backend._kernel = lambda *text, **how: in_stream(seen, make(*text, **how))
    for name in ("_to_device", "_to_host", "_copied", "_from_dlpack"):
        setattr(backend, name, in_stream(seen, getattr(backend, name)))
    graph = Graph("chain")
    graph.set_outputs([graph.exp(graph.input("x", 4) * 2.0)])
    x = np.arange(4, dtype=np.float32)
    with Stream(non_blocking=True) as _:
        program = drive(backend.prepare(compile_graph(graph, backend.target)))
        there = drive(backend.put(x))
        (kept,) = drive(backend.run_resident(program, {"x": there}, [True]))
        np.testing.assert_allclose(drive(backend.get(kept)), np.exp(x * 2), rtol=1e-6)
        assert backend._stream.waited == 0
        taken = drive(backend.take(x))
        assert backend._stream.waited == 1
        np.testing.assert_array_equal(backend.lend(taken, copy=True), x)
        assert backend._stream.waited == 2
        drive(backend.run(program, {"x": x}))
    assert seen == {backend._stream}
    assert Stream.current == [None]


def in_stream(seen: set[object], work: Callable[..., Any]) -> Callable[..., Any]:
    """The same, noting the stream it is called in."""

    def noted(*given: Any) -> Any:
        seen.add(Stream.current[-1])
        return work(*given)

    return noted


def test_a_gpu_is_chosen_by_its_name(cupy: Any) -> None:
    """A GPU is chosen by its name and told with library, runtime and driver."""
    backend = drive(open_cupy("cuda", "b"))
    assert (backend.adapter, backend.api) == ("NVIDIA B", "cuda")
    assert backend.driver == "CuPy 14.0, runtime 13000, driver 13010"
    assert not backend.software
    for kind, adapter, words in (
        (
            "cuda",
            "radeon",
            r"no device named 'radeon'; there is \['NVIDIA A', 'NVIDIA B'\]",
        ),
        ("hip", "", "this CuPy is built for cuda"),
    ):
        with pytest.raises(AdapterMissing, match=words):
            drive(open_cupy(kind, adapter))


def test_what_is_missing_or_broken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library; one that finds no driver; one that computes wrong."""
    with pytest.raises(AdapterMissing, match=r"cupy cannot be loaded.*rlxweb\[cuda\]"):
        drive(open_cupy())
    fake = standin()
    monkeypatch.setattr(
        cupy_arrays, "library", lambda name, *_: fake if name == "cupy" else np
    )

    def no_driver() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: too old")

    fake.cuda.runtime.getDeviceCount = no_driver
    with pytest.raises(AdapterMissing, match="cudaErrorInsufficientDriver"):
        drive(open_cupy())
    fake.cuda.runtime.getDeviceCount = lambda: 1
    fake.asnumpy = lambda array: np.array(array) * 1.5
    with pytest.raises(AdapterMissing, match="computes wrong"):
        drive(safely(arrays("CuPy", "cupy", "cuda", nothing_missing), ""))
