"""The params of a graph from a safetensors file that others made.

Names are matched, shapes and dtypes held against the graph, and all that does not fit
is one error. A weight is a view of the file until it is asked for. Nothing is guessed:
no transpose, no cast that was not asked for or that changes a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import switch
from rlxweb.bfloat16 import BFLOAT16, held, to_float32
from rlxweb.errors import InputError, NotFinite, UsageError, near, shown
from rlxweb.given import named
from rlxweb.graphfile.layout import NUMPY
from rlxweb.graphfile.opened import Source
from rlxweb.graphfile.shards import Held, tensors_of
from rlxweb.ir.dtype import DType, cast_to
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import show
from rlxweb.ir.verify import must_be_graph

Array = npt.NDArray[Any]
Rename = (
    Mapping[str, str | None]
    | Callable[[str], str | None]
    | Sequence[tuple[str, str | None]]
)
_MOST_TOLD = 12
_FLOATS = {"BF16", "F16", "F32", "F64"}


class Weights(Mapping[str, Array]):
    """Weights by param, each a read-only view of its file, or widened when asked for.

    Takes no memory for weights that nobody asks for, and keeps none that it widened.
    """

    def __init__(self, held: Mapping[str, tuple[Held, DType]]) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Array:
        one, dtype = self._held[name]
        array = _as_dtype(one, dtype)
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"Weights({len(self)} of {self.nbytes:,} bytes)"

    @property
    def nbytes(self) -> int:
        """Bytes that they take in their files."""
        return sum(one.entry.end - one.entry.begin for one, _ in self._held.values())


def load_weights(
    graph: Graph,
    source: Source,
    *,
    rename: Rename | None = None,
    convert: bool = False,
    strict: bool = True,
    check: bool = False,
) -> Weights:
    """The params of a graph from a safetensors file.

    source   a path, mapped into memory; of a file, of an index of several
             (model.safetensors.index.json), or of a folder with one of them; bytes; or
             an open file
    rename   from a name in the file to the param's, or to None for one to leave out: a
             mapping; a function; or pairs (regular expression of a whole name,
             replacement), of which the first that matches counts
    convert  True: a weight of another dtype becomes the param's, where that changes no
             value (f16 and bf16 to f32)
    strict   False: weights that belong to no param are left out
    check    True: NaN and infinities are refused
    returns  arrays by param, for `Graph.save` and `set_param`, read as they are used
    Errors   GraphFileError for a file that breaks a rule of the format; InputError with
    everything at once that does not fit: params without a weight and what may be meant,
    weights without a param, other shapes, other dtypes; NotFinite
    """
    doing = "load_weights"
    must_be_graph(graph, doing)
    doing = f"{doing} of graph {shown(graph.name)}"
    convert, strict = switch("convert", convert, doing), switch("strict", strict, doing)
    held = tensors_of(source, doing)
    params = {name: node.type for name, node in graph.named("param").items()}
    placed, extra, faults = _placed(held, _renaming(rename, doing), params, doing)
    missing = [name for name in params if name not in placed]
    faults = [*_missing(missing, extra, held, placed), *faults]
    if strict and extra:
        faults.append(f"{_count(extra, 'weight')} of no param: {_listed(extra)}")
    for name, one in placed.items():
        faults += _misfit(name, one, params[name], convert)
    if faults:
        more = len(faults) - _MOST_TOLD
        told = faults[:_MOST_TOLD] + [f"and {more} more"] * (more > 0)
        raise InputError(
            doing,
            "; ".join(told),
            f"{_count(params, 'param')} of the graph, "
            f"{_count(held, 'weight')} of the file",
            "name them with `rename`" if missing or extra else "",
        )
    made = Weights({name: (placed[name], params[name].dtype) for name in params})
    if switch("check", check, doing):
        _check_finite(made, doing)
    return made


def _renaming(rename: Rename | None, doing: str) -> Callable[[str], str | None]:
    """As a function. Errors  UsageError."""
    if rename is None:
        return lambda name: name
    if isinstance(rename, Mapping):
        return lambda name: rename.get(name, name)
    if callable(rename):
        return rename
    try:
        pairs = [(re.compile(pattern), text) for pattern, text in rename]
    except (TypeError, ValueError, re.error) as error:
        wanted = "a mapping, a function, or pairs (regular expression, replacement)"
        raise UsageError(doing, f"rename is {named(rename)}", wanted) from error

    def by_pattern(name: str) -> str | None:
        for pattern, text in pairs:
            try:
                found = pattern.fullmatch(name)
                if found is not None:
                    return None if text is None else found.expand(text)
            except (TypeError, IndexError, re.error) as error:
                pair = shown((pattern.pattern, text))
                rule = "a regular expression and a replacement, as text"
                raise UsageError(doing, f"rename has {pair} ({error})", rule) from error
        return name

    return by_pattern


def _placed(
    held: Mapping[str, Held],
    rename: Callable[[str], str | None],
    params: Mapping[str, TensorType],
    doing: str,
) -> tuple[dict[str, Held], list[str], list[str]]:
    """(weights by param, names of the file that are no param's, what is wrong).

    Errors   UsageError for a name that is none.
    """
    placed: dict[str, Held] = {}
    extra, faults = [], []
    for name, one in held.items():
        param: object = rename(name)  # a function may give anything
        if param is None:
            continue
        if not isinstance(param, str):
            problem = f"rename makes {shown(param)} of {shown(name)}"
            raise UsageError(doing, problem, "the name of a param, or None")
        if param not in params:
            extra.append(name)
        elif param in placed:
            other = placed[param].entry.name
            both = f"{shown(other)} and {shown(name)}"
            faults.append(f"{both} are both for param {shown(param)}")
        else:
            placed[param] = one
    return placed, extra, faults


def _missing(
    missing: Sequence[str],
    extra: Sequence[str],
    held: Mapping[str, Held],
    placed: Mapping[str, Held],
) -> list[str]:
    """What is said of params without a weight, with what may be meant."""
    if not missing:
        return []
    free = extra or [n for n in held if n not in placed]

    def asked(name: str) -> str:
        meant = near(name, free, 1)
        return shown(name) + (f" (is it {shown(meant[0])}?)" if meant else "")

    return [f"{_count(missing, 'param')} without a weight: {_listed(missing, asked)}"]


def _count(names: Collection[str], what: str) -> str:
    return f"{len(names)} {what}{'s' * (len(names) != 1)}"


def _listed(names: Sequence[str], told: Callable[[str], str] = shown) -> str:
    more = len(names) - _MOST_TOLD
    first = ", ".join(map(told, names[:_MOST_TOLD]))
    return f"{first} and {more} more" if more > 0 else first


def _misfit(name: str, one: Held, want: TensorType, convert: bool) -> list[str]:
    """What is wrong with a weight for a param; nothing where it fits."""
    entry = one.entry
    what = f"weight {shown(entry.name)} of param {shown(name)}"
    if entry.shape != want.shape:
        turned = entry.shape[::-1] == want.shape
        turn = ", which is it transposed: transpose in the graph" if turned else ""
        return [f"{what} is {show(entry.shape)}, not {show(want.shape)}{turn}"]
    if entry.dtype == want.dtype.label.upper():
        return []
    said = f"{what} is {entry.dtype.lower()}, not {want.dtype}"
    if not convert:
        return [f"{said} (`convert` would cast it)"]
    if _widens(entry.dtype, want.dtype):
        return []
    changed = _changed(one, want.dtype)
    return [f"{said}, and {changed} of its values would change"] if changed else []


def _widens(have: str, want: DType) -> bool:
    """Does every value of the one type exist in the other?"""
    if have == "BF16":
        return want in (DType.F32, DType.F64)
    if want is DType.BF16:
        return have in ("BOOL", "I8", "U8")
    if have in ("I64", "U64") and want.is_float:  # NumPy calls that safe
        return False
    return np.can_cast(NUMPY[have], want.numpy)


def _changed(one: Held, dtype: DType) -> int:
    """How many values a cast would change; NaN stays what it is."""
    before = _values(one)
    with np.errstate(all="ignore"):
        after = held(cast_to(before, dtype))
        differs = after.astype(before.dtype) != before
    both_nan = (before != before) & (after != after)
    changed = differs & ~both_nan
    # A float beyond all integers becomes the largest on some machines, which then
    # becomes that float again.
    for floats, whole in ((before, after), (after, before)):
        if floats.dtype.kind == "f" and whole.dtype.kind in "iu":
            changed |= floats >= float(np.iinfo(whole.dtype).max) + 1
    return int(np.count_nonzero(changed))


def _values(one: Held) -> Array:
    """As NumPy has them: bf16 as f32."""
    array = one.layout.array(one.entry)
    return to_float32(array.view(BFLOAT16)) if one.entry.dtype == "BF16" else array


def _as_dtype(one: Held, dtype: DType) -> Array:
    array = one.layout.array(one.entry)
    if one.entry.dtype == dtype.label.upper():
        return array.view(dtype.numpy.newbyteorder("<"))
    with np.errstate(all="ignore"):
        return cast_to(_values(one), dtype)


def _check_finite(made: Weights, doing: str) -> None:
    """Errors  NotFinite naming every weight that has what is no number."""
    told = []
    for name, (one, _) in made._held.items():
        if one.entry.dtype in _FLOATS:
            bad = int(np.count_nonzero(~np.isfinite(_values(one))))
            if bad:
                told.append(f"{bad} of {shown(name)}")
    if told:
        raise NotFinite(
            doing,
            f"values that are NaN or infinite: {_listed(told)}",
            "`check` refuses them",
            "fetch the weights again, or load them without the check",
        )
