"""Op records and the registry that holds them.

A record says everything there is to know about an op: shape rule, NumPy-like
reference (the meaning), how it becomes a shader, cost, tolerance, samples, text. Tests,
docs, the command line and every engine read records; nobody keeps a second list. The
records themselves live in `rlxweb.ops`; this file must not know any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import currentframe
from typing import TYPE_CHECKING, Any, Literal, get_args

from rlxweb.core.errors import GraphError, UnknownOp, did_you_mean
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.lazy_names import load_provider
from rlxweb.ir.attribute import REQUIRED
from rlxweb.ir.attribute import Attr as Attr
from rlxweb.ir.derivative import VjpRule
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.lowering import Compose, Kernel, KernelPlan, Lowering
from rlxweb.ir.sample import Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    format_shape,
    numel,
    short_repr,
)
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.value_range_rules import RangeRule

if TYPE_CHECKING:
    from rlxweb.ir.fusion_pattern import FusionPattern
    from rlxweb.ir.vmap_batching import BatchRule

Attrs = Mapping[str, Any]

Trait = Literal[
    "leaf",  # input, param, constant: computes nothing
    "elementwise",  # one output element from one element of each input
    "view",  # moves no data
    "reduction",
    "blas",
    "spectral",
    "host_sync",  # RLX counts a host synchronisation for it
    "custom",  # registered by a caller; RLX counts one for each of these too
    "floats_only",
]
_TRAITS = frozenset(get_args(Trait))


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of one value; prints as `[4, 15] f32`."""

    shape: Shape
    dtype: DType

    @property
    def numel(self) -> int:
        return numel(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.nbytes

    @property
    def has_symbolic_dims(self) -> bool:
        """True if some size is known only when the graph runs."""
        return any(isinstance(size, SymInt) for size in self.shape)

    @property
    def known_numel(self) -> int:
        """The number of elements, 0 if a size is symbolic: RLX's count of unknown
        sizes.
        """
        return 0 if self.has_symbolic_dims else self.numel

    @property
    def known_nbytes(self) -> int:
        """The number of bytes, 0 if a size is symbolic."""
        return self.known_numel * self.dtype.nbytes

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{format_shape(self.shape)} {self.dtype}"


Types = tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed error against NumPy in float64: |got - want| <= atol + rtol * |want|.

    `atol` is in units of the largest expected magnitude of the result when
    `relative_to_peak`, which is how transforms and long sums are judged.
    """

    rtol: float = 0.0
    atol: float = 0.0
    relative_to_peak: bool = False


EXACT = Tolerance()

InferRule = Callable[[Types, Attrs], TensorType]
FlopsRule = Callable[[Types, TensorType, Attrs], float]
WorkRule = Callable[[Types, TensorType, Attrs], tuple[str, Mapping[str, int]]]
"""Work rule: (input types, output type, attrs) → kind and size, as in the table of
`cost`.
"""


def infer_same_type(types: Types, attrs: Attrs) -> TensorType:
    """Shape rule of an op that keeps its operand's shape and dtype."""
    return types[0]


def has_same_type(types: Types, out: TensorType, attrs: Attrs) -> bool:
    """No-op rule of an op that returns its operand unchanged wherever it keeps shape
    and dtype.
    """
    return types[0] == out


def no_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    """Arithmetic cost of an op that only moves values."""
    return 0.0


@dataclass(frozen=True, slots=True)
class ValueGuard:
    """Check of an op's operand values, for engines that cannot raise inside the op.

    summarize  (xp, attrs, *arrays) → a few integers of the values, as one array
    check_summary  (shapes of the operands, attrs, those integers) → nothing, or it
                   raises
    unchecked_reference  the op's reference once nothing was refused; any result where
                         it will be
    """

    summarize: Callable[..., Any]
    check_summary: Callable[[Sequence[Shape], Attrs, Sequence[int]], None]
    unchecked_reference: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class SmokeRange:
    """Values over which random graphs use an op of one operand, and what comes of them.

    low, high  bounds of the operand
    result     bounds of the operand → (low, high, Lipschitz constant) of the result
    """

    low: float
    high: float
    result: Callable[[float, float], tuple[float, float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Record of one op of the vocabulary.

    arity      number of inputs, or (least, most); most None = any number
    infer      (input types, attrs) → output type; raises ShapeError, DTypeError
    reference  (xp, attrs, *arrays) → array, in the dtype of its arrays: the meaning
    guard      what of its operands' values it refuses; the reference does so itself
    lower      Expr, View, Compose, Kernel or Leaf (`lowering.py`)
    flops      (input types, output type, attrs) → arithmetic operations
    work       which measured kind of work it is and how much, or its own name and the
               cells and bytes it touches; None: its operands and its result say
    range_rule  how far its values can lie; None: as its operands' where it moves them
                or lays them side by side, as a decomposition's, or anything
    fused_from (outer, inner): this op is outer(inner(…)) with the attributes of both
    tolerance  against NumPy in float64, for float results; integers are exact
    samples    cases that every engine must get right
    calibration_cases  sizes, small to large, that a calibration times; left out for ops
                       whose price follows from `work` or a decomposition
    onnx       names of the ONNX ops that are exactly this one: the same operands in the
               same order, attributes of the same names; written under the first
    is_noop    (input types, output type, attrs) → is it its first operand then?
    merge_attrs  (attrs of one, attrs of one that follows it, its output type) → those
                 of the op that does both
    fusion_pattern  what of a graph is this op written out in others
                    (`fusion_pattern.py`)
    vjp        how the gradient of its result is taken back to its operands; None: by
               way of what it is built of, or it has no derivative
    batch      how it takes an axis of examples before its operands' own; None:
               elementwise ones as they broadcast, others by way of what they are
               built of, or one example after the other
    method     how Graph adds its node: (graph, op's name, *operands, **attrs) → tensor,
               whose parameters name those of the Graph method; None: `add_node`, where
               the op is elementwise, else no method comes of the record
               (`op_methods.py`)
    numpy      names of the NumPy ufuncs that are this op on arrays of its dtypes
    smoke      over which values random graphs of the smoke test use it; None: not
    module     that declares it, "" for one of the caller's own; the registry notes it
    """

    name: str
    arity: int | tuple[int, int | None] = 1
    infer: InferRule
    reference: Callable[..., Any]
    lower: Lowering
    guard: ValueGuard | None = None
    attrs: tuple[Attr, ...] = ()
    traits: frozenset[Trait] = frozenset()
    flops: FlopsRule = lambda inputs, out, attrs: float(out.numel)
    work: WorkRule | None = None
    range_rule: RangeRule | None = None
    fused_from: tuple[str, str] | None = None
    tolerance: Tolerance = EXACT
    samples: tuple[Sample, ...] = ()
    calibration_cases: tuple[Sample, ...] = ()
    doc: str = ""
    aliases: tuple[str, ...] = ()
    onnx: tuple[str, ...] = ()
    is_noop: Callable[[Types, TensorType, Attrs], bool] | None = None
    merge_attrs: Callable[[Attrs, Attrs, TensorType], Attrs] | None = None
    fusion_pattern: FusionPattern | None = None
    vjp: VjpRule | None = None
    batch: BatchRule | None = None
    method: Callable[..., Any] | None = None
    numpy: tuple[str, ...] = ()
    smoke: SmokeRange | None = None
    module: str = ""

    @property
    def family(self) -> str:
        """Folder of `rlxweb.ops` that declares it; "" for one of the caller's own."""
        return self.module.removeprefix("rlxweb.ops.").partition(".")[0]

    def has_trait(self, trait: Trait) -> bool:
        return trait in self.traits

    def arity_range(self) -> tuple[int, int | None]:
        return self.arity if isinstance(self.arity, tuple) else (self.arity,) * 2

    def example_attrs(self) -> dict[str, Any]:
        """Return values for the attributes without a default: those of the first
        sample.
        """
        required = [attr.name for attr in self.attrs if attr.default is REQUIRED]
        return {name: self.samples[0].attrs[name] for name in required}

    def check_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the canonical attributes with defaults filled in; unknown names are
        refused.
        """
        if attrs:
            known = [attr.name for attr in self.attrs]
            for name in attrs:
                if name not in known:
                    raise bad_attribute(
                        f"unknown attribute {name!r}",
                        "known: " + (", ".join(sorted(known)) or "none"),
                    )
        out = {}
        for attr in self.attrs:
            value = attrs.get(attr.name, attr.default)
            if value is REQUIRED:
                raise bad_attribute(f"attribute {attr.name!r} is required")
            out[attr.name] = attr.check(value)
        return out

    def output_type(
        self, inputs: Sequence[TensorType], attrs: Mapping[str, Any]
    ) -> TensorType:
        """Check the number of inputs and return the result of the shape rule."""
        min_inputs, max_inputs = self.arity_range()
        if len(inputs) < min_inputs or (
            max_inputs is not None and len(inputs) > max_inputs
        ):
            expected = (
                str(min_inputs)
                if min_inputs == max_inputs
                else f"{min_inputs} or more"
                if max_inputs is None
                else f"{min_inputs} to {max_inputs}"
            )
            noun = "input" if expected == "1" else "inputs"
            raise GraphError("", f"expected {expected} {noun}, got {len(inputs)}")
        result_type = self.infer(tuple(inputs), attrs)
        dtype = as_dtype(result_type.dtype)  # a caller's rule may name it
        return (
            result_type
            if dtype is result_type.dtype
            else replace(result_type, dtype=dtype)
        )

    @property
    def decomposition(self) -> Compose | None:
        """Rule that builds the op from others; None if its record has none."""
        lower = self.lower
        if isinstance(lower, Compose):
            return lower
        return lower.fallback if isinstance(lower, Kernel) else None

    def kernel_plan(
        self, inputs: Types, out: TensorType, attrs: Attrs
    ) -> KernelPlan | None:
        """Return the plan of the op's own kernel, or None if it has none for these
        types.
        """
        kernel = self.lower
        return kernel.plan(inputs, out, attrs) if isinstance(kernel, Kernel) else None


@dataclass(slots=True)
class Registry:
    """Ops by name. One instance, `registry`, serves the package.

    load_builtin_ops  called once, when the first op is asked for; it registers the ops
                      that come with rlxweb, so that whoever needs none does not load
                      them
    revision    how often a record came or went: what was made of them is out of date
    graph_methods  functions of a graph that become its methods, by name: of several
                   ops, or with arguments of their own
    """

    load_builtin_ops: Callable[[], object] | None = None
    revision: int = 0
    graph_methods: dict[str, Callable[..., Any]] = field(default_factory=dict)
    _ops: dict[str, Op] = field(default_factory=dict)
    _aliases: dict[str, str] = field(default_factory=dict)
    _builtin_ops: dict[str, Op] = field(default_factory=dict)

    _is_loading: bool = False
    _load_lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def _ensure_loaded(self) -> None:
        """Load the built-in ops on first use; other threads wait until all are
        registered.
        """
        if self.load_builtin_ops is None:
            return
        with self._load_lock:  # others wait until all of it is there
            if self.load_builtin_ops is None or self._is_loading:
                return
            self._is_loading = True
            try:
                self.load_builtin_ops()
                self.load_builtin_ops = None
            finally:
                self._is_loading = False

    @property
    def is_loaded(self) -> bool:
        """True if the built-in ops are registered."""
        return self.load_builtin_ops is None

    def register(self, op: Op, *, replace: bool = False) -> Op:
        """Add a record.

        Errors   GraphError when the name is taken, or for an unknown trait.
        """
        self._ensure_loaded()
        return self._add(op, replace)

    def _add(self, op: Op, replace: bool = False) -> Op:
        for trait in op.traits - _TRAITS:
            raise GraphError(
                f"register op {op.name!r}",
                f"unknown trait {short_repr(trait)}",
                "known: " + ", ".join(sorted(_TRAITS)),
                did_you_mean(str(trait), _TRAITS),
            )
        for name in (op.name, *op.aliases):
            if not replace and (name in self._ops or name in self._aliases):
                raise GraphError(
                    f"register op {op.name!r}",
                    f"the name {name!r} is already registered",
                    hint="pass replace=True to replace the registered op",
                )
        self.revision += 1
        self._ops[op.name] = op
        self._aliases.update({alias: op.name for alias in op.aliases})
        return op

    def register_all(self, *ops: Op) -> None:
        """Add the op records of the module that calls, a built-in one, without taking
        the lock.
        """
        frame = currentframe()
        caller = frame.f_back if frame else None
        module = caller.f_globals["__name__"] if caller else ""
        for op in ops:
            self._builtin_ops[op.name] = self._add(replace(op, module=module))

    def unregister(self, name: str) -> None:
        op = self.get(name)
        self.revision += 1
        del self._ops[op.name]
        for alias in op.aliases:
            del self._aliases[alias]

    def get(self, name: str) -> Op:
        """Return the record of a name or alias. Errors  UnknownOp with near matches."""
        if self.load_builtin_ops is None and type(name) is str and name in self._ops:
            return self._ops[name]  # asked for at every step of a compilation
        self._ensure_loaded()
        is_name = isinstance(name, str)  # an array could not even be looked up
        op = self._ops.get(self._aliases.get(name, name)) if is_name else None
        if op is None:
            raise UnknownOp(
                f"op {short_repr(name)}",
                "the op is not registered",
                hint=did_you_mean(str(name), (*self._ops, *self._aliases)),
            )
        return op

    def is_builtin(self, name: str) -> bool:
        """Return whether the record of a name is a built-in one, not a caller's."""
        return self.get(name) is self._builtin_ops.get(name)

    def __contains__(self, name: object) -> bool:
        self._ensure_loaded()
        return name in self._ops or name in self._aliases

    def __iter__(self) -> Iterator[Op]:
        self._ensure_loaded()
        return iter(self._ops.values())

    def __len__(self) -> int:
        self._ensure_loaded()
        return len(self._ops)


registry = Registry(lambda: load_provider("OP_MODULES"))
