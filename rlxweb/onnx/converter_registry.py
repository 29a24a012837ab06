"""Registry of ONNX op converters, and the guide to writing one.

An op that is exactly one of ours needs none: its name stands on our record (`Op.onnx`).
Any other has a converter in the file of its family, registered under its ONNX name:

    @converts("LeakyRelu")
    def _leaky_relu(call: Call, x: Tensor, *, alpha: float = 0.01) -> Tensor:
        return call.g.where(x >= 0.0, x, x * alpha)

    @converts("Squeeze", since=13)
    def _squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        dropped = None if axes is None else call.ints(axes, "axes")
        return squeezed(call.g, x, dropped)

- The node's inputs come by position, None for one that is left out; a parameter without
  a default must be given. Its attributes come by keyword, with ONNX's defaults in the
  signature: strings, floats, ints, tuples of them, `Weight` for a tensor, `GraphRecord`
  for a body. An attribute that the signature does not name is refused. What several ops
  have is one TypedDict: `**where: Unpack[Where]`.
- Values are tensors of `call.g`, the draft, which takes every call of a `Graph` and
  folds: an op of known operands is computed at once. `call.known(x, "what")` gives the
  array of a value that must be known, `call.ints(x, "what")` its integers. Where it
  depends on an input of the model, the model is converted again for that input's value;
  so nothing is guessed and no shape is unknown. `call.g.known(x)` is None instead.
- A value whose type rlxweb has none for (text, small floats …) is a bare NumPy array;
  one of 4 or 2 bits may be a `SubByteTensor`; a sequence is a list, an optional without
  a value is None.
- One output: a tensor. Several: a tuple in ONNX's order; `call.wants(1)` tells whether
  the second is used, None stands for one that is not.
- `since` is the op's version from which on the converter is right, until the next one
  registered for it or through version `until`; `domain` is another than ONNX's own.
- What cannot be done is refused with `call.refuse(problem, rule, hint)`; errors of
  shape rules get the node's place by themselves.
- An op with no converter that ONNX itself defines by other ops is done by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NoReturn, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import ModelError, Unsupported, shown
from rlxweb.ir.op import Op, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import FoldingGraph, rlx_dtype_or_none
from rlxweb.onnx.model_records import GraphRecord, NodeRecord
from rlxweb.onnx.sub_byte import SubByteTensor

CONVERTER_MODULES = (
    "constant_shape_range_ops",
    "elementwise",
    "reshape_transpose_slice",
    "reduction_softmax_argmax",
    "matrix_products",
    "norms",
    "pad_gather_scatter",
    "nms_roi_deform_conv",
    "max_roi_pool",
    "tfidf",
    "resize_grid_sample",
    "gather_cumsum",
    "sequences",
    "signal_transforms",
    "conv_pool",
    "quantized",
    "control_flow",
    "recurrent",
    "attention",
    "rotary_embedding",
    "microsoft_fused",
    "microsoft_attention",
    "tree_ensembles",
    "scalers_encoders_linear_models",
    "support_vector_machines",
    "microsoft_matmul_nbits",
    "microsoft_quantized",
    "microsoft_gather_quantized",
)
"""Stems of the modules that register converters: `rlxweb/onnx/NAME.py` each. A new
module adds its line.
"""

Value = Any
"""Value during conversion: a Tensor, a list of values (a sequence), a NumPy array of a
dtype rlxweb does not have, a SubByteTensor, or None.
"""
Converter = Callable[..., Any]

_NO_VERSION_LIMIT = 1 << 31

_converters: dict[tuple[str, str], list[tuple[int, int, RegisteredConverter]]] = {}


class NeedsValues(Exception):  # not an error: it asks
    """Request for the values of these model inputs, on which a value that must be known
    depends.

    tensor   of the draft, whose values are asked for
    """

    def __init__(self, input_names: set[str], description: str, tensor: Tensor) -> None:
        super().__init__(input_names, description)
        self.input_names = input_names
        self.description = description
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class RegisteredConverter:
    """Converter with the inputs and attributes that its signature declares.

    min_inputs  how many inputs it is called with at least
    max_inputs  how many it takes; None: any number
    attr_names  the attributes it knows; None: any, it looks itself
    non_tensor_inputs  the places of inputs that may be more than tensors of ours; from
                       `first_variadic_non_tensor` on
              all of them
    optional_inputs  of the least those that may be left out all the same
    """

    convert: Converter
    min_inputs: int
    max_inputs: int | None
    attr_names: frozenset[str] | None
    non_tensor_inputs: frozenset[int] = frozenset()
    first_variadic_non_tensor: int | None = None
    optional_inputs: frozenset[int] = frozenset()

    def accepts_non_tensor(self, index: int) -> bool:
        """Return whether an input may be a sequence, or an array of a dtype that rlxweb
        does not have.
        """
        return index in self.non_tensor_inputs or (
            self.first_variadic_non_tensor is not None
            and index >= self.first_variadic_non_tensor
        )


def converts(
    *ops: str, since: int = 1, until: int = _NO_VERSION_LIMIT, domain: str = ""
) -> Callable[[Converter], Converter]:
    """Register the decorated function as converter of these ONNX ops."""

    def register(convert: Converter) -> Converter:
        entry = _inspect_converter(convert)
        for op in ops:
            versions = _converters.setdefault((domain, op), [])
            if any(since == start for start, *_ in versions):
                raise ValueError(f"{op} of version {since} already has a converter")
            versions.append((since, until, entry))
        return convert

    return register


def _inspect_converter(convert: Converter) -> RegisteredConverter:
    """Return a converter with the inputs and attributes that its signature declares."""
    _, *parameters = signature(convert).parameters.values()
    positional = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    is_variadic = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    attr_names = {p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY}
    var_keywords = [p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD]
    typed_dicts = [get_args(get_type_hints(convert)[name]) for name in var_keywords]
    for (typed_dict,) in filter(None, typed_dicts):
        attr_names |= get_type_hints(typed_dict).keys()
    variadic = next((p for p in parameters if p.kind is Parameter.VAR_POSITIONAL), None)
    return RegisteredConverter(
        convert,
        sum(p.default is Parameter.empty for p in positional),
        None if is_variadic else len(positional),
        frozenset(attr_names) if all(typed_dicts) else None,
        frozenset(
            index for index, p in enumerate(positional) if _accepts_non_tensor(p)
        ),
        len(positional)
        if variadic is not None and _accepts_non_tensor(variadic)
        else None,
        frozenset(
            index
            for index, p in enumerate(positional)
            if p.default is Parameter.empty and "None" in str(p.annotation)
        ),
    )


def _accepts_non_tensor(parameter: Parameter) -> bool:
    """Return whether a parameter's annotation allows more than a Tensor."""
    return "Value" in str(parameter.annotation)


@cache
def _load_converters() -> None:
    """Import all converter modules once."""
    for name in CONVERTER_MODULES:
        import_module(f"rlxweb.onnx.{name}")


def find_converter(op: str, domain: str, version: int) -> RegisteredConverter | None:
    """Return the converter of an op at an opset version, or None if there is none."""
    _load_converters()
    versions = _converters.get((domain, op), ())
    candidates = [entry for entry in versions if entry[0] <= version <= entry[1]]
    if candidates:
        return max(candidates, key=lambda entry: entry[0])[2]
    identical_op = identical_ops(registry.revision).get(op) if not domain else None
    return None if identical_op is None else _direct_converter(identical_op)


@lru_cache(maxsize=2)
def identical_ops(registry_version: int) -> dict[str, Op]:
    """Return rlxweb's ops by the names of the ONNX ops that have exactly the same
    meaning.

    registry_version  of the registry: a later one is read anew
    """
    return {name: op for op in registry for name in op.onnx}


def _direct_converter(op: Op) -> RegisteredConverter:
    """Return a converter that passes operands and attributes on to the op unchanged."""

    def convert(ctx: ConversionContext, *inputs: Tensor, **attrs: Any) -> Tensor:
        return ctx.graph.apply(op.name, *inputs, **attrs)

    min_inputs, max_inputs = op.arity_range()
    return RegisteredConverter(
        convert, min_inputs, max_inputs, frozenset(a.name for a in op.attrs)
    )


@dataclass(frozen=True)
class ConversionContext:
    """Context of the node being converted; the first argument of every converter.

    graph    the draft, which takes every call of a Graph
    node     its record
    version  of the opset of its domain
    convert_body  (body, its inputs' values) → its outputs' values, outer names seen
    error_context  for messages: the model and the place
    """

    graph: FoldingGraph
    node: NodeRecord
    version: int
    convert_body: Callable[[GraphRecord, Sequence[Value]], list[Value]] = field(
        repr=False
    )
    error_context: str = ""

    def needs_output(self, index: int) -> bool:
        """Return whether the model uses an output of the node."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def require_array(self, value: Value, description: str) -> npt.NDArray[Any]:
        """Return the array of a value that must be known to continue.

        description  it is, for messages: "axes"
        Errors   NeedsValues, which the import answers by giving the inputs' values, or
        by computing these
        """
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, SubByteTensor):
            return self.require_array(value.tensor, description).astype(value.dtype)
        if not isinstance(value, Tensor):
            self.raise_unsupported(
                f"got {shown(value)} for {description}", "must be a tensor"
            )
        array = self.graph.known_array(value)
        if array is not None:
            return onnx_library_access.as_numeric_array(array)
        if input_names := self.graph.source_inputs(value):
            raise NeedsValues(
                input_names, f"{description} of {self.error_context}", value
            )
        return onnx_library_access.as_numeric_array(self.graph.evaluate_constant(value))

    def require_ints(self, value: Value, description: str) -> tuple[int, ...]:
        """Return the integers of a value that must be known, flattened; a scalar gives
        one.
        """
        array = self.require_array(value, description)
        if array.dtype.kind not in "iub":
            self.raise_unsupported(
                f"got dtype {array.dtype} for {description}", "must be integers"
            )
        return tuple(int(v) for v in array.reshape(-1))

    def require_number(self, value: Value, description: str) -> Any:
        """Return the single number of a value that must be known, as a Python
        number.
        """
        array = self.require_array(value, description)
        if array.size != 1:
            self.raise_unsupported(
                f"got {array.size} elements for {description}", "expected 1"
            )
        return array.reshape(-1)[0].item()

    def nonzero_indices(self, x: Tensor, description: str) -> Tensor:
        """Return the indices [rank, count] (i32) of nonzero elements; their count must
        be known.
        """
        if x.id not in self.graph.nonzero_counts:
            self.graph.nonzero_counts[x.id] = self.graph.count_nonzero(x)
        count = int(self.require_number(self.graph.nonzero_counts[x.id], description))
        return self.graph.nonzero(x, count)[0]

    def constant_value(self, array: Any) -> Value:
        """Return an array as a constant tensor, or the array itself if rlxweb does not
        have its dtype.
        """
        return constant_value(self.graph, array)

    def raise_unsupported(
        self, problem: str, rule: str = "", hint: str = ""
    ) -> NoReturn:
        """Raise Unsupported for a part of an operator that rlxweb does not
        implement.
        """
        raise Unsupported(self.error_context, problem, rule, hint)

    def raise_invalid_model(self, problem: str, rule: str = "") -> NoReturn:
        """Raise ModelError for something that no valid model contains."""
        raise ModelError(self.error_context, problem, rule)


def constant_value(g: FoldingGraph, array: Any) -> Value:
    """Return an array as a constant tensor, or the array itself if rlxweb does not have
    its dtype.
    """
    array = np.asarray(array)
    return array if rlx_dtype_or_none(array.dtype) is None else g.add_constant(array)
