"""An op as one frozen record, and the registry that holds them.

A record says everything there is to know about an op: shape rule, NumPy-like
reference (the meaning), how it becomes a shader, cost, tolerance, samples, text. Tests,
docs, the command line and every backend read records; nobody keeps a second list. The
records themselves live in `rlxweb.ops`; this file must not know any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import currentframe
from typing import TYPE_CHECKING, Any, Literal

from rlxweb.errors import GraphError, UnknownOp, did_you_mean
from rlxweb.forked import ForkLock
from rlxweb.ir.attribute import REQUIRED
from rlxweb.ir.attribute import Attr as Attr
from rlxweb.ir.bounds import Bounds
from rlxweb.ir.derivative import Vjp
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.lowering import Kernel, Lowering, Recipe
from rlxweb.ir.sample import Sample
from rlxweb.ir.shape import Shape, bad_attribute, numel, short, show
from rlxweb.ir.size import Size
from rlxweb.names import from_above

if TYPE_CHECKING:
    from rlxweb.ir.batching import Batch
    from rlxweb.ir.spelled import Spelled

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
    def varies(self) -> bool:
        """Return whether some size is known only when the graph runs."""
        return any(isinstance(size, Size) for size in self.shape)

    @property
    def known_numel(self) -> int:
        """The elements, 0 where a size varies: RLX's count of unknown sizes."""
        return 0 if self.varies else self.numel

    @property
    def known_nbytes(self) -> int:
        """The bytes, 0 where a size varies."""
        return self.known_numel * self.dtype.nbytes

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{show(self.shape)} {self.dtype}"


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
"""(input types, output type, attrs) → kind and size, as in the table of `cost`."""


def one_type(types: Types, attrs: Attrs) -> TensorType:
    """The shape rule of an op that keeps its operand's shape and dtype."""
    return types[0]


def same_type(types: Types, out: TensorType, attrs: Attrs) -> bool:
    """Of an op that is its operand wherever it keeps shape and dtype."""
    return types[0] == out


def no_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    """The arithmetic of an op that only moves values."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Guard:
    """What an op refuses by its operands' values, for engines that cannot stop there.

    look   (xp, attrs, *arrays) → a few integers of the values, as one array
    judge  (shapes of the operands, attrs, those integers) → nothing, or it raises
    then   the op's reference once nothing was refused; any result where it will be
    """

    look: Callable[..., Any]
    judge: Callable[[Sequence[Shape], Attrs, Sequence[int]], None]
    then: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of the vocabulary.

    arity      number of inputs, or (least, most); most None = any number
    infer      (input types, attrs) → output type; raises ShapeError, DTypeError
    reference  (xp, attrs, *arrays) → array, in the dtype of its arrays: the meaning
    guard      what of its operands' values it refuses; the reference does so itself
    lower      Expr, View, Compose, Kernel or Leaf (`ir/lowering.py`)
    flops      (input types, output type, attrs) → arithmetic operations
    work       which measured kind of work it is and how much, or its own name and the
               cells and bytes it touches; None: its operands and its result say
    bounds     how far its values can lie; None: as its operands' where it moves them or
               lays them side by side, as a composition's, or anything
    fused_from (outer, inner): this op is outer(inner(…)) with the attributes of both
    tolerance  against NumPy in float64, for float results; integers are exact
    samples    cases that every backend must get right
    telling    sizes, small to large, that a calibration times; left out for ops whose
               price follows from `work` or a composition
    onnx       names of the ONNX ops that are exactly this one: the same operands in the
               same order, attributes of the same names; written under the first
    unchanged  (input types, output type, attrs) → is it its first operand then?
    joined     (attrs of one, attrs of one that follows it, its output type) → those of
               the op that does both
    spelled    what of a graph is this op written out in others (`ir/spelled.py`)
    vjp        how the gradient of its result is taken back to its operands; None: by
               way of what it is built of, or it has no derivative
    batch      how it takes an axis of examples before its operands' own; None:
               elementwise ones as they broadcast, others by way of what they are
               built of, or one example after the other
    family     where it belongs, "" for one of the caller's own; the registry notes it
    """

    name: str
    arity: int | tuple[int, int | None] = 1
    infer: InferRule
    reference: Callable[..., Any]
    lower: Lowering
    guard: Guard | None = None
    attrs: tuple[Attr, ...] = ()
    traits: frozenset[Trait] = frozenset()
    flops: FlopsRule = lambda inputs, out, attrs: float(out.numel)
    work: WorkRule | None = None
    bounds: Bounds | None = None
    fused_from: tuple[str, str] | None = None
    tolerance: Tolerance = EXACT
    samples: tuple[Sample, ...] = ()
    telling: tuple[Sample, ...] = ()
    doc: str = ""
    aliases: tuple[str, ...] = ()
    onnx: tuple[str, ...] = ()
    unchanged: Callable[[Types, TensorType, Attrs], bool] | None = None
    joined: Callable[[Attrs, Attrs, TensorType], Attrs] | None = None
    spelled: Spelled | None = None
    vjp: Vjp | None = None
    batch: Batch | None = None
    family: str = ""

    def has(self, trait: Trait) -> bool:
        return trait in self.traits

    def arity_range(self) -> tuple[int, int | None]:
        return self.arity if isinstance(self.arity, tuple) else (self.arity,) * 2

    def check_attrs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Canonical attributes with defaults filled in; unknown names refused."""
        known = {a.name for a in self.attrs}
        for name in given:
            if name not in known:
                raise bad_attribute(
                    f"unknown attribute {name!r}",
                    "known: " + (", ".join(sorted(known)) or "none"),
                )
        out = {}
        for attr in self.attrs:
            value = given.get(attr.name, attr.default)
            if value is REQUIRED:
                raise bad_attribute(f"attribute {attr.name!r} is required")
            out[attr.name] = attr.check(value)
        return out

    def output_type(
        self, inputs: Sequence[TensorType], attrs: Mapping[str, Any]
    ) -> TensorType:
        """Arity check, then the shape rule."""
        least, most = self.arity_range()
        if len(inputs) < least or (most is not None and len(inputs) > most):
            wanted = str(least) if least == most else f"{least} to {most or 'any'}"
            raise GraphError("", f"takes {wanted} inputs, got {len(inputs)}")
        made = self.infer(tuple(inputs), attrs)
        dtype = as_dtype(made.dtype)  # a caller's rule may name it
        return made if dtype is made.dtype else replace(made, dtype=dtype)

    def recipe(self, inputs: Types, out: TensorType, attrs: Attrs) -> Recipe | None:
        """The calls of its own kernel, if it has one that runs this."""
        kernel = self.lower
        return kernel.recipe(inputs, out, attrs) if isinstance(kernel, Kernel) else None


@dataclass(slots=True)
class Registry:
    """Ops by name. One instance, `registry`, serves the package.

    vocabulary  called once, when the first op is asked for; it registers the ops that
                come with rlxweb, so that whoever needs none does not load them
    changes     how often a record came or went: what was made of them is out of date
    """

    vocabulary: Callable[[], object] | None = None
    changes: int = 0
    _ops: dict[str, Op] = field(default_factory=dict)
    _aliases: dict[str, str] = field(default_factory=dict)
    _ours: dict[str, Op] = field(default_factory=dict)

    _loading: bool = False
    _turn: ForkLock = field(default_factory=ForkLock)

    def _filled(self) -> None:
        if self.vocabulary is None:
            return
        with self._turn:  # others wait until all of it is there
            if self.vocabulary is None or self._loading:
                return
            self._loading = True
            try:
                self.vocabulary()
                self.vocabulary = None
            finally:
                self._loading = False

    def register(self, op: Op, *, replace: bool = False) -> Op:
        """Add a record. Errors  GraphError when the name is taken."""
        self._filled()
        return self._added(op, replace)

    def _added(self, op: Op, replace: bool = False) -> Op:
        for name in (op.name, *op.aliases):
            if not replace and (name in self._ops or name in self._aliases):
                raise GraphError(
                    f"register op {op.name!r}",
                    f"the name {name!r} is taken",
                    hint="pass replace=True to put this record in its place",
                )
        self.changes += 1
        self._ops[op.name] = op
        self._aliases.update({alias: op.name for alias in op.aliases})
        return op

    def register_all(self, *ops: Op, family: str = "") -> None:
        """Add the records of a family of the vocabulary; waits for nobody's lock.

        family   "": named as the module that calls
        """
        if not family:
            frame = currentframe()
            caller = frame.f_back if frame else None
            family = caller.f_globals["__name__"] if caller else ""
        for op in ops:
            record = replace(op, family=family.rpartition(".")[2])
            self._ours[op.name] = self._added(record)

    def unregister(self, name: str) -> None:
        op = self.get(name)
        self.changes += 1
        del self._ops[op.name]
        for alias in op.aliases:
            del self._aliases[alias]

    def get(self, name: str) -> Op:
        """The record of a name or alias. Errors  UnknownOp with near matches."""
        self._filled()
        known = isinstance(name, str)  # an array could not even be looked up
        found = self._ops.get(self._aliases.get(name, name)) if known else None
        if found is None:
            raise UnknownOp(
                f"op {short(name)}",
                "no such op is registered",
                hint=did_you_mean(str(name), (*self._ops, *self._aliases)),
            )
        return found

    def is_ours(self, name: str) -> bool:
        """Whether the record of a name is of the vocabulary, not a caller's."""
        return self.get(name) is self._ours.get(name)

    def __contains__(self, name: object) -> bool:
        self._filled()
        return name in self._ops or name in self._aliases

    def __iter__(self) -> Iterator[Op]:
        self._filled()
        return iter(self._ops.values())

    def __len__(self) -> int:
        self._filled()
        return len(self._ops)


registry = Registry(lambda: from_above("FAMILIES"))
