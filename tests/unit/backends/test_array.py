"""The array engine on a library that is not NumPy: nothing of NumPy leaks into a run.

The library here is NumPy behind glass: its arrays refuse to become NumPy arrays, to
meet them in an operator or to enter a NumPy function, and its dtypes are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.array import ArrayBackend, array_target
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import GraphError, IndexRefused
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from tests.agreement import Engine
from tests.ops.test_agreement import small, wrong
from tests.ops.ways import names, plain, through_views
from tests.unit.backends.test_cpu import careless

NUMBERS = (bool, int, float, complex)


class GlassDType:
    """An element type that no NumPy dtype equals."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlassDType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"glass.{self.name}"


class Glass:
    """An array of the other library."""

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

    def __getitem__(self, at: Any) -> Glass:
        return Glass(self._inside[opened(at)])

    def __getattr__(self, name: str) -> Any:
        if name in ("real", "imag", "T"):
            return Glass(getattr(self._inside, name))
        if name in ("astype", "reshape", "swapaxes", "view"):
            return behind_glass(getattr(self._inside, name))
        raise AttributeError(name)


def _operator(name: str) -> Callable[..., Glass]:
    def operate(self: Glass, *others: Any) -> Glass:
        if not all(isinstance(other, (Glass, *NUMBERS)) for other in others):
            raise TypeError(f"{name} of a device's array and {others!r}")
        return Glass(getattr(self._inside, name)(*map(opened, others)))

    return operate


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv matmul eq ne lt le gt ge and or neg "
    "lshift rshift floordiv mod invert"
).split():
    setattr(Glass, f"__{_name}__", _operator(f"__{_name}__"))


def opened(value: Any) -> Any:
    """What an argument holds; a NumPy array among device arrays is refused."""
    if isinstance(value, Glass):
        return value._inside
    if isinstance(value, GlassDType):
        return np.dtype(value.name)
    if isinstance(value, tuple | list):
        return type(value)(map(opened, value))
    if isinstance(value, np.ndarray | np.generic | np.dtype):
        raise TypeError(f"a function of the device was given NumPy's {value!r}")
    if isinstance(value, type) and issubclass(value, np.generic):
        raise TypeError(f"a function of the device was given NumPy's {value}")
    return value


def glazed(value: Any) -> Any:
    """An array as one of the device; anything else as it is."""
    return Glass(value) if isinstance(value, np.ndarray | np.generic) else value


def behind_glass(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {name: opened(value) for name, value in kwargs.items()}
        made = function(*map(opened, args), **kwargs)
        if isinstance(made, tuple):  # of several arrays, with names in most libraries
            return tuple(map(glazed, made))
        return glazed(made)

    return call


class Library:
    """A namespace: NumPy's functions on glass arrays. Only `asarray` takes NumPy's."""

    def __init__(self, room: Any = np) -> None:
        self._room = room

    def asarray(self, value: Any, dtype: Any = None, copy: bool | None = None) -> Glass:
        inside = value if isinstance(value, np.ndarray) else opened(value)
        inside = np.array(inside) if copy else inside
        return Glass(np.asarray(inside, dtype=opened(dtype)))

    def __getattr__(self, name: str) -> Any:
        if name == "tensorsolve":  # whose owners divide by 0; NumPy raises
            raise AttributeError(name)
        found = getattr(self._room, name)
        if isinstance(found, ModuleType):
            return Library(found)
        if isinstance(found, type) and issubclass(found, np.generic):
            return GlassDType(np.dtype(found).name)
        call: Any = behind_glass(found)
        if isinstance(found, np.ufunc):
            call.at = behind_glass(found.at)  # combines at places, in the array itself
        return call


class Traffic:
    """The way to the device and back, counted."""

    def __init__(self) -> None:
        self.there: list[Any] = []

    def to_device(self, array: Any) -> Glass:
        assert type(array) is np.ndarray
        self.there.append(array)
        return Glass(array.copy())

    def to_host(self, array: Any) -> Any:
        assert type(array) is Glass
        return array._inside


def foreign() -> tuple[Engine, Traffic]:
    traffic = Traffic()
    backend = ArrayBackend(
        Library(),
        array_target("glass", frozenset(DType)),
        name="glass 1.0",
        adapter="a pane",
        driver="1.0",
        to_device=traffic.to_device,
        to_host=traffic.to_host,
    )
    return Engine("glass", backend), traffic


@pytest.mark.parametrize("name", names())
def test_a_foreign_library_agrees(name: str) -> None:
    """Another library agrees on every op's smaller samples, plain and through views."""
    one, _ = foreign()
    assert wrong(one, small(plain(name))) == []
    assert wrong(one, small(through_views(name))) == []


def test_the_glass_holds() -> None:
    """The proof that a leak would be seen."""
    pane, plate = Glass(np.ones(3)), np.ones(3)
    for leak in (
        lambda: np.asarray(pane),
        lambda: np.exp(pane),
        lambda: np.concatenate([pane, pane]),
        lambda: pane + plate,
        lambda: plate * pane,
        lambda: Library().exp(plate),
        lambda: Library().zeros(3, dtype=np.float32),
    ):
        with pytest.raises(TypeError):
            leak()


def graph_of_all_leaves() -> Graph:
    """Outputs that are an input, a param, a constant, a view of one, and one twice."""
    g = Graph()
    x, w = g.input("x", (2, 3)), g.param("w", (2, 3))
    c = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    g.set_outputs([x, w, c, g.reshape(w, (6,)), x + w, x + w])
    return g


def test_results_lie_in_memory_of_their_own() -> None:
    """Writing into a result changes no other, no param, constant or later run."""
    one, _ = foreign()
    graph = graph_of_all_leaves()
    fed = np.ones((2, 3), np.float32)
    program = drive(one.backend.prepare(compile_graph(graph, one.backend.target)))
    drive(one.backend.set_param(program, "w", fed * 5))
    first = drive(one.backend.run(program, {"x": fed}))
    kept = [out.copy() for out in first]
    for out in first:
        out[...] = -1
    assert fed.tolist() == [[1] * 3] * 2
    for got, want in zip(
        drive(one.backend.run(program, {"x": fed})), kept, strict=True
    ):
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, want)


def test_params_and_constants_stay_on_the_device() -> None:
    """Params and constants stay on the device; a run sends its feeds alone."""
    one, traffic = foreign()
    plan = compile_graph(graph_of_all_leaves(), one.backend.target)
    program = drive(one.backend.prepare(plan))
    given = np.ones((2, 3), np.float32)
    drive(one.backend.set_param(program, "w", given))
    given[...] = 7  # the caller's again
    sent = len(traffic.there)
    for _ in range(3):
        out = drive(one.backend.run(program, {"x": np.zeros((2, 3), np.float32)}))
        assert out[1].tolist() == [[1] * 3] * 2
    assert len(traffic.there) == sent + 3


def test_a_reference_is_held_to_its_shape_rule_there_too() -> None:
    """A reference is held to its shape rule by the library's own dtypes and shapes."""
    with pytest.raises(GraphError, match=r"returned \[1\] glass.float64; .* \[3\]"):
        foreign()[0].run(careless(), {"x": np.ones(3, np.float32)})


def test_an_index_outside_its_table_is_refused() -> None:
    """The one check that looks at values does so through the namespace."""
    g = Graph()
    g.set_outputs([g.gather(g.input("t", (4, 2)), g.input("i", (3,), "i32"))])
    feeds = {"t": np.ones((4, 2), np.float32), "i": np.array([0, 9, 1], np.int32)}
    with pytest.raises(IndexRefused, match=r"index 9 at position \[1\]"):
        foreign()[0].run(g, feeds)


def test_it_says_what_it_is() -> None:
    """Name, adapter, driver, software and lost are plain words."""
    backend = foreign()[0].backend
    said = (backend.name, backend.adapter, backend.driver, backend.software)
    assert said == ("glass 1.0", "a pane", "1.0", False)
    assert backend.lost == ""
