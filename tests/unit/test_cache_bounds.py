"""Caches of functions with arguments are bounded, or their arguments are few."""

from __future__ import annotations

import ast
from pathlib import Path

import rlxweb

FUNCTIONS_WITH_FEW_ARGUMENTS = {
    "dtype_from_onnx",  # numbers of ONNX's types
    "_op_function",  # NumPy's and our own functions
    "_listed_once",  # drivers' libraries
    "_cached_version",  # PyTorch, at its place
    "_cached_absence_reason",  # engines
    "_cached_is_named_only",
    "_scan_entry_points",  # search paths of this process
    "assumed_cpu",  # a bool
}
"""Functions whose arguments do not come from a user's files, shapes or names."""


def is_unbounded(decorator: ast.expr) -> bool:
    """Tell whether a decorator is `cache`, or `lru_cache(None)` by position or name."""
    if isinstance(decorator, ast.Call):
        cache_sizes = [
            *decorator.args[:1],
            *(word.value for word in decorator.keywords[:1]),
        ]
        none = any(isinstance(g, ast.Constant) and g.value is None for g in cache_sizes)
        return ast.unparse(decorator.func).endswith("lru_cache") and none
    return ast.unparse(decorator) in ("cache", "functools.cache")


def unbounded_caches() -> set[str]:
    """Return the names of cached functions with arguments and no bound."""
    names = set()
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
                    names.add(node.name)
    return names


def test_no_cache_grows_with_user_input() -> None:
    """No cache grows with the names, paths and shapes of users, which are unlimited."""
    assert unbounded_caches() == FUNCTIONS_WITH_FEW_ARGUMENTS
