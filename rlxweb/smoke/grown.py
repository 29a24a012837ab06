"""A graph that grows value by value, with what is known about each value.

Owns the bounds: every value carries an interval and a limit on how far float32
arithmetic within the ops' tolerances can have carried it from the exact result. Which
ops there are is `moves.py`; how a graph is drawn is `random_graphs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlxweb.backends.agreement import Agreement, compare, oracle, rounding
from rlxweb.backends.protocol import Array
from rlxweb.forked import cached_property
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Tolerance, registry
from rlxweb.ir.tensor import Tensor

KINDS = ("real", "real", "real", "whole", "whole", "i32", "u32", "bool")
MOST_ELEMENTS = 4096
MOST_NODES = 28
WHOLE = float(1 << 20)
"""Whole numbers up to this stay exact in float32 through a sum or a product."""
LARGE = 64.0
LOOSEST = 2e-3
ROUNDING = 2.0**-23


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor of the graph and what is known about its elements.

    low, high  the interval they lie in
    error      how far a float32 engine may be from the exact result
    whole      whole numbers that every engine gets exactly
    """

    tensor: Tensor
    low: float
    high: float
    error: float = 0.0
    whole: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def size(self) -> float:
        """The largest magnitude an element can have."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_float(self) -> bool:
        return self.dtype is DType.F32


@dataclass(frozen=True)
class GrownGraph:
    """A graph to run, what to feed it, and what is known of its outputs."""

    graph: Graph
    feeds: dict[str, Array]
    outputs: list[Value]

    def __repr__(self) -> str:
        errors = [value.error for value in self.outputs]
        return f"{self.graph}\nfeeds {sorted(self.feeds)}, errors {errors}"

    @cached_property
    def truth(self) -> tuple[list[Array], list[Array]]:
        """The outputs in float64, and how far off NumPy is in float32."""
        return oracle(self.graph, self.feeds), rounding(self.graph, self.feeds)

    def compared(self, outs: Sequence[Any]) -> list[Agreement]:
        """How near each output is; integers are exact.

        Floats may be off by what the ops' own tolerances add up to along the graph, or
        by eight times what NumPy in float32 is off, whichever is more.
        """
        found = []
        known = zip(outs, *self.truth, self.outputs, strict=True)
        for got, want, off, value in known:
            bound = Tolerance(rtol=1e-6, atol=2 * value.error)
            found.append(compare(got, want, value.dtype, bound, 8 * off))
        return found

    def misses(self, outs: Sequence[Any]) -> list[str]:
        """What is wrong with the outputs, a line for each that is."""
        every = enumerate(self.compared(outs))
        return [f"output {at}: {one.why}" for at, one in every if one.why]

    def agreement(self, outs: Sequence[Any]) -> Agreement:
        """The first output that is wrong; where none is, the one most nearly so."""
        every = self.compared(outs)
        at = next((k for k, one in enumerate(every) if one.why), None)
        if at is None:
            return max(every, key=lambda one: one.share)
        return replace(every[at], why=f"output {at}: {every[at].why}")


@dataclass(slots=True)
class Grown:
    """The graph so far, the values a move may use, and the arrays to feed.

    Choices come from `rng`, which is seeded anew for each move: so a failing graph can
    lose its other moves and keep the one that matters.
    """

    rng: np.random.Generator
    graph: Graph = field(default_factory=lambda: Graph("random"))
    values: list[Value] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)

    # --- drawing ------------------------------------------------------------------

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, *wanted: Any) -> Value | None:
        """A value that fulfils every predicate, rather a new one; None if none does."""
        fit = [v for v in self.values if all(w(v) for w in wanted)]
        if not fit:
            return None
        found: Value = self.one_of(*(fit[-3:] if self.integer(0, 2) else fit))
        return found

    # --- leaves -------------------------------------------------------------------

    def leaf(self, shape: tuple[int, ...], kind: str, keep: bool = True) -> Value:
        """A fed value: "real", "whole" (float32), "i32", "u32" or "bool"."""
        low, high = {"real": (-2, 2), "u32": (0, 9), "bool": (0, 1)}.get(kind, (-8, 8))
        if kind == "real":
            array = self.rng.uniform(low, high, shape).astype(np.float32)
        else:
            dtype = {"whole": "float32", "i32": "int32", "u32": "uint32"}.get(kind, "?")
            array = self.rng.integers(low, high + 1, shape).astype(dtype)
        return self.fed(np.asarray(array), low, high, kind != "real", keep)

    def fed(
        self, array: Array, low: float, high: float, whole: bool, keep: bool = True
    ) -> Value:
        """An array as input or param."""
        name = f"t{len(self.feeds)}"
        make = self.graph.param if self.integer(0, 3) == 0 else self.graph.input
        tensor = make(name, array.shape, array.dtype)
        self.feeds[name] = array
        value = Value(tensor, float(low), float(high), 0.0, whole)
        if keep:
            self.values.append(value)
        return value

    # --- nodes --------------------------------------------------------------------

    def add(
        self,
        op: str,
        inputs: tuple[Value, ...],
        low: float,
        high: float,
        carried: float,
        /,
        **attrs: Any,
    ) -> Value:
        """A node over values; `carried` is what its inputs' errors have become.

        The op's own tolerance comes on top, in units of the result's bound. Whole
        inputs and whole bounds make a whole result, for the ops that keep them so.
        """
        tensor = self.graph.apply(op, *(v.tensor for v in inputs), **attrs)
        tolerance = registry.get(op).tolerance
        size = max(abs(low), abs(high))
        unit = size if tolerance.relative_to_peak else 1.0
        own = tolerance.rtol * size + tolerance.atol * unit
        whole = all(v.whole for v in inputs) and size <= WHOLE and op in KEEPS_WHOLE
        exact = whole or not tensor.dtype.is_float
        error = 0.0 if exact else carried + own
        return Value(tensor, float(low), float(high), error, exact)

    def constant(self, number: float, like: Value) -> Value:
        tensor = self.graph.constant(number, like.dtype)
        return Value(tensor, number, number, 0.0, number == round(number))

    def moved(self, op: str, value: Value, /, **attrs: Any) -> Value:
        """A node that only moves elements."""
        tensor = self.graph.apply(op, value.tensor, **attrs)
        return Value(tensor, value.low, value.high, value.error, value.whole)

    def clamped(self, value: Value, low: float, high: float) -> Value:
        """The value with its elements brought into [low, high], if they need it."""
        if value.low < low:
            floor = self.constant(low, value)
            top = max(value.high, low)
            value = self.add("maximum", (value, floor), low, top, value.error)
        if value.high > high:
            roof = self.constant(high, value)
            least = min(value.low, high)
            value = self.add("minimum", (value, roof), least, high, value.error)
        return value

    def keep(self, value: Value | None) -> None:
        """Offer a value to later moves, tamed first when it has grown large."""
        if value is None or math.prod(value.shape) > MOST_ELEMENTS:
            return
        if value.is_float and not value.whole and value.size > LARGE:
            scale = 2.0 ** -math.ceil(math.log2(value.size))
            factor = self.constant(scale, value)
            value = self.add(
                "mul",
                (value, factor),
                value.low * scale,
                value.high * scale,
                value.error * scale,
            )
        if value.size <= WHOLE and value.error <= LOOSEST:
            self.values.append(value)

    def made(self, *at: int) -> GrownGraph:
        """The graph with the values at these places as its outputs."""
        outputs = [self.values[k] for k in at]
        self.graph.set_outputs([value.tensor for value in outputs])
        return GrownGraph(self.graph, self.feeds, outputs)


Move = Callable[[Grown], Value | None]


def of(*wanted: Any) -> Callable[[Callable[[Grown, Value], Value | None]], Move]:
    """A move that starts from a value that fulfils these; None where there is none."""

    def starting(move: Callable[[Grown, Value], Value | None]) -> Move:
        def whole(grown: Grown) -> Value | None:
            value = grown.pick(*wanted)
            return None if value is None else move(grown, value)

        return whole

    return starting


KEEPS_WHOLE = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "neg", "abs", "relu", "round", "where"}
    | {"cast", "sum", "max", "min", "cumsum", "concat", "gather", "matmul"}
    | {"floor", "ceil", "trunc", "mod", "fmod", "floor_divide", "sum_pool"}
    | {"gather_elements", "gather_nd", "scatter_elements"}
)
