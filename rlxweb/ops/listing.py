"""`rlxweb.ops()`: the vocabulary as a table, of the records and of Graph's methods.

What each op takes is asked of its shape rule with the op's own samples, so that nothing
is said twice. No device is known here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, overload

from rlxweb.errors import RlxError, UnknownOp, did_you_mean, shown
from rlxweb.forked import cached_property
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, typed
from rlxweb.ir.op import Op, TensorType, Types, registry
from rlxweb.ir.recording import PLAIN
from rlxweb.ir.sample import Sample

COMPOSED, OWN = "composed", "custom"
"""Families: methods of a graph that put ops together, and ops of the caller's."""
_DOORS = ("apply", "operand", "build", "activation", "custom_op", "getitem")
"""Methods that stand for any op."""
_WIDE = 72


@dataclass(frozen=True, slots=True)
class Case:
    """A sample that the shape rule takes: input types, attributes, output type."""

    op: Op
    sample: Sample
    inputs: Types
    attrs: Mapping[str, Any]
    out: TensorType


def cases(op: Op) -> Iterator[Case]:
    """Every sample with its types."""
    for sample in op.samples:
        inputs = tuple(TensorType(d.shape, d.dtype) for d in sample.inputs)
        attrs, out = typed(op, inputs, sample.attrs)
        yield Case(op, sample, inputs, attrs, out)


def dtypes(op: Op) -> dict[DType, DType]:
    """Each dtype its main operand may have, and the dtype that comes out."""
    found: dict[DType, DType] = {}
    for case in cases(op):
        if not case.inputs:
            continue
        main = _main(case.inputs)
        for dtype in DType:
            out = _out_dtype(op, case, main, dtype) if dtype not in found else None
            if out is not None:
                found[dtype] = out
    return {d: found[d] for d in DType if d in found}


def _main(inputs: Types) -> DType:
    """The dtype that varies: that of the last operand, or a float one (gather)."""
    return next((t.dtype for t in inputs if t.dtype.is_float), inputs[-1].dtype)


def _out_dtype(op: Op, case: Case, main: DType, dtype: DType) -> DType | None:
    inputs = tuple(
        TensorType(t.shape, dtype if t.dtype is main else t.dtype) for t in case.inputs
    )
    try:
        return typed(op, inputs, case.attrs)[1].dtype
    except RlxError:
        return None


def first_sentence(text: str) -> str:
    """The first sentence of a doc; a point after a number ends none (1e-5, §4.2)."""
    whole = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)\]²v])\. ", whole, maxsplit=1)[0].rstrip(".") + "."


@dataclass(frozen=True)
class Entry:
    """One op of the vocabulary, or one method that puts some together.

    name      of the op, for `graph.apply`; of the method where the family is "composed"
    family    where it belongs: "elementwise", "reduce", "conv" …
    summary   what it gives, in a sentence
    """

    name: str
    family: str
    summary: str

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """What its main operand may hold; () where a method's ops say it."""
        if self.family == COMPOSED:
            return ()
        return tuple(d.label for d in dtypes(registry.get(self.name)))

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of its attributes, or of the method's parameters."""
        if self.family != COMPOSED:
            return tuple(a.name for a in registry.get(self.name).attrs)
        return tuple(inspect.signature(getattr(Graph, self.name)).parameters)[1:]


class Vocabulary(Sequence[Entry]):
    """The ops that a graph may have, in the order of their families; prints as a table.

    `ops()["softmax"]` is one by name; `ops()[0]` and slices are as of any sequence.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = tuple(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, at: int | str) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Vocabulary: ...
    def __getitem__(self, at: int | str | slice) -> Entry | Vocabulary:
        """By place or by name. Errors  UnknownOp, IndexError."""
        if isinstance(at, slice):
            return Vocabulary(self._entries[at])
        if not isinstance(at, str):
            return self._entries[at]
        names = {one.name: one for one in self._entries}
        if at not in names:
            hint = did_you_mean(at, tuple(names))
            raise UnknownOp(f"op {shown(at)}", "it is not listed here", hint=hint)
        return names[at]

    @property
    def families(self) -> tuple[str, ...]:
        """Their names, each once."""
        return tuple(dict.fromkeys(one.family for one in self._entries))

    def __str__(self) -> str:
        name = max((len(one.name) for one in self._entries), default=0)
        kinds = max((len(" ".join(one.dtypes)) for one in self._entries), default=0)
        lines: list[str] = []
        for family in self.families:
            lines += ["", family] if lines else [family]
            lines += [
                f"  {one.name:{name}}  {' '.join(one.dtypes):{kinds}}  "
                f"{shorten(one.summary, _WIDE, placeholder=' …')}"
                for one in self._entries
                if one.family == family
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} of {len(self.families)} families)"


def ops(word: str = "") -> Vocabulary:
    """The vocabulary: every op by family, then the methods that put some together.

    word   only those in whose name, family or summary it is, whatever the case

    >>> print(ops("softmax"))
    >>> ops()["argmax"].dtypes
    """
    registered = [
        Entry(op.name, op.family or OWN, first_sentence(op.doc) if op.doc else "")
        for op in registry
        if not op.has("leaf")
    ]
    order = list(dict.fromkeys(one.family for one in registered if one.family != OWN))
    order += [OWN, COMPOSED]
    entries = sorted([*registered, *composed()], key=lambda e: order.index(e.family))
    low = word.lower()
    return Vocabulary(
        [
            one
            for one in entries
            if low in f"{one.name} {one.family} {one.summary}".lower()
        ]
    )


def composed() -> Iterator[Entry]:
    """The methods of a graph that are no op of their name and no second name of one."""
    seen: set[Any] = set()
    for owner in Graph.__mro__:
        if owner is Graph or not owner.__module__.startswith("rlxweb"):
            continue
        for name, method in vars(owner).items():
            whole = inspect.unwrap(method) if callable(method) else method
            if not inspect.isfunction(whole) or name[0] == "_":
                continue
            is_declared = getattr(whole, "__isabstractmethod__", False)
            if is_declared or name in (*PLAIN, *_DOORS):
                continue
            doc = inspect.getdoc(whole)
            if whole in seen or name in registry or not doc:
                continue
            seen.add(whole)
            yield Entry(name, COMPOSED, first_sentence(doc))
