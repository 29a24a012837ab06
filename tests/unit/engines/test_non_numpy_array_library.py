"""Array engine on a library that is not NumPy: no NumPy array or dtype leaks into a
run.

The library here is NumPy behind glass: its arrays refuse to become NumPy arrays, to
meet them in an operator or to enter a NumPy function, and its dtypes are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import GraphError, IndexRefused
from rlxweb.engines.array import ArrayEngine, array_target
from rlxweb.engines.protocol import EngineIdentity
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from tests.engines_under_test import EngineUnderTest
from tests.ops.op_cases import op_names, sample_cases, view_cases
from tests.ops.test_agreement import case_failures, small_cases
from tests.unit.engines.test_cpu_engine import graph_with_wrong_reference

SCALAR_TYPES = (bool, int, float, complex)


class GlassDType:
    """Element type that no NumPy dtype equals."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlassDType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"glass.{self.name}"


class GlassArray:
    """Array of the foreign library."""

    __array_ufunc__ = None  # NumPy's operators leave the operation to us: refused
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inside: Any) -> None:
        self._inside = np.asarray(inside)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an array of the device was handed to NumPy")

    __array_function__ = __iter__ = __array__

    @property
    def shape(self) -> tuple[int, ...]:
        return self._inside.shape

    @property
    def dtype(self) -> GlassDType:
        return GlassDType(self._inside.dtype.name)

    @property
    def ndim(self) -> int:
        return self._inside.ndim

    @property
    def size(self) -> int:
        return self._inside.size

    def __bool__(self) -> bool:
        return bool(self._inside)

    def __int__(self) -> int:
        return int(self._inside)

    def __getitem__(self, at: Any) -> GlassArray:
        return GlassArray(self._inside[unwrap(at)])

    def __getattr__(self, name: str) -> Any:
        if name in ("real", "imag", "T"):
            return GlassArray(getattr(self._inside, name))
        if name in ("astype", "reshape", "swapaxes", "view"):
            return glass_function(getattr(self._inside, name))
        raise AttributeError(name)


def _operator(name: str) -> Callable[..., GlassArray]:
    def operate(self: GlassArray, *others: Any) -> GlassArray:
        if not all(isinstance(other, (GlassArray, *SCALAR_TYPES)) for other in others):
            raise TypeError(f"{name} of a device's array and {others!r}")
        return GlassArray(getattr(self._inside, name)(*map(unwrap, others)))

    return operate


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv matmul eq ne lt le gt ge and or neg "
    "lshift rshift floordiv mod invert"
).split():
    setattr(GlassArray, f"__{_name}__", _operator(f"__{_name}__"))


def unwrap(value: Any) -> Any:
    """Return an argument's NumPy content; a bare NumPy array is rejected."""
    if isinstance(value, GlassArray):
        return value._inside
    if isinstance(value, GlassDType):
        return np.dtype(value.name)
    if isinstance(value, tuple | list):
        return type(value)(map(unwrap, value))
    if isinstance(value, np.ndarray | np.generic | np.dtype):
        raise TypeError(f"a function of the device was given NumPy's {value!r}")
    if isinstance(value, type) and issubclass(value, np.generic):
        raise TypeError(f"a function of the device was given NumPy's {value}")
    return value


def wrap(value: Any) -> Any:
    """Return an array as a glass array, and anything else unchanged."""
    return GlassArray(value) if isinstance(value, np.ndarray | np.generic) else value


def glass_function(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {name: unwrap(value) for name, value in kwargs.items()}
        result = function(*map(unwrap, args), **kwargs)
        if isinstance(result, tuple):  # of several arrays, with names in most libraries
            return tuple(map(wrap, result))
        return wrap(result)

    return call


class GlassLibrary:
    """Namespace of NumPy's functions on glass arrays; only `asarray` takes NumPy
    arrays.
    """

    def __init__(self, namespace: Any = np) -> None:
        self._namespace = namespace

    def asarray(
        self, value: Any, dtype: Any = None, copy: bool | None = None
    ) -> GlassArray:
        inside = value if isinstance(value, np.ndarray) else unwrap(value)
        inside = np.array(inside) if copy else inside
        return GlassArray(np.asarray(inside, dtype=unwrap(dtype)))

    def __getattr__(self, name: str) -> Any:
        if name == "tensorsolve":  # whose owners divide by 0; NumPy raises
            raise AttributeError(name)
        member = getattr(self._namespace, name)
        if isinstance(member, ModuleType):
            return GlassLibrary(member)
        if isinstance(member, type) and issubclass(member, np.generic):
            return GlassDType(np.dtype(member).name)
        call: Any = glass_function(member)
        if isinstance(member, np.ufunc):
            call.at = glass_function(
                member.at
            )  # combines at places, in the array itself
        return call


class TransferCounter:
    """Transfers to the device and back; uploads are recorded."""

    def __init__(self) -> None:
        self.uploads: list[Any] = []

    def to_device(self, array: Any) -> GlassArray:
        assert type(array) is np.ndarray
        self.uploads.append(array)
        return GlassArray(array.copy())

    def to_host(self, array: Any) -> Any:
        assert type(array) is GlassArray
        return array._inside


def glass_engine() -> tuple[EngineUnderTest, TransferCounter]:
    traffic = TransferCounter()
    engine = ArrayEngine(
        GlassLibrary(),
        EngineIdentity("glass 1.0", "a pane", driver="1.0"),
        array_target("glass", frozenset(DType)),
        to_device=traffic.to_device,
        to_host=traffic.to_host,
    )
    return EngineUnderTest("glass", engine), traffic


@pytest.mark.parametrize("name", op_names())
def test_a_foreign_library_agrees(name: str) -> None:
    """Another library agrees on every op's smaller samples, plain and through views."""
    runner, _ = glass_engine()
    assert case_failures(runner, small_cases(sample_cases(name))) == []
    assert case_failures(runner, small_cases(view_cases(name))) == []


def test_leaks_are_detected() -> None:
    """Every mix of glass and NumPy arrays raises TypeError, so a leak would show."""
    glass_array, numpy_array = GlassArray(np.ones(3)), np.ones(3)
    for leak in (
        lambda: np.asarray(glass_array),
        lambda: np.exp(glass_array),
        lambda: np.concatenate([glass_array, glass_array]),
        lambda: glass_array + numpy_array,
        lambda: numpy_array * glass_array,
        lambda: GlassLibrary().exp(numpy_array),
        lambda: GlassLibrary().zeros(3, dtype=np.float32),
    ):
        with pytest.raises(TypeError):
            leak()


def leaf_outputs_graph() -> Graph:
    """Return a graph whose outputs are an input, a param, a constant, a view, and one
    value twice.
    """
    g = Graph()
    x, w = g.input("x", (2, 3)), g.param("w", (2, 3))
    c = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    g.set_outputs([x, w, c, g.reshape(w, (6,)), x + w, x + w])
    return g


def test_results_share_no_memory() -> None:
    """Writing into a result changes no other, no param, constant or later run."""
    runner, _ = glass_engine()
    graph = leaf_outputs_graph()
    x = np.ones((2, 3), np.float32)
    program = run_blocking(
        runner.engine.prepare(compile_graph(graph, runner.engine.target))
    )
    run_blocking(program.set_param("w", x * 5))
    first = run_blocking(runner.engine.run(program, {"x": x}))
    copies = [out.copy() for out in first]
    for out in first:
        out[...] = -1
    assert x.tolist() == [[1] * 3] * 2
    for got, want in zip(
        run_blocking(runner.engine.run(program, {"x": x})), copies, strict=True
    ):
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, want)


def test_params_and_constants_stay_on_the_device() -> None:
    """Params and constants stay on the device; a run uploads only its inputs."""
    runner, traffic = glass_engine()
    plan = compile_graph(leaf_outputs_graph(), runner.engine.target)
    program = run_blocking(runner.engine.prepare(plan))
    param = np.ones((2, 3), np.float32)
    run_blocking(program.set_param("w", param))
    param[...] = 7  # the caller's again
    uploads_before = len(traffic.uploads)
    for _ in range(3):
        out = run_blocking(
            runner.engine.run(program, {"x": np.zeros((2, 3), np.float32)})
        )
        assert out[1].tolist() == [[1] * 3] * 2
    assert len(traffic.uploads) == uploads_before + 3


def test_reference_must_follow_its_shape_rule() -> None:
    """A reference must follow its shape rule in the library's own dtypes and shapes."""
    with pytest.raises(GraphError, match=r"returned \[1\] glass.float64; .* \[3\]"):
        glass_engine()[0].run(
            graph_with_wrong_reference(), {"x": np.ones(3, np.float32)}
        )


def test_index_out_of_range_is_rejected() -> None:
    """An index out of range is rejected through the library's namespace."""
    g = Graph()
    g.set_outputs([g.gather(g.input("t", (4, 2)), g.input("i", (3,), "i32"))])
    feeds = {"t": np.ones((4, 2), np.float32), "i": np.array([0, 9, 1], np.int32)}
    with pytest.raises(IndexRefused, match=r"index 9 at position \[1\]"):
        glass_engine()[0].run(g, feeds)


def test_engine_describes_itself() -> None:
    """Identity and lost are plain values."""
    engine = glass_engine()[0].engine
    assert engine.identity == EngineIdentity("glass 1.0", "a pane", driver="1.0")
    assert engine.lost == ""
