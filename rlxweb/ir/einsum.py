"""Einstein's summation: subscripts read, operands brought together in a cheap order.

Every sum over labels becomes views, sums and products of matrices: a repeated label is
a diagonal, a label that nothing else has is summed at once, and two operands meet in
one batched product. Of several operands the order with the fewest multiplications is
taken. Nothing is computed here.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any, Protocol

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, show
from rlxweb.ir.tensor import Tensor

Label = str
"""A letter, or "...0", "...1" … for the axes of an ellipsis, from the last one on."""
Labels = tuple[Label, ...]
SEARCHED = 7
"""Operands up to which every order is looked at; of more the cheapest pair is next."""
_DOTS = "..."


class Builder(Protocol):
    """What of a graph is used here."""

    def apply(self, op_name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """See Graph.apply."""

    def diagonal(
        self, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
    ) -> Tensor:
        """See ProductBuilder.diagonal."""


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor whose axes have these labels, each once."""

    tensor: Tensor
    labels: Labels

    @property
    def sizes(self) -> dict[Label, int]:
        return dict(zip(self.labels, self.tensor.shape, strict=True))


def einsum(g: Builder, subscripts: str, operands: Sequence[Tensor]) -> Tensor:
    """The sum that subscripts say; see `ProductBuilder.einsum`."""
    inputs, wanted = _read(subscripts, [x.rank for x in operands])
    terms = [
        _with_each_once(g, Term(x, labels))
        for x, labels in zip(operands, inputs, strict=True)
    ]
    _check_sizes(terms)
    terms = [_without_ones(g, t, terms) for t in terms]
    while len(terms) > 1:
        first, second = _next_pair(terms, wanted)
        rest = [t for at, t in enumerate(terms) if at not in (first, second)]
        needed = {*wanted, *(name for t in rest for name in t.labels)}
        terms = [*rest, _together(g, terms[first], terms[second], needed)]
    last = _summed(g, terms[0], set(wanted))
    return _in_order(g, last, wanted).tensor


# --- subscripts ---------------------------------------------------------------------


def _read(subscripts: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand's axes, and those of the result's."""
    text = "".join(subscripts.split())
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise bad_attribute(
            f"{subscripts!r} names {len(parts)} operands", f"{len(ranks)} are given"
        )
    inputs = [
        _labels(p, rank, subscripts) for p, rank in zip(parts, ranks, strict=True)
    ]
    every = [name for labels in inputs for name in labels]
    dots = sorted({n for n in every if n[0] == "."}, key=_from_the_end, reverse=True)
    if not arrow:
        once = sorted(n for n in set(every) if n[0] != "." and every.count(n) == 1)
        return inputs, (*dots, *once)
    wanted = _labels(right, len(right.replace(_DOTS, "")) + len(dots), subscripts)
    for name in wanted:
        if name not in every or wanted.count(name) > 1:
            raise bad_attribute(
                f"{subscripts!r} gives {name!r}",
                "a label of the result is one of the operands', and named once",
            )
    return inputs, wanted


def _from_the_end(dots: Label) -> int:
    return int(dots.removeprefix(_DOTS))


def _labels(part: str, rank: int, whole: str) -> Labels:
    """The labels of one operand's axes. Errors  AttributeRefused, ShapeError."""
    head, dots, tail = part.partition(_DOTS)
    letters = head + tail
    if any(c not in string.ascii_letters for c in letters):
        raise bad_attribute(
            f"{part!r} of {whole!r}", "letters, and at most one ellipsis: 'ij,jk->ik'"
        )
    more = rank - len(letters)
    if more < 0 or (more and not dots):
        raise bad_shape(
            f"{part!r} of {whole!r} names {len(letters)} axes",
            f"the operand has {rank}",
        )
    between = (f"{_DOTS}{at}" for at in reversed(range(more)))
    return (*head, *between, *tail)


# --- one operand --------------------------------------------------------------------


def _with_each_once(g: Builder, term: Term) -> Term:
    """Diagonals taken where a label stands twice."""
    while len(set(term.labels)) < len(term.labels):
        name = next(n for n in term.labels if term.labels.count(n) > 1)
        first, second = [a for a, n in enumerate(term.labels) if n == name][:2]
        shape = term.tensor.shape
        if shape[first] != shape[second]:
            raise bad_shape(
                f"{name!r} stands for {shape[first]} and {shape[second]} elements of "
                f"{show(shape)}",
                "a label that an operand has twice is a diagonal",
            )
        made = g.diagonal(term.tensor, 0, first, second)
        rest = (n for a, n in enumerate(term.labels) if a not in (first, second))
        term = Term(made, (*rest, name))
    return term


def _check_sizes(terms: Iterable[Term]) -> None:
    """A label has one size, or 1 beside it. Errors  ShapeError."""
    known: dict[Label, int] = {}
    for term in terms:
        for name, size in term.sizes.items():
            have = known.get(name, 1)
            if 1 not in (have, size) and have != size:
                raise bad_shape(
                    f"{name!r} stands for {have} and for {size} elements",
                    "a label has one size in all operands, or 1",
                )
            known[name] = size if have == 1 else have


def _without_ones(g: Builder, term: Term, every: Sequence[Term]) -> Term:
    """Without the axes of one element that stand for more in another operand."""
    sizes = [other.sizes for other in every]
    kept = [
        (name, size)
        for name, size in term.sizes.items()
        if size != 1 or all(one.get(name, 1) == 1 for one in sizes)
    ]
    if len(kept) == len(term.labels):
        return term
    made = g.apply("reshape", term.tensor, shape=tuple(size for _, size in kept))
    return Term(made, tuple(name for name, _ in kept))


def _summed(g: Builder, term: Term, needed: set[Label]) -> Term:
    """Added up over the labels that nothing needs."""
    gone = tuple(a for a, name in enumerate(term.labels) if name not in needed)
    if not gone:
        return term
    made = g.apply("sum", term.tensor, axes=gone, keep_dim=False)
    return Term(made, tuple(n for n in term.labels if n in needed))


def _in_order(g: Builder, term: Term, labels: Labels) -> Term:
    if term.labels == labels:
        return term
    perm = tuple(term.labels.index(name) for name in labels)
    return Term(g.apply("transpose", term.tensor, perm=perm), labels)


# --- two operands -------------------------------------------------------------------


def _together(g: Builder, x: Term, y: Term, needed: set[Label]) -> Term:
    """The product of two, added up over what nothing else needs."""
    x = _summed(g, x, needed | set(y.labels))
    y = _summed(g, y, needed | set(x.labels))
    both = tuple(n for n in x.labels if n in y.labels)
    kept = tuple(n for n in both if n in needed)
    gone = tuple(n for n in both if n not in needed)
    rows = tuple(n for n in x.labels if n not in both)
    columns = tuple(n for n in y.labels if n not in both)
    out = (*kept, *rows, *columns)
    sizes = {**x.sizes, **y.sizes}
    if not gone:  # nothing to add up: each with each
        left = _shaped(g, _in_order(g, x, (*kept, *rows)), sizes, (*out,))
        right = _shaped(g, _in_order(g, y, (*kept, *columns)), sizes, (*out,))
        return Term(g.apply("mul", left, right), out)
    if not rows and not columns and x.tensor.dtype is not DType.F16:
        # Sums of products element by element; of f16 a matrix product adds in f32.
        first, second = (_in_order(g, t, (*kept, *gone)) for t in (x, y))
        made = g.apply("mul", first.tensor, second.tensor)
        return _summed(g, Term(made, (*kept, *gone)), set(kept))
    left = _grouped(g, x, (kept, rows, gone))
    right = _grouped(g, y, (kept, gone, columns))
    made = g.apply("matmul", left, right)
    shape = tuple(sizes[n] for n in out)
    if made.shape != shape:
        made = g.apply("reshape", made, shape=shape)
    return Term(made, out)


def _shaped(g: Builder, term: Term, sizes: Mapping[Label, int], out: Labels) -> Tensor:
    """With axes of one element for the labels of `out` that it has not."""
    shape = tuple(sizes[n] if n in term.labels else 1 for n in out)
    if term.tensor.shape == shape:
        return term.tensor
    return g.apply("reshape", term.tensor, shape=shape)


def _grouped(g: Builder, term: Term, groups: tuple[Labels, Labels, Labels]) -> Tensor:
    """As batched matrices: axes of the batch, then one for each other group."""
    batch, first, second = groups
    term = _in_order(g, term, (*batch, *first, *second))
    sizes = term.sizes
    lead = tuple(sizes[n] for n in batch)
    shape: Shape = (*lead, *(prod(sizes[n] for n in one) for one in (first, second)))
    if term.tensor.shape == shape:
        return term.tensor
    return g.apply("reshape", term.tensor, shape=shape)


# --- their order --------------------------------------------------------------------


def _next_pair(terms: Sequence[Term], wanted: Labels) -> tuple[int, int]:
    """Which two meet first: of the cheapest order of all, or the cheapest pair."""
    sizes: dict[Label, int] = {}
    for term in terms:
        sizes.update({n: s for n, s in term.sizes.items() if sizes.get(n, 1) == 1})
    labels = [frozenset(t.labels) for t in terms]
    if len(terms) == 2:
        return 0, 1
    if len(terms) > SEARCHED:
        return min(
            combinations(range(len(terms)), 2),
            key=lambda pair: _cost(labels[pair[0]] | labels[pair[1]], sizes),
        )
    return _first_of_best(labels, frozenset(wanted), sizes)


def _cost(labels: Iterable[Label], sizes: Mapping[Label, int]) -> int:
    return prod(max(1, sizes[n]) for n in labels)


def _first_of_best(
    labels: Sequence[frozenset[Label]],
    wanted: frozenset[Label],
    sizes: Mapping[Label, int],
) -> tuple[int, int]:
    """The first pair of the order with the fewest multiplications: the best for each
    set of operands, of the best for its two halves.
    """
    count = len(labels)
    best: dict[int, tuple[int, tuple[int, int]]] = {
        1 << i: (0, (i, i)) for i in range(count)
    }
    left: dict[int, frozenset[Label]] = {}
    for held in range(1, 1 << count):
        within = [labels[i] for i in range(count) if held >> i & 1]
        outside = wanted.union(*(labels[i] for i in range(count) if not held >> i & 1))
        left[held] = frozenset().union(*within) & outside
        if len(within) == 1:
            left[held] = within[0]
            continue
        part = (held - 1) & held
        while part:
            other = held ^ part
            if part < other:
                price = _cost(left[part] | left[other], sizes)
                total = price + best[part][0] + best[other][0]
                if held not in best or total < best[held][0]:
                    best[held] = total, _pair_in(part, other, best)
            part = (part - 1) & held
    return best[(1 << count) - 1][1]


def _pair_in(
    part: int, other: int, best: Mapping[int, tuple[int, tuple[int, int]]]
) -> tuple[int, int]:
    """A pair of single operands to begin with: of a half, or the two halves."""
    for half in (part, other):
        if half & (half - 1):
            return best[half][1]
    return part.bit_length() - 1, other.bit_length() - 1
