"""Builder of random graphs that bounds the values and the rounding error of every
tensor.

Owns the bounds: every value carries an interval and a limit on how far float32
arithmetic within the ops' tolerances can have carried it from the exact result. Which
ops there are is `random_ops.py`; how a graph is drawn is `random_graphs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlxweb.core.fork_safety import cached_property
from rlxweb.engines.protocol import Array
from rlxweb.engines.reference_comparison import (
    ComparisonResult,
    compare_to_reference,
    reference_outputs,
    rounding_errors,
)
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Tolerance, registry
from rlxweb.ir.tensor import Tensor

LEAF_KINDS = ("real", "real", "real", "whole", "whole", "i32", "u32", "bool")
MAX_ELEMENTS = 4096
MAX_NODES = 28
MAX_EXACT_INTEGER = float(1 << 20)
"""Integers up to this magnitude stay exact in float32 through a sum or a product."""
MAX_KEPT_MAGNITUDE = 64.0
MAX_KEPT_ERROR = 2e-3
F32_EPSILON = 2.0**-23


@dataclass(frozen=True, slots=True)
class BoundedTensor:
    """One tensor of the graph with bounds on its elements and their error.

    low, high  the interval they lie in
    max_error  how far a float32 engine may be from the exact result
    is_exact_integer  whole numbers that every engine gets exactly
    """

    tensor: Tensor
    low: float
    high: float
    max_error: float = 0.0
    is_exact_integer: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        """Element type of the tensor."""
        return self.tensor.dtype

    @property
    def max_magnitude(self) -> float:
        """Largest magnitude an element can have."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_float32(self) -> bool:
        """Report whether the tensor is float32."""
        return self.dtype is DType.F32


@dataclass(frozen=True)
class RandomGraph:
    """Random graph with its feeds and the bounds of its outputs."""

    graph: Graph
    feeds: dict[str, Array]
    outputs: list[BoundedTensor]

    def __repr__(self) -> str:
        errors = [value.max_error for value in self.outputs]
        return f"{self.graph}\nfeeds {sorted(self.feeds)}, errors {errors}"

    @cached_property
    def reference(self) -> tuple[list[Array], list[Array]]:
        """Outputs in float64, and the rounding error of NumPy in float32."""
        return reference_outputs(self.graph, self.feeds), rounding_errors(
            self.graph, self.feeds
        )

    def compare_outputs(self, outputs: Sequence[Any]) -> list[ComparisonResult]:
        """Compare each output with its reference; integers must match exactly.

        Floats may be off by what the ops' own tolerances add up to along the graph, or
        by eight times what NumPy in float32 is off, whichever is more.
        """
        comparisons = []
        output_data = zip(outputs, *self.reference, self.outputs, strict=True)
        for actual, expected, rounding_error, value in output_data:
            tolerance = Tolerance(rtol=1e-6, atol=2 * value.max_error)
            comparisons.append(
                compare_to_reference(
                    actual, expected, value.dtype, tolerance, 8 * rounding_error
                )
            )
        return comparisons

    def output_errors(self, outputs: Sequence[Any]) -> list[str]:
        """Return a line for each output that is wrong."""
        comparisons = enumerate(self.compare_outputs(outputs))
        return [
            f"output {index}: {comparison.reason}"
            for index, comparison in comparisons
            if comparison.reason
        ]

    def worst_comparison(self, outputs: Sequence[Any]) -> ComparisonResult:
        """Return the comparison of the first wrong output, or of the one nearest its
        tolerance.
        """
        comparisons = self.compare_outputs(outputs)
        first_wrong = next(
            (k for k, comparison in enumerate(comparisons) if comparison.reason), None
        )
        if first_wrong is None:
            return max(comparisons, key=lambda comparison: comparison.error_fraction)
        return replace(
            comparisons[first_wrong],
            reason=f"output {first_wrong}: {comparisons[first_wrong].reason}",
        )


@dataclass(slots=True)
class RandomGraphBuilder:
    """Graph under construction, the tensors that generators may use, and the arrays to
    feed.

    Choices come from `rng`, which is seeded anew for each move: so a failing graph can
    lose its other moves and keep the one that matters.
    """

    rng: np.random.Generator
    graph: Graph = field(default_factory=lambda: Graph("random"))
    values: list[BoundedTensor] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)

    # --- drawing ------------------------------------------------------------------

    def choose(self, *choices: Any) -> Any:
        """Return one of the choices at random."""
        return choices[int(self.rng.integers(len(choices)))]

    def random_integer(self, low: int, high: int) -> int:
        """Return a random integer in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def pick_value(self, *predicates: Any) -> BoundedTensor | None:
        """Return a random tensor that fulfils every predicate, preferably a recent one;
        None if there is none.
        """
        matches = [
            candidate
            for candidate in self.values
            if all(predicate(candidate) for predicate in predicates)
        ]
        if not matches:
            return None
        value: BoundedTensor = self.choose(
            *(matches[-3:] if self.random_integer(0, 2) else matches)
        )
        return value

    # --- leaves -------------------------------------------------------------------

    def add_leaf(
        self, shape: tuple[int, ...], kind: str, is_reusable: bool = True
    ) -> BoundedTensor:
        """Add a fed leaf: "real", "whole" (float32), "i32", "u32" or "bool"."""
        low, high = {"real": (-2, 2), "u32": (0, 9), "bool": (0, 1)}.get(kind, (-8, 8))
        if kind == "real":
            array = self.rng.uniform(low, high, shape).astype(np.float32)
        else:
            dtype = {"whole": "float32", "i32": "int32", "u32": "uint32"}.get(kind, "?")
            array = self.rng.integers(low, high + 1, shape).astype(dtype)
        return self.add_feed(np.asarray(array), low, high, kind != "real", is_reusable)

    def add_feed(
        self,
        array: Array,
        low: float,
        high: float,
        is_exact_integer: bool,
        is_reusable: bool = True,
    ) -> BoundedTensor:
        """Add an array as an input or a param."""
        name = f"t{len(self.feeds)}"
        add_tensor = (
            self.graph.param if self.random_integer(0, 3) == 0 else self.graph.input
        )
        tensor = add_tensor(name, array.shape, array.dtype)
        self.feeds[name] = array
        value = BoundedTensor(tensor, float(low), float(high), 0.0, is_exact_integer)
        if is_reusable:
            self.values.append(value)
        return value

    # --- nodes --------------------------------------------------------------------

    def add_node(
        self,
        op: str,
        inputs: tuple[BoundedTensor, ...],
        low: float,
        high: float,
        propagated_error: float,
        /,
        **attrs: Any,
    ) -> BoundedTensor:
        """Add a node; `propagated_error` is the error its inputs' errors cause in the
        result.

        The op's own tolerance comes on top, in units of the result's bound. Whole
        inputs and whole bounds make a whole result, for the ops that keep them so.
        """
        tensor = self.graph.apply(op, *(v.tensor for v in inputs), **attrs)
        tolerance = registry.get(op).tolerance
        max_magnitude = max(abs(low), abs(high))
        tolerance_unit = max_magnitude if tolerance.relative_to_peak else 1.0
        op_error = tolerance.rtol * max_magnitude + tolerance.atol * tolerance_unit
        is_exact_integer = (
            all(v.is_exact_integer for v in inputs)
            and max_magnitude <= MAX_EXACT_INTEGER
            and op in INTEGER_PRESERVING_OPS
        )
        is_exact = is_exact_integer or not tensor.dtype.is_float
        error = 0.0 if is_exact else propagated_error + op_error
        return BoundedTensor(tensor, float(low), float(high), error, is_exact)

    def add_constant(self, number: float, dtype_source: BoundedTensor) -> BoundedTensor:
        """Add a constant of the dtype of another tensor."""
        tensor = self.graph.constant(number, dtype_source.dtype)
        return BoundedTensor(tensor, number, number, 0.0, number == round(number))

    def add_data_movement(
        self, op: str, value: BoundedTensor, /, **attrs: Any
    ) -> BoundedTensor:
        """Add a node that only moves elements."""
        tensor = self.graph.apply(op, value.tensor, **attrs)
        return BoundedTensor(
            tensor, value.low, value.high, value.max_error, value.is_exact_integer
        )

    def clamp_range(
        self, value: BoundedTensor, low: float, high: float
    ) -> BoundedTensor:
        """Clamp the tensor's elements to [low, high] where its bounds exceed that."""
        if value.low < low:
            low_constant = self.add_constant(low, value)
            result_high = max(value.high, low)
            value = self.add_node(
                "maximum", (value, low_constant), low, result_high, value.max_error
            )
        if value.high > high:
            high_constant = self.add_constant(high, value)
            result_low = min(value.low, high)
            value = self.add_node(
                "minimum", (value, high_constant), result_low, high, value.max_error
            )
        return value

    def offer_value(self, value: BoundedTensor | None) -> None:
        """Offer a tensor to later generators, scaled down first if its values may be
        large.
        """
        if value is None or math.prod(value.shape) > MAX_ELEMENTS:
            return
        if (
            value.is_float32
            and not value.is_exact_integer
            and value.max_magnitude > MAX_KEPT_MAGNITUDE
        ):
            scale = 2.0 ** -math.ceil(math.log2(value.max_magnitude))
            factor = self.add_constant(scale, value)
            value = self.add_node(
                "mul",
                (value, factor),
                value.low * scale,
                value.high * scale,
                value.max_error * scale,
            )
        if (
            value.max_magnitude <= MAX_EXACT_INTEGER
            and value.max_error <= MAX_KEPT_ERROR
        ):
            self.values.append(value)

    def build_graph(self, *indices: int) -> RandomGraph:
        """Return the graph with the tensors at these indices as its outputs."""
        outputs = [self.values[k] for k in indices]
        self.graph.set_outputs([value.tensor for value in outputs])
        return RandomGraph(self.graph, self.feeds, outputs)


OpGenerator = Callable[[RandomGraphBuilder], BoundedTensor | None]


def op_generator(
    *predicates: Any,
) -> Callable[
    [Callable[[RandomGraphBuilder, BoundedTensor], BoundedTensor | None]], OpGenerator
]:
    """Decorate an op generator that starts from a random tensor fulfilling the
    predicates; it returns None without one.
    """

    def decorate(
        add_op: Callable[[RandomGraphBuilder, BoundedTensor], BoundedTensor | None],
    ) -> OpGenerator:
        def generate(builder: RandomGraphBuilder) -> BoundedTensor | None:
            value = builder.pick_value(*predicates)
            return None if value is None else add_op(builder, value)

        return generate

    return decorate


INTEGER_PRESERVING_OPS = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "neg", "abs", "relu", "round", "where"}
    | {"cast", "sum", "max", "min", "cumsum", "concat", "gather", "matmul"}
    | {"floor", "ceil", "trunc", "mod", "fmod", "floor_divide", "sum_pool"}
    | {"gather_elements", "gather_nd", "scatter_elements"}
)
