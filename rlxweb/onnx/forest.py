"""Ensembles of decision trees as tables: what a file's attributes say, checked.

All nodes of all trees are numbered through. A leaf is followed by itself, so that every
row may take as many steps as the deepest tree has. Knows nothing of graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from rlxweb.errors import ModelError
from rlxweb.onnx.records import Weight

Array = npt.NDArray[Any]
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""How a value is compared with a node's threshold, as opset 5 numbers them."""
MOST_BYTES = 1 << 30
"""Of the table of leaves."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The tables, by node.

    feature   the element of a row that is compared, and `threshold` with what
    mode      how, by its place in MODES
    yes, no   the nodes after it
    missing   whether NaN goes to `yes`
    roots     the first node of each tree
    weights   [nodes, targets]: what a leaf adds to each target
    given     [nodes, targets]: whether it says anything of it
    members   [nodes, most], filled up with NaN: the set of a node of mode MEMBER
    """

    feature: Array
    threshold: Array
    mode: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    weights: Array
    given: Array
    members: Array

    @property
    def is_leaf(self) -> Array:
        """By node."""
        return np.asarray(self.yes == np.arange(len(self.yes)))

    @property
    def depth(self) -> int:
        """Steps from the roots to the last leaf. Errors  ModelError for a cycle."""
        steps, at = 0, np.unique(self.roots)
        while True:
            at = at[self.yes[at] != at]
            if not len(at):
                return steps
            steps += 1
            if steps > len(self.yes):
                raise _bad("a branch comes back to a node above it", "trees end")
            at = np.unique(np.concatenate([self.yes[at], self.no[at]]))

    def checked(self, features: int) -> Forest:
        """Itself. Errors  ModelError for a node or a feature that there is not."""
        last = len(self.yes)
        for name in ("yes", "no", "roots"):
            _inside(getattr(self, name), last, "node")
        _inside(self.feature[~self.is_leaf], features, "feature")
        return self


def _bad(problem: str, rule: str = "") -> ModelError:
    return ModelError("", problem, rule)


def _inside(places: Array, size: int, what: str) -> None:
    odd = places[(places < 0) | (places >= size)]
    if len(odd):
        raise _bad(f"{what} {odd[0]} is named", f"there are {size:,}")


def _like(count: int, what: str, *lists: Sized) -> None:
    for one in lists:
        if len(one) != count:
            raise _bad(f"lists of {what} have {count} and {len(one)} elements")


def _table(
    nodes: int, targets: int, at: Array, ids: Array, weights: Array
) -> tuple[Array, Array]:
    """Weights by node and target, and where there is one."""
    if nodes * targets * weights.itemsize > MOST_BYTES:
        raise _bad(
            f"{nodes:,} nodes of {targets:,} targets",
            f"a table of their weights takes at most {MOST_BYTES:,} bytes",
        )
    _inside(ids, targets, "target")
    made = np.zeros((nodes, targets), weights.dtype)
    given = np.zeros((nodes, targets), np.bool_)
    np.add.at(made, (at, ids), weights)
    given[at, ids] = True
    return made, given


class Nodes(TypedDict, total=False):
    """The attributes of nodes up to opset 3, as given."""

    nodes_treeids: tuple[int, ...]
    nodes_nodeids: tuple[int, ...]
    nodes_featureids: tuple[int, ...]
    nodes_values: tuple[float, ...]
    nodes_values_as_tensor: Weight
    nodes_modes: tuple[str, ...]
    nodes_truenodeids: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_missing_value_tracks_true: tuple[int, ...]
    nodes_hitrates: tuple[float, ...]
    nodes_hitrates_as_tensor: Weight


def numbers(listed: Sequence[float], tensor: Weight | None) -> Array:
    """The values of an attribute that is a list or a tensor."""
    return np.asarray(listed, np.float32) if tensor is None else tensor.array


def by_trees(
    nodes: Nodes,
    trees: Sequence[int],
    places: Sequence[int],
    ids: Sequence[int],
    weights: Array,
    targets: int,
) -> Forest:
    """Trees whose nodes are named by tree and number, and leaves' weights likewise.

    Errors   ModelError for what contradicts
    """
    tree = np.asarray(nodes.get("nodes_treeids", ()), np.int64)
    number = np.asarray(nodes.get("nodes_nodeids", ()), np.int64)
    words = nodes.get("nodes_modes", ())
    values = numbers(nodes.get("nodes_values", ()), nodes.get("nodes_values_as_tensor"))
    feature = np.asarray(nodes.get("nodes_featureids", ()), np.int64)
    steps = [
        np.asarray(nodes.get(name, ()), np.int64)
        for name in ("nodes_truenodeids", "nodes_falsenodeids")
    ]
    count = len(tree)
    missing = nodes.get("nodes_missing_value_tracks_true") or (0,) * count
    _like(count, "nodes", number, words, values, feature, *steps, missing)
    _like(len(trees), "weights", places, ids, weights)
    named = {key: at for at, key in enumerate(_names(tree, number))}
    if len(named) != count or not count:
        raise _bad(f"{count} nodes with {len(named)} names", "each has its own")
    leaf = np.array([word == "LEAF" for word in words])
    yes, no = (
        np.where(leaf, np.arange(count), _found(named, tree, step, leaf))
        for step in steps
    )
    _no_own(yes, no, ~leaf)
    below = np.zeros(count, np.bool_)
    below[yes[~leaf]] = below[no[~leaf]] = True
    if np.sort(tree[~below]).tolist() != np.unique(tree).tolist():
        raise _bad(
            f"{np.sum(~below)} nodes are below no other",
            f"there are {len(np.unique(tree))} trees, of one root each",
        )
    at = _found(named, np.asarray(trees, np.int64), np.asarray(places, np.int64))
    table = _table(count, targets, at, np.asarray(ids, np.int64), weights)
    return Forest(
        np.where(leaf, 0, feature),
        np.where(leaf, 0, values).astype(values.dtype),
        np.array([_mode(word) for word in words]),
        yes,
        no,
        np.asarray(missing, np.bool_),
        np.flatnonzero(~below),
        table[0],
        table[1],
        np.zeros((count, 0), values.dtype),
    )


def _names(tree: Array, number: Array) -> Iterable[tuple[int, int]]:
    return zip(tree.tolist(), number.tolist(), strict=True)


def _found(
    named: dict[tuple[int, int], int],
    tree: Array,
    number: Array,
    skipped: Array | None = None,
) -> Array:
    """The places of named nodes; 0 for those that are skipped."""
    found = np.zeros(len(tree), np.int64)
    for at, key in enumerate(_names(tree, number)):
        if skipped is None or not skipped[at]:
            if key not in named:
                raise _bad(f"tree {key[0]} has no node {key[1]}", "one is named")
            found[at] = named[key]
    return found


def _no_own(yes: Array, no: Array, branch: Array) -> None:
    own = np.arange(len(yes))
    if len(odd := np.flatnonzero(branch & ((yes == own) | (no == own)))):
        raise _bad(f"branch {odd[0]} comes back to itself", "trees end")


def _mode(word: str) -> int:
    if word == "LEAF":
        return 0
    name = word.removeprefix("BRANCH_")
    if name == word or name not in MODES:
        raise _bad(f"a node's mode is {word!r}", "BRANCH_LEQ … BRANCH_NEQ, LEAF")
    return MODES.index(name)


class Branches(TypedDict, total=False):
    """The attributes of TreeEnsemble, of opset 5, as given."""

    nodes_splits: Weight
    nodes_featureids: tuple[int, ...]
    nodes_modes: Weight
    nodes_truenodeids: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_trueleafs: tuple[int, ...]
    nodes_falseleafs: tuple[int, ...]
    nodes_missing_value_tracks_true: tuple[int, ...]
    nodes_hitrates: Weight
    membership_values: Weight
    tree_roots: tuple[int, ...]
    leaf_targetids: tuple[int, ...]
    leaf_weights: Weight


def by_branches(given: Branches, targets: int) -> Forest:
    """Trees whose branches and leaves stand in two lists; the leaves come behind.

    Errors   ModelError for what contradicts
    """
    splits, weights = given["nodes_splits"].array, given["leaf_weights"].array
    mode = given["nodes_modes"].array.astype(np.int64)
    branches, leaves = len(splits), len(weights)
    missing = given.get("nodes_missing_value_tracks_true") or (0,) * branches
    feature = np.asarray(given["nodes_featureids"], np.int64)
    ids = np.asarray(given["leaf_targetids"], np.int64)
    _like(branches, "branches", mode, missing, feature)
    _like(leaves, "leaves", ids)
    if len(odd := mode[(mode < 0) | (mode >= len(MODES))]):
        raise _bad(f"a branch's mode is {odd[0]}", f"0 to {len(MODES) - 1}")
    after = []
    for way in ("true", "false"):
        to = np.asarray(given[f"nodes_{way}nodeids"], np.int64)  # type: ignore[literal-required]
        is_leaf = np.asarray(given[f"nodes_{way}leafs"], np.bool_)  # type: ignore[literal-required]
        _like(branches, "branches", to, is_leaf)
        _inside(to[is_leaf], leaves, "leaf")
        _inside(to[~is_leaf], branches, "branch")
        after.append(np.where(is_leaf, branches + to, to))
    own = branches + np.arange(leaves)
    yes, no = (np.concatenate([one, own]) for one in after)
    _no_own(yes, no, np.arange(len(yes)) < branches)
    table = _table(branches + leaves, targets, own, ids, weights)
    nothing = np.zeros(leaves, np.int64)
    return Forest(
        np.concatenate([feature, nothing]),
        np.concatenate([splits, nothing]).astype(splits.dtype),
        np.concatenate([mode, nothing]),
        yes,
        no,
        np.concatenate([np.asarray(missing, np.bool_), nothing.astype(np.bool_)]),
        np.asarray(given["tree_roots"], np.int64),
        table[0],
        table[1],
        _members(mode == MODES.index("MEMBER"), leaves, given.get("membership_values")),
    )


def _members(has_set: Array, leaves: int, values: Weight | None) -> Array:
    """The sets of the branches that have one, which stand between NaNs, as a table."""
    nodes, count = len(has_set) + leaves, int(has_set.sum())
    listed = np.zeros(0, np.float32) if values is None else values.array
    ends = np.flatnonzero(np.isnan(listed)).tolist()
    if not ends or ends[-1] != len(listed) - 1:
        ends.append(len(listed))
    sets = [
        listed[a:b] for a, b in zip([0, *(e + 1 for e in ends)], ends, strict=False)
    ]
    if not count:
        return np.zeros((nodes, 0), listed.dtype)
    if len(sets) != count:
        raise _bad(f"{len(sets)} sets for {count} branches", "one for each")
    made = np.full((nodes, max(map(len, sets))), np.nan, listed.dtype)
    for at, one in zip(np.flatnonzero(has_set), sets, strict=True):
        made[at, : len(one)] = one
    return made
