"""Einstein summation: parse the subscripts and contract the operands in a cheap order.

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
from rlxweb.ir.shape_arithmetic import Shape, bad_attribute, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor

Label = str
"""A letter, or "...0", "...1" … for the axes of an ellipsis, counted from the last one.
"""
Labels = tuple[Label, ...]
MAX_SEARCHED_OPERANDS = 7
"""Maximum number of operands for which every order is searched; above, the cheapest
pair is contracted next.
"""
_ELLIPSIS = "..."


class EinsumGraph(Protocol):
    """Graph methods that einsum uses."""

    def apply(self, op_name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """See Graph.apply."""

    def diagonal(
        self, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
    ) -> Tensor:
        """See Graph.diagonal."""


@dataclass(frozen=True, slots=True)
class LabeledTensor:
    """A tensor with a label for each axis; labels are distinct once diagonals are
    taken.
    """

    tensor: Tensor
    labels: Labels

    @property
    def sizes(self) -> dict[Label, int]:
        return dict(zip(self.labels, self.tensor.shape, strict=True))


def einsum(g: EinsumGraph, subscripts: str, operands: Sequence[Tensor]) -> Tensor:
    """Return the sum that the subscripts describe; see `Graph.einsum`."""
    input_labels, output_labels = _parse_subscripts(
        subscripts, [x.rank for x in operands]
    )
    terms = [
        _take_diagonals(g, LabeledTensor(x, labels))
        for x, labels in zip(operands, input_labels, strict=True)
    ]
    _check_sizes(terms)
    terms = [_drop_broadcast_axes(g, term, terms) for term in terms]
    while len(terms) > 1:
        first, second = _next_pair(terms, output_labels)
        rest = [
            term for index, term in enumerate(terms) if index not in (first, second)
        ]
        needed_labels = {
            *output_labels,
            *(name for term in rest for name in term.labels),
        }
        terms = [*rest, _contract_pair(g, terms[first], terms[second], needed_labels)]
    last = _sum_unneeded_axes(g, terms[0], set(output_labels))
    return _transpose_to(g, last, output_labels).tensor


# --- subscripts ---------------------------------------------------------------------


def _parse_subscripts(
    subscripts: str, ranks: Sequence[int]
) -> tuple[list[Labels], Labels]:
    """Parse the subscripts into the labels of each operand and of the result."""
    text = "".join(subscripts.split())
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise bad_attribute(
            f"{subscripts!r} names {len(parts)} operands", f"got {len(ranks)} operands"
        )
    inputs = [
        _parse_operand(p, rank, subscripts)
        for p, rank in zip(parts, ranks, strict=True)
    ]
    all_labels = [name for labels in inputs for name in labels]
    dots = sorted(
        {n for n in all_labels if n[0] == "."}, key=_ellipsis_position, reverse=True
    )
    if not arrow:
        single_labels = sorted(
            n for n in set(all_labels) if n[0] != "." and all_labels.count(n) == 1
        )
        return inputs, (*dots, *single_labels)
    output_labels = _parse_operand(
        right, len(right.replace(_ELLIPSIS, "")) + len(dots), subscripts
    )
    for name in output_labels:
        if name not in all_labels or output_labels.count(name) > 1:
            raise bad_attribute(
                f"output label {name!r} of {subscripts!r} is invalid",
                "an output label must occur in an operand, and only once in the output",
            )
    return inputs, output_labels


def _ellipsis_position(dots: Label) -> int:
    return int(dots.removeprefix(_ELLIPSIS))


def _parse_operand(part: str, rank: int, subscripts: str) -> Labels:
    """Parse the labels of one operand's axes. Errors  AttributeRefused, ShapeError."""
    head, dots, tail = part.partition(_ELLIPSIS)
    letters = head + tail
    if any(c not in string.ascii_letters for c in letters):
        raise bad_attribute(
            f"{part!r} in {subscripts!r} is invalid",
            "expected letters and at most one ellipsis: 'ij,jk->ik'",
        )
    ellipsis_axes = rank - len(letters)
    if ellipsis_axes < 0 or (ellipsis_axes and not dots):
        raise bad_shape(
            f"{part!r} in {subscripts!r} names {len(letters)} axes",
            f"the operand has rank {rank}",
        )
    ellipsis_labels = (
        f"{_ELLIPSIS}{position}" for position in reversed(range(ellipsis_axes))
    )
    return (*head, *ellipsis_labels, *tail)


# --- one operand --------------------------------------------------------------------


def _take_diagonals(g: EinsumGraph, term: LabeledTensor) -> LabeledTensor:
    """Replace each pair of axes with the same label by its diagonal."""
    while len(set(term.labels)) < len(term.labels):
        name = next(n for n in term.labels if term.labels.count(n) > 1)
        first, second = [a for a, n in enumerate(term.labels) if n == name][:2]
        shape = term.tensor.shape
        if shape[first] != shape[second]:
            raise bad_shape(
                f"label {name!r} names axes of {shape[first]} and {shape[second]} "
                f"elements in {format_shape(shape)}",
                "axes with the same label in one operand must have the same size",
            )
        diagonal = g.diagonal(term.tensor, 0, first, second)
        rest = (n for a, n in enumerate(term.labels) if a not in (first, second))
        term = LabeledTensor(diagonal, (*rest, name))
    return term


def _check_sizes(terms: Iterable[LabeledTensor]) -> None:
    """Check that each label has one size in all operands, or 1. Errors  ShapeError."""
    known: dict[Label, int] = {}
    for term in terms:
        for name, size in term.sizes.items():
            known_size = known.get(name, 1)
            if 1 not in (known_size, size) and known_size != size:
                raise bad_shape(
                    f"label {name!r} names axes of {known_size} and {size} elements",
                    "axes with the same label must have the same size, or size 1",
                )
            known[name] = size if known_size == 1 else known_size


def _drop_broadcast_axes(
    g: EinsumGraph, term: LabeledTensor, terms: Sequence[LabeledTensor]
) -> LabeledTensor:
    """Drop axes of one element whose label has more elements in another operand."""
    sizes = [other.sizes for other in terms]
    retained = [
        (name, size)
        for name, size in term.sizes.items()
        if size != 1 or all(other_sizes.get(name, 1) == 1 for other_sizes in sizes)
    ]
    if len(retained) == len(term.labels):
        return term
    reshaped = g.apply(
        "reshape", term.tensor, shape=tuple(size for _, size in retained)
    )
    return LabeledTensor(reshaped, tuple(name for name, _ in retained))


def _sum_unneeded_axes(
    g: EinsumGraph, term: LabeledTensor, needed_labels: set[Label]
) -> LabeledTensor:
    """Sum over the axes whose labels are no longer needed."""
    summed_axes = tuple(
        a for a, name in enumerate(term.labels) if name not in needed_labels
    )
    if not summed_axes:
        return term
    total = g.apply("sum", term.tensor, axes=summed_axes, keep_dim=False)
    return LabeledTensor(total, tuple(n for n in term.labels if n in needed_labels))


def _transpose_to(g: EinsumGraph, term: LabeledTensor, labels: Labels) -> LabeledTensor:
    """Transpose the axes into the order of `labels`."""
    if term.labels == labels:
        return term
    perm = tuple(term.labels.index(name) for name in labels)
    return LabeledTensor(g.apply("transpose", term.tensor, perm=perm), labels)


# --- two operands -------------------------------------------------------------------


def _contract_pair(
    g: EinsumGraph, x: LabeledTensor, y: LabeledTensor, needed_labels: set[Label]
) -> LabeledTensor:
    """Multiply two operands and sum over the labels that nothing else needs."""
    x = _sum_unneeded_axes(g, x, needed_labels | set(y.labels))
    y = _sum_unneeded_axes(g, y, needed_labels | set(x.labels))
    shared = tuple(n for n in x.labels if n in y.labels)
    batch = tuple(n for n in shared if n in needed_labels)
    contracted = tuple(n for n in shared if n not in needed_labels)
    rows = tuple(n for n in x.labels if n not in shared)
    columns = tuple(n for n in y.labels if n not in shared)
    out = (*batch, *rows, *columns)
    sizes = {**x.sizes, **y.sizes}
    if not contracted:  # nothing to add up: each with each
        left = _insert_unit_axes(
            g, _transpose_to(g, x, (*batch, *rows)), sizes, (*out,)
        )
        right = _insert_unit_axes(
            g, _transpose_to(g, y, (*batch, *columns)), sizes, (*out,)
        )
        return LabeledTensor(g.apply("mul", left, right), out)
    if not rows and not columns and x.tensor.dtype is not DType.F16:
        # Sums of products element by element; of f16 a matrix product adds in f32.
        first, second = (_transpose_to(g, t, (*batch, *contracted)) for t in (x, y))
        product = g.apply("mul", first.tensor, second.tensor)
        return _sum_unneeded_axes(
            g, LabeledTensor(product, (*batch, *contracted)), set(batch)
        )
    left = _as_batched_matrices(g, x, (batch, rows, contracted))
    right = _as_batched_matrices(g, y, (batch, contracted, columns))
    product = g.apply("matmul", left, right)
    shape = tuple(sizes[n] for n in out)
    if product.shape != shape:
        product = g.apply("reshape", product, shape=shape)
    return LabeledTensor(product, out)


def _insert_unit_axes(
    g: EinsumGraph, term: LabeledTensor, sizes: Mapping[Label, int], out: Labels
) -> Tensor:
    """Reshape with an axis of one element for each label of `out` that the term
    lacks.
    """
    shape = tuple(sizes[n] if n in term.labels else 1 for n in out)
    if term.tensor.shape == shape:
        return term.tensor
    return g.apply("reshape", term.tensor, shape=shape)


def _as_batched_matrices(
    g: EinsumGraph, term: LabeledTensor, groups: tuple[Labels, Labels, Labels]
) -> Tensor:
    """Reshape into batched matrices: the batch axes, then one axis for each of the
    other two groups.
    """
    batch, first, second = groups
    term = _transpose_to(g, term, (*batch, *first, *second))
    sizes = term.sizes
    batch_shape = tuple(sizes[n] for n in batch)
    shape: Shape = (
        *batch_shape,
        *(prod(sizes[n] for n in group) for group in (first, second)),
    )
    if term.tensor.shape == shape:
        return term.tensor
    return g.apply("reshape", term.tensor, shape=shape)


# --- their order --------------------------------------------------------------------


def _next_pair(
    terms: Sequence[LabeledTensor], output_labels: Labels
) -> tuple[int, int]:
    """Return the two operands to contract next: the first pair of the cheapest order,
    or the cheapest pair.
    """
    sizes: dict[Label, int] = {}
    for term in terms:
        sizes.update({n: s for n, s in term.sizes.items() if sizes.get(n, 1) == 1})
    labels = [frozenset(t.labels) for t in terms]
    if len(terms) == 2:
        return 0, 1
    if len(terms) > MAX_SEARCHED_OPERANDS:
        return min(
            combinations(range(len(terms)), 2),
            key=lambda pair: _multiplications(labels[pair[0]] | labels[pair[1]], sizes),
        )
    return _first_optimal_pair(labels, frozenset(output_labels), sizes)


def _multiplications(labels: Iterable[Label], sizes: Mapping[Label, int]) -> int:
    return prod(max(1, sizes[n]) for n in labels)


def _first_optimal_pair(
    labels: Sequence[frozenset[Label]],
    output_labels: frozenset[Label],
    sizes: Mapping[Label, int],
) -> tuple[int, int]:
    """Return the first pair of the order with the fewest multiplications, by dynamic
    programming over subsets of operands.
    """
    count = len(labels)
    best: dict[int, tuple[int, tuple[int, int]]] = {
        1 << i: (0, (i, i)) for i in range(count)
    }
    remaining: dict[int, frozenset[Label]] = {}
    for subset in range(1, 1 << count):
        members = [labels[i] for i in range(count) if subset >> i & 1]
        outside = output_labels.union(
            *(labels[i] for i in range(count) if not subset >> i & 1)
        )
        remaining[subset] = frozenset().union(*members) & outside
        if len(members) == 1:
            remaining[subset] = members[0]
            continue
        part = (subset - 1) & subset
        while part:
            other = subset ^ part
            if part < other:
                cost = _multiplications(remaining[part] | remaining[other], sizes)
                total = cost + best[part][0] + best[other][0]
                if subset not in best or total < best[subset][0]:
                    best[subset] = total, _first_pair(part, other, best)
            part = (part - 1) & subset
    return best[(1 << count) - 1][1]


def _first_pair(
    part: int, other: int, best: Mapping[int, tuple[int, tuple[int, int]]]
) -> tuple[int, int]:
    """Return the pair of operands to contract first: that of a half, or the two halves
    themselves.
    """
    for half in (part, other):
        if half & (half - 1):
            return best[half][1]
    return part.bit_length() - 1, other.bit_length() - 1
