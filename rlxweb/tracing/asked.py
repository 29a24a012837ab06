"""What `rlxweb.function` was asked for, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from rlxweb.arguments import switch, whole
from rlxweb.device import Device, DeviceLike, adapter_name, is_open, parse_device
from rlxweb.errors import UsageError, did_you_mean, shown
from rlxweb.ir.dtype import DType, as_dtype


class Asked:
    """Where a function runs and how, what is static of its arguments, what is kept."""

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
        doing = "function"
        self.device: Device | None = None
        if device is not None and not is_open(device):
            self.device = parse_device(device)
        self.adapter = adapter_name(adapter)
        if precision is not None and as_dtype(precision) is not DType.F32:
            rule = "None computes in NumPy's dtypes, 'f32' counts float64 as float32"
            raise UsageError(doing, f"precision is {shown(precision)}", rule)
        self.is_narrow = precision is not None
        one = isinstance(static_argnames, str)
        self.static_argnames = (static_argnames,) if one else tuple(static_argnames)
        self.dims = {path: tuple(shape) for path, shape in (dims or {}).items()}
        self.maxsize = whole("maxsize", maxsize, doing)
        if self.maxsize < 1:
            raise UsageError(doing, f"maxsize is {maxsize}", "at least 1 is kept")
        self.keep = switch("keep", keep, doing)
        self.strict = switch("strict", strict, doing)

    def check_names(self, doing: str, of: Signature) -> None:
        """Errors  UsageError for a static argument that the function has not."""
        for path in self.dims:
            first = path.partition("[")[0].partition(".")[0]
            if first not in of.parameters:
                raise UsageError(
                    doing,
                    f"dims names {shown(path)}",
                    f"its arguments are {', '.join(of.parameters) or 'none'}",
                    did_you_mean(first, of.parameters),
                )
        takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in of.parameters.values())
        for name in self.static_argnames:
            if name not in of.parameters and not takes_any:
                raise UsageError(
                    doing,
                    f"static_argnames names {shown(name)}",
                    f"its arguments are {', '.join(of.parameters) or 'none'}",
                    did_you_mean(str(name), of.parameters),
                )
