"""Weights for the params of a graph, from a safetensors file that another program
wrote.

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

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.array_coercion import describe_type
from rlxweb.core.bfloat16 import BFLOAT16, to_float32, widen_bfloat16
from rlxweb.core.errors import InputError, NotFinite, UsageError, near, shown
from rlxweb.ir.dtype import DType, cast_array
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.verify import require_graph
from rlxweb.runtime.graph_files.memory_mapped_bytes import Source
from rlxweb.runtime.graph_files.safetensors_header import NUMPY_DTYPES
from rlxweb.runtime.graph_files.safetensors_shards import ShardTensor, open_tensors

Array = npt.NDArray[Any]
Rename = (
    Mapping[str, str | None]
    | Callable[[str], str | None]
    | Sequence[tuple[str, str | None]]
)
_MAX_LISTED = 12
_FLOAT_TYPES = {"BF16", "F16", "F32", "F64"}


class LazyWeights(Mapping[str, Array]):
    """Weights by param: each is a read-only view of its file, or is cast when it is
    read.

    Takes no memory for weights that nobody asks for, and keeps none that it widened.
    """

    def __init__(self, tensors: Mapping[str, tuple[ShardTensor, DType]]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Array:
        tensor, dtype = self._tensors[name]
        array = _cast_weight(tensor, dtype)
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"Weights({len(self)} arrays, {self.nbytes:,} bytes)"

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in their files."""
        return sum(
            tensor.entry.end - tensor.entry.begin
            for tensor, _ in self._tensors.values()
        )


def load_weights(
    graph: Graph,
    source: Source,
    *,
    rename: Rename | None = None,
    convert: bool = False,
    strict: bool = True,
    check: bool = False,
) -> LazyWeights:
    """Load the params of a graph from a safetensors file.

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
    context = "load_weights"
    require_graph(graph, context)
    context = f"{context} of graph {shown(graph.name)}"
    convert = coerce_bool("convert", convert, context)
    strict = coerce_bool("strict", strict, context)
    tensors = open_tensors(source, context)
    params = {name: node.type for name, node in graph.named("param").items()}
    weights_by_param, unused, faults = _assign_params(
        tensors, _rename_function(rename, context), params, context
    )
    missing = [name for name in params if name not in weights_by_param]
    faults = [*_missing_faults(missing, unused, tensors, weights_by_param), *faults]
    if strict and unused:
        faults.append(
            f"{_count_text(unused, 'weight')} without a param: {_list_names(unused)}"
        )
    for name, tensor in weights_by_param.items():
        faults += _weight_faults(name, tensor, params[name], convert)
    if faults:
        more = len(faults) - _MAX_LISTED
        listed = faults[:_MAX_LISTED] + [f"and {more} more"] * (more > 0)
        raise InputError(
            context,
            "; ".join(listed),
            f"the graph has {_count_text(params, 'param')}, "
            f"the file has {_count_text(tensors, 'weight')}",
            "map the names with `rename`" if missing or unused else "",
        )
    weights = LazyWeights(
        {name: (weights_by_param[name], params[name].dtype) for name in params}
    )
    if coerce_bool("check", check, context):
        _check_finite(weights, context)
    return weights


def _rename_function(
    rename: Rename | None, context: str
) -> Callable[[str], str | None]:
    """Return `rename` as a function; raises UsageError."""
    if rename is None:
        return lambda name: name
    if isinstance(rename, Mapping):
        return lambda name: rename.get(name, name)
    if callable(rename):
        return rename
    try:
        pairs = [(re.compile(pattern), replacement) for pattern, replacement in rename]
    except (TypeError, ValueError, re.error) as error:
        rule = (
            "expected a mapping, a function, or pairs (regular expression, replacement)"
        )
        raise UsageError(context, f"rename is {describe_type(rename)}", rule) from error

    def rename_by_pattern(name: str) -> str | None:
        for pattern, replacement in pairs:
            try:
                match = pattern.fullmatch(name)
                if match is not None:
                    return None if replacement is None else match.expand(replacement)
            except (TypeError, IndexError, re.error) as error:
                pair = shown((pattern.pattern, replacement))
                rule = "expected a regular expression and a replacement, both strings"
                raise UsageError(
                    context, f"rename has the invalid pair {pair} ({error})", rule
                ) from error
        return name

    return rename_by_pattern


def _assign_params(
    tensors: Mapping[str, ShardTensor],
    rename: Callable[[str], str | None],
    params: Mapping[str, TensorType],
    context: str,
) -> tuple[dict[str, ShardTensor], list[str], list[str]]:
    """Return (weights by param, names of the file that are no param's, faults).

    Errors   UsageError for a name that is none.
    """
    weights_by_param: dict[str, ShardTensor] = {}
    unused, faults = [], []
    for name, tensor in tensors.items():
        param: object = rename(name)  # a function may give anything
        if param is None:
            continue
        if not isinstance(param, str):
            problem = f"rename returned {shown(param)} for {shown(name)}"
            raise UsageError(context, problem, "expected the name of a param, or None")
        if param not in params:
            unused.append(name)
        elif param in weights_by_param:
            other = weights_by_param[param].entry.name
            names_text = f"{shown(other)} and {shown(name)}"
            faults.append(f"{names_text} both map to param {shown(param)}")
        else:
            weights_by_param[param] = tensor
    return weights_by_param, unused, faults


def _missing_faults(
    missing: Sequence[str],
    unused: Sequence[str],
    tensors: Mapping[str, ShardTensor],
    weights_by_param: Mapping[str, ShardTensor],
) -> list[str]:
    """Describe the params without a weight, with the names that may be meant."""
    if not missing:
        return []
    candidates = unused or [n for n in tensors if n not in weights_by_param]

    def with_suggestion(name: str) -> str:
        suggestions = near(name, candidates, 1)
        return shown(name) + (
            f" (did you mean {shown(suggestions[0])}?)" if suggestions else ""
        )

    return [
        f"{_count_text(missing, 'param')} without a weight: "
        f"{_list_names(missing, with_suggestion)}"
    ]


def _count_text(names: Collection[str], noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one."""
    return f"{len(names)} {noun}{'s' * (len(names) != 1)}"


def _list_names(names: Sequence[str], format_name: Callable[[str], str] = shown) -> str:
    """Return the first names as text, and how many more there are."""
    more = len(names) - _MAX_LISTED
    first = ", ".join(map(format_name, names[:_MAX_LISTED]))
    return f"{first} and {more} more" if more > 0 else first


def _weight_faults(
    name: str, tensor: ShardTensor, expected: TensorType, convert: bool
) -> list[str]:
    """Describe what is wrong with a weight for a param; empty where it fits."""
    entry = tensor.entry
    subject = f"weight {shown(entry.name)} of param {shown(name)}"
    if entry.shape != expected.shape:
        is_transposed = entry.shape[::-1] == expected.shape
        transpose_hint = (
            " (the dimensions are in reverse order: declare the param with the shape "
            "of the weight, and transpose it in the graph)"
            if is_transposed
            else ""
        )
        return [
            f"{subject} has shape {format_shape(entry.shape)}, expected "
            f"{format_shape(expected.shape)}{transpose_hint}"
        ]
    if entry.dtype == expected.dtype.label.upper():
        return []
    dtypes_text = f"{entry.dtype.lower()}, expected {expected.dtype}"
    problem = f"{subject} has dtype {dtypes_text}"
    if not convert:
        return [f"{problem} (pass convert=True to cast it)"]
    if _is_lossless_cast(entry.dtype, expected.dtype):
        return []
    changed_count = _count_changed(tensor, expected.dtype)
    return (
        [f"{problem}, and a cast would change {changed_count} of its values"]
        if changed_count
        else []
    )


def _is_lossless_cast(source: str, target: DType) -> bool:
    """Return whether every value of the one type exists in the other."""
    if source == "BF16":
        return target in (DType.F32, DType.F64)
    if target is DType.BF16:
        return source in ("BOOL", "I8", "U8")
    if source in ("I64", "U64") and target.is_float:  # NumPy calls that safe
        return False
    return np.can_cast(NUMPY_DTYPES[source], target.numpy)


def _count_changed(tensor: ShardTensor, dtype: DType) -> int:
    """Return how many values a cast would change; NaN stays what it is."""
    before = _numpy_values(tensor)
    with np.errstate(all="ignore"):
        after = widen_bfloat16(cast_array(before, dtype))
        differs = after.astype(before.dtype) != before
    both_nan = (before != before) & (after != after)
    changed = differs & ~both_nan
    # A float beyond all integers becomes the largest on some machines, which then
    # becomes that float again.
    for floats, integers in ((before, after), (after, before)):
        if floats.dtype.kind == "f" and integers.dtype.kind in "iu":
            changed |= floats >= float(np.iinfo(integers.dtype).max) + 1
    return int(np.count_nonzero(changed))


def _numpy_values(tensor: ShardTensor) -> Array:
    """Return the values as NumPy holds them: bf16 as f32."""
    array = tensor.layout.array(tensor.entry)
    return to_float32(array.view(BFLOAT16)) if tensor.entry.dtype == "BF16" else array


def _cast_weight(tensor: ShardTensor, dtype: DType) -> Array:
    """Return a weight in the param's dtype: a view, or a cast copy."""
    array = tensor.layout.array(tensor.entry)
    if tensor.entry.dtype == dtype.label.upper():
        return array.view(dtype.numpy.newbyteorder("<"))
    with np.errstate(all="ignore"):
        return cast_array(_numpy_values(tensor), dtype)


def _check_finite(weights: LazyWeights, context: str) -> None:
    """Raise NotFinite that names every weight with NaN or infinities."""
    faults = []
    for name, (tensor, _) in weights._tensors.items():
        if tensor.entry.dtype in _FLOAT_TYPES:
            bad_count = int(np.count_nonzero(~np.isfinite(_numpy_values(tensor))))
            if bad_count:
                faults.append(f"{bad_count} in {shown(name)}")
    if faults:
        raise NotFinite(
            context,
            f"NaN or infinite values: {_list_names(faults, str)}",
            "check=True requires finite values",
            "download the weights again, or pass check=False",
        )
