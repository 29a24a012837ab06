"""Listing of the ops: the table that `rlxweb.ops()` returns.

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

from rlxweb.core.errors import RlxError, UnknownOp, did_you_mean, shown
from rlxweb.core.fork_safety import cached_property
from rlxweb.ir.builder_call_trace import UNTRACED_METHODS
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, infer_type
from rlxweb.ir.op import Op, TensorType, Types, registry
from rlxweb.ir.sample import Sample

COMPOSED_FAMILY, CUSTOM_FAMILY = "composed", "custom"
"""Families: methods of a graph that put ops together, and ops of the caller's."""
_GENERIC_METHODS = ("apply", "operand", "build", "activation", "custom_op", "getitem")
"""Graph methods that stand for any op, which the listing leaves out."""
_SUMMARY_WIDTH = 72


@dataclass(frozen=True, slots=True)
class TypedSample:
    """Sample with its input types, attributes and output type."""

    op: Op
    sample: Sample
    inputs: Types
    attrs: Mapping[str, Any]
    out: TensorType


def typed_samples(op: Op) -> Iterator[TypedSample]:
    """Yield every sample of an op with its types."""
    for sample in op.samples:
        inputs = tuple(TensorType(d.shape, d.dtype) for d in sample.inputs)
        attrs, out = infer_type(op, inputs, sample.attrs)
        yield TypedSample(op, sample, inputs, attrs, out)


def supported_dtypes(op: Op) -> dict[DType, DType]:
    """Return each dtype that the main operand may have with the dtype of the result."""
    result_dtypes: dict[DType, DType] = {}
    for case in typed_samples(op):
        if not case.inputs:
            continue
        main_dtype = _main_dtype(case.inputs)
        for dtype in DType:
            out = (
                _out_dtype(op, case, main_dtype, dtype)
                if dtype not in result_dtypes
                else None
            )
            if out is not None:
                result_dtypes[dtype] = out
    return {d: result_dtypes[d] for d in DType if d in result_dtypes}


def _main_dtype(inputs: Types) -> DType:
    """Return the dtype that varies: the first float one (gather), else that of the last
    operand.
    """
    return next((t.dtype for t in inputs if t.dtype.is_float), inputs[-1].dtype)


def _out_dtype(
    op: Op, case: TypedSample, main_dtype: DType, dtype: DType
) -> DType | None:
    """Return the dtype of the result for a dtype of the main operand, or None where it
    is refused.
    """
    inputs = tuple(
        TensorType(t.shape, dtype if t.dtype is main_dtype else t.dtype)
        for t in case.inputs
    )
    try:
        return infer_type(op, inputs, case.attrs)[1].dtype
    except RlxError:
        return None


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring; a period after a number ends none
    (1e-5, §4.2).
    """
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)\]²v])\. ", paragraph, maxsplit=1)[0].rstrip(".") + "."


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
        """Labels of the dtypes its main operand may have; () for a composed method."""
        if self.family == COMPOSED_FAMILY:
            return ()
        return tuple(d.label for d in supported_dtypes(registry.get(self.name)))

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """Names of its attributes, or of the method's parameters."""
        if self.family != COMPOSED_FAMILY:
            return tuple(a.name for a in registry.get(self.name).attrs)
        return tuple(inspect.signature(getattr(Graph, self.name)).parameters)[1:]


class Vocabulary(Sequence[Entry]):
    """Sequence of the ops that a graph may have, in the order of their families; prints
    as a table.

    `ops()["softmax"]` is one by name; `ops()[0]` and slices are as of any sequence.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = tuple(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, key: int | str) -> Entry: ...
    @overload
    def __getitem__(self, key: slice) -> Vocabulary: ...
    def __getitem__(self, key: int | str | slice) -> Entry | Vocabulary:
        """Return the entry of an index or a name, or a part of the table. Errors
        UnknownOp, IndexError.
        """
        if isinstance(key, slice):
            return Vocabulary(self._entries[key])
        if not isinstance(key, str):
            return self._entries[key]
        names = {entry.name: entry for entry in self._entries}
        if key not in names:
            hint = did_you_mean(key, tuple(names))
            raise UnknownOp(
                f"op {shown(key)}", "this list has no op of that name", hint=hint
            )
        return names[key]

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the families, each once."""
        return tuple(dict.fromkeys(entry.family for entry in self._entries))

    def __str__(self) -> str:
        name_width = max((len(entry.name) for entry in self._entries), default=0)
        dtypes_width = max(
            (len(" ".join(entry.dtypes)) for entry in self._entries), default=0
        )
        lines: list[str] = []
        for family in self.families:
            lines += ["", family] if lines else [family]
            lines += [
                f"  {entry.name:{name_width}}  "
                f"{' '.join(entry.dtypes):{dtypes_width}}  "
                f"{shorten(entry.summary, _SUMMARY_WIDTH, placeholder=' …')}"
                for entry in self._entries
                if entry.family == family
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} ops in {len(self.families)} families)"


def ops(word: str = "") -> Vocabulary:
    """Return the table of ops: every op by family, then the methods that combine some.

    word   only those in whose name, family or summary it is, whatever the case

    >>> print(ops("softmax"))
    >>> ops()["argmax"].dtypes
    """
    registered = [
        Entry(
            op.name,
            op.family or CUSTOM_FAMILY,
            first_sentence(op.doc) if op.doc else "",
        )
        for op in registry
        if not op.has_trait("leaf")
    ]
    order = list(
        dict.fromkeys(
            entry.family for entry in registered if entry.family != CUSTOM_FAMILY
        )
    )
    order += [CUSTOM_FAMILY, COMPOSED_FAMILY]
    entries = sorted(
        [*registered, *composed_methods()], key=lambda e: order.index(e.family)
    )
    needle = word.lower()
    return Vocabulary(
        [
            entry
            for entry in entries
            if needle in f"{entry.name} {entry.family} {entry.summary}".lower()
        ]
    )


def composed_methods() -> Iterator[Entry]:
    """Yield the graph methods that are neither an op of that name nor an alias of
    another method.
    """
    Graph.load_op_methods()
    seen: set[Any] = set()
    for owner in Graph.__mro__:
        if owner is Graph or not owner.__module__.startswith("rlxweb"):
            continue
        for name, method in vars(owner).items():
            function = inspect.unwrap(method) if callable(method) else method
            if not inspect.isfunction(function) or name[0] == "_":
                continue
            is_declared = getattr(function, "__isabstractmethod__", False)
            if is_declared or name in (*UNTRACED_METHODS, *_GENERIC_METHODS):
                continue
            doc = inspect.getdoc(function)
            if function in seen or name in registry or not doc:
                continue
            seen.add(function)
            yield Entry(name, COMPOSED_FAMILY, first_sentence(doc))
