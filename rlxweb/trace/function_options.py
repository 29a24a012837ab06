"""Validated options of `rlxweb.function`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from rlxweb.core.argument_validation import coerce_bool, coerce_integer
from rlxweb.core.device import (
    Device,
    DeviceLike,
    check_adapter_name,
    is_auto,
    parse_device,
)
from rlxweb.core.errors import UsageError, did_you_mean, shown
from rlxweb.ir.dtype import DType, as_dtype


class FunctionOptions:
    """Options of a traced function: device, precision, static arguments, symbolic dims,
    cache size.
    """

    def __init__(
        self,
        device: DeviceLike | None,
        adapter: str,
        precision: str | None,
        static_argnames: str | Iterable[str],
        dims: Mapping[str, Sequence[Any]] | None,
        maxsize: int,
        keep: bool,
        strict: bool,
    ) -> None:
        context = "function"
        self.device: Device | None = None
        if device is not None and not is_auto(device):
            self.device = parse_device(device)
        self.adapter = check_adapter_name(adapter)
        if precision is not None and as_dtype(precision) is not DType.F32:
            rule = (
                "expected None (keep NumPy's dtypes) or 'f32' (treat float64 as "
                "float32)"
            )
            raise UsageError(context, f"precision is {shown(precision)}", rule)
        self.float64_as_float32 = precision is not None
        is_single_name = isinstance(static_argnames, str)
        self.static_argnames = (
            (static_argnames,) if is_single_name else tuple(static_argnames)
        )
        self.dims = {path: tuple(shape) for path, shape in (dims or {}).items()}
        self.maxsize = coerce_integer("maxsize", maxsize, context)
        if self.maxsize < 1:
            raise UsageError(context, f"maxsize is {maxsize}", "maxsize must be >= 1")
        self.keep = coerce_bool("keep", keep, context)
        self.strict = coerce_bool("strict", strict, context)

    def check_names(self, context: str, signature: Signature) -> None:
        """Check that dims and static_argnames name arguments of the function. Errors
        UsageError for a name it has not.
        """
        names = ", ".join(signature.parameters)
        rule = (
            f"the arguments are {names}" if names else "the function has no arguments"
        )
        for path in self.dims:
            argument_name = path.partition("[")[0].partition(".")[0]
            if argument_name not in signature.parameters:
                raise UsageError(
                    context,
                    f"dims refers to the unknown argument {shown(path)}",
                    rule,
                    did_you_mean(argument_name, signature.parameters),
                )
        has_var_keywords = any(
            p.kind is Parameter.VAR_KEYWORD for p in signature.parameters.values()
        )
        for name in self.static_argnames:
            if name not in signature.parameters and not has_var_keywords:
                raise UsageError(
                    context,
                    f"static_argnames contains the unknown argument {shown(name)}",
                    rule,
                    did_you_mean(str(name), signature.parameters),
                )
