"""Sizes that are known when a graph is run: dims, and arithmetic on them.

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

from rlxweb.errors import ShapeError, UsageError

if TYPE_CHECKING:
    from rlxweb.ir.dim import Dim
    from rlxweb.ir.recording import Recording

SAMPLES = 3
"""How many sizes of every dim a graph is tried with while it is built."""
Bounds = tuple[float, float]


class Where(Protocol):
    """What tells sizes: a graph whose dims are bound."""

    def of_dim(self, dim: Dim) -> int | Size:
        """What a dim is."""

    def of_extent(self, extent: Extent) -> int | Size:
        """How long an axis is."""


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """The length of an axis of a tensor, as the rule of its op says it.

    of       what the graph and its copies share
    samples  what it was for the sizes that were tried
    text     how these look: "2*batch + 1"
    """

    of: object
    tensor: int
    axis: int
    samples: tuple[int, ...]
    text: str

    @property
    def key(self) -> str:
        return f"%{self.tensor}.{self.axis}"

    @property
    def bounds(self) -> Bounds:
        return 0, float("inf")

    def at(self, where: Where) -> int | Size:
        return where.of_extent(self)


@dataclass(frozen=True, slots=True, eq=False)
class Uneven:
    """A quotient or a rest that no polynomial is."""

    sign: str
    x: Size | int
    y: Size | int

    @property
    def text(self) -> str:
        sides = str(self.x), str(self.y)
        return self.sign.join(s if s.isalnum() else f"({s})" for s in sides)

    @property
    def key(self) -> str:
        return self.text

    @property
    def samples(self) -> tuple[int, ...]:
        return tuple(map(SIGNS[self.sign], _samples(self.x), _samples(self.y)))

    @property
    def bounds(self) -> Bounds:
        low, high = _bounds(self.x)
        of, most = _bounds(self.y)
        if low < 0 or of < 1:
            return float("-inf"), float("inf")
        if self.sign == "%":
            return 0, min(high, most - 1)
        least = 0 if most == float("inf") else low // most
        return least, high if high == float("inf") else high // of

    def at(self, where: Where) -> int | Size:
        of = told(self.y, where)
        if isinstance(of, int) and of == 0:
            raise ShapeError(f"size {self.text}", f"{self.y} is 0", "it divides")
        made: int | Size = SIGNS[self.sign](told(self.x, where), of)
        return made


SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Atom: TypeAlias = "Dim | Extent | Uneven"
Term: TypeAlias = "tuple[tuple[Atom, ...], int]"
Terms: TypeAlias = "dict[tuple[str, ...], Term]"
"""Atoms and a coefficient, by the keys of the atoms: sizes cannot be compared here."""


def _asking(sign: str) -> Callable[[Size, object], bool]:
    def ask(self: Size, other: Any) -> bool:
        return self._told_by(sign, other) if _is_size(other) else NotImplemented

    return ask


class Size:
    """A size that a run binds: `+ - * // %` with integers and sizes give sizes.

    It has no value before: `int(n)`, `range(n)` and NumPy's functions are refused. As
    an argument of a graph's methods it may stand wherever an integer does.
    """

    __slots__ = ("log", "terms")
    __array_ufunc__: ClassVar[None] = None

    def __init__(self, terms: Terms, log: Recording | None = None) -> None:
        self.terms, self.log = terms, log

    def __str__(self) -> str:
        parts = [_term_text(atoms, times) for atoms, times in self.terms.values()]
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(self.samples)

    @property
    def samples(self) -> tuple[int, ...]:
        """What it is for each of the sizes that a graph is tried with."""
        return tuple(
            sum(
                n * prod(a.samples[at] for a in atoms)
                for atoms, n in self.terms.values()
            )
            for at in range(SAMPLES)
        )

    @property
    def bounds(self) -> Bounds:
        """It is never less than the one, never more than the other."""
        low = high = 0.0
        for atoms, times in self.terms.values():
            ends = (float(times), float(times))
            for atom in atoms:
                ends = _product(ends, atom.bounds)
            low, high = low + ends[0], high + ends[1]
        return low, high

    @property
    def made_of(self) -> Iterator[Dim | Extent]:
        """The dims and extents in it, those within quotients and rests too."""
        for atom in (a for atoms, _ in self.terms.values() for a in atoms):
            if not isinstance(atom, Uneven):
                yield atom
                continue
            for side in (atom.x, atom.y):
                if isinstance(side, Size):
                    yield from side.made_of

    def at(self, where: Where) -> int | Size:
        """What it is there."""
        return sum(
            n * prod(a.at(where) for a in atoms) for atoms, n in self.terms.values()
        )

    def __add__(self, other: Any) -> Any:
        return _sum(self, other) if _is_size(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return _times(self, other) if _is_size(other) else NotImplemented

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Size:
        return self

    def __sub__(self, other: Any) -> Any:
        return self + other * -1 if _is_size(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other if _is_size(other) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return _parted("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _parted("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return _parted("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _parted("%", other, self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __truediv__(self, other: object) -> Any:
        return self._no_fraction(other)

    def __rtruediv__(self, other: object) -> Any:
        return self._no_fraction(other)

    def _no_fraction(self, other: object) -> Any:
        if not _is_size(other) and not isinstance(other, float):
            return NotImplemented
        raise UsageError(
            f"size {self} divided",
            "a size is a whole number",
            hint="`//` gives one; divide tensors by it, or by graph.constant(size)",
        )

    __eq__ = _asking("==")
    __ne__ = _asking("!=")
    __lt__ = _asking("<")
    __le__ = _asking("<=")
    __gt__ = _asking(">")
    __ge__ = _asking(">=")

    def _told_by(self, sign: str, other: Size | int) -> bool:
        """The answer, where it is one; a graph holds on to what might change."""
        difference = self - other
        if isinstance(difference, int):
            return bool(SIGNS[sign](difference, 0))
        by_bounds = _by_bounds(sign, *difference.bounds)
        if by_bounds is not None:
            return by_bounds
        every = set(map(SIGNS[sign], self.samples, _samples(other)))
        log = self.log or getattr(other, "log", None)
        if log is None or len(every) > 1:
            raise UsageError(
                f"is {self} {sign} {other}?",
                "the sizes that a run binds decide, and the graph is built before",
                hint="Dim(name, min=…, max=…) says what they may be; graph.where "
                "chooses between tensors",
            )
        (answer,) = every
        log.hold(sign, self, other, answer)
        return bool(answer)

    def _unknown(self, wanted: str) -> NoReturn:
        raise UsageError(
            f"{wanted} of size {self}",
            "it has no value until the graph is run",
            hint="methods of the graph take it where they take an integer: "
            "graph.arange(n), x.reshape(n, -1), graph.constant(n)",
        )

    def __index__(self) -> int:
        self._unknown("the number")

    def __int__(self) -> int:
        self._unknown("the number")

    def __float__(self) -> float:
        self._unknown("the number")

    def __bool__(self) -> bool:
        return self != 0

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        self._unknown("a NumPy array")


def told(value: Size | int, where: Where) -> int | Size:
    """What a size is there; an integer is what it is."""
    return value.at(where) if isinstance(value, Size) else value


def _is_size(value: object) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Size | int | np.integer)


def _samples(value: Size | int) -> Iterable[int]:
    return value.samples if isinstance(value, Size) else (int(value),) * SAMPLES


def _bounds(value: Size | int) -> Bounds:
    return value.bounds if isinstance(value, Size) else (float(value), float(value))


def _product(x: Bounds, y: Bounds) -> Bounds:
    every = [0.0 if 0 in (a, b) else a * b for a in x for b in y]
    return min(every), max(every)


def _by_bounds(sign: str, low: float, high: float) -> bool | None:
    """Whether something between two bounds is so beside 0; None: it may be or not."""
    ends = SIGNS[sign](low, 0), SIGNS[sign](high, 0)
    if sign in ("==", "!="):
        apart = low > 0 or high < 0
        return None if not apart else sign == "!="
    return bool(ends[0]) if ends[0] == ends[1] else None


def _terms(value: Size | int) -> Terms:
    if isinstance(value, Size):
        return value.terms
    return {(): ((), int(value))}


def _added(terms: Terms, atoms: Iterable[Atom], times: int) -> None:
    known = tuple(sorted(atoms, key=lambda one: one.key))
    key = tuple(atom.key for atom in known)
    _, before = terms.get(key, (known, 0))
    terms[key] = known, before + times


def _made(terms: Terms, *of: Size | int) -> Size | int:
    kept = {key: term for key, term in terms.items() if term[1]}
    if not any(kept):
        return kept[()][1] if kept else 0
    logs = (getattr(one, "log", None) for one in of)
    return Size(kept, next((log for log in logs if log is not None), None))


def _sum(x: Size | int, y: Size | int) -> Size | int:
    terms: Terms = {}
    for atoms, times in (*_terms(x).values(), *_terms(y).values()):
        _added(terms, atoms, times)
    return _made(terms, x, y)


def _times(x: Size | int, y: Size | int) -> Size | int:
    terms: Terms = {}
    for a, n in _terms(x).values():
        for b, m in _terms(y).values():
            _added(terms, (*a, *b), n * m)
    return _made(terms, x, y)


def _parted(sign: str, x: Any, y: Any) -> Any:
    """A quotient or a rest; a polynomial where it comes out even for every size."""
    if not _is_size(x) or not _is_size(y):
        return NotImplemented
    if isinstance(y, int | np.integer) and y == 0:
        raise ShapeError(f"size {x} {sign} 0", "0 divides nothing")
    even = _quotient(x, y)
    if even is not None:
        return even if sign == "//" else 0
    if (
        sign == "%"
        and not isinstance(y, Size)
        and all(
            times * prod(getattr(a, "multiple_of", 1) for a in atoms) % y == 0
            for atoms, times in _terms(x).values()
        )
    ):
        return 0
    terms: Terms = {}
    _added(terms, (Uneven(sign, x, y),), 1)
    return _made(terms, x, y)


def _quotient(x: Size | int, y: Size | int) -> Size | int | None:
    """The one over the other, where every term of it has the other's in it."""
    if len(_terms(y)) != 1 or _bounds(y)[0] < 1:
        return None
    ((by, divisor),) = _terms(y).values()
    made: Terms = {}
    for atoms, times in _terms(x).values():
        rest = list(atoms)
        for atom in by:
            at = [n for n, one in enumerate(rest) if one.key == atom.key]
            if not at:
                return None
            del rest[at[0]]
        if times % divisor:
            return None
        _added(made, rest, times // divisor)
    return _made(made, x, y)


def _term_text(atoms: tuple[Atom, ...], times: int) -> str:
    if len(atoms) == 1 and times == 1:
        return atoms[0].text
    texts = [a.text if a.text.isidentifier() else f"({a.text})" for a in atoms]
    return "*".join([str(times)] * (times != 1 or not atoms) + texts)
