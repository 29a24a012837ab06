"""Maps over pytrees of arrays: tuples, lists, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.core.errors import ShapeError
from rlxweb.trace.pytrees import IdentityKey, PyTree, flatten_tree


def flatten_arrays(value: Any, name: str) -> tuple[PyTree, list[tuple[str, Any]]]:
    """Return a value's structure, and its arrays with the path of each."""
    leaves: list[tuple[str, Any]] = []
    return flatten_tree(
        value, name, leaves, lambda leaf, path: IdentityKey(leaf)
    ), leaves


def map_trees(
    function: Callable[..., Any], first: Any, *others: Any, context: str
) -> Any:
    """Apply a function to each array of the first tree and its counterparts in the
    others, and rebuild the tree.

    Errors   ShapeError for trees of other structures.
    """
    tree, leaves = flatten_arrays(first, "")
    rows = [[leaf for _, leaf in leaves]]
    paths = [path for path, _ in leaves]
    for other in others:
        _, other_leaves = flatten_arrays(other, "")
        other_paths = [path for path, _ in other_leaves]
        if other_paths != paths:
            differing = sorted(set(paths) ^ set(other_paths))[:3]
            raise ShapeError(
                context,
                f"one structure has {len(paths)} arrays, another {len(other_paths)}"
                + (
                    f"; missing in one of the structures: {', '.join(differing)}"
                    if differing
                    else ""
                ),
                "parameters, gradients and state must have the same structure",
            )
        rows.append([leaf for _, leaf in other_leaves])
    return tree.unflatten(
        iter([function(*arrays) for arrays in zip(*rows, strict=True)])
    )


def map_trees_to_many(
    count: int, function: Callable[..., Any], *trees: Any, context: str
) -> list[Any]:
    """Apply a function that returns `count` arrays, as `map_trees` does, and return
    `count` trees.
    """
    row_tree = map_trees(
        lambda *arrays: _MappedArrays(function(*arrays)), *trees, context=context
    )
    tree, _ = flatten_arrays(trees[0], "")
    rows = _collect_rows(row_tree)
    return [tree.unflatten(iter([row[n] for row in rows])) for n in range(count)]


class _MappedArrays(tuple[Any, ...]):
    """Arrays that a function returned for one array of a tree."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a tuple of arrays cannot be converted to an array")


def _collect_rows(value: Any) -> list[_MappedArrays]:
    _, leaves = flatten_arrays(value, "")
    return [row for _, row in leaves]
