"""Record the public names with their kinds, signatures and members, one per line.

Where a name is defined does not show: a move changes no line. Annotations are recorded
as they are written; what Python's own classes bring along is left out.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC
from collections.abc import Container, Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, Generic, Protocol

import rlxweb

MORE_MODULES = ("cost", "dask", "devices", "errors")
"""Public modules that are not attributes of the package."""
PACKAGE = str(Path(rlxweb.__file__).parent)
HIDDEN_BASES = (ABC, Generic, Protocol)
LITERAL_TYPES = (str, int, float, Enum, NoneType)
METHOD_WRAPPERS = (staticmethod, classmethod)


class Verbatim:
    """Value that `inspect` prints as the text it holds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def record() -> dict[str, str]:
    """Return the lines of every public module, sorted."""
    modules = {"rlx": rlxweb}
    for name in (*rlxweb._PUBLIC_SUBMODULES, *MORE_MODULES):
        modules[f"rlx.{name}"] = import_module(f"rlxweb.{name}")
    first_names: dict[type, str] = {}
    for prefix, module in modules.items():
        for name in _public_names(module):
            value = getattr(module, name)
            if isinstance(value, type):
                first_names.setdefault(value, f"{prefix}.{name}")
    lines = [
        line
        for prefix, module in modules.items()
        for line in _module_lines(prefix, module, first_names)
    ]
    lines += _namespace_lines("rlx.nn", rlxweb.nn)
    return {"names.txt": "\n".join(sorted(lines)) + "\n"}


def _module_lines(
    prefix: str, module: ModuleType, first_names: Mapping[type, str]
) -> Iterator[str]:
    """Yield the lines of a module; a class is described in full at its first name."""
    yield f"{prefix}: module{_signature(module) if callable(module) else ''}"
    for name in _public_names(module):
        value = getattr(module, name)
        full_name = f"{prefix}.{name}"
        if isinstance(value, type) and first_names[value] != full_name:
            yield f"{full_name}: {first_names[value]}"
        elif name != "nn":
            yield from _value_lines(full_name, value, first_names)


def _public_names(module: ModuleType) -> list[str]:
    """Return the names in `__all__`, or the classes defined in a module without it."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _namespace_lines(prefix: str, namespace: Any) -> Iterator[str]:
    """Yield the functions of an object that serves as a module."""
    yield f"{prefix}: namespace"
    for name in dir(namespace):
        if not name.startswith("_"):
            yield f"{prefix}.{name}: function{_signature(getattr(namespace, name))}"


def _value_lines(name: str, value: Any, public: Container[type]) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"{name}: module"
    elif not isinstance(value, type):
        kind = "function" if callable(value) else f"value of {type(value).__name__}"
        yield f"{name}: {kind}{_signature(value) if callable(value) else ''}"
    elif issubclass(value, Enum):
        members = ", ".join(
            f"{m.name} = {_strip_locations(repr(m.value))}" for m in value
        )
        yield f"{name}: enum {{{members}}}"
        yield from _attribute_lines(name, value, public)
    else:
        bases = (
            base.__name__
            for base in value.__mro__[1:-1]
            if base in public or not (_is_ours(base) or base in HIDDEN_BASES)
        )
        yield f"{name}: class({', '.join(bases)}){_signature(value)}"
        yield from _attribute_lines(name, value, public)


def _attribute_lines(name: str, cls: type, public: Container[type]) -> Iterator[str]:
    """Yield the members that a class and its rlxweb bases define.

    What a public base inherits or defines is in that base's lines.
    """
    bases = [base for base in cls.__mro__[1:] if base in public]
    for key in dir(cls):
        owner = next((base for base in cls.__mro__ if key in vars(base)), None)
        if owner is None or not _is_ours(owner):
            continue
        if any(issubclass(base, owner) for base in bases):
            continue
        value = vars(owner)[key]
        if issubclass(cls, Enum) and key in cls.__members__:
            continue
        if key.startswith("_") and not _is_operator(key, value):
            continue
        yield f"{name}.{key}: {_describe_attribute(value)}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "rlxweb"


def _is_operator(key: str, value: Any) -> bool:
    """Tell a special method written in rlxweb from one that Python generates."""
    code = getattr(
        inspect.unwrap(value) if callable(value) else value, "__code__", None
    )
    is_special = key.startswith("__") and key.endswith("__")
    ours = code is not None and code.co_filename.startswith(PACKAGE)
    return is_special and ours and key not in ("__init__", "__new__", "__post_init__")


def _describe_attribute(value: Any) -> str:
    if isinstance(value, METHOD_WRAPPERS):
        return f"{type(value).__name__}{_signature(value.__func__)}"
    if isinstance(value, property):
        settable = "settable " if value.fset else ""
        return f"{settable}property{_return_annotation(value.fget)}"
    if hasattr(value, "func") and hasattr(type(value), "__get__"):
        return f"cached property{_return_annotation(value.func)}"
    if callable(value):
        return f"method{_signature(value)}"
    if inspect.isdatadescriptor(value):
        return "field"
    if isinstance(value, LITERAL_TYPES):
        return f"value {_strip_locations(repr(value))}"
    return f"value of {type(value).__name__}"


def _return_annotation(function: Any) -> str:
    annotation = inspect.signature(function).return_annotation
    return (
        ""
        if annotation is inspect.Signature.empty
        else f" -> {_annotation_text(annotation)!r}"
    )


def _signature(value: Any) -> str:
    """Return the signature as text, with annotations as they are written."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of Python's own classes, in C
        return ""
    parameters = [
        parameter.replace(
            annotation=parameter.empty
            if parameter.name in ("self", "cls")
            else _annotation_text(parameter.annotation),
            default=_default_text(parameter.default),
        )
        for parameter in signature.parameters.values()
    ]
    return str(
        signature.replace(
            parameters=parameters,
            return_annotation=_annotation_text(signature.return_annotation),
        )
    )


def _annotation_text(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    if isinstance(value, str):
        return Verbatim(_strip_locations(value))
    text = _strip_locations(inspect.formatannotation(value))
    return Verbatim(re.sub(r"\b(?:\w+\.)+(?=\w)", "", text))


def _default_text(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    return Verbatim(_strip_locations(repr(value)))


def _strip_locations(text: str) -> str:
    """Return the text without memory addresses and module paths."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"<(?:class|function) '?(?:[\w<>]+\.)*(\w+)'?>", r"\1", text)
    return re.sub(r"\brlxweb\.(?:\w+\.)*(?=\w)", "", text)
