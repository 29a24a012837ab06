"""Caches of functions with arguments have a bound, or arguments that are few."""

from __future__ import annotations

import ast
from pathlib import Path

import rlxweb

FEW = {
    "dtype_of",  # numbers of ONNX's types
    "_function",  # NumPy's and our own functions
    "_once",  # drivers' libraries
    "_version_beside",  # PyTorch, at its place
    "_absent",  # engines
    "_waits",
    "_declared",  # search paths of this process
    "assumed_cpu",  # a bool
}
"""Functions whose arguments no file, shape or name of a user reaches."""


def is_unbounded(decorator: ast.expr) -> bool:
    """Tell whether a decorator is `cache`, or `lru_cache(None)` by position or name."""
    if isinstance(decorator, ast.Call):
        given = [*decorator.args[:1], *(word.value for word in decorator.keywords[:1])]
        none = any(isinstance(g, ast.Constant) and g.value is None for g in given)
        return ast.unparse(decorator.func).endswith("lru_cache") and none
    return ast.unparse(decorator) in ("cache", "functools.cache")


def unbounded() -> set[str]:
    """Names of cached functions with arguments and no bound."""
    found = set()
    for path in Path(rlxweb.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        # To parse what has no such decorator would take most of the time.
        for node in ast.walk(ast.parse(text)) if "cache" in text else ():
            if isinstance(node, ast.FunctionDef) and any(
                map(is_unbounded, node.decorator_list)
            ):
                arguments = (
                    node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                )
                if arguments or node.args.vararg or node.args.kwarg:
                    found.add(node.name)
    return found


def test_no_cache_grows_with_what_users_give() -> None:
    """Names in files, paths and shapes are without number."""
    assert unbounded() == FEW
