"""Stub file of the Graph methods from op records and op families.

`python -m tests.graph_method_stub` writes `rlxweb/ir/graph_methods.pyi`, by which
editors and type checkers know the methods; a test compares the file with the records.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from inspect import Parameter, Signature
from textwrap import wrap
from typing import Any

from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from tests.cli_runners import ROOT

STUB_FILE = ROOT / "rlxweb" / "ir" / "graph_methods.pyi"
_HEADER = '''"""Methods of Graph from op records and families, for editors and checkers.

Written from them by `python -m tests.graph_method_stub`.
"""

{imports}

class GraphMethods(metaclass=LoadsOpMethods):
    _op_methods: frozenset[str]
'''
_OWN_IMPORTS = {
    "LoadsOpMethods": "from rlxweb.ir.op_methods import LoadsOpMethods",
    "Operand": "from rlxweb.ir.tensor import Operand",
    "Tensor": "from rlxweb.ir.tensor import Tensor",
}
_BUILTIN_NAMES = frozenset(dir(builtins))


def stub_text() -> str:
    """Return the stub as the records and functions have it."""
    Graph.load_op_methods()
    imports, lines = dict(_OWN_IMPORTS), []
    for name in sorted(Graph._op_methods):
        function = registry.graph_methods.get(name) or registry.get(name).method
        parameters = inspect.signature(getattr(Graph, name))
        if function is not None:
            imports |= _imports_of(function, parameters)
        lines += _method_lines(name, parameters)
    header = _HEADER.format(imports="\n".join(sorted(set(imports.values()))))
    return header + "".join(lines)


def _imports_of(function: Callable[..., Any], own: Signature) -> dict[str, str]:
    """Return the import of each name that a function's annotations use."""
    annotations = [p.annotation for p in own.parameters.values() if p.name != "self"]
    texts = [str(text) for text in (*annotations, own.return_annotation)]
    names = {
        node.id
        for text in texts
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Name) and node.id not in _BUILTIN_NAMES
    }
    module = inspect.getmodule(function)
    assert module is not None
    known = _module_imports(module.__name__)
    return {
        name: known.get(name, f"from {module.__name__} import {name}")
        for name in names - _OWN_IMPORTS.keys() - {"inspect"}
    }


@cache
def _module_imports(module: str) -> Mapping[str, str]:
    """Return the import statement of each name that a module imports."""
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                suffix = "" if name == alias.name else f" as {name}"
                found[name] = f"from {node.module} import {alias.name}{suffix}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                suffix = f" as {alias.asname}" if alias.asname else ""
                found[alias.asname or alias.name] = f"import {alias.name}{suffix}"
    return found


def _method_lines(name: str, own: Signature) -> Iterator[str]:
    """Yield the lines of one method: its signature and its documentation."""
    parameters = list(map(_parameter_text, own.parameters.values()))
    kinds = [parameter.kind for parameter in own.parameters.values()]
    if Parameter.KEYWORD_ONLY in kinds and Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(Parameter.KEYWORD_ONLY), "*")
    result = own.return_annotation
    yield f"    def {name}({', '.join(parameters)}) -> {result}:\n"
    doc = inspect.getdoc(getattr(Graph, name))
    assert doc, f"Graph.{name} has no documentation"
    first, *rest = doc.splitlines()
    if not rest and len(first) < 74:
        yield f'        """{first}"""\n'
        return
    wrapped = wrap(first, 77) if not rest else [first]
    for line in (f'"""{wrapped[0]}', *wrapped[1:], *rest, '"""'):
        yield f"        {line}".rstrip() + "\n"


def _parameter_text(parameter: Parameter) -> str:
    if parameter.name == "self":
        return "self"
    star = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
    value = parameter.default
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    default = "" if value is parameter.empty else f" = {text}"
    prefix = star.get(parameter.kind, "")
    return f"{prefix}{parameter.name}: {parameter.annotation}{default}"


if __name__ == "__main__":
    STUB_FILE.write_text(stub_text(), encoding="utf-8")
    formatting = [sys.executable, "-m", "ruff", "format", STUB_FILE]
    subprocess.run(formatting, check=True, timeout=60)
