"""Arrays within tuples, lists, dicts and dataclasses, changed one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.errors import ShapeError
from rlxweb.tracing.trees import Same, Tree, flattened


def taken_apart(value: Any, name: str) -> tuple[Tree, list[tuple[str, Any]]]:
    """A value's structure, and its arrays with the place of each."""
    found: list[tuple[str, Any]] = []
    return flattened(value, name, found, lambda one, path: Same(one)), found


def changed(how: Callable[..., Any], first: Any, *others: Any, doing: str) -> Any:
    """`how` of each array of the first tree and its like in the others, built alike.

    Errors   ShapeError for trees of other structures.
    """
    tree, leaves = taken_apart(first, "")
    rows = [[one for _, one in leaves]]
    for other in others:
        its_tree, its = taken_apart(other, "")
        if len(its) != len(leaves) or [p for p, _ in its] != [p for p, _ in leaves]:
            raise ShapeError(
                doing,
                f"{len(its)} arrays are given for {len(leaves)} ({its_tree.kind})",
                "parameters, gradients and state are built alike",
            )
        rows.append([one for _, one in its])
    return tree.built(iter([how(*each) for each in zip(*rows, strict=True)]))


def parts(count: int, how: Callable[..., Any], *trees: Any, doing: str) -> list[Any]:
    """`changed`, of a function that returns so many arrays: as many trees."""
    every = changed(lambda *each: _Row(how(*each)), *trees, doing=doing)
    tree, _ = taken_apart(trees[0], "")
    rows = _rows(every)
    return [tree.built(iter([row[n] for row in rows])) for n in range(count)]


class _Row(tuple[Any, ...]):
    """What is taken for one array."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a row of arrays is none")


def _rows(value: Any) -> list[_Row]:
    _, found = taken_apart(value, "")
    return [one for _, one in found]
