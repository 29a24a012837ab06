"""Symbolic sizes, known when a graph is run: dims, and integer arithmetic on them.

A Size is a polynomial with whole coefficients over atoms: dims, extents of tensors that
only the op's rule knows, and quotients and rests that do not come out even. Equal
polynomials are equal sizes. It is no integer, and what needs one is told so. What a
program asks of a Size (`==`, `<`) is answered where the answer is the same for every
size, or where the graph can hold on to it: see `recording.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeAlias

import numpy as np

from rlxweb.core.errors import ShapeError, UsageError

if TYPE_CHECKING:
    from rlxweb.ir.builder_call_trace import SizeTrace
    from rlxweb.ir.symbolic_dim import Dim

SAMPLE_COUNT = 3
"""Number of sample sizes of every dim that a graph is tried with while it is built."""
SizeBounds = tuple[float, float]


class SizeEnvironment(Protocol):
    """Environment in which symbolic sizes are evaluated: a graph whose dims are
    bound.
    """

    def dim_size(self, dim: Dim) -> int | SymInt:
        """Return the size of a dim."""

    def axis_length(self, extent: SymAxisLength) -> int | SymInt:
        """Return the length of a tensor's axis."""


@dataclass(frozen=True, slots=True, eq=False)
class SymAxisLength:
    """Symbolic length of a tensor's axis, known only to the shape rule of its op.

    trace_token  what the graph and its copies share
    samples  what it was for the sizes that were tried
    text     how these look: "2*batch + 1"
    """

    trace_token: object
    tensor_id: int
    axis: int
    samples: tuple[int, ...]
    text: str

    @property
    def key(self) -> str:
        return f"%{self.tensor_id}.{self.axis}"

    @property
    def bounds(self) -> SizeBounds:
        return 0, float("inf")

    def at(self, where: SizeEnvironment) -> int | SymInt:
        """Evaluate the length in an environment."""
        return where.axis_length(self)


@dataclass(frozen=True, slots=True, eq=False)
class SymDivMod:
    """Symbolic quotient (`//`) or remainder (`%`) that is no polynomial."""

    op: str
    x: SymInt | int
    y: SymInt | int

    @property
    def text(self) -> str:
        sides = str(self.x), str(self.y)
        return self.op.join(s if s.isalnum() else f"({s})" for s in sides)

    @property
    def key(self) -> str:
        return self.text

    @property
    def samples(self) -> tuple[int, ...]:
        return tuple(
            map(
                OPERATOR_FUNCTIONS[self.op],
                _sample_values(self.x),
                _sample_values(self.y),
            )
        )

    @property
    def bounds(self) -> SizeBounds:
        low, high = _value_bounds(self.x)
        divisor_low, divisor_high = _value_bounds(self.y)
        if low < 0 or divisor_low < 1:
            return float("-inf"), float("inf")
        if self.op == "%":
            return 0, min(high, divisor_high - 1)
        quotient_low = 0 if divisor_high == float("inf") else low // divisor_high
        return quotient_low, high if high == float("inf") else high // divisor_low

    def at(self, where: SizeEnvironment) -> int | SymInt:
        """Evaluate both sides and divide. Errors  ShapeError for a divisor of 0."""
        divisor = evaluate_size(self.y, where)
        if isinstance(divisor, int) and divisor == 0:
            raise ShapeError(
                f"size {self.text}", f"{self.y} is 0", "a divisor must not be 0"
            )
        result: int | SymInt = OPERATOR_FUNCTIONS[self.op](
            evaluate_size(self.x, where), divisor
        )
        return result


OPERATOR_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Atom: TypeAlias = "Dim | SymAxisLength | SymDivMod"
Term: TypeAlias = "tuple[tuple[Atom, ...], int]"
Terms: TypeAlias = "dict[tuple[str, ...], Term]"
"""Coefficients with their atoms, keyed by the atoms' keys: sizes cannot be compared
here.
"""


def _comparison_method(op: str) -> Callable[[SymInt, object], bool]:
    """Return the method that compares a size by this operator."""

    def compare(self: SymInt, other: Any) -> bool:
        return self._compare(op, other) if _is_size_like(other) else NotImplemented

    return compare


class SymInt:
    """Symbolic integer: a size that a run binds. `+ - * // %` with integers and sizes
    give sizes.

    It has no value before: `int(n)`, `range(n)` and NumPy's functions are refused. As
    an argument of a graph's methods it may stand wherever an integer does.
    """

    __slots__ = ("log", "terms")
    __array_ufunc__: ClassVar[None] = None

    def __init__(self, terms: Terms, log: SizeTrace | None = None) -> None:
        self.terms, self.log = terms, log

    def __str__(self) -> str:
        parts = [
            _term_text(atoms, coefficient) for atoms, coefficient in self.terms.values()
        ]
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(self.samples)

    @property
    def samples(self) -> tuple[int, ...]:
        """The values for each of the sample sizes that a graph is tried with."""
        return tuple(
            sum(
                coefficient * prod(a.samples[index] for a in atoms)
                for atoms, coefficient in self.terms.values()
            )
            for index in range(SAMPLE_COUNT)
        )

    @property
    def bounds(self) -> SizeBounds:
        """The smallest and the largest value that the size may have."""
        low = high = 0.0
        for atoms, coefficient in self.terms.values():
            ends = (float(coefficient), float(coefficient))
            for atom in atoms:
                ends = _multiply_bounds(ends, atom.bounds)
            low, high = low + ends[0], high + ends[1]
        return low, high

    @property
    def free_symbols(self) -> Iterator[Dim | SymAxisLength]:
        """The dims and axis lengths in it, those within quotients and remainders
        too.
        """
        for atom in (a for atoms, _ in self.terms.values() for a in atoms):
            if not isinstance(atom, SymDivMod):
                yield atom
                continue
            for side in (atom.x, atom.y):
                if isinstance(side, SymInt):
                    yield from side.free_symbols

    def at(self, where: SizeEnvironment) -> int | SymInt:
        """Evaluate the size in an environment."""
        return sum(
            coefficient * prod(a.at(where) for a in atoms)
            for atoms, coefficient in self.terms.values()
        )

    def __add__(self, other: Any) -> Any:
        return _add(self, other) if _is_size_like(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return _multiply(self, other) if _is_size_like(other) else NotImplemented

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> SymInt:
        return self

    def __sub__(self, other: Any) -> Any:
        return self + other * -1 if _is_size_like(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other if _is_size_like(other) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return _divide("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _divide("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return _divide("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _divide("%", other, self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __truediv__(self, other: object) -> Any:
        return self._refuse_true_division(other)

    def __rtruediv__(self, other: object) -> Any:
        return self._refuse_true_division(other)

    def _refuse_true_division(self, other: object) -> Any:
        """Raise UsageError for `/`, which a whole number does not have."""
        if not _is_size_like(other) and not isinstance(other, float):
            return NotImplemented
        raise UsageError(
            f"true division of size {self}",
            "a size must be an integer",
            hint="use `//`, or divide a tensor by the size or graph.constant(size)",
        )

    __eq__ = _comparison_method("==")
    __ne__ = _comparison_method("!=")
    __lt__ = _comparison_method("<")
    __le__ = _comparison_method("<=")
    __gt__ = _comparison_method(">")
    __ge__ = _comparison_method(">=")

    def _compare(self, op: str, other: SymInt | int) -> bool:
        """Return the answer of a comparison that is the same for every size, or that
        the graph can guard. Errors  UsageError.
        """
        difference = self - other
        if isinstance(difference, int):
            return bool(OPERATOR_FUNCTIONS[op](difference, 0))
        proven = _compare_bounds(op, *difference.bounds)
        if proven is not None:
            return proven
        sample_answers = set(
            map(OPERATOR_FUNCTIONS[op], self.samples, _sample_values(other))
        )
        log = self.log or getattr(other, "log", None)
        if log is None or len(sample_answers) > 1:
            raise UsageError(
                f"size condition {self} {op} {other}",
                "the result depends on sizes known only when the graph runs",
                hint="set bounds with Dim(name, min=…, max=…), or choose between "
                "tensors with graph.where",
            )
        (answer,) = sample_answers
        log.add_guard(op, self, other, answer)
        return bool(answer)

    def _refuse_value(self, request: str) -> NoReturn:
        """Raise UsageError for a conversion that needs the value."""
        raise UsageError(
            f"convert size {self} to {request}",
            "the size has no value until the graph runs",
            hint="pass the size to graph methods in place of an integer: "
            "graph.arange(n), x.reshape(n, -1), graph.constant(n)",
        )

    def __index__(self) -> int:
        self._refuse_value("an int")

    def __int__(self) -> int:
        self._refuse_value("an int")

    def __float__(self) -> float:
        self._refuse_value("a float")

    def __bool__(self) -> bool:
        return self != 0

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        self._refuse_value("a NumPy array")


def evaluate_size(value: SymInt | int, environment: SizeEnvironment) -> int | SymInt:
    """Evaluate a size in an environment; an integer is returned as it is."""
    return value.at(environment) if isinstance(value, SymInt) else value


def _is_size_like(value: object) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, SymInt | int | np.integer)


def _sample_values(value: SymInt | int) -> Iterable[int]:
    """Return the sample values of a size, or an integer repeated as often."""
    return value.samples if isinstance(value, SymInt) else (int(value),) * SAMPLE_COUNT


def _value_bounds(value: SymInt | int) -> SizeBounds:
    """Return the bounds of a size or of an integer."""
    return value.bounds if isinstance(value, SymInt) else (float(value), float(value))


def _multiply_bounds(x: SizeBounds, y: SizeBounds) -> SizeBounds:
    """Return the bounds of a product."""
    products = [0.0 if 0 in (a, b) else a * b for a in x for b in y]
    return min(products), max(products)


def _compare_bounds(op: str, low: float, high: float) -> bool | None:
    """Compare a value between two bounds with 0; None if its bounds do not decide."""
    end_answers = OPERATOR_FUNCTIONS[op](low, 0), OPERATOR_FUNCTIONS[op](high, 0)
    if op in ("==", "!="):
        excludes_zero = low > 0 or high < 0
        return None if not excludes_zero else op == "!="
    return bool(end_answers[0]) if end_answers[0] == end_answers[1] else None


def _polynomial_terms(value: SymInt | int) -> Terms:
    """Return the polynomial terms of a size or of an integer."""
    if isinstance(value, SymInt):
        return value.terms
    return {(): ((), int(value))}


def _add_term(terms: Terms, atoms: Iterable[Atom], coefficient: int) -> None:
    """Add a term to a polynomial in place."""
    sorted_atoms = tuple(sorted(atoms, key=lambda factor: factor.key))
    key = tuple(atom.key for atom in sorted_atoms)
    _, previous = terms.get(key, (sorted_atoms, 0))
    terms[key] = sorted_atoms, previous + coefficient


def _simplify(terms: Terms, *sources: SymInt | int) -> SymInt | int:
    """Return the size that terms make: an integer if no atom is left."""
    nonzero_terms = {key: term for key, term in terms.items() if term[1]}
    if not any(nonzero_terms):
        return nonzero_terms[()][1] if nonzero_terms else 0
    logs = (getattr(source, "log", None) for source in sources)
    return SymInt(nonzero_terms, next((log for log in logs if log is not None), None))


def _add(x: SymInt | int, y: SymInt | int) -> SymInt | int:
    terms: Terms = {}
    for atoms, coefficient in (
        *_polynomial_terms(x).values(),
        *_polynomial_terms(y).values(),
    ):
        _add_term(terms, atoms, coefficient)
    return _simplify(terms, x, y)


def _multiply(x: SymInt | int, y: SymInt | int) -> SymInt | int:
    terms: Terms = {}
    for a, n in _polynomial_terms(x).values():
        for b, m in _polynomial_terms(y).values():
            _add_term(terms, (*a, *b), n * m)
    return _simplify(terms, x, y)


def _divide(op: str, x: Any, y: Any) -> Any:
    """Return a quotient or a remainder; a polynomial where the division is exact for
    every size.
    """
    if not _is_size_like(x) or not _is_size_like(y):
        return NotImplemented
    if isinstance(y, int | np.integer) and y == 0:
        raise ShapeError(f"size {x} {op} 0", "a divisor must not be 0")
    quotient = _exact_quotient(x, y)
    if quotient is not None:
        return quotient if op == "//" else 0
    if (
        op == "%"
        and not isinstance(y, SymInt)
        and all(
            coefficient * prod(getattr(a, "multiple_of", 1) for a in atoms) % y == 0
            for atoms, coefficient in _polynomial_terms(x).values()
        )
    ):
        return 0
    terms: Terms = {}
    _add_term(terms, (SymDivMod(op, x, y),), 1)
    return _simplify(terms, x, y)


def _exact_quotient(x: SymInt | int, y: SymInt | int) -> SymInt | int | None:
    """Return x / y if every term of x has the single term of y as a factor; else
    None.
    """
    if len(_polynomial_terms(y)) != 1 or _value_bounds(y)[0] < 1:
        return None
    ((divisor_atoms, divisor),) = _polynomial_terms(y).values()
    quotient: Terms = {}
    for atoms, coefficient in _polynomial_terms(x).values():
        remaining = list(atoms)
        for atom in divisor_atoms:
            matches = [
                index
                for index, candidate in enumerate(remaining)
                if candidate.key == atom.key
            ]
            if not matches:
                return None
            del remaining[matches[0]]
        if coefficient % divisor:
            return None
        _add_term(quotient, remaining, coefficient // divisor)
    return _simplify(quotient, x, y)


def _term_text(atoms: tuple[Atom, ...], coefficient: int) -> str:
    """Return a term as text: "2*batch"."""
    if len(atoms) == 1 and coefficient == 1:
        return atoms[0].text
    texts = [a.text if a.text.isidentifier() else f"({a.text})" for a in atoms]
    return "*".join([str(coefficient)] * (coefficient != 1 or not atoms) + texts)
