"""Record the public names with their kinds, signatures and members, a line for each.

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

MODULES = ("cost", "dask", "devices", "errors")
"""Public modules beside those that are attributes of the package."""
PACKAGE = str(Path(rlxweb.__file__).parent)
NOT_TOLD = (ABC, Generic, Protocol)
PLAIN = (str, int, float, Enum, NoneType)
FAMILIES = (staticmethod, classmethod)


class Verbatim:
    """A value that inspect prints as the text it holds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def record() -> dict[str, str]:
    """Return the lines of every public module, sorted."""
    modules = {"rlx": rlxweb}
    for name in (*rlxweb._ROOMS, *MODULES):
        modules[f"rlx.{name}"] = import_module(f"rlxweb.{name}")
    first: dict[type, str] = {}
    for prefix, module in modules.items():
        for name in _published(module):
            value = getattr(module, name)
            if isinstance(value, type):
                first.setdefault(value, f"{prefix}.{name}")
    lines = [
        line
        for prefix, module in modules.items()
        for line in _members(prefix, module, first)
    ]
    lines += _functions("rlx.nn", rlxweb.nn)
    return {"names.txt": "\n".join(sorted(lines)) + "\n"}


def _members(
    prefix: str, module: ModuleType, first: Mapping[type, str]
) -> Iterator[str]:
    """Yield the names of a module; a class is described in full at its first name."""
    yield f"{prefix}: module{_signature(module) if callable(module) else ''}"
    for name in _published(module):
        value = getattr(module, name)
        full = f"{prefix}.{name}"
        if isinstance(value, type) and first[value] != full:
            yield f"{full}: {first[value]}"
        elif name != "nn":
            yield from _described(full, value, first)


def _published(module: ModuleType) -> list[str]:
    """Return the names in `__all__`, or without one the classes that are defined."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _functions(prefix: str, namespace: Any) -> Iterator[str]:
    """Yield the functions of an object that stands for a module."""
    yield f"{prefix}: namespace"
    for name in dir(namespace):
        if not name.startswith("_"):
            yield f"{prefix}.{name}: function{_signature(getattr(namespace, name))}"


def _described(name: str, value: Any, public: Container[type]) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"{name}: module"
    elif not isinstance(value, type):
        kind = "function" if callable(value) else f"value of {type(value).__name__}"
        yield f"{name}: {kind}{_signature(value) if callable(value) else ''}"
    elif issubclass(value, Enum):
        members = ", ".join(f"{m.name} = {_plain(repr(m.value))}" for m in value)
        yield f"{name}: enum {{{members}}}"
        yield from _attributes(name, value, public)
    else:
        bases = (
            base.__name__
            for base in value.__mro__[1:-1]
            if base in public or not (_is_ours(base) or base in NOT_TOLD)
        )
        yield f"{name}: class({', '.join(bases)}){_signature(value)}"
        yield from _attributes(name, value, public)


def _attributes(name: str, cls: type, public: Container[type]) -> Iterator[str]:
    """Yield what a class and its bases of this package define.

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
        yield f"{name}.{key}: {_attribute(value)}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "rlxweb"


def _is_operator(key: str, value: Any) -> bool:
    """Tell a special method that is written here from one that Python generates."""
    code = getattr(
        inspect.unwrap(value) if callable(value) else value, "__code__", None
    )
    is_special = key.startswith("__") and key.endswith("__")
    ours = code is not None and code.co_filename.startswith(PACKAGE)
    return is_special and ours and key not in ("__init__", "__new__", "__post_init__")


def _attribute(value: Any) -> str:
    if isinstance(value, FAMILIES):
        return f"{type(value).__name__}{_signature(value.__func__)}"
    if isinstance(value, property):
        settable = "settable " if value.fset else ""
        return f"{settable}property{_answer(value.fget)}"
    if hasattr(value, "func") and hasattr(type(value), "__get__"):
        return f"cached property{_answer(value.func)}"
    if callable(value):
        return f"method{_signature(value)}"
    if inspect.isdatadescriptor(value):
        return "field"
    if isinstance(value, PLAIN):
        return f"value {_plain(repr(value))}"
    return f"value of {type(value).__name__}"


def _answer(function: Any) -> str:
    made = inspect.signature(function).return_annotation
    return "" if made is inspect.Signature.empty else f" -> {_annotation(made)!r}"


def _signature(value: Any) -> str:
    """Return the signature as text, its annotations as they are written."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):  # of Python's own classes, in C
        return ""
    parameters = [
        parameter.replace(
            annotation=parameter.empty
            if parameter.name in ("self", "cls")
            else _annotation(parameter.annotation),
            default=_default(parameter.default),
        )
        for parameter in found.parameters.values()
    ]
    return str(
        found.replace(
            parameters=parameters,
            return_annotation=_annotation(found.return_annotation),
        )
    )


def _annotation(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    if isinstance(value, str):
        return Verbatim(_plain(value))
    text = _plain(inspect.formatannotation(value))
    return Verbatim(re.sub(r"\b(?:\w+\.)+(?=\w)", "", text))


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    return Verbatim(_plain(repr(value)))


def _plain(text: str) -> str:
    """Return the text without addresses in memory and without homes of names."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"<(?:class|function) '?(?:[\w<>]+\.)*(\w+)'?>", r"\1", text)
    return re.sub(r"\brlxweb\.(?:\w+\.)*(?=\w)", "", text)
